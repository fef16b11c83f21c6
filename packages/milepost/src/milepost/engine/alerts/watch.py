"""Watch for alerts: reads failures from the events, and breakers and pauses from the ledger; writes
records, and delivers notices. And the alerts as programs and people see them.

Any number of processes may run it. Each record is written conditionally: of those that see a
trouble at the same time one raises the alert, and of those that find a notice due one delivers it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from milepost.core.admission.controls import Hold
from milepost.core.errors import EventRefused, LedgerUnavailable
from milepost.core.events import Envelope, Event
from milepost.core.failures import group_of
from milepost.core.item import Item
from milepost.core.status import FAILED
from milepost.core.values.durations import iso
from milepost.core.values.redaction import hidden_urls, redacted_text
from milepost.engine.alerts import record as rules
from milepost.engine.alerts.record import (
    AlertDelivery,
    AlertNotice,
    AlertRecord,
    Trouble,
    TroubleKind,
)
from milepost.engine.alerts.rule import AlertRule
from milepost.engine.breakers import open_breakers
from milepost.engine.context import Context
from milepost.engine.events.cursors import all_delivered
from milepost.engine.events.deliver import POLL, EventRelay
from milepost.ports.documents import (
    ALERT,
    HOLD,
    read_each,
    read_each_versioned,
    read_versioned,
    update,
)
from milepost.ports.items import Query
from milepost.ports.service import Service
from milepost.ports.subscriber import Subscriber

LOOK_MS = 5_000
"""Interval of the checks of breakers, pauses and undelivered notices. Events are read more often: a
failure is reported at once."""
PAGES = 20
"""Pages of events that are read in one turn."""

log = logging.getLogger(__name__)


def stored_alerts(ctx: Context, rule: str | None = None) -> dict[str, tuple[AlertRecord, int]]:
    """The records of alerts, each with its version, by the names of their documents; of one rule,
    if it is given."""
    prefix = "" if rule is None else f"{rule}/"
    found = read_each_versioned(ctx.ledger, ALERT, AlertRecord)
    return {name: stored for name, stored in sorted(found.items()) if name.startswith(prefix)}


class AlertWatch(Service):
    """The service of one rule: each turn reads new events, checks breakers and pauses, and delivers
    the notices that are due. The first watch of a rule starts at the newest event: earlier failures
    raise no alert."""

    follows_others = True

    def __init__(
        self, ctx: Context, rule: AlertRule, receivers: Sequence[Subscriber], holder: str
    ) -> None:
        self.name = rule.watch_name
        self._rested = False
        self._seen = 0
        self._looked_at = -LOOK_MS
        self._ctx, self._rule = ctx, rule
        self._receivers: Mapping[str, Subscriber] = {one.name: one for one in receivers}
        self._relay = (
            EventRelay(ctx, FailureReader(self._record, rule, ctx), holder, from_now=True)
            if rule.failures
            else None
        )
        if self._relay is not None:
            self._relay.start()
        self._now_failed: dict[tuple[str, str, str], int] = {}
        """By group, how many items had its error at the last look."""

    def turn(self) -> float:
        """Run if it is time; returns the seconds until the next turn."""
        try:
            self._run(at_once=False)
            self.failed = False
        except LedgerUnavailable:
            raise
        except Exception:
            self.failed = True
            log.exception(
                "the alerts of %r could not be checked; they are checked again in the next turn",
                self._rule.name,
            )
        if self._relay is not None:
            # Then failures raise no alert now.
            self.stands_still = self._relay.stands_still
        return POLL if self._rested or self.failed else 0.0

    def run_once(self) -> int:
        """Read events, check breakers and pauses, and deliver notices once; returns the number of
        notices delivered."""
        return self._run(at_once=True)

    def _run(self, *, at_once: bool) -> int:
        self._seen = 0
        waiting = self._read()
        now, sent = self._ctx.clock.now(), 0
        if at_once or self._seen or not 0 <= now - self._looked_at < LOOK_MS:
            self._look()
            sent = self._deliver()
            self._looked_at = now
        self._rested = not waiting and not sent
        return sent

    @property
    def quiet(self) -> bool:
        return self._rested and (
            self._relay is None or all_delivered(self._ctx, [self.name], self._ctx.clock.now())
        )

    # Troubles -------------------------------------------------------------------------------------
    def _read(self) -> bool:
        """Read new events; True: more of them wait."""
        if self._relay is None:
            return False
        for _ in range(PAGES):
            summary = self._relay.run_once()
            if summary.standing_by is not None or not summary.waiting:
                return False
        return True

    def _record(self, troubles: Sequence[Trouble]) -> None:
        """Write these troubles into the records of alerts."""
        self._seen += len(troubles)
        now, receivers = self._ctx.clock.now(), list(self._receivers)
        known = {
            document: record
            for document, (record, _) in stored_alerts(self._ctx, self._rule.name).items()
        }
        raised = sum(record.raised for record in known.values())
        for trouble in troubles:
            there = known.get(self._document(trouble))
            if raised >= rules.MOST and not (there is not None and there.raised):
                trouble = Trouble(
                    "failures",
                    trouble.route,
                    "*",
                    "*",
                    trouble.at,
                    trouble.text,
                    "MANY_CAUSES",
                    "*",
                    trouble.key,
                )
            before = known.get(self._document(trouble))
            after = self._change(
                trouble,
                partial(rules.seen, trouble=trouble, rule=self._rule, receivers=receivers, now=now),
                new=True,
            )
            raised += after.raised and not (before is not None and before.raised)
            known[self._document(trouble)] = after

    def _look(self) -> None:
        """Raise alerts for breakers and pauses, and end those whose trouble is gone."""
        ctx, rule, now, receivers = (
            self._ctx,
            self._rule,
            self._ctx.clock.now(),
            list(self._receivers),
        )
        known = stored_alerts(ctx, rule.name)
        by_name = {record.trouble.name: record for record, _ in known.values()}
        reported = {name for name, record in by_name.items() if record.raised}
        standing = {
            trouble.name: trouble
            for trouble in rules.bounded(list(self._standing(now)), reported, now)
        }
        for name, trouble in standing.items():
            if name not in by_name or not by_name[name].raised:
                self._change(
                    trouble,
                    partial(rules.seen, trouble=trouble, rule=rule, receivers=receivers, now=now),
                    new=True,
                )
        raised = [record for record, _ in known.values() if record.raised]
        cleared = self._cleared([one for one in raised if one.trouble.kind == "failures"])
        for one in raised:
            there, gone = one.trouble.name in standing, one.trouble.name in cleared
            look = partial(
                rules.after_look, rule=rule, receivers=receivers, now=now, there=there, cleared=gone
            )
            self._change(one.trouble, look)
        for document in rules.finished({name: record for name, (record, _) in known.items()}, now):
            ctx.ledger.write(ALERT, document, None, expect=known[document][1])

    def _standing(self, now: int) -> Iterator[Trouble]:
        """The breakers that are open, and the pauses by those whose pauses count."""
        rule, ctx = self._rule, self._ctx
        if rule.breakers:
            for name, one in open_breakers(ctx, rule.route).items():
                route, stage, lane = name.split("/", 2)
                yield Trouble("breaker", route, stage, lane, one.opened_at or now, one.error)
        if rule.pauses_by:
            for name, hold in read_each(ctx.ledger, HOLD, Hold).items():
                route, stage, lane = (*name.split("/", 2), "", "")[:3]
                if (
                    hold.by in rule.pauses_by
                    and rule.covers(route)
                    and (hold.until is None or now < hold.until)
                ):
                    yield Trouble("pause", route, stage, lane, hold.at, hold.reason)

    def _cleared(self, raised: Sequence[AlertRecord]) -> set[str]:
        """The names of failures of which no failed item is left. The items are looked for only if
        there are fewer with the error than at the last look."""
        if not raised:
            return set()
        groups = {
            (group.route, group.stage, group.group): group.now
            for group in self._ctx.ledger.groups(self._rule.route)
        }
        before, self._now_failed = self._now_failed, groups
        found: set[str] = set()
        for one in raised:
            trouble = one.trouble
            at = (trouble.route, trouble.stage, trouble.group)
            count = groups.get(at, 0)
            if trouble.lane == "*" or (count and count >= before.get(at, count + 1)):
                continue
            if not count or not self._any_failed(trouble):
                found.add(trouble.name)
        return found

    def _any_failed(self, trouble: Trouble) -> bool:
        where = Query(
            route=trouble.route,
            stages=frozenset({trouble.stage}),
            lane=trouble.lane,
            group=trouble.group,
        )
        return bool(self._ctx.ledger.find(replace(where, statuses=FAILED, limit=1)).items)

    # Notices --------------------------------------------------------------------------------------
    def _deliver(self) -> int:
        """Deliver the notices that are due; returns the number accepted."""
        ctx, sent = self._ctx, 0
        for document, (record, version) in stored_alerts(ctx, self._rule.name).items():
            for notice, delivery in rules.due(record, ctx.clock.now()):
                if not rules.still_due(record, notice, delivery):
                    continue  # another process has begun it meanwhile
                receiver = self._receivers.get(delivery.to)
                if receiver is None:
                    # The rule no longer names it.
                    self._change(
                        record.trouble, partial(rules.delivered, notice=notice, to=delivery.to)
                    )
                    continue
                took = rules.taken(record, notice, delivery, ctx.clock.now())
                if not ctx.ledger.write(ALERT, document, took, expect=version):
                    break  # another process has the record; it is looked at again in the next turn
                record, version = took, version + 1
                error = _delivery_error(receiver, rules.envelope_of(record, notice))
                sent += error is None
                self._change(record.trouble, _result(notice, delivery, error, ctx.clock.now()))
                present, version = read_versioned(ctx.ledger, ALERT, document, AlertRecord)
                if present is None:
                    break
                record = present
        return sent

    def _document(self, trouble: Trouble) -> str:
        return f"{self._rule.name}/{trouble.name}"

    def _change(
        self, trouble: Trouble, change: Callable[..., AlertRecord], *, new: bool = False
    ) -> AlertRecord:
        """Change a record by a conditional write; after a conflict, `change` decides again on the
        newer record. An unchanged record is not written; one that does not exist, or was removed,
        is made only if it is `new`."""

        def changed(record: AlertRecord | None) -> AlertRecord | None:
            return None if record is None and not new else change(record)

        name = self._document(trouble)
        after = update(self._ctx.ledger, ALERT, name, AlertRecord, changed).after
        return after or AlertRecord(self._rule.name, trouble, 0, 0, 0, over_at=0)


class FailureReader:
    """The subscriber that finds failed items among the events of a rule's routes."""

    batch = 200

    def __init__(
        self, report: Callable[[Sequence[Trouble]], None], rule: AlertRule, ctx: Context
    ) -> None:
        self.name = rule.watch_name
        self._report, self._rule, self._ctx = report, rule, ctx

    def tell(self, envelopes: Sequence[Envelope]) -> None:
        """Report the failures among these events together."""
        events = [
            one.event
            for one in envelopes
            if isinstance(one.event, Event) and self._counts(one.event)
        ]
        if not events:
            return
        items = self._ctx.ledger.get([(event.route, event.key) for event in events])
        lanes = [item.row.lane if isinstance(item, Item) else "" for item in items]
        self._report([_failure(event, lane) for event, lane in zip(events, lanes, strict=True)])

    def _counts(self, event: Event) -> bool:
        return (
            event.status in FAILED
            and event.line.attempt is not None
            and event.kind != "offered"
            and self._rule.covers(event.route)
        )


