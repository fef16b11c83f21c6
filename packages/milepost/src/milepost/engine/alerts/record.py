"""Alert records and their pure rules: an alert is raised once, counts repeats, ends once, and each
receiver gets both notices."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from hashlib import sha256
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from milepost.core.events import Envelope, SubscriberEvent, cloud_envelope
from milepost.core.values.durations import iso, short_span
from milepost.engine.alerts.rule import AlertPointer, AlertRule, AlertSubject, usual_pointer

TroubleKind = Literal["failures", "breaker", "pause"]
NoticeKind = Literal["raised", "over"]

MOST = 200
"""Maximum alerts of one rule that are raised at the same time; further troubles share one alert."""
MOST_NOTICES = 20
"""Maximum undelivered notices of one alert. Beyond that the oldest are dropped: a receiver that was
down for a week needs the latest."""
MOST_ENDED = 1_000
"""Maximum records of one rule that are kept after their alerts are over; all of them are read at
every look."""
AHEAD_MS = 60_000
"""A time further in the future than this comes from a wrong clock and is ignored."""
KEEP_MS = 30 * 86_400_000
"""How long a record is kept after its end. Until then, an event that is delivered again raises no
second alert."""
TAKEN_MS = 60_000
"""Lease of a delivery: if the process that began it dies, another one repeats it after this
time."""
SLOWEST_MS = 3_600_000
TEXT_LIMIT = 500


class Trouble(Struct, frozen=True):
    """Something that is wrong now: failures of one cause, an open breaker, or a pause, in one
    lane."""

    kind: TroubleKind
    route: str
    stage: str
    lane: str
    at: int
    text: str = ""
    """The error's message, or the reason of the pause."""
    cause: str = ""
    """The category of the failures."""
    group: str = ""
    key: str = ""
    """An item that failed."""

    @property
    def name(self) -> str:
        """Its name, by which a repeat is recognised."""
        parts = "\x1f".join((self.kind, self.route, self.stage, self.lane, self.group))
        return sha256(parts.encode()).hexdigest()[:16]

    @property
    def scope(self) -> str:
        """Route, stage and lane as text."""
        return "/".join(part for part in (self.route, self.stage, self.lane) if part)

    @property
    def subject(self) -> AlertSubject:
        """The same for the rule's `pointer`; an alert about many lanes or causes names none."""
        lane, group = ("" if name == "*" else name for name in (self.lane, self.group))
        return AlertSubject(self.kind, self.route, self.stage, lane, group)


class AlertDelivery(Struct, frozen=True):
    """A receiver that has not accepted a notice yet."""

    to: str
    tries: int = 0
    retry_at: int = 0
    error: str = ""


class AlertNotice(Struct, frozen=True):
    """A notice that was decided, and the receivers that have yet to get it."""

    kind: NoticeKind
    number: int
    at: int
    data: dict[str, Any]
    left: list[AlertDelivery]


class AlertRecord(Struct, frozen=True):
    """One alert as the ledger keeps it. `number` counts how often it was raised, from 1."""

    rule: str
    trouble: Trouble
    number: int
    raised_at: int
    seen_at: int
    """When the trouble was seen last."""
    count: int = 0
    """Failures since it was raised."""
    over_at: int | None = None
    notices: list[AlertNotice] = []
    pointer: AlertPointer | None = None

    @property
    def shown_by(self) -> AlertPointer:
        """The command and the page that show more of it."""
        return self.pointer or usual_pointer(self.trouble.subject)

    @property
    def raised(self) -> bool:
        return self.over_at is None


def seen(
    record: AlertRecord | None,
    trouble: Trouble,
    rule: AlertRule,
    receivers: Sequence[str],
    now: int,
) -> AlertRecord:
    """The record after a trouble was seen: the first time raises the alert, each further one is
    only counted. A failure from before the alert's end changes nothing."""
    counted = 1 if trouble.kind == "failures" else 0
    if (
        record is not None
        and record.over_at is not None
        and trouble.at <= record.over_at <= now + AHEAD_MS
    ):
        return record
    if record is not None and record.raised:
        latest = (
            replace(record.trouble, text=trouble.text, key=trouble.key)
            if counted
            else record.trouble
        )
        return replace(record, trouble=latest, seen_at=now, count=record.count + counted)
    number = 1 if record is None else record.number + 1
    earlier = [] if record is None else record.notices
    raised = AlertRecord(
        rule.name,
        trouble,
        number,
        trouble.at,
        now,
        counted,
        notices=earlier,
        pointer=rule.pointer_to(trouble.subject),
    )
    return _with_notice(raised, "raised", rule, receivers, now)


