"""Destinations at run time: those that were added by API or command, pauses and outages, and the
removal of one.

Added destinations are kept in the ledger, and read by every process. A destination of the
configuration can be replaced by one of the ledger with the same name, and holds again when that is
removed. Secrets are not stored: a destination names the variable or the file that holds one.

The messages of a destination that is gone never go out by the defaults unasked, which have neither
its credentials nor its signature. A removal by API or command is refused while messages wait,
unless it is forced. If the destination is missing otherwise, such as a table that was taken out of
the configuration, the first message that is due pauses its lane, and all of them wait until the
destination is back or an operator resumes it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

import milepost as mp
import milepost.application as mpa
import milepost_net as net
from milepost_notifications.destinations import (
    PAUSED_BY,
    STAGE,
    Destination,
    is_registered_name,
    paused_at,
    pauses_removed,
    resume_command,
    url_pause,
)
from milepost_notifications.operate.collector import figures_of
from milepost_notifications.operate.figures import (
    DestinationFigures,
    Figures,
    TryFigures,
    parties_of,
    tries_since,
)
from milepost_notifications.settings import App, DestinationSettings

PREFIX = "destination/"
OUTAGE = "outage/"
OUTAGE_SHOWN = timedelta(days=1)
"""How long the end of an outage is shown."""
RELEASED = "released/"
"""Documents of destinations that are gone, whose messages go where their URLs belong now."""
NO_REASON = "(no reason was given)"
IN_SHELL = "in this shell, which says nothing of 'milepost up'"
"""Words of a command before a secret that it does not find."""
MOST_LOOKED_AT = 1_000
"""Messages that are looked at at once when the pause of their URL ends; the others follow within
minutes."""
REFRESH = "5s"
"""How soon every process knows of a destination that was added or removed."""


log = logging.getLogger(__name__)


def refresh(app: App) -> None:
    """Read the destinations of the ledger into this process. A document that is no valid
    destination here, such as one of a newer version, is logged and changes nothing; the others are
    read all the same."""
    documents = app.documents.find()
    found = {name: document for name, document in documents.items() if name.startswith(PREFIX)}
    registry = app.state.destinations
    registry.released = frozenset(
        name.removeprefix(RELEASED) for name in documents if name.startswith(RELEASED)
    )
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
                log.error(
                    "the destination %s of the ledger is not valid in this process, and is not used: %s",
                    name,
                    error,
                )
            registry.invalid[name] = document.version
    registry.read_at = time.monotonic()


def keep_fresh(app: App, *, afresh: bool = False) -> None:
    """Read the destinations of the ledger unless this process has read them lately: a process that
    runs no services, such as a Lambda function, has no other way to know of them. `afresh`: read
    them in any case. Raises the ledger's error if they were never read."""
    registry = app.state.destinations
    with registry.reading:
        if not registry.stale and not afresh:
            return
        try:
            refresh(app)
        except mp.MilepostError:
            if registry.read_at is None:
                raise
            log.exception(
                "the destinations could not be read again; those of the last time are used"
            )


def read_url_pauses(app: App, fresh_s: float = 0.0) -> None:
    """Read the pauses of URLs into this process, unless that was done so lately. Raises the
    ledger's error if that fails."""
    registry = app.state.destinations
    if registry.pauses_read_at is not None and time.monotonic() - registry.pauses_read_at < fresh_s:
        return
    registry.paused_urls = {
        pause.scope: 0
        if pause.since is None
        else round(datetime.fromisoformat(pause.since).timestamp() * 1000)
        for pause in url_pauses(app)
    }
    registry.pauses_read_at = time.monotonic()


def url_pauses(app: App) -> list[mp.PauseView]:
    """The pauses of URLs, each with its own name as `scope`."""
    above = f"{app.settings.route}/{STAGE}/"
    found = [
        replace(pause, scope=pause.scope.removeprefix(above))
        for pause in app.pauses(app.settings.route)
    ]
    return [pause for pause in found if paused_at(pause.scope) is not None]


