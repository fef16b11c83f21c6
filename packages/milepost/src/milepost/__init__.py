"""Milepost sees every item through.

Write a route and submit items; one row in a ledger says where each item is until it has completed:

    import milepost as mp

    parcels = mp.Route("parcels", key="id")

    @parcels.stage("weigh")
    def weigh(item: mp.Item) -> mp.Outcome:
        return mp.Done({"grams": 340})
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from milepost.lazy_names import importer, names_in
from milepost.moved_modules import MovedModules, moved_name

if TYPE_CHECKING:
    from milepost.app import Milepost as Milepost
    from milepost.app import open as open
    from milepost.app import restore as restore
    from milepost.core.errors import ActRefused as ActRefused
    from milepost.core.errors import ConfigMistake as ConfigMistake
    from milepost.core.errors import CostlyQuery as CostlyQuery
    from milepost.core.errors import EventRefused as EventRefused
    from milepost.core.errors import LedgerError as LedgerError
    from milepost.core.errors import MalformedInput as MalformedInput
    from milepost.core.errors import MilepostError as MilepostError
    from milepost.core.errors import NotAllowed as NotAllowed
    from milepost.core.errors import NotFound as NotFound
    from milepost.core.errors import RouteChanged as RouteChanged
    from milepost.core.errors import RouteMistake as RouteMistake
    from milepost.core.errors import UsageError as UsageError
    from milepost.core.history import Line as Line
    from milepost.core.item import Item as Item
    from milepost.core.outcome import Checked as Checked
    from milepost.core.outcome import Done as Done
    from milepost.core.outcome import HandedOver as HandedOver
    from milepost.core.outcome import NotYet as NotYet
    from milepost.core.outcome import Outcome as Outcome
    from milepost.core.outcome import Reject as Reject
    from milepost.core.outcome import Retry as Retry
    from milepost.core.routes.backoff import Backoff as Backoff
    from milepost.core.routes.backoff import Checks as Checks
    from milepost.core.routes.breaker import Breaker as Breaker
    from milepost.core.routes.parsed_input import KeyColumn as KeyColumn
    from milepost.core.routes.route import Limits as Limits
    from milepost.core.routes.route import Route as Route
    from milepost.core.status import Reason as Reason
    from milepost.core.status import Status as Status
    from milepost.core.values.redaction import url_in_key as url_in_key
    from milepost.engine.lists.reconcile import ListReport as ListReport
    from milepost.engine.views.lanes import LaneView as LaneView
    from milepost.engine.views.lanes import PauseView as PauseView
    from milepost.operations import FoundItems as FoundItems
    from milepost.operations import Operations as Operations
    from milepost.ports.feed import HistoryEntry as HistoryEntry

__version__ = "0.1.0"

_HOMES = {
    "app": (
        "Milepost",
        "open",
        "restore",
    ),
    "core.errors": (
        "ActRefused",
        "ConfigMistake",
        "CostlyQuery",
        "EventRefused",
        "LedgerError",
        "MalformedInput",
        "MilepostError",
        "NotAllowed",
        "NotFound",
        "RouteChanged",
        "RouteMistake",
        "UsageError",
    ),
    "core.history": ("Line",),
    "core.item": ("Item",),
    "core.outcome": (
        "Checked",
        "Done",
        "HandedOver",
        "NotYet",
        "Outcome",
        "Reject",
        "Retry",
    ),
    "core.routes.backoff": (
        "Backoff",
        "Checks",
    ),
    "core.routes.breaker": ("Breaker",),
    "core.routes.parsed_input": ("KeyColumn",),
    "core.routes.route": (
        "Limits",
        "Route",
    ),
    "core.status": (
        "Reason",
        "Status",
    ),
    "core.values.redaction": ("url_in_key",),
    "engine.lists.reconcile": ("ListReport",),
    "engine.views.lanes": (
        "LaneView",
        "PauseView",
    ),
    "operations": (
        "FoundItems",
        "Operations",
    ),
    "ports.feed": ("HistoryEntry",),
}
"""Public names by module, for those who write routes and programs."""
__all__ = names_in(_HOMES)


if MovedModules not in sys.meta_path:
    sys.meta_path.insert(0, MovedModules)


if not TYPE_CHECKING:  # a type checker would accept any name
    __getattr__ = importer(__name__, _HOMES, moved_name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