def after_look(
    record: AlertRecord,
    rule: AlertRule,
    receivers: Sequence[str],
    now: int,
    *,
    there: bool,
    cleared: bool = False,
) -> AlertRecord:
    """The record after a look. `there`: the trouble is seen at this moment. `cleared`: no item is
    left that failed by its cause. The alert is over when its trouble has not been seen for the
    rule's span."""
    if not record.raised:
        return record
    if there:
        # Not written at every look: `seen_at` needs a resolution of minutes only.
        return (
            replace(record, seen_at=now) if now - record.seen_at > rule.settled_ms // 2 else record
        )
    span = rule.quiet_ms if record.trouble.kind == "failures" else rule.settled_ms
    if not cleared and record.seen_at > now + AHEAD_MS:
        return replace(record, seen_at=now)
    if not cleared and now - record.seen_at < span:
        return record
    return _with_notice(replace(record, over_at=now), "over", rule, receivers, now)


def due(record: AlertRecord, now: int) -> list[tuple[AlertNotice, AlertDelivery]]:
    """The deliveries to begin now. To each receiver a later notice waits for an earlier one."""
    found: list[tuple[AlertNotice, AlertDelivery]] = []
    waiting: set[str] = set()
    for notice in record.notices:
        found += [
            (notice, one)
            for one in notice.left
            if one.to not in waiting and not now < one.retry_at <= now + SLOWEST_MS
        ]
        waiting |= {one.to for one in notice.left}
    return found


def still_due(record: AlertRecord, notice: AlertNotice, delivery: AlertDelivery) -> bool:
    """Whether no other process has changed this delivery since it was found due."""
    return any(
        (one.number, one.kind) == (notice.number, notice.kind) and delivery in one.left
        for one in record.notices
    )


def taken(
    record: AlertRecord, notice: AlertNotice, delivery: AlertDelivery, now: int
) -> AlertRecord:
    """The record of a delivery that this process begins: others leave it alone for a while, and
    repeat it if no result is written."""
    return _changed(
        record, notice, replace(delivery, tries=delivery.tries + 1, retry_at=now + TAKEN_MS)
    )


def delivered(record: AlertRecord, notice: AlertNotice, to: str) -> AlertRecord:
    """The record after a receiver has accepted a notice, or refused it for good."""
    return _changed(record, notice, AlertDelivery(to), gone=True)


def not_delivered(
    record: AlertRecord, notice: AlertNotice, delivery: AlertDelivery, error: str, now: int
) -> AlertRecord:
    """The record after a try that failed; the next one comes after a growing pause."""
    pause = min(SLOWEST_MS, 5_000 * 2 ** min(delivery.tries, 12))
    return _changed(
        record,
        notice,
        replace(delivery, tries=delivery.tries + 1, retry_at=now + pause, error=error[:TEXT_LIMIT]),
    )


def finished(records: Mapping[str, AlertRecord], now: int) -> list[str]:
    """The names of the records to delete: the alert is over, every receiver has its notices, and
    the record is old or one of too many."""
    ended = {
        name: one.over_at
        for name, one in records.items()
        if one.over_at is not None and not one.notices
    }
    latest_first = sorted(ended, key=lambda name: ended[name], reverse=True)
    return [
        name
        for number, name in enumerate(latest_first)
        if number >= MOST_ENDED or now - ended[name] > KEEP_MS
    ]


def bounded(standing: Sequence[Trouble], raised: Collection[str], now: int) -> list[Trouble]:
    """At most `MOST` of these breakers and pauses, reported ones first; one trouble stands for all
    further ones."""
    if len(standing) <= MOST:
        return list(standing)
    found = sorted(standing, key=lambda one: (one.name not in raised, one.at, one.name))
    return [*found[:MOST], Trouble("breaker", found[MOST].route, "*", "*", now, found[MOST].text)]


def envelope_of(record: AlertRecord, notice: AlertNotice) -> Envelope:
    """The notice as subscribers get it: a CloudEvent. A repeat has the same id."""
    trouble = record.trouble
    notice_id = _notice_id(record, notice.kind, notice.number)
    order = 2 * notice.number - (notice.kind == "raised")
    about = SubscriberEvent(
        notice_id,
        f"alert-{notice.kind}",
        trouble.route,
        trouble.name,
        order,
        notice.at,
        trouble.stage,
    )
    source, kind = f"/milepost/alerts/{record.rule}", f"milepost.alert.{notice.kind}"
    content = cloud_envelope(notice_id, source, kind, trouble.scope, notice.at, order, notice.data)
    return Envelope(content, about)