@mpa.translated_net_errors()
def lanes_of(app: App, sender: str, url: str) -> list[str]:
    """The lane of a sender's messages to this URL, and the name of the pause of the URL if there is
    one. Raises UsageError if the URL is none."""
    lane = app.state.destinations.lane_of(url, sender)
    pause = url_pause(lane.rpartition("@")[2], sender, url)
    return [lane, *(one.scope for one in url_pauses(app) if one.scope == pause)]


def put_destination(
    app: App, name: str, settings: Mapping[str, Any], *, by: str, reason: str = ""
) -> Destination:
    """Add a destination, or replace the one of this name; the act is recorded. Raises UsageError
    that names the setting that is wrong."""
    try:
        read = msgspec.convert(dict(settings), DestinationSettings)
    except msgspec.ValidationError as error:
        names = ", ".join(one.encode_name for one in msgspec.structs.fields(DestinationSettings))
        raise mp.UsageError(f"destination {name!r}: {error}; the settings are {names}") from None
    secret = next(
        (one for one, shown in mpa.redacted(read.headers).items() if shown != read.headers[one]),
        None,
    )
    if secret is not None:
        raise mp.UsageError(
            f"destination {name!r}: the header {secret} holds a secret, which the ledger does not store; name the variable that holds it:"
            f' auth = {{"kind": "headers", "env": {{"{secret}": "VARIABLE"}}}}'
        )
    made: Destination = app.state.destinations.resolve(name, read)
    limit_s = app.state.route.stages[0].timeout_ms / 1000
    if made.try_s > limit_s:
        raise mp.UsageError(
            f"destination {name!r}: a try to it may take {made.try_s:g} s by its timeouts.total, but this process ends tries after {limit_s:g} s:"
            " give a shorter time, or put the destination into the configuration"
        )
    verb = "add-destination" if app.documents.get(PREFIX + name) is None else "change-destination"
    app.documents.put(PREFIX + name, msgspec.to_builtins(read))
    refresh(app)
    app.record_act(verb, app.settings.route, STAGE, name, by=by, reason=reason.strip() or NO_REASON)
    return made


class PauseAnswer(Struct, frozen=True):
    """The pause of a destination that is in force, and whether this call has made it: the first one
    stays."""

    pause: mp.PauseView
    changed: bool


def pause_destination(app: App, name: str, *, by: str, reason: str) -> PauseAnswer:
    """Hold back all messages for a destination; no try is counted. It takes over from an outage,
    which would end by itself; another pause stays."""
    lane = known_destination(app, name)
    before = pause_of(app, lane)
    held = app.pause(app.settings.route, STAGE, lane, by=by, reason=reason)
    if before is not None and before.until is not None:
        note_end(app, lane, by)
    return PauseAnswer(held, held != before and (held.by, held.reason) == (by, reason))


def pause_of(app: App, lane: str) -> mp.PauseView | None:
    """The pause or outage of a destination; None: it has none."""
    [there] = [one for one in app.lanes(app.settings.route, STAGE, [lane]) if one.lane == lane]
    return there.paused


def begin_outage(
    app: App,
    name: str,
    *,
    until: str,
    drain: str | None,
    by: str,
    reason: str,
    zone: tzinfo | None = None,
) -> datetime:
    """The partner is down until then: its messages wait, uncounted, and are then sent at the rate
    `drain`. `until` is a time of day, a date with a time, or a span; one without a time zone is in
    `zone`, or in that of this machine. Returns the time that it means. It replaces an outage that
    is in force. Raises ActRefused for a destination with a pause, which would end with the
    outage."""
    lane, end = known_destination(app, name), end_of(until, app.now(), zone or mpa.local_zone())
    held = app.pause(
        app.settings.route,
        STAGE,
        lane,
        by=by,
        reason=reason,
        until=end,
        drain=drain,
        endless_stays=True,
    )
    if held.until is None:
        since = mpa.full_time(
            round(datetime.fromisoformat(str(held.since)).timestamp() * 1000),
            zone or mpa.local_zone(),
        )
        raise mp.ActRefused(
            f"{name} is paused by {held.by} since {since}, until it is resumed: {held.reason}. Its messages wait already, and nothing was changed,"
            " since the end of an outage would let them out. Resume it when the partner is back"
        )
    _write(app, lane, Outage(iso(app.now()), iso(end), by, reason))
    return end


