"""Alerts as programs and people see them: those that are raised, and notices that no receiver has accepted."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from milepost.core.values.durations import iso
from milepost.engine.alerts.watch import stored_alerts
from milepost.engine.context import Context


class UndeliveredNotice(Struct, frozen=True):
    """A notice that a receiver has not accepted after at least one try."""

    title: str
    route: str
    to: str
    since: int
    retry_at: int
    error: str


def alert_views(ctx: Context, rule: str | None = None) -> list[dict[str, Any]]:
    """The alerts that are raised now, the oldest first."""
    raised = [one.record for one in stored_alerts(ctx, rule).values() if one.record.raised]
    return [
        {
            "rule": one.rule,
            "kind": one.trouble.kind,
            "route": one.trouble.route,
            "stage": one.trouble.stage,
            "lane": one.trouble.lane,
            "cause": one.trouble.cause,
            "group": one.trouble.group,
            "text": one.trouble.text,
            "example": one.trouble.key,
            "count": one.count,
            "since": iso(one.raised_at),
            "undelivered": sorted({delivery.to for notice in one.notices for delivery in notice.left}),
        }
        for one in sorted(raised, key=lambda record: record.raised_at)
    ]


def undelivered(ctx: Context) -> list[UndeliveredNotice]:
    """The notices that a receiver did not accept when they were delivered; they are delivered again."""
    return [
        UndeliveredNotice(notice.data["title"], one.record.trouble.route, delivery.to, notice.at, delivery.retry_at, delivery.error)
        for one in stored_alerts(ctx).values()
        for notice in one.record.notices
        for delivery in notice.left
        if delivery.error
    ]
