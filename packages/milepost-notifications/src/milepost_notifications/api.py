"""API of notifications beside POST /message: messages, replays, dead letters, destinations, senders
and health, in Milepost's own shape."""

from __future__ import annotations

import asyncio
from datetime import UTC
from typing import Annotated, Any, NoReturn

from msgspec import Meta, Struct, field, to_builtins

import milepost as mp
import milepost.application as mpa
from milepost_notifications.application import application
from milepost_notifications.operate.collector import figures_of
from milepost_notifications.operate.dead_letters import (
    DeadLetters,
    ReplayReport,
    dead_letters,
    replay_all,
)
from milepost_notifications.operate.messages import (
    MessageFilter,
    MessagePage,
    cancel_message,
    message_page,
    named_zone,
    read_record,
    replay_message,
)
from milepost_notifications.operate.registry import (
    begin_outage,
    destination_views,
    is_known,
    pause_destination,
    put_destination,
    remove_destination,
    resume_destination,
)
from milepost_notifications.operate.senders import (
    check_destination,
    seen_sender,
    sender_views,
    shown_destination,
    shown_destinations,
    shown_record,
)
from milepost_notifications.settings import App, DestinationSettings

BASE = "/api/v1/notifications"
DESTINATION = f"{BASE}/destinations/{{name}}"
HEALTH_S = 2.0
"""How long /health waits for the ledger."""

Why = Annotated[str, Meta(min_length=1, max_length=1000, pattern=r"\S")]


class MessagesQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A filter of messages. All conditions must hold. `status` may be repeated, and may be `failed`
    or `live`. `from` and `before` are times of acceptance: a date with a time (UTC, unless it names
    a zone or `zone` does), a time of day (the last one), or a span such as `2h` (ago). The message
    that was accepted last comes first, or with `oldest_first` the first. `after`: the `next` of the
    page before."""

    sender: str | None = None
    destination: str | None = None
    status: list[str] = []
    message_id: str | None = field(default=None, name="messageId")
    cause: str | None = None
    created_from: str | None = field(default=None, name="from")
    created_before: str | None = field(default=None, name="before")
    zone: str | None = None
    """The time zone of `from` and `before`, such as `Europe/London`."""
    oldest_first: bool = False
    after: str | None = None
    limit: Annotated[int, Meta(ge=1, le=1000)] = 100
    scan: bool = False
    """Read every row of the route, where no index serves the search."""


class MessageAct(Struct, frozen=True, forbid_unknown_fields=True):
    """`key` is the message's, as the list shows it."""

    key: str
    reason: Why


class ReplayOne(Struct, frozen=True, forbid_unknown_fields=True):
    """`changes` may replace the method, the headers and the body of the message."""

    key: str
    reason: Why
    changes: dict[str, Any] = {}


