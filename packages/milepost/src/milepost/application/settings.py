"""Typed settings of an application, read from its table in milepost.toml and from the
environment."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from milepost.core.errors import ConfigMistake
from milepost.core.values.field_faults import field_fault

PREFIX = "MILEPOST"


class AppSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """Base class for an application's settings and for the tables within them: `class
    Settings(AppSettings, frozen=True)`. A field that is not declared is a mistake. A field
    `allow_cidrs` holds the networks at the top of milepost.toml and then the application's own, for
    `net.Client(allow_cidrs=settings.allow_cidrs)`."""


S = TypeVar("S", bound=AppSettings)


def read_settings(
    kind: type[S],
    name: str,
    table: Mapping[str, Any],
    environment: Mapping[str, str] | None,
    place: str,
    allow_cidrs: Sequence[str] = (),
) -> S:
    """The settings of the application `name`: from the table; environment variables take precedence
    (MILEPOST_NAME_FIELD is a field's text, or JSON; None: `os.environ`). `place` names the table's
    file in error messages. `allow_cidrs` are the networks for all applications."""
    given = dict(table)
    for field in msgspec.structs.fields(kind):
        variable = f"{PREFIX}_{name}_{field.encode_name}".upper().replace("-", "_")
        text = (os.environ if environment is None else environment).get(variable)
        if text is not None:
            given[field.encode_name] = _from_text(text, field.type, variable)
    try:
        settings = msgspec.convert(given, kind)
    except msgspec.ValidationError as error:
        raise _mistake(error, kind, f"{place}: [{name}]", given) from None
    return _with_networks(settings, allow_cidrs, f"{place}: [{name}] allow_cidrs")


def _with_networks(settings: S, allow_cidrs: Sequence[str], field: str) -> S:
    """The settings with the networks for all applications first in `allow_cidrs`, if they have such
    a field."""
    own = getattr(settings, "allow_cidrs", None)
    if not isinstance(own, (list, tuple)):
        return settings
    from milepost_net.errors import NetUsageError
    from milepost_net.guard import AddressGuard

    try:
        AddressGuard.allowing(own, field)
    except NetUsageError as error:
        raise ConfigMistake(str(error)) from None
    return msgspec.structs.replace(settings, allow_cidrs=type(own)([*allow_cidrs, *own]))


def _from_text(text: str, wanted: Any, variable: str) -> Any:
    """The value of an environment variable: its text if the field may be text, otherwise parsed as
    a number or JSON."""
    try:
        return msgspec.to_builtins(msgspec.convert(text, wanted, strict=False))
    except msgspec.ValidationError as first:
        try:
            return msgspec.to_builtins(msgspec.json.decode(text.encode(), type=wanted))
        except msgspec.ValidationError as error:
            raise _mistake(error, wanted, variable) from None
        except msgspec.DecodeError:
            raise _mistake(first, wanted, variable) from None


def _mistake(
    error: msgspec.ValidationError, wanted: Any, place: str, given: Mapping[str, Any] | None = None
) -> ConfigMistake:
    fault = field_fault(error, wanted)
    field = f" {fault.field}" if fault.field else ""
    if given is not None and "[...]" in field:
        table = fault.field.partition("[...]")[0]
        field = field.replace("[...]", f".{_wrong_entry(given, wanted, table)}", 1)
    return ConfigMistake(f"{place}{field}: {fault.sentence}")


def _wrong_entry(given: Mapping[str, Any], kind: Any, table: str) -> str:
    """The name of the first entry of a table of tables that is wrong: msgspec does not say it."""
    entries = given.get(table)
    for name, value in entries.items() if isinstance(entries, Mapping) else ():
        try:
            msgspec.convert({**given, table: {name: value}}, kind)
        except msgspec.ValidationError:
            return str(name)
    return "…"
