"""All endpoints, put together. A module that has some is named here, and is then served, described and tested with the others."""

from __future__ import annotations

from milepost.http import acting, confirming, docs_page, events, finding, health, holding, items, lists, metrics, openapi, sessions, working
from milepost.http.calls import Endpoint
from milepost.http.dashboard import changes, exporting, pages

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


PAGES = (pages, exporting, changes)
"""For people, and no part of the API's description."""


def all_endpoints() -> list[Endpoint]:
    """Every endpoint there is, in the order in which they are described."""
    return [endpoint for module in MODULES for endpoint in module.ENDPOINTS.found]


def all_pages() -> list[Endpoint]:
    return [endpoint for module in PAGES for endpoint in module.ENDPOINTS.found]
