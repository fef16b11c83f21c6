"""Events: facts delivered to subscribers. Each is a pure function of its history line, so a repeat
has the same id."""

from __future__ import annotations

from shlex import quote
from typing import Any

from msgspec import Struct

from milepost.core.history import Line, attempt_to_public
from milepost.core.routes.plan import Plan
from milepost.core.status import Reason, Status
from milepost.core.values.durations import iso

QUIET = frozenset(
    {
        Reason.UNDECIDED,
        Reason.GIVEN_BACK,
        Reason.KEPT,
        Reason.NOTED,
        Reason.LATE,
        Reason.OFFERED,
        Reason.RESENT,
    }
)
"""Lines for the record only, without an event; the offer of an external stage has its own event."""
KINDS = frozenset(reason.value for reason in Reason if reason not in QUIET | {Reason.CLAIMED}) | {
    "offered"
}
"""All kinds of events of items."""


class SubscriberEvent(Struct, frozen=True):
    """Anything that subscribers receive: an event of an item, or an alert. A repeat has the same
    `id`."""

    id: str
    kind: str
    route: str
    key: str
    sequence: int
    at: int
    stage: str


class Event(SubscriberEvent, frozen=True):
    """A fact about an item. `kind` is the line's reason, or "offered" for the offer of an external
    stage that the same write made."""

    status: Status
    correlation_id: str
    line: Line
    payload: Any = None


class Envelope(dict[str, Any]):
    """The delivered form of an event: a dict that also has its `event`, because a route may give
    the dict any form (then it is `formed`), and a subscriber that files or groups events still
    needs route, key and kind."""

    __slots__ = ("event", "formed")

    def __init__(
        self, content: dict[str, Any], event: SubscriberEvent, *, formed: bool = False
    ) -> None:
        super().__init__(content)
        self.event = event
        self.formed = formed


def event_id(route: str, key: str, version: int, kind: str, life: int = 0, epoch: int = 0) -> str:
    """An event's id, made from its arguments, so that a receiver recognises a repeat. It includes
    the life of the key where a key may have several, and the epoch of a ledger that was restored:
    there a version may be given a second time, for another fact."""
    named = f"{route}/{key}/{life}.{version}/{kind}" if life else f"{route}/{key}/{version}/{kind}"
    return f"{named}/e{epoch}" if epoch else named


def events_of(
    line: Line, route: str, key: str, correlation_id: str, payload: Any = None
) -> tuple[Event, ...]:
    """The events of one line, in order. `payload` is that of an offered external stage."""
    version, at, status = line.version, line.at, line.status
    events: tuple[Event, ...] = ()
    if line.reason not in QUIET:
        kind = line.reason.value
        named = event_id(route, key, version, kind, line.life, line.epoch)
        events = (
            Event(named, kind, route, key, version, at, line.stage, status, correlation_id, line),
        )
    if line.offered is not None:
        named = event_id(route, key, version, "offered", line.life, line.epoch)
        events = (
            *events,
            Event(
                named,
                "offered",
                route,
                key,
                version,
                at,
                line.after_stage,
                status,
                correlation_id,
                line,
                payload,
            ),
        )
    return events


def cloud_envelope(
    event_id: str,
    source: str,
    kind: str,
    subject: str,
    at: int,
    sequence: int,
    data: dict[str, Any],
    **extensions: str,
) -> dict[str, Any]:
    """A CloudEvent 1.0 as JSON."""
    return {
        "specversion": "1.0",
        "id": event_id,
        "source": source,
        "type": kind,
        "subject": subject,
        "time": iso(at),
        "datacontenttype": "application/json",
        "sequence": str(sequence),
        **extensions,
        "data": data,
    }


def cloud_event(event: Event, plan: Plan | None = None) -> Envelope:
    """The event as CloudEvents 1.0 JSON, or in the route's own form where it has one."""
    line = event.line
    data: dict[str, Any] = {
        "route": event.route,
        "key": event.key,
        "stage": event.stage,
        "status": event.status.value,
        "reason": event.kind,
    }
    stage = plan.by_name.get(event.stage) if plan is not None else None
    if (
        stage is not None
        and stage.announce
        and event.kind in ("advanced", "completed", "confirmed")
    ):
        data["text"] = stage.announce
    if event.kind == "offered":
        data |= {
            "payload": event.payload,
            "work_id": line.offered,
            "confirm": f"milepost confirm {event.route} {quote(event.key)} --stage {event.stage} --by NAME --reason TEXT",
        }
    if line.to:
        data["to"] = line.to
    for name in ("by", "why", "act", "note"):
        value = getattr(line, name)
        if value is not None:
            data[name] = value
    if line.attempt is not None:
        data["attempt"] = attempt_to_public(line.attempt, line.at, event.correlation_id)
    source, kind = f"/milepost/{event.route}", f"milepost.item.{event.kind}"
    envelope = cloud_envelope(
        event.id,
        source,
        kind,
        event.key,
        event.at,
        event.sequence,
        data,
        correlationid=event.correlation_id,
    )
    formed = plan.route.form(envelope) if plan is not None and plan.route.form is not None else None
    if formed is None:
        return Envelope(envelope, event)
    if not isinstance(formed, dict):
        raise TypeError(
            f"the form of route {event.route!r} gave {type(formed).__name__}; it must give a dict, or None to leave it as it is"
        )
    return Envelope(formed, event, formed=True)
