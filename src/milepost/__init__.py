"""Milepost sees every item through.

Write a route and submit items; one row in a ledger says where each item is until it has completed:

    import milepost as mp

    parcels = mp.Route("parcels", key="id")

    @parcels.stage("weigh")
    def weigh(item: mp.Item) -> mp.Outcome:
        return mp.Done({"grams": 340})
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from milepost.app import Milepost, open, restore
    from milepost.application.context import AppContext, AppDocuments
    from milepost.application.declaration import Application, AwsAccess, Download, Metric, Page, Redirect
    from milepost.application.settings import AppSettings
    from milepost.cli.options import check_signed, json_option, signed
    from milepost.cli.out import print_json, print_next_page, print_table
    from milepost.core.admission.rates import CallRate
    from milepost.core.errors import (
        ActRefused,
        ConfigMistake,
        CostlyQuery,
        EventRefused,
        LedgerError,
        MalformedInput,
        MilepostError,
        NotFound,
        RouteChanged,
        RouteMistake,
        UsageError,
    )
    from milepost.core.history import Line
    from milepost.core.item import Item
    from milepost.core.outcome import Done, HandedOver, NotYet, Outcome, Reject, Retry
    from milepost.core.routes.backoff import Backoff, Checks
    from milepost.core.routes.breaker import Breaker
    from milepost.core.routes.parsed_input import KeyColumn
    from milepost.core.routes.route import Limits, Route
    from milepost.core.status import Reason, Status
    from milepost.core.values.durations import full_time, iso, local_zone, moment_ms, span_ms, zone_of
    from milepost.core.values.histogram import Histogram
    from milepost.core.values.key_text import key_parts
    from milepost.core.values.redaction import redacted
    from milepost.engine.alerts.rule import AlertPointer, AlertRule, AlertSubject
    from milepost.engine.health.findings import Finding
    from milepost.engine.lists.reconcile import ListReport
    from milepost.engine.views.lanes import LaneView, PauseView
    from milepost.http.auth.rates import Rates
    from milepost.http.protocol.endpoint import Answer, Call, Caller
    from milepost.http.protocol.problems import Problem
    from milepost.operations import FoundItems, Operations
    from milepost.ports.feed import HistoryEntry
    from milepost.ports.observer import correlation_id

__version__ = "0.1.0"

__all__ = [
    "ActRefused",
    "AlertPointer",
    "AlertRule",
    "AlertSubject",
    "Answer",
    "AppContext",
    "AppDocuments",
    "AppSettings",
    "Application",
    "AwsAccess",
    "Backoff",
    "Breaker",
    "Call",
    "CallRate",
    "Caller",
    "Checks",
    "ConfigMistake",
    "CostlyQuery",
    "Done",
    "Download",
    "EventRefused",
    "Finding",
    "FoundItems",
    "HandedOver",
    "Histogram",
    "HistoryEntry",
    "Item",
    "KeyColumn",
    "LaneView",
    "LedgerError",
    "Limits",
    "Line",
    "ListReport",
    "MalformedInput",
    "Metric",
    "Milepost",
    "MilepostError",
    "NotFound",
    "NotYet",
    "Operations",
    "Outcome",
    "Page",
    "PauseView",
    "Problem",
    "Rates",
    "Reason",
    "Redirect",
    "Reject",
    "Retry",
    "Route",
    "RouteChanged",
    "RouteMistake",
    "Status",
    "UsageError",
    "check_signed",
    "correlation_id",
    "full_time",
    "iso",
    "json_option",
    "key_parts",
    "local_zone",
    "moment_ms",
    "open",
    "print_json",
    "print_next_page",
    "print_table",
    "redacted",
    "restore",
    "signed",
    "span_ms",
    "zone_of",
]

_HOMES = {
    "app": ("Milepost", "open", "restore"),
    "application.context": ("AppContext", "AppDocuments"),
    "application.declaration": ("Application", "AwsAccess", "Download", "Metric", "Page", "Redirect"),
    "application.settings": ("AppSettings",),
    "cli.options": ("check_signed", "json_option", "signed"),
    "cli.out": ("print_json", "print_next_page", "print_table"),
    "core.routes.backoff": ("Backoff", "Checks"),
    "core.routes.breaker": ("Breaker",),
    "core.values.durations": ("full_time", "iso", "local_zone", "moment_ms", "span_ms", "zone_of"),
    "core.values.histogram": ("Histogram",),
    "core.values.redaction": ("redacted",),
    "core.admission.rates": ("CallRate",),
    "core.errors": (
        "ActRefused",
        "ConfigMistake",
        "CostlyQuery",
        "EventRefused",
        "LedgerError",
        "MalformedInput",
        "MilepostError",
        "NotFound",
        "RouteChanged",
        "RouteMistake",
        "UsageError",
    ),
    "core.history": ("Line",),
    "core.item": ("Item",),
    "core.values.key_text": ("key_parts",),
    "core.outcome": ("Done", "HandedOver", "NotYet", "Outcome", "Reject", "Retry"),
    "core.routes.parsed_input": ("KeyColumn",),
    "core.routes.route": ("Limits", "Route"),
    "core.status": ("Reason", "Status"),
    "engine.alerts.rule": ("AlertPointer", "AlertRule", "AlertSubject"),
    "engine.health.findings": ("Finding",),
    "engine.views.lanes": ("LaneView", "PauseView"),
    "http.auth.rates": ("Rates",),
    "engine.lists.reconcile": ("ListReport",),
    "http.protocol.endpoint": ("Answer", "Call", "Caller"),
    "http.protocol.problems": ("Problem",),
    "operations": ("FoundItems", "Operations"),
    "ports.feed": ("HistoryEntry",),
    "ports.observer": ("correlation_id",),
}
"""Public names by module. Each is imported at its first use, so that a command that only prints help does not load the engine. Type
checkers read the imports above; a test compares the two."""
_HOME_OF = {name: f"{__name__}.{module}" for module, names in _HOMES.items() for name in names}


if not TYPE_CHECKING:  # a type checker would accept any name

    def __getattr__(name: str) -> Any:
        """Import a public name at its first use."""
        if name not in _HOME_OF:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(_HOME_OF[name]), name)
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