def _failure(event: Event, lane: str) -> Trouble:
    attempt = event.line.attempt
    assert attempt is not None
    group = group_of(event.stage, attempt.category, attempt.message)
    text = attempt.message[: rules.TEXT_LIMIT]
    return Trouble(
        "failures",
        event.route,
        event.stage,
        lane,
        event.at,
        text,
        attempt.category,
        group,
        hidden_urls(event.key),
    )


def _delivery_error(receiver: Subscriber, envelope: Envelope) -> Exception | None:
    """Deliver one notice; the error, if the receiver did not accept it."""
    try:
        answers = receiver.tell([envelope])
    except Exception as error:
        return error
    return answers[0] if answers else None


def _result(
    notice: AlertNotice, delivery: AlertDelivery, error: Exception | None, now: int
) -> Callable[[AlertRecord], AlertRecord]:
    """The change of a record after a try to deliver a notice."""
    if error is None:
        return partial(rules.delivered, notice=notice, to=delivery.to)
    said = redacted_text(f"{type(error).__name__}: {error}")
    title = notice.data.get("title")
    if isinstance(error, EventRefused):
        log.error("the alert %r was refused for good by %s: %s", title, delivery.to, said)
        return partial(rules.delivered, notice=notice, to=delivery.to)
    log.warning("the alert %r was not delivered to %s: %s", title, delivery.to, said)
    return partial(rules.not_delivered, notice=notice, delivery=delivery, error=said, now=now)


