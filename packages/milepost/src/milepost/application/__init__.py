"""Applications: what their authors import, beside `milepost` itself.

    import milepost as mp
    import milepost.application as mpa

    application = mpa.Application("letters", Settings)

Each name is imported at its first use, so that a command starts fast whatever its application's
annotations name. None needs the extra `http`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from milepost.lazy_names import importer, names_in

if TYPE_CHECKING:
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
    from milepost.engine.alerts.rule import AlertPointer as AlertPointer
    from milepost.engine.alerts.rule import AlertRule as AlertRule
    from milepost.engine.alerts.rule import AlertSubject as AlertSubject
    from milepost.engine.health.findings import Finding as Finding
    from milepost.http.auth.rates import Rates as Rates
    from milepost.http.protocol.endpoint import Answer as Answer
    from milepost.http.protocol.endpoint import Call as Call
    from milepost.http.protocol.endpoint import Caller as Caller
    from milepost.http.protocol.problems import Problem as Problem
    from milepost.net_errors import translated_net_errors as translated_net_errors
    from milepost.ports.observer import correlation_id as correlation_id

_HOMES = {
    "application.context": (
        "AppContext",
        "AppDocuments",
    ),
    "application.declaration": (
        "Application",
        "AwsAccess",
        "Download",
        "Metric",
        "Page",
        "Redirect",
    ),
    "application.settings": ("AppSettings",),
    "cli.options": (
        "check_signed",
        "json_option",
        "signed",
    ),
    "cli.output": (
        "print_json",
        "print_next_page",
        "print_table",
    ),
    "core.admission.rates": ("CallRate",),
    "core.values.durations": (
        "full_time",
        "iso",
        "local_zone",
        "moment_ms",
        "span_ms",
        "zone_of",
    ),
    "core.values.histogram": ("Histogram",),
    "core.values.json": ("name_given_twice",),
    "core.values.key_text": ("key_parts",),
    "core.values.redaction": (
        "hidden_url",
        "hidden_urls",
        "hide_fields",
        "redacted",
        "secrets_of_url",
    ),
    "engine.alerts.rule": (
        "AlertPointer",
        "AlertRule",
        "AlertSubject",
    ),
    "engine.health.findings": ("Finding",),
    "http.auth.rates": ("Rates",),
    "http.protocol.endpoint": (
        "Answer",
        "Call",
        "Caller",
    ),
    "http.protocol.problems": ("Problem",),
    "net_errors": ("translated_net_errors",),
    "ports.observer": ("correlation_id",),
}
"""Public names by module, for those who write applications."""
__all__ = names_in(_HOMES)


if not TYPE_CHECKING:  # a type checker would accept any name
    __getattr__ = importer(__name__, _HOMES)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def is_name(spec: str) -> bool:
    """Whether this is the name of an application, and not a file or a module. (It is here because
    `milepost --help` calls it, and must import nothing else.)"""
    return ":" not in spec and not spec.endswith(".py")
