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
from importlib import import_module
from typing import TYPE_CHECKING, Any

from milepost.moved_modules import MovedModules

if TYPE_CHECKING:
    from milepost.app import Milepost as Milepost
    from milepost.app import open as open
    from milepost.app import restore as restore
    from milepost.application.context import AppContext as AppContext
    from milepost.application.context import AppDocuments as AppDocuments
    from milepost.application.declaration import Application as Application
    from milepost.application.declaration import AwsAccess as AwsAccess
    from milepost.application.declaration import Download as Download
    from milepost.application.declaration import Metric as Metric
    from milepost.application.declaration import Page as Page
    from milepost.application.declaration import Redirect as Redirect
    from milepost.application.settings import AppSettings as AppSettings
    from milepost.cli.options import check_signed as check_signed
    from milepost.cli.options import json_option as json_option
    from milepost.cli.options import signed as signed
    from milepost.cli.output import print_json as print_json
    from milepost.cli.output import print_next_page as print_next_page
    from milepost.cli.output import print_table as print_table
    from milepost.core.admission.rates import CallRate as CallRate
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
    from milepost.core.values.durations import full_time as full_time
    from milepost.core.values.durations import iso as iso
    from milepost.core.values.durations import local_zone as local_zone
    from milepost.core.values.durations import moment_ms as moment_ms
    from milepost.core.values.durations import span_ms as span_ms
    from milepost.core.values.durations import zone_of as zone_of
    from milepost.core.values.histogram import Histogram as Histogram
    from milepost.core.values.json import name_given_twice as name_given_twice
    from milepost.core.values.key_text import key_parts as key_parts
    from milepost.core.values.redaction import hidden_url as hidden_url
    from milepost.core.values.redaction import hidden_urls as hidden_urls
    from milepost.core.values.redaction import hide_fields as hide_fields
    from milepost.core.values.redaction import redacted as redacted
    from milepost.core.values.redaction import secrets_of_url as secrets_of_url
    from milepost.core.values.redaction import url_in_key as url_in_key
    from milepost.engine.alerts.rule import AlertPointer as AlertPointer
    from milepost.engine.alerts.rule import AlertRule as AlertRule
    from milepost.engine.alerts.rule import AlertSubject as AlertSubject
    from milepost.engine.health.findings import Finding as Finding
    from milepost.engine.lists.reconcile import ListReport as ListReport
    from milepost.engine.views.lanes import LaneView as LaneView
    from milepost.engine.views.lanes import PauseView as PauseView
    from milepost.http.auth.rates import Rates as Rates
    from milepost.http.protocol.endpoint import Answer as Answer
    from milepost.http.protocol.endpoint import Call as Call
    from milepost.http.protocol.endpoint import Caller as Caller
    from milepost.http.protocol.problems import Problem as Problem
    from milepost.net_errors import translated_net_errors as translated_net_errors
    from milepost.operations import FoundItems as FoundItems
    from milepost.operations import Operations as Operations
    from milepost.ports.feed import HistoryEntry as HistoryEntry
    from milepost.ports.observer import correlation_id as correlation_id

__version__ = "0.1.0"

_HOMES = {
    "app": ("Milepost", "open", "restore"),
    "application.context": ("AppContext", "AppDocuments"),
    "application.declaration": (
        "Application",
        "AwsAccess",
        "Download",
        "Metric",
        "Page",
        "Redirect",
    ),
    "application.settings": ("AppSettings",),
    "cli.options": ("check_signed", "json_option", "signed"),
    "cli.output": ("print_json", "print_next_page", "print_table"),
    "core.routes.backoff": ("Backoff", "Checks"),
    "core.routes.breaker": ("Breaker",),
    "core.values.durations": ("full_time", "iso", "local_zone", "moment_ms", "span_ms", "zone_of"),
    "core.values.histogram": ("Histogram",),
    "core.values.json": ("name_given_twice",),
    "core.values.redaction": (
        "hidden_url",
        "hidden_urls",
        "hide_fields",
        "redacted",
        "secrets_of_url",
        "url_in_key",
    ),
    "core.admission.rates": ("CallRate",),
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
    "core.values.key_text": ("key_parts",),
    "core.outcome": ("Checked", "Done", "HandedOver", "NotYet", "Outcome", "Reject", "Retry"),
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
    "net_errors": ("translated_net_errors",),
    "operations": ("FoundItems", "Operations"),
    "ports.feed": ("HistoryEntry",),
    "ports.observer": ("correlation_id",),
}
"""Public names by module. Each is imported at its first use, so that a command that only prints
help does not load the engine. Type checkers read the imports above; a test compares the two."""
_HOME_OF = {name: f"{__name__}.{module}" for module, names in _HOMES.items() for name in names}
__all__ = sorted(_HOME_OF)


if MovedModules not in sys.meta_path:
    sys.meta_path.insert(0, MovedModules)


if not TYPE_CHECKING:  # a type checker would accept any name

    def __getattr__(name: str) -> Any:
        """Import a public name at its first use."""
        if name not in _HOME_OF:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(_HOME_OF[name]), name)
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
