"""Lock of routes during a transfer: they are never open in both ledgers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from msgspec.structs import replace

from milepost.core.admission.controls import Hold
from milepost.core.due import look
from milepost.core.errors import LedgerError, LedgerMoved, RouteChanged, UsageError
from milepost.core.routes.plan import Plan
from milepost.core.status import Status
from milepost.engine.act_log import record, signed
from milepost.engine.context import Context
from milepost.engine.routes.versions import compare
from milepost.engine.views.items import clock_time, counted, each, live_processes
from milepost.ports import documents as kinds
from milepost.ports.documents import (
    MOVER,
    Cursor,
    Moved,
    Moving,
    RouteVersion,
    read_all,
    read_versioned,
    update,
)
from milepost.ports.items import Query
from milepost.ports.ledger import Ledger

"""Name that holds routes and subscribers in the target ledger during a transfer."""


def refuse_moved(ledger: Ledger, plans: Sequence[Plan]) -> None:
    """Raise LedgerMoved if one of these routes has been moved, or is being moved, to another
    ledger."""
    moved = read_all(ledger, kinds.MOVED, Moved)
    for plan in plans:
        if (mark := moved.get(plan.name)) is not None:
            if mark.finished_at is not None:
                raise LedgerMoved(
                    f"route {plan.name!r} was moved to {mark.to} by {mark.by} ({mark.reason}); use that ledger: --ledger '{mark.to}'"
                )
            raise LedgerMoved(
                f"route {plan.name!r} is being moved to {mark.to} by {mark.by} ({mark.reason}). To continue:"
                f" milepost move --to '{mark.to}'; to abandon it, add --give-up"
            )


def check(source: Context, target: Context, routes: Sequence[str], dry_run: bool) -> None:
    """Raise if something prevents the transfer; changes nothing."""
    if "take over" in target.ledger.missing_capabilities and not dry_run:
        raise UsageError(
            f"{target.ledger.url} cannot take over items; give a ledger on AWS: --to dynamodb://REGION/PREFIX"
        )
    here, there = (
        read_all(context.ledger, kinds.ROUTE, RouteVersion) for context in (source, target)
    )
    for route in routes:
        plan = source.plan(route)
        if route not in here:
            raise UsageError(
                f"this ledger has no route {route!r}; it has {', '.join(sorted(here)) or 'no routes'}"
            )
        version = here[route]
        if version.digest != plan.digest:
            difference = compare(source.ledger, plan)
            raise RouteChanged(
                f"route {route!r} differs from the ledger's: {difference}. First apply it: {difference.cure}"
            )
        source.take(plan.at_version(version.version))
        if version.moves:
            raise LedgerError(
                f"items of {route!r} are still being moved between its stages; first run: milepost routes apply {route}"
            )
        if route in there and there[route].digest != plan.digest:
            raise LedgerError(
                f"route {route!r} has other stages at {target.ledger.url}; move to another prefix, or apply the same route there"
            )
        mark = marks(source).get(route)
        if mark is not None and mark.to != target.ledger.url and not dry_run:
            raise LedgerError(
                f"route {route!r} is being moved, or was moved, to {mark.to}; continue that move, or abandon it first"
            )
        if mark is not None and mark.routes != sorted(routes):
            raise UsageError(
                f"route {route!r} is being moved together with others; name all of them, or none: {', '.join(mark.routes)}"
            )
    for context, which in ((source, "this ledger"), (target, target.ledger.url)):
        live = live_processes(context)
        if live:
            holders = ", ".join(process.holder for process in live[:5])
            raise LedgerError(
                f"processes are running on {which}: {holders}; stop them, then run this again"
            )
    busy = [f"{n:,} at {stage!r}" for (_, stage), n in sorted(_claimed(source, routes).items())]
    if busy and dry_run:
        raise LedgerError(
            f"workers hold items: {', '.join(busy)}; stop them, and wait until their leases expire"
        )


def _claimed(ctx: Context, routes: Sequence[str]) -> Counter[tuple[str, str]]:
    """Number of items that workers have claimed, by route and stage."""
    claimed = (
        each(ctx, Query(route=route, statuses=frozenset({Status.PROCESSING}))) for route in routes
    )
    return Counter((item.route, item.stage) for items in claimed for item in items)


def marks(ctx: Context) -> dict[str, Moved]:
    """Routes that have been moved, or are being moved, from this ledger."""
    return read_all(ctx.ledger, kinds.MOVED, Moved)


def close(source: Context, target: Context, routes: Sequence[str], by: str, reason: str) -> None:
    """Lock the routes in both ledgers."""
    now = source.clock.now()
    for route in routes:
        if route not in marks(source):
            source.ledger.write(
                kinds.MOVED,
                route,
                Moved(target.ledger.url, now, by, reason, sorted(routes)),
                expect=0,
            )
        if marks(source)[route].finished_at is None:
            target.ledger.write(
                kinds.HOLD,
                route,
                Hold(now, MOVER, f"it is being moved from {source.ledger.url}"),
                expect=0,
            )


def at_rest(ctx: Context, routes: Sequence[str]) -> int:
    """Record losses of dead workers and expired leases; raise if a worker may still hold an
    item."""
    lost = 0
    ctx.ledger.reclaim(ctx.ledger.dead_workers(), ctx.clock.now())
    for route in routes:
        plan, left = ctx.plan(route), []
        for item in list(
            each(
                ctx, Query(route=route, statuses=frozenset({Status.PROCESSING}), with_content=True)
            )
        ):
            now = ctx.clock.now()
            change = look(item, plan, now, 0.0, None)
            if (
                change is not None
                and ctx.ledger.apply([change], now) == [None]
                and change.after.status is not Status.PROCESSING
            ):
                lost += 1
            else:
                left.append(item)
        if left:
            now = ctx.clock.now()
            until = max(item.row.look_at or now for item in left)
            raise LedgerError(
                f"{counted(len(left), 'item')} of {route!r} held by {', '.join(sorted({item.row.holder or '?' for item in left})[:5])} until"
                f" {clock_time(until, now)} at the latest; stop that process or wait, then run this again"
            )
    return lost


def give_up(source: Context, routes: Sequence[str], *, by: str, reason: str) -> list[str]:
    """Abandon an unfinished transfer: unlock the routes here. Items already copied stay in the
    target, paused."""
    signed(by, reason)
    if any(
        mark.finished_at is not None for route, mark in marks(source).items() if route in routes
    ):
        raise LedgerMoved(
            "the move is finished and work may have continued there: it can no longer be abandoned"
        )
    opened = []
    for route in routes:
        unlocking = update(source.ledger, kinds.MOVED, route, Moved, _abandoned)
        if unlocking.before is not None and unlocking.written:
            about = {"scope": route, "to": unlocking.before.to}
            record(source, "give up", route, by, reason, about)
            opened.append(route)
    return opened


def _abandoned(moved: Moved | None) -> Moved | None:
    """The mark of a route after its transfer was abandoned: none, unless it has finished."""
    if moved is not None and moved.finished_at is not None:
        return moved
    return None


def finish(
    source: Context, target: Context, moving: Moving, name: str, by: str, reason: str
) -> None:
    """Close the routes here for good, then open them there. In this order they are never open in
    both."""
    now = source.clock.now()
    for route in moving.routes:
        if _close_for_good(source, route, now):
            record(source, "move", route, by, reason, {"scope": route, "to": target.ledger.url})
            record(target, "move", route, by, reason, {"scope": route, "from": source.ledger.url})
    for subscriber, seq in moving.cursors.items():
        _open_cursor(target, subscriber, seq)
    holds = source.ledger.read(kinds.HOLD)
    for route in moving.routes:
        there, version = read_versioned(target.ledger, kinds.HOLD, route, Hold)
        if there is not None and there.by == MOVER:
            target.ledger.write(
                kinds.HOLD, route, holds[route].value if route in holds else None, expect=version
            )
    target.ledger.write(kinds.MOVING, name, replace(moving, finished_at=now))


def _close_for_good(source: Context, route: str, now: int) -> bool:
    """Mark the transfer of a route as finished; False: it was."""

    def finished(moved: Moved | None) -> Moved:
        if moved is None:
            raise LedgerError(f"the move of route {route!r} has just been abandoned")
        return moved if moved.finished_at is not None else replace(moved, finished_at=now)

    return update(source.ledger, kinds.MOVED, route, Moved, finished).written


def _open_cursor(target: Context, subscriber: str, seq: int) -> None:
    """Let a subscriber that the move holds continue after this place."""

    def opened(cursor: Cursor | None) -> Cursor | None:
        if cursor is None or cursor.lease != MOVER:
            return cursor
        return replace(cursor, seq=seq, lease="", until=0)

    update(target.ledger, kinds.CURSOR, subscriber, Cursor, opened)