class AlertView(Struct, frozen=True):
    """An alert that is raised."""

    rule: str
    kind: TroubleKind
    title: str
    route: str
    stage: str
    lane: str
    cause: str
    group: str
    text: str
    """The error's message, or the reason of a pause."""
    example: str
    """Key of an item that failed."""
    count: int
    """Failures since it was raised."""
    since: str | None
    undelivered: list[str]
    """Receivers that have not accepted a notice yet."""
    command: str
    """The command that shows more of it."""
    page: str
    """The page of the dashboard that shows more of it, as a path."""


def alert_views(ctx: Context, rule: str | None = None) -> list[AlertView]:
    """The alerts that are raised now, the oldest first."""
    raised = [record for record, _ in stored_alerts(ctx, rule).values() if record.raised]
    return [_view(record) for record in sorted(raised, key=lambda record: record.raised_at)]


def _view(record: AlertRecord) -> AlertView:
    trouble = record.trouble
    return AlertView(
        record.rule,
        trouble.kind,
        _title(trouble),
        trouble.route,
        trouble.stage,
        trouble.lane,
        trouble.cause,
        trouble.group,
        trouble.text,
        trouble.key,
        record.count,
        iso(record.raised_at),
        sorted({delivery.to for notice in record.notices for delivery in notice.left}),
        record.shown_by.command,
        record.shown_by.page,
    )


def _title(trouble: Trouble) -> str:
    if trouble.kind == "breaker":
        return f"The breaker of {trouble.scope} is open"
    return (
        f"{trouble.scope} is paused"
        if trouble.kind == "pause"
        else f"{trouble.scope} fails: {trouble.cause}"
    )


def undelivered(ctx: Context) -> Iterator[tuple[AlertRecord, AlertNotice, AlertDelivery]]:
    """The notices that a receiver did not accept when they were delivered; they are delivered
    again."""
    for record, _ in stored_alerts(ctx).values():
        for notice in record.notices:
            yield from ((record, notice, delivery) for delivery in notice.left if delivery.error)
