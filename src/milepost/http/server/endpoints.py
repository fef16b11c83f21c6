"""All endpoints. Each module with endpoints is listed here, and is then served, documented and tested with the others."""

from __future__ import annotations

from milepost.http.api import alerts, claims, confirmations, events, evidence, find, groups, health, items, lists, metrics, subscribers
from milepost.http.api.operators import acts, breakers, controls, prune, quarantine
from milepost.http.dashboard import static_files
from milepost.http.dashboard.pages import acts as acts_page
from milepost.http.dashboard.pages import events as events_page
from milepost.http.dashboard.pages import export, live, login, overview, system
from milepost.http.dashboard.pages import item as item_page
from milepost.http.dashboard.pages import items as items_page
from milepost.http.dashboard.pages import lists as lists_page
from milepost.http.openapi import openapi, page
from milepost.http.protocol.endpoint import Endpoint

MODULES = (
    items,
    evidence,
    find,
    groups,
    alerts,
    lists,
    confirmations,
    acts,
    prune,
    controls,
    breakers,
    claims,
    events,
    subscribers,
    quarantine,
    health,
    metrics,
    login,
    openapi,
    page,
)
"""The endpoints of the API, which the OpenAPI document describes."""

PAGES = (overview, items_page, item_page, export, lists_page, events_page, acts_page, system, live, static_files)
"""Pages for people; the OpenAPI document does not describe them."""


def all_endpoints() -> list[Endpoint]:
    """Every endpoint there is, in the order in which they are described."""
    return [endpoint for module in MODULES for endpoint in module.ENDPOINTS.found]


def all_pages() -> list[Endpoint]:
    return [endpoint for module in PAGES for endpoint in module.ENDPOINTS.found]
