"""Outages of destinations: until when a partner is down, in words that people use, and the last one after its end."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

import milepost as mp
from milepost.applications.notifications.settings import NotificationsSettings

PREFIX = "outage/"
SHOWN = timedelta(days=1)
"""How long the end of an outage is shown."""

App = mp.AppContext[NotificationsSettings]


class Outage(Struct, frozen=True):
    """An outage as the ledger keeps it. Times are ISO 8601, UTC."""

    since: str
    until: str
    by: str
    reason: str
    ended_at: str | None = None
    """When a person ended it; None: it ends by itself at `until`."""
    ended_by: str | None = None


def end_of(text: str, now: datetime, zone: tzinfo) -> datetime:
    """The end of an outage, from "18:00" (the next one), a date with a time (in `zone`, if it names none), or a span such as "2h". Pure."""
    found = datetime.fromtimestamp(mp.moment_ms(text, round(now.timestamp() * 1000), "until", zone) / 1000, UTC)
    if found <= now:
        shown = mp.full_time(round(found.timestamp() * 1000), zone)
        raise mp.UsageError(f"until is {text!r}, which is {shown} and past; give a later time, or a span from now such as '2h'")
    return found


def note_outage(app: App, lane: str, until: datetime, by: str, reason: str) -> None:
    """Remember an outage that has begun."""
    _write(app, lane, Outage(_iso(app.now()), _iso(until), by, reason))


def note_end(app: App, lane: str, by: str) -> None:
    """Remember that a person has ended the outage of a destination, if it has one."""
    held = app.documents.get(PREFIX + lane)
    outage = None if held is None else msgspec.convert(held.value, Outage)
    now = _iso(app.now())
    if outage is not None and outage.ended_at is None and now < outage.until:
        _write(app, lane, replace(outage, ended_at=now, ended_by=by))


def outages(app: App) -> dict[str, Outage]:
    """The last outage of each destination that had one."""
    found = app.documents.find(PREFIX)
    return {name.removeprefix(PREFIX): msgspec.convert(document.value, Outage) for name, document in found.items()}


def ended_outage(outage: Outage | None, now: datetime) -> dict[str, Any] | None:
    """An outage whose end is not long ago, for people and programs; None: there is none, or it is still in force. Pure."""
    if outage is None:
        return None
    ended_at = outage.ended_at or outage.until
    if not now - SHOWN < datetime.fromisoformat(ended_at) <= now:
        return None
    return {**msgspec.to_builtins(outage), "ended_at": ended_at}


def ended_text(ended: Mapping[str, Any], time: str) -> str:
    """One sentence about an outage that has ended at this time, as the caller writes it. Pure."""
    how = "by itself" if ended["ended_by"] is None else f"by {ended['ended_by']}"
    return f"the outage ended {how} at {time}: {ended['reason']}"


def _write(app: App, lane: str, outage: Outage) -> None:
    app.documents.put(PREFIX + lane, msgspec.to_builtins(outage))


def _iso(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%dT%H:%M:%S}.{at.microsecond // 1000:03}Z"
