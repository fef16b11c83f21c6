"""Destinations that were added by API or command: kept in the ledger, and read by every process.

A destination of the configuration can be replaced by one of the ledger with the same name, and holds again when that is removed.
Secrets are not stored: a destination names the variable or the file that holds one.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from datetime import datetime, tzinfo
from typing import Any

import msgspec

import milepost as mp
from milepost.applications.notifications.destinations import Destination, pauses_removed
from milepost.applications.notifications.operate.collector import figures_of
from milepost.applications.notifications.operate.figures import DestinationFigures, Figures, TryFigures, tries_since
from milepost.applications.notifications.operate.outages import Outage, end_of, ended_outage, note_end, note_outage, outages
from milepost.applications.notifications.route import STAGE, try_s
from milepost.applications.notifications.settings import DestinationSettings, NotificationsSettings

PREFIX = "destination/"
RELEASED = "released/"
"""Documents of destinations that are gone, whose messages go where their URLs belong now."""
REFRESH = "5s"
"""How soon every process knows of a destination that was added or removed."""

App = mp.AppContext[NotificationsSettings]

log = logging.getLogger(__name__)


def refresh(app: App) -> None:
    """Read the destinations of the ledger into this process. A document that is no valid destination here, such as one of a newer
    version, is logged and changes nothing; the others are read all the same."""
    documents = app.documents.find()
    found = {name: document for name, document in documents.items() if name.startswith(PREFIX)}
    registry = app.state.destinations
    registry.released = frozenset(name.removeprefix(RELEASED) for name in documents if name.startswith(RELEASED))
    for name in [one for one in registry.added if PREFIX + one not in found]:
        registry.remove(name)
    for document_name, document in found.items():
        name = document_name.removeprefix(PREFIX)
        try:
            settings = msgspec.convert(document.value, DestinationSettings)
            if registry.added.get(name) != settings:
                registry.put(name, settings)
        except (msgspec.ValidationError, mp.ConfigMistake) as error:
            if registry.invalid.get(name) != document.version:
                log.error("the destination %s of the ledger is not valid in this process, and is not used: %s", name, error)
            registry.invalid[name] = document.version
    registry.read_at = time.monotonic()


def keep_fresh(app: App, *, afresh: bool = False) -> None:
    """Read the destinations of the ledger unless this process has read them lately: a process that runs no services, such as a Lambda
    function, has no other way to know of them. `afresh`: read them in any case. Raises the ledger's error if they were never read."""
    registry = app.state.destinations
    with registry.reading:
        if not registry.stale and not afresh:
            return
        try:
            refresh(app)
        except mp.MilepostError:
            if registry.read_at is None:
                raise
            log.exception("the destinations could not be read again; those of the last time are used")


def put_destination(app: App, name: str, settings: Mapping[str, Any]) -> Destination:
    """Add a destination, or replace the one of this name. Raises UsageError that names the setting that is wrong."""
    try:
        read = msgspec.convert(dict(settings), DestinationSettings)
    except msgspec.ValidationError as error:
        names = ", ".join(one.encode_name for one in msgspec.structs.fields(DestinationSettings))
        raise mp.UsageError(f"destination {name!r}: {error}; the settings are {names}") from None
    secret = next((one for one, shown in mp.redacted(read.headers).items() if shown != read.headers[one]), None)
    if secret is not None:
        raise mp.UsageError(
            f"destination {name!r}: the header {secret} holds a secret, which the ledger does not store; name the variable that holds it:"
            f' auth = {{"kind": "headers", "env": {{"{secret}": "VARIABLE"}}}}'
        )
    made: Destination = app.state.destinations.resolve(name, read)
    limit_s = app.state.route.stages[0].timeout_ms / 1000
    if try_s(made) > limit_s:
        raise mp.UsageError(
            f"destination {name!r}: a try to it may take {try_s(made):g} s by its timeouts.total, but this process ends tries after {limit_s:g} s:"
            " give a shorter time, or put the destination into the configuration"
        )
    app.documents.put(PREFIX + name, msgspec.to_builtins(read))
    refresh(app)
    return made


def pause_destination(app: App, name: str, *, by: str, reason: str) -> None:
    """Hold back all messages for a destination; no try is counted. Raises ActRefused while an outage is in force, which would end the
    pause."""
    lane = known_destination(app, name)
    [there] = [one for one in app.lanes(app.settings.route, STAGE, [lane]) if one.lane == lane]
    if there.paused is not None and there.paused.until is not None:
        raise mp.ActRefused(f"{name} has an outage until {there.paused.until}, which ends by itself; resume it first, then pause it")
    app.pause(app.settings.route, STAGE, lane, by=by, reason=reason)


def begin_outage(app: App, name: str, *, until: str, drain: str | None, by: str, reason: str, zone: tzinfo | None = None) -> datetime:
    """The partner is down until then: its messages wait, uncounted, and are then sent at the rate `drain`. `until` is a time of day, a date
    with a time, or a span; one without a time zone is in `zone`, or in that of this machine. Returns the time that it means."""
    lane, end = known_destination(app, name), end_of(until, app.now(), zone or mp.local_zone())
    app.pause(app.settings.route, STAGE, lane, by=by, reason=reason, until=end, drain=drain)
    note_outage(app, lane, end, by, reason)
    return end