def resume_destination(
    app: App, name: str, *, by: str, reason: str, drain: str | None = None
) -> bool:
    """End a pause or an outage, and close the breaker. False: there was neither. The messages of a
    destination that is gone go where their URLs belong now."""
    lane = known_destination(app, name)
    if app.state.destinations.gone(lane):
        release(app, lane)
    resumed = app.resume(app.settings.route, STAGE, lane, by=by, reason=reason, drain=drain)
    return (
        bool(app.close_breakers(app.settings.route, STAGE, lane, by=by, reason=reason)) or resumed
    )


def before_resume(app: App, pause: mp.PauseView, by: str) -> None:
    """An operator ends this pause, by whichever command: if it says that a destination is gone, its
    messages are released, or the next of them would pause it again. The end of an outage is
    noted."""
    above = f"{app.settings.route}/{STAGE}/"
    if not pause.scope.startswith(above):
        return
    lane = pause.scope.removeprefix(above)
    refresh(app)
    if pauses_removed(pause, lane) and app.state.destinations.gone(lane):
        release(app, lane)
    if paused_at(lane) is not None:
        app.state.destinations.paused_urls.pop(lane, None)
        _look_again(app, lane, by)
    note_end(app, lane, by)


def _look_again(app: App, pause: str, by: str) -> None:
    """Have the messages looked at at once that wait for the end of this pause of a URL. On AWS no
    index serves the search: each is looked at again within minutes."""
    route, at = app.settings.route, paused_at(pause) or ""
    try:
        waiting = app.items(
            route, statuses=["WAITING"], stages=[STAGE], limit=MOST_LOOKED_AT, scan=False
        )
    except mp.CostlyQuery:
        return
    keys = [
        str(one["key"]) for one in waiting if url_pause(at, *parties_of(str(one["key"]))) == pause
    ]
    if keys:
        app.act("resend", route, keys=keys, by=by, reason="the pause of its URL has ended")


def destination_views(
    app: App, names: list[str] | None = None, *, in_shell: bool = False
) -> list[dict[str, Any]]:
    """The destinations with their state: those that are registered, and unregistered ones that have
    had messages lately. `in_shell`: a command asks, whose environment and folder need not be those
    of the processes that deliver; what it lacks makes no destination misconfigured."""
    refresh(app)
    registry, figures = app.state.destinations, figures_of(app)
    wanted = list(dict.fromkeys([*registry.all, *figures.destinations])) if names is None else names
    lanes = {one.lane: one for one in app.lanes(app.settings.route, STAGE, wanted)}
    now, had = app.now(), outages(app)
    chosen = [*wanted, *(lane for lane in lanes if lane not in wanted)] if names is None else wanted
    paused = url_pauses(app)
    return [
        _view(app, name, lanes[name], figures, now, had.get(name), in_shell, paused)
        for name in chosen
    ]


def _view(
    app: App,
    name: str,
    lane: mp.LaneView,
    figures: Figures,
    now: datetime,
    outage: Outage | None,
    in_shell: bool,
    paused: list[mp.PauseView],
) -> dict[str, Any]:
    registry = app.state.destinations
    found = registry.all.get(name)
    counted = figures.destinations.get(name, DestinationFigures())
    tries = tries_since(counted, round(now.timestamp() * 1000))
    fault = None if found is None else app.state.deliverer.fault(found)
    return {
        "name": name,
        "url": None
        if found is None or found.prefix is None
        else str(registry.settings_of(name).url),
        "registered": "ledger"
        if name in registry.added
        else "configuration"
        if found is not None
        else None,
        "orphaned": registry.gone(name),
        "state": state_of(lane, tries, None if in_shell else fault),
        "fault": f"{IN_SHELL}: {fault}" if in_shell and fault is not None else fault,
        "paused": None if lane.paused is None else msgspec.to_builtins(lane.paused),
        "paused_urls": [
            msgspec.to_builtins(one)
            for one in paused
            if paused_at(one.scope) == name.rpartition("@")[2]
        ],
        "left_pause": left_pause(app, name, lane.paused),
        "ended_outage": None if lane.paused is not None else ended_outage(outage, now),
        "breaker": None if lane.breaker is None else msgspec.to_builtins(lane.breaker),
        "rate_per_second": lane.rate,
        "concurrency": lane.concurrency,
        "draining": lane.draining,
        "waiting": counted.not_ended if lane.waiting is None else lane.waiting,
        "waiting_more": lane.more,
        "in_progress": lane.in_progress or 0,
        "oldest_due_at": lane.oldest_due_at,
        "tries": msgspec.to_builtins(tries),
        "totals": {
            name: getattr(counted, name)
            for name in ("accepted", "delivered", "failed", "cancelled", "replayed")
        },
        "last_success": counted.last_success,
        "last_failure": counted.last_failure,
        "last_error": counted.last_error or None,
    }


