"""All endpoints, put together. A module that has some is named here, and is then served, described and tested with the others."""

from __future__ import annotations

from milepost.http import (
    acting,
    causes,
    confirming,
    docs_page,
    events,
    evidence,
    finding,
    health,
    holding,
    items,
    lists,
    metrics,
    openapi,
    processes,
    prune,
    sessions,
    setting_aside,
    telling,
    working,
)
from milepost.http.calls import Endpoint
from milepost.http.dashboard import acts as acts_page
from milepost.http.dashboard import changes, exporting, files, overview, system
from milepost.http.dashboard import events as events_page
from milepost.http.dashboard import item as item_page
from milepost.http.dashboard import items as items_page
from milepost.http.dashboard import lists as lists_page
from milepost.http.dashboard import one_list as one_list_page

MODULES = (
    items,
    evidence,
    finding,
    causes,
    lists,
    confirming,
    acting,
    prune,
    holding,
    working,
    events,
    telling,
    setting_aside,
    processes,
    health,
    metrics,
    sessions,
    openapi,
    docs_page,
)


PAGES = (overview, items_page, item_page, exporting, lists_page, one_list_page, events_page, acts_page, system, changes, files)
"""For people, and no part of the API's description."""


def all_endpoints() -> list[Endpoint]:
    """Every endpoint there is, in the order in which they are described."""
    return [endpoint for module in MODULES for endpoint in module.ENDPOINTS.found]


def all_pages() -> list[Endpoint]:
    return [endpoint for module in PAGES for endpoint in module.ENDPOINTS.found]