def resume_destination(app: App, name: str, *, by: str, reason: str, drain: str | None = None) -> bool:
    """End a pause or an outage, and close the breaker. False: there was neither. The messages of a destination that is gone go where their
    URLs belong now."""
    lane = known_destination(app, name)
    if app.state.destinations.gone(lane):
        release(app, lane)
    resumed = app.resume(app.settings.route, STAGE, lane, by=by, reason=reason, drain=drain)
    return bool(app.close_breakers(app.settings.route, STAGE, lane, by=by, reason=reason)) or resumed


def before_resume(app: App, pause: mp.PauseView, by: str) -> None:
    """An operator ends this pause, by whichever command: if it says that a destination is gone, its messages are released, or the next of them
    would pause it again. The end of an outage is noted."""
    above = f"{app.settings.route}/{STAGE}/"
    if not pause.scope.startswith(above):
        return
    lane = pause.scope.removeprefix(above)
    refresh(app)
    if pauses_removed(pause, lane) and app.state.destinations.gone(lane):
        release(app, lane)
    note_end(app, lane, by)


def destination_views(app: App, names: list[str] | None = None) -> list[dict[str, Any]]:
    """The destinations with their state: those that are registered, and unregistered ones that have had messages lately."""
    refresh(app)
    registry, figures = app.state.destinations, figures_of(app)
    wanted = list(dict.fromkeys([*registry.all, *figures.destinations])) if names is None else names
    lanes = {one.lane: one for one in app.lanes(app.settings.route, STAGE, wanted)}
    now, had = app.now(), outages(app)
    chosen = [*wanted, *(lane for lane in lanes if lane not in wanted)] if names is None else wanted
    return [_view(app, name, lanes[name], figures, now, had.get(name)) for name in chosen]


def _view(app: App, name: str, lane: mp.LaneView, figures: Figures, now: datetime, outage: Outage | None) -> dict[str, Any]:
    registry = app.state.destinations
    found = registry.all.get(name)
    counted = figures.destinations.get(name, DestinationFigures())
    tries = tries_since(counted, round(now.timestamp() * 1000))
    fault = None if found is None else app.state.deliverer.fault(found)
    return {
        "name": name,
        "url": None if found is None or found.prefix is None else str(registry.settings_of(name).url),
        "registered": "ledger" if name in registry.added else "configuration" if found is not None else None,
        "orphaned": registry.gone(name),
        "state": state_of(lane, tries, fault),
        "fault": fault,
        "paused": None if lane.paused is None else msgspec.to_builtins(lane.paused),
        "ended_outage": None if lane.paused is not None else ended_outage(outage, now),
        "breaker": None if lane.breaker is None else msgspec.to_builtins(lane.breaker),
        "rate_per_second": lane.rate,
        "concurrency": lane.concurrency,
        "draining": lane.draining,
        "waiting": counted.not_ended if lane.waiting is None else lane.waiting,
        "waiting_more": lane.more,
        "in_progress": lane.in_progress or 0,
        "oldest_due_at": lane.oldest_due_at,
        "tries": {
            "succeeded": tries.succeeded,
            "failed": tries.failed,
            "success_rate": tries.success_rate,
            "p50_s": tries.p50_s,
            "p95_s": tries.p95_s,
        },
        "totals": {name: getattr(counted, name) for name in ("accepted", "delivered", "failed", "cancelled", "replayed")},
        "last_success": counted.last_success,
        "last_failure": counted.last_failure,
        "last_error": counted.last_error or None,
    }


def state_of(lane: mp.LaneView, tries: TryFigures, fault: str | None) -> str:
    """One word for a destination: `outage`, `paused`, `misconfigured`, `open` or `half-open` (its breaker), `failing`, `draining` or
    `healthy`."""
    if lane.paused is not None:
        return "outage" if lane.paused.until is not None else "paused"
    if fault is not None:
        return "misconfigured"
    if lane.breaker is not None:
        return lane.breaker.state
    if tries.success_rate is not None and tries.success_rate < 0.5:
        return "failing"
    return "draining" if lane.draining else "healthy"


def release(app: App, name: str) -> None:
    """Let the messages of a destination that is gone go where their URLs belong now."""
    app.documents.put(RELEASED + name, {"at": f"{app.now():%Y-%m-%dT%H:%M:%SZ}"})
    refresh(app)


def is_known(app: App, name: str) -> bool:
    """Is this a destination, an unregistered target (HOST:PORT), or a destination that is gone and whose messages wait, or have been
    released?"""
    registry = app.state.destinations
    if name in registry.all or name in registry.released or ":" in name:
        return True
    return any(one.scope == f"{app.settings.route}/{STAGE}/{name}" for one in app.pauses(app.settings.route))


def known_destination(app: App, name: str) -> str:
    """The lane of a destination: its name; an unregistered one is named HOST:PORT. Raises NotFound that lists the known ones."""
    refresh(app)
    if not is_known(app, name):
        known = ", ".join(sorted(app.state.destinations.all)) or "none"
        raise mp.NotFound(f"there is no destination {name!r}; known are {known}, and HOST:PORT of unregistered targets")
    return name