def state_of(lane: mp.LaneView, tries: TryFigures, fault: str | None) -> str:
    """One word for a destination: `outage`, `paused`, `misconfigured`, `open` or `half-open` (its
    breaker), `failing`, `draining` or `healthy`."""
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
    """Is this a destination, an unregistered target (HOST:PORT, or SENDER@HOST:PORT), a pause of a
    URL, or a destination that is gone and whose messages wait, or have been released?"""
    registry = app.state.destinations
    if (
        name in registry.all
        or name in registry.released
        or ":" in name
        or paused_at(name) in registry.all
    ):
        return True
    return any(
        one.scope == f"{app.settings.route}/{STAGE}/{name}"
        for one in app.pauses(app.settings.route)
    )


def known_destination(app: App, name: str) -> str:
    """The lane of a destination: its name; an unregistered one is named HOST:PORT, which stands for
    all senders, or SENDER@HOST:PORT. Raises NotFound that lists the known ones."""
    refresh(app)
    if not is_known(app, name):
        known = ", ".join(sorted(app.state.destinations.all)) or "none"
        raise mp.NotFound(
            f"there is no destination {name!r}; known are {known}, and HOST:PORT or SENDER@HOST:PORT of unregistered targets"
        )
    return name


# Outages ------------------------------------------------------------------------------------------
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
    """The end of an outage, from "18:00" (the next one), a date with a time (in `zone`, if it names
    none), or a span such as "2h". Pure."""
    found = datetime.fromtimestamp(
        mpa.moment_ms(text, round(now.timestamp() * 1000), "until", zone) / 1000, UTC
    )
    if found <= now:
        shown = mpa.full_time(round(found.timestamp() * 1000), zone)
        raise mp.UsageError(
            f"until is {text!r}, which is {shown} and past; give a later time, or a span from now such as '2h'"
        )
    return found


def note_end(app: App, lane: str, by: str) -> None:
    """Remember that a person has ended the outage of a destination, if it has one."""
    held = app.documents.get(OUTAGE + lane)
    outage = None if held is None else msgspec.convert(held.value, Outage)
    now = iso(app.now())
    if outage is not None and outage.ended_at is None and now < outage.until:
        _write(app, lane, replace(outage, ended_at=now, ended_by=by))


def outages(app: App) -> dict[str, Outage]:
    """The last outage of each destination that had one. A damaged record is logged and left out."""
    outages: dict[str, Outage] = {}
    for name, document in app.documents.find(OUTAGE).items():
        try:
            outages[name.removeprefix(OUTAGE)] = msgspec.convert(document.value, Outage)
        except msgspec.ValidationError as error:
            log.error("the record %s of an outage is damaged, and left out: %s", name, error)
    return outages


def ended_outage(outage: Outage | None, now: datetime) -> dict[str, Any] | None:
    """An outage whose end is not long ago, for people and programs; None: there is none, or it is
    still in force. Pure."""
    if outage is None:
        return None
    ended_at = outage.ended_at or outage.until
    if not now - OUTAGE_SHOWN < datetime.fromisoformat(ended_at) <= now:
        return None
    return {**msgspec.to_builtins(outage), "ended_at": ended_at}


def ended_text(ended: Mapping[str, Any], time: str) -> str:
    """One sentence about an outage that has ended at this time, as the caller writes it. Pure."""
    how = "by itself" if ended["ended_by"] is None else f"by {ended['ended_by']}"
    return f"the outage ended {how} at {time}: {ended['reason']}"


