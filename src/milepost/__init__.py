"""Milepost sees every item through.

Write a route, hand over items, and one row in a ledger says where each one is until it has arrived:

    import milepost as mp

    parcels = mp.Route("parcels", key="id")

    @parcels.stage("weigh")
    def weigh(item: mp.Item) -> mp.Outcome:
        return mp.Done({"grams": 340})
"""

from __future__ import annotations

from milepost.app import Milepost, open, restore
from milepost.core.backoff import Backoff, Checks
from milepost.core.durations import span_ms
from milepost.core.errors import (
    ActRefused,
    ConfigMistake,
    EventRefused,
    LedgerError,
    MalformedInput,
    MilepostError,
    RouteChanged,
    RouteMistake,
    UsageError,
)
from milepost.core.item import Item
from milepost.core.outcome import Done, HandedOver, NotYet, Outcome, Reject, Retry
from milepost.core.route import Limits, Route
from milepost.core.status import Reason, Status

__version__ = "0.1.0"

__all__ = [
    "ActRefused",
    "Backoff",
    "Checks",
    "ConfigMistake",
    "Done",
    "EventRefused",
    "HandedOver",
    "Item",
    "LedgerError",
    "Limits",
    "MalformedInput",
    "Milepost",
    "MilepostError",
    "NotYet",
    "Outcome",
    "Reason",
    "Reject",
    "Retry",
    "Route",
    "RouteChanged",
    "RouteMistake",
    "Status",
    "UsageError",
    "open",
    "restore",
    "span_ms",
]