class ReplayMany(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A bulk replay: the dead letters to send again; `dry_run` changes nothing and needs no reason.
    `pace` is the rate for each destination, such as `10/s`, beside its own limits."""

    sender: str | None = None
    destination: str | None = None
    status: list[str] = []
    cause: str | None = None
    created_from: str | None = field(default=None, name="from")
    created_before: str | None = field(default=None, name="before")
    zone: str | None = None
    reason: str = ""
    dry_run: bool = False
    pace: str | None = None


class DestinationList(Struct, frozen=True):
    destinations: list[dict[str, Any]]


class RemovalQuery(Struct, frozen=True, forbid_unknown_fields=True):
    force: bool = False
    """Remove it although messages wait for it."""
    reason: str = ""
    """The reason, for the record of acts."""


class AdditionQuery(Struct, frozen=True, forbid_unknown_fields=True):
    reason: str = ""
    """The reason, for the record of acts."""


class SenderList(Struct, frozen=True):
    senders: list[dict[str, Any]]


class DestinationAct(Struct, frozen=True, forbid_unknown_fields=True):
    reason: Why
    drain: str | None = None
    """The rate at which the messages that have waited are sent, such as `10/s`."""


class OutageRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """`until`: a time of day such as `18:00` (the next one), a date with a time, or a span from now
    such as `2h`. A time that names no zone is in `zone`, such as `Europe/London` or `+01:00`, else
    in the zone of the server. The answer has it in UTC, as `paused.until`."""

    until: str
    reason: Why
    drain: str | None = None
    zone: str | None = None


class PartHealth(Struct, frozen=True):
    part: str
    why: str


class HealthAnswer(Struct, frozen=True):
    """`healthy`, or `unhealthy` with the parts that are not well."""

    status: str
    service: str
    timestamp: str
    parts: list[PartHealth]


@application.endpoint(
    "GET", f"{BASE}/messages", scope="read", query=MessagesQuery, answers={200: MessagePage},
    summary="Messages by sender, destination, status and time",
)  # fmt: skip
def list_messages(app: App, call: mpa.Call) -> mpa.Answer:
    """Without their content. A key that speaks for a sender, and may not operate, sees that
    sender's messages alone."""
    asked: MessagesQuery = call.query
    wanted = _filter(asked, seen_sender(call.caller) or asked.sender, asked.message_id)
    found = message_page(
        app,
        wanted,
        limit=asked.limit,
        after=asked.after,
        oldest_first=asked.oldest_first,
        scan=asked.scan,
    )
    return mpa.Answer(found)


@application.endpoint(
    "GET",
    f"{BASE}/messages/{{key:path}}",
    scope="read",
    answers={200: dict[str, Any]},
    summary="The record of a message",
)
def show_message(app: App, call: mpa.Call) -> mpa.Answer:
    """The record of a message: its content, its tries and what became of it. Headers that hold
    secrets are redacted. `attempts` counts the failed tries that the schedule has counted since the
    message was last sent again, as in its row on AWS: 0 if it was delivered at once. `tries` counts
    the finished HTTP tries since then, the successful one too, and `lostTries` those that were
    broken off because their worker was lost; `totalAttempts`, `totalTries` and `totalLostTries`
    count all. `dlqBound` and `finalFailureDetails.willMoveToDLQ` are always false, and `dlqArn` is
    null: these fields of the original design name a dead-letter queue, and there is none. A dead
    letter has the status `MAX_RETRIES_EXCEEDED` or `REJECTED` and stays in the ledger;
    `dead-letters` lists them."""
    found = read_record(app, call.path["key"])
    only = seen_sender(call.caller)
    if found is None or (only is not None and found["senderId"] != only):
        _not_there(call.path["key"])
    return mpa.Answer(found)


@application.endpoint(
    "POST",
    f"{BASE}/cancel",
    scope="submit",
    body=MessageAct,
    answers={200: dict[str, Any]},
    summary="Cancel before the first try",
)
def cancel(app: App, call: mpa.Call) -> mpa.Answer:
    """A message that has had no try is taken back. Once a try has begun, this is refused: the
    partner may have it. A key cancels the messages that it could send; without the scope `read` it
    gets the message's identity and status, and not its content."""
    _own(call, call.body.key)
    cancel_message(app, call.body.key, by=call.caller.name, reason=call.body.reason)
    return mpa.Answer(shown_record(call.caller, read_record(app, call.body.key)))


@application.endpoint(
    "POST",
    f"{BASE}/replay",
    scope="operate",
    body=ReplayOne,
    answers={200: dict[str, Any]},
    summary="Send a message again",
)
def replay_one(app: App, call: mpa.Call) -> mpa.Answer:
    """The message gets a new series of tries; its earlier history is kept. One that was delivered
    is sent again as the same work. Without the scope `read` the answer has the message's identity
    and status, and not its content."""
    body: ReplayOne = call.body
    replay_message(app, body.key, by=call.caller.name, reason=body.reason, changes=body.changes)
    return mpa.Answer(shown_record(call.caller, read_record(app, body.key)))


@application.endpoint(
    "POST",
    f"{BASE}/replays",
    scope="operate",
    body=ReplayMany,
    answers={200: ReplayReport},
    summary="Send dead letters again",
)
def replay_many(app: App, call: mpa.Call) -> mpa.Answer:
    """All dead letters that match are sent again. Look first with `dry_run`. A second replay does
    not double: what is being sent again is no dead letter any more."""
    body: ReplayMany = call.body
    if not body.dry_run and not body.reason.strip():
        raise mp.UsageError("reason: a replay needs a reason, or dry_run: true for a preview")
    wanted, reason = _filter(body, body.sender), body.reason or "preview"
    return mpa.Answer(
        replay_all(
            app, wanted, by=call.caller.name, reason=reason, dry_run=body.dry_run, pace=body.pace
        )
    )


@application.endpoint(
    "GET",
    f"{BASE}/dead-letters",
    scope="read",
    answers={200: DeadLetters},
    summary="Dead letters by destination and error",
)
def show_dead_letters(app: App, call: mpa.Call) -> mpa.Answer:
    """Messages that ended without being delivered, by destination and error. Faults of the pipeline
    are listed apart from partners' refusals."""
    return mpa.Answer(dead_letters(app, call.caller))


@application.endpoint(
    "GET",
    f"{BASE}/destinations",
    scope="read",
    answers={200: DestinationList},
    summary="Destinations and their state",
)
def list_destinations(app: App, call: mpa.Call) -> mpa.Answer:
    """Every destination with its state: pause or outage, breaker, backlog, success rate and times
    of the last hour. No secret is shown."""
    return mpa.Answer(DestinationList(shown_destinations(call.caller, destination_views(app))))


@application.endpoint(
    "GET", DESTINATION, scope="read", answers={200: dict[str, Any]}, summary="One destination"
)
def show_destination(app: App, call: mpa.Call) -> mpa.Answer:
    return mpa.Answer(_shown_to(call, app))


@application.endpoint(
    "PUT", DESTINATION, scope="admin", query=AdditionQuery, body=dict[str, Any], answers={200: dict[str, Any]},
    summary="Add or replace a destination",
)  # fmt: skip
def put(app: App, call: mpa.Call) -> mpa.Answer:
    """Add a destination, or replace the one of this name, in every process within five seconds. The
    fields are those of [notifications.destinations.NAME]; secrets are named by variable or file,
    never given."""
    put_destination(
        app, call.path["name"], call.body, by=call.caller.name, reason=call.query.reason
    )
    return mpa.Answer(_shown_to(call, app))


@application.endpoint(
    "DELETE",
    DESTINATION,
    scope="admin",
    query=RemovalQuery,
    answers={204: None},
    summary="Remove a destination",
)
def remove(app: App, call: mpa.Call) -> mpa.Answer:
    """Remove a destination that was added over the API. One of the configuration holds again. While
    messages wait for it, this is refused (409) with their number; with `force` they go to the
    destination that their URLs then belong to, or out by the defaults."""
    remove_destination(
        app,
        call.path["name"],
        force=call.query.force,
        by=call.caller.name,
        reason=call.query.reason,
    )
    return mpa.Answer(status=204)


@application.endpoint(
    "POST",
    f"{DESTINATION}/pause",
    scope="operate",
    body=DestinationAct,
    answers={200: dict[str, Any]},
    summary="Pause a destination",
)
def pause(app: App, call: mpa.Call) -> mpa.Answer:
    """Nothing is sent to it until it is resumed; its messages wait, and no try is counted. It takes
    over from an outage. A pause that is in force stays, with its name and reason: then `changed` is
    false."""
    done = pause_destination(app, call.path["name"], by=call.caller.name, reason=call.body.reason)
    return mpa.Answer({**_shown_to(call, app), "changed": done.changed})


@application.endpoint(
    "POST",
    f"{DESTINATION}/resume",
    scope="operate",
    body=DestinationAct,
    answers={200: dict[str, Any]},
    summary="Resume a destination",
)
def resume(app: App, call: mpa.Call) -> mpa.Answer:
    """End a pause or an outage, and close its breaker; the messages that have waited are sent at
    the rate `drain`, if it is given."""
    resume_destination(
        app, call.path["name"], by=call.caller.name, reason=call.body.reason, drain=call.body.drain
    )
    return mpa.Answer(_shown_to(call, app))


@application.endpoint(
    "POST", f"{DESTINATION}/outage", scope="operate", body=OutageRequest, answers={200: dict[str, Any]},
    summary="A partner is down until then",
)  # fmt: skip
def outage(app: App, call: mpa.Call) -> mpa.Answer:
    """The partner is down until then: its messages wait, uncounted, and every page shows the
    reason. It ends by itself, and the messages that have waited are sent at the rate `drain`. It
    replaces an outage that is in force; a pause without an end stays (409)."""
    body: OutageRequest = call.body
    zone = named_zone(body.zone)
    begin_outage(
        app,
        call.path["name"],
        until=body.until,
        drain=body.drain,
        by=call.caller.name,
        reason=body.reason,
        zone=zone,
    )
    return mpa.Answer(_shown_to(call, app))


@application.endpoint(
    "GET", f"{BASE}/senders", scope="read", answers={200: SenderList}, summary="Figures of senders"
)
def list_senders(app: App, call: mpa.Call) -> mpa.Answer:
    """The figures of each sender since the ledger began. A key that speaks for a sender, and may
    not operate, sees its own alone."""
    return mpa.Answer(SenderList(sender_views(figures_of(app), seen_sender(call.caller))))


@application.endpoint(
    "GET",
    "/health",
    scope=None,
    answers={200: HealthAnswer, 503: HealthAnswer},
    summary="Is the service well?",
)
async def health(app: App, call: mpa.Call) -> mpa.Answer:
    """Is the service well: can the ledger be written to, does a worker run? Within two seconds, and
    open to all."""
    try:
        missing = await asyncio.wait_for(asyncio.shield(_look(app)), HEALTH_S)
    except TimeoutError:
        missing = [("ledger", f"it has not answered within {HEALTH_S:g} s")]
    parts = [PartHealth(part, why) for part, why in missing]
    now = f"{app.now():%Y-%m-%dT%H:%M:%SZ}"
    return mpa.Answer(
        HealthAnswer("unhealthy" if parts else "healthy", app.name, now, parts),
        503 if parts else 200,
    )


def _look(app: App) -> asyncio.Future[list[tuple[str, str]]]:
    """The look at the service's health that is under way, or a new one. All calls share it: anyone
    may call, and a ledger that hangs must not occupy a thread for each of them."""
    loop, there = asyncio.get_running_loop(), app.state.health_look
    if there is None or there.done() or there.get_loop() is not loop:
        there = app.state.health_look = loop.run_in_executor(None, app.unready)
    found: asyncio.Future[list[tuple[str, str]]] = there
    return found


def _shown_to(call: mpa.Call, app: App) -> dict[str, Any]:
    """The destination that the call's URL names, as the caller may see it."""
    check_destination(call.caller, call.path["name"])
    return shown_destination(call.caller, _destination(app, call.path["name"]))


def _destination(app: App, name: str) -> dict[str, Any]:
    if not is_known(app, name):
        raise mp.NotFound(f"there is no destination {name!r}")
    [found] = destination_views(app, [name])
    if found["registered"]:
        found["settings"] = _shown(app.state.destinations.settings_of(name))
    return found


def _filter(
    asked: MessagesQuery | ReplayMany, sender: str | None, message_id: str | None = None
) -> MessageFilter:
    return MessageFilter(
        sender=sender,
        destination=asked.destination,
        status=tuple(asked.status),
        message_id=message_id,
        cause=asked.cause,
        created_from=asked.created_from,
        created_before=asked.created_before,
        zone=named_zone(asked.zone) or UTC,
    )


def _shown(settings: DestinationSettings) -> dict[str, Any]:
    """Settings as JSON: headers that look like secrets are redacted, though they should not be
    there."""
    found: dict[str, Any] = {
        name: value for name, value in to_builtins(settings).items() if value is not None
    }
    return {**found, "headers": mpa.redacted(found.get("headers", {}))}


def _own(call: mpa.Call, key: str) -> None:
    """A caller that speaks for a sender acts on that sender's messages alone."""
    only, parts = seen_sender(call.caller), mpa.key_parts(key)
    if only is not None and (len(parts) < 2 or parts[1] != only):
        _not_there(key)


def _not_there(key: str) -> NoReturn:
    raise mp.NotFound(f"there is no message {key!r}")