def _write(app: App, lane: str, outage: Outage) -> None:
    app.documents.put(OUTAGE + lane, msgspec.to_builtins(outage))


def iso(at: datetime) -> str:
    """A time in ISO 8601, UTC, with milliseconds."""
    return f"{at.astimezone(UTC):%Y-%m-%dT%H:%M:%S}.{at.microsecond // 1000:03}Z"


# Removal ------------------------------------------------------------------------------------------
def remove_destination(
    app: App, name: str, *, force: bool = False, by: str, reason: str = ""
) -> None:
    """Remove a destination that was added; the act is recorded, and a pause of it stays. Raises
    mp.ActRefused while messages wait for it; with `force` they go to the destination that their
    URLs then belong to, or out by the defaults."""
    if app.documents.get(PREFIX + name) is None:
        if name in app.settings.destinations:
            raise mp.UsageError(
                f"destination {name!r} is in the configuration; remove its table [notifications.destinations.{name}] there"
            )
        raise mp.NotFound(f"there is no destination {name!r}")
    waiting = 0
    if name not in app.settings.destinations:  # otherwise that one holds again
        [view] = destination_views(app, [name])
        waiting = view["waiting"] + view["in_progress"]
        if waiting and not force:
            more = "more than " if view["waiting_more"] else ""
            raise mp.ActRefused(
                f"{more}{waiting:,} {'message has' if waiting == 1 else 'messages have'} not ended that {'is' if waiting == 1 else 'are'} for {name!r}:"
                " wait until they have, or cancel them; with 'force' they go to the destination that their URLs then belong to,"
                " or out by the defaults"
            )
    app.documents.remove(PREFIX + name)
    if waiting:
        # After the removal: `resume_returned` forgets the release of a destination that is there.
        release(app, name)
    refresh(app)
    app.record_act(
        "remove-destination",
        app.settings.route,
        STAGE,
        name,
        by=by,
        reason=reason.strip() or NO_REASON,
    )


def left_pause(app: App, name: str, pause: mp.PauseView | None) -> str | None:
    """A sentence about the pause that a removed destination has left, and how to end it; None:
    there is none, or it is a destination."""
    known = name in app.state.destinations.all or not is_registered_name(name)
    if pause is None or known or pauses_removed(pause, name):
        return None
    return f"{name} is no destination any more, but its pause stays, and it is listed, until you end it: `{resume_command(name)}`"


def resume_returned(app: App) -> None:
    """Resume destinations that are there again, if need be under another name, and forget that
    their messages were released. A worker may have paused one at the moment at which an operator
    released its messages: it is resumed too."""
    keep_fresh(app)
    registry, route = app.state.destinations, app.settings.route
    for pause in app.pauses(route):
        lane = pause.scope.removeprefix(f"{route}/{STAGE}/")
        if not pauses_removed(pause, lane):
            continue
        if lane in registry.released:
            app.resume(
                route,
                STAGE,
                lane,
                by=PAUSED_BY,
                reason="an operator has released its messages",
                own=True,
            )
        elif lane in registry.all or _taken_over(app, lane):
            log.warning("there is a destination again for messages to %s; they are sent", lane)
            app.resume(
                route, STAGE, lane, by=PAUSED_BY, reason="it is a destination again", own=True
            )
    for name in registry.released & registry.all.keys():
        app.documents.remove(RELEASED + name)


def _target_of(app: App, key: str) -> str:
    """The whole target URL of a message: some of it may be hidden in its key."""
    shown = app.show(app.settings.route, key)
    content = None if shown is None else shown["input"]
    return str(content.get("targetUrl", "")) if isinstance(content, dict) else parties_of(key)[1]


def _taken_over(app: App, lane: str) -> bool:
    """Does the target of a message that waits in this lane belong to another destination now? Not
    looked for where that would read the whole table: an operator resumes it then."""
    try:
        waiting = app.items(
            app.settings.route, statuses=["live"], stages=[STAGE], lane=lane, limit=1, scan=False
        )
        found = [app.state.destinations.of(_target_of(app, one["key"])) for one in waiting]
    except (mp.CostlyQuery, net.InvalidRequest):
        return False
    return any(one is not None and one.registered for one in found)
