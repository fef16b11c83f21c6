"""All endpoints, put together. A module that has some is named here, and is then served, described and tested with the others."""

from __future__ import annotations

from milepost.http import acting, confirming, docs_page, events, finding, health, holding, items, lists, metrics, openapi, sessions, working
from milepost.http.calls import Endpoint

MODULES = (
    items,
    finding,
    lists,
    confirming,
    acting,
    holding,
    working,
    events,
    health,
    metrics,
    sessions,
    openapi,
    docs_page,
)


def all_endpoints() -> list[Endpoint]:
    """Every endpoint there is, in the order in which they are described."""
    return [endpoint for module in MODULES for endpoint in module.ENDPOINTS.found]
