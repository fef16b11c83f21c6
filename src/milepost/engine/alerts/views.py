"""Alerts as programs and people see them: those that are raised, and notices that no receiver has accepted."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from milepost.core.values.durations import iso
from milepost.engine.alerts.record import AlertDelivery, AlertNotice, AlertRecord, Trouble, TroubleKind
from milepost.engine.alerts.watch import stored_alerts
from milepost.engine.context import Context


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
    return f"{trouble.scope} is paused" if trouble.kind == "pause" else f"{trouble.scope} fails: {trouble.cause}"


def undelivered(ctx: Context) -> Iterator[tuple[AlertRecord, AlertNotice, AlertDelivery]]:
    """The notices that a receiver did not accept when they were delivered; they are delivered again."""
    for record, _ in stored_alerts(ctx).values():
        for notice in record.notices:
            yield from ((record, notice, delivery) for delivery in notice.left if delivery.error)