def _notice_id(record: AlertRecord, kind: str, number: int) -> str:
    return f"alerts/{record.rule}/{record.trouble.name}/{number}/{kind}"


def _with_notice(
    record: AlertRecord, kind: NoticeKind, rule: AlertRule, receivers: Sequence[str], now: int
) -> AlertRecord:
    trouble = record.trouble
    title, text = _title_and_text(record, kind, rule)
    facts = {
        "Route": trouble.route,
        "Stage": trouble.stage,
        rule.lane.capitalize(): trouble.lane,
        "Cause": trouble.cause,
    }
    facts |= {
        "Example": trouble.key,
        "Failed": f"{record.count:,}" if kind == "over" and record.count else "",
    }
    data: dict[str, Any] = {
        "title": title,
        "text": text,
        "kind": trouble.kind,
        "route": trouble.route,
        "stage": trouble.stage,
        "lane": trouble.lane,
        "cause": trouble.cause,
        "group": trouble.group,
        "count": record.count,
        "example": trouble.key,
        "since": iso(record.raised_at),
        "facts": {name: value for name, value in facts.items() if value},
        "command": record.shown_by.command,
        "page": record.shown_by.page,
    }
    if rule.dashboard:
        data["link"] = rule.dashboard.rstrip("/") + record.shown_by.page
    if kind == "over":
        data["follows"] = _notice_id(record, "raised", record.number)
    left = [AlertDelivery(name) for name in dict.fromkeys(receivers)]
    notices = (
        [*record.notices, AlertNotice(kind, record.number, now, data, left)]
        if left
        else record.notices
    )
    return replace(record, notices=notices[-MOST_NOTICES:])


def _title_and_text(record: AlertRecord, kind: NoticeKind, rule: AlertRule) -> tuple[str, str]:
    trouble = record.trouble
    lane = f" for {trouble.lane}" if trouble.lane not in ("", "*") else ""
    where = f"{trouble.route}: {rule.items} at '{trouble.stage}'{lane}"
    said = trouble.text[:TEXT_LIMIT].rstrip(" .")
    if kind == "over":
        lasted = short_span(max(0, (record.over_at or record.seen_at) - record.raised_at))
        if trouble.kind == "failures":
            text = f"It lasted {lasted}. The {rule.items} that are still failed can be retried."
            return f"Over: {where} no longer fail: {trouble.cause}", text
        ended = "has closed" if trouble.kind == "breaker" else "was resumed"
        if trouble.lane == "*":
            return (
                f"Over: {trouble.route}: no longer are more than {MOST} lanes closed",
                f"It lasted {lasted}.",
            )
        subject = "the breaker of" if trouble.kind == "breaker" else "the pause of"
        return (
            f"Over: {subject} {trouble.scope} {ended}",
            f"It lasted {lasted}. What waited is worked on.",
        )
    if trouble.kind == "failures":
        if trouble.lane == "*":
            return (
                f"{trouble.route}: {rule.items} fail by many causes",
                f"More than {MOST} causes fail at the same time; the first beyond these: {said}",
            )
        text = f"{said or trouble.cause}. Further failures by this cause are counted and not reported, until it is over."
        return f"{where} fail: {trouble.cause}", text
    if trouble.lane == "*":
        text = f"Open breakers and pauses hold them; beyond {MOST} they are not reported one by one. The first beyond these: {said}"
        return f"{trouble.route}: {rule.items} of more than {MOST} lanes wait", text
    if trouble.kind == "breaker":
        text = f"Its {rule.items} wait and use no attempts, until a probe succeeds. The last failure: {said}"
        return f"The breaker of {trouble.scope} is open", text
    return (
        f"{trouble.scope} is paused",
        f"{said or 'No reason was given'}. Its {rule.items} wait until it is resumed.",
    )


def _changed(
    record: AlertRecord, notice: AlertNotice, delivery: AlertDelivery, *, gone: bool = False
) -> AlertRecord:
    """The record with this delivery changed, or without it; a notice that every receiver has is
    dropped."""
    notices: list[AlertNotice] = []
    for one in record.notices:
        if (one.number, one.kind) == (notice.number, notice.kind):
            left = [each for each in one.left if not (gone and each.to == delivery.to)]
            one = replace(one, left=[delivery if each.to == delivery.to else each for each in left])
        if one.left:
            notices.append(one)
    return replace(record, notices=notices)
