"""Transfer of routes to another ledger: copy history lines, rows, seals and documents, then compare everything.

Meanwhile no process works on the routes, neither here (they are marked as moving) nor there (they are paused, and their subscribers are
held). Only after a complete comparison are the routes opened there, and closed here for good. An interrupted transfer continues with
the same call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from hashlib import sha256

from msgspec import Struct, field
from msgspec.structs import replace

from milepost.core.errors import LedgerError
from milepost.core.routes.plan import Plan
from milepost.engine.act_log import signed
from milepost.engine.apply import unreadable
from milepost.engine.context import Context
from milepost.engine.transfer.lock import MOVER, at_rest, check, close, finish, marks
from milepost.engine.transfer.verify import TransferDifference, compare
from milepost.engine.views.items import counted
from milepost.evidence.record import blob_name
from milepost.ports.documents import (
    ACT,
    BACK_FILL,
    BREAKER,
    CURSOR,
    HOLD,
    LIMIT,
    LIST,
    MOVING,
    PARKED,
    ROUTE,
    Cursor,
    ListRecord,
    Moving,
    Parked,
    read_as,
)
from milepost.ports.feed import HistoryEntry
from milepost.ports.items import Query

LINES = 500
ITEMS = 200
SEALS = 500
CARRIED = (HOLD, LIMIT, BREAKER, BACK_FILL, LIST, ACT, PARKED)
HELD_MS = 7 * 86_400_000
"""Lease of the subscribers there during the transfer; it limits how long an abandoned transfer holds them."""

Progress = Callable[[str, int, int | None], None]
"""Called with the current step, the amount done, and the total if known."""


class MoveReport(Struct):
    """Result of a transfer; with `dry_run`, what there is to transfer."""

    to: str
    routes: list[str]
    dry_run: bool = False
    lines: int = 0
    items: int = 0
    statuses: dict[str, int] = field(default_factory=dict)
    seals: int = 0
    documents: int = 0
    blobs: int = 0
    lost: int = 0
    """Items that dead workers held; their losses were written first."""
    subscribers: dict[str, int] = field(default_factory=dict)
    """Lines that each subscriber has not received yet; it receives them from there."""
    differences: list[TransferDifference] = field(default_factory=list)
    finished: bool = False
    before: bool = False
    """An earlier call finished the transfer."""


def move(
    source: Context,
    target: Context,
    routes: Sequence[str],
    *,
    by: str,
    reason: str,
    dry_run: bool = False,
    on_progress: Progress | None = None,
) -> MoveReport:
    """Move these routes. If the report has `differences`, the transfer is not finished and the routes stay closed."""
    tell = on_progress or (lambda what, done, whole: None)
    report = MoveReport(target.ledger.url, list(routes), dry_run)
    if not dry_run:
        signed(by, reason)
    check(source, target, routes, dry_run)
    if dry_run:
        _count(source, report)
        return report
    name = _name(source, routes)
    if all(route in marks(source) and marks(source)[route].finished_at is not None for route in routes):
        # Interrupted at the very end, or done. Work that has continued there is not touched.
        finish(source, target, read_as(Moving, target.ledger.read(MOVING)[name].value), name, by, reason)
        report.finished = report.before = True
        return report
    report.lost = at_rest(source, routes)
    close(source, target, routes, by, reason)
    report.lost += at_rest(source, routes)
    moving = _begin(source, target, routes, name)
    moving = _lines(source, target, moving, name, report, tell)
    _rows(source, target, routes, report, tell)
    _documents(source, target, routes, report)
    report.differences += compare(source, target, routes, moving.since, tell)
    if not report.differences:
        finish(source, target, moving, name, by, reason)
        report.finished = True
    return report


def _name(source: Context, routes: Sequence[str]) -> str:
    """Name of the transfer's document in the target ledger."""
    return sha256("\n".join([source.ledger.url, *sorted(routes)]).encode()).hexdigest()[:16]


def _begin(source: Context, target: Context, routes: Sequence[str], name: str) -> Moving:
    """Create the transfer's document. Subscribers are held before the first line arrives, so that nothing is delivered twice."""
    held = target.ledger.read_one(MOVING, name)
    for route in routes:
        if held is None and target.ledger.find(Query(route=route, limit=1)).items:
            raise LedgerError(f"{target.ledger.url} already has items of {route!r}; move to another prefix")
        target.ledger.write(ROUTE, route, source.ledger.read(ROUTE)[route].value, expect=0)
    if held is not None:
        return read_as(Moving, held.value)
    newest = target.ledger.last_seq()
    ours, theirs = source.ledger.read(CURSOR), target.ledger.read(CURSOR)
    for subscriber in sorted(ours.keys() & theirs.keys()):
        behind = newest - read_as(Cursor, theirs[subscriber].value).seq
        if behind > 0 and not read_as(Cursor, theirs[subscriber].value).removed:
            raise LedgerError(
                f"{subscriber} has {counted(behind, 'line')} waiting at {target.ledger.url}; run 'milepost up --until-idle' there first"
            )
    until = target.clock.now() + HELD_MS
    for subscriber, document in ours.items():
        cursor = replace(read_as(Cursor, document.value), seq=newest, lease=MOVER, until=until, failures=0, retry_at=0, error="")
        target.ledger.write(CURSOR, subscriber, cursor)
    moving = Moving(source.ledger.url, sorted(routes), newest, place=newest)
    target.ledger.write(MOVING, name, moving, expect=0)
    return moving


# Copy -----------------------------------------------------------------------------------------------------------------------
def _lines(source: Context, target: Context, moving: Moving, name: str, report: MoveReport, tell: Progress) -> Moving:
    """Copy all lines in order, and translate each subscriber's cursor to positions in the target."""
    newest = source.ledger.last_seq()
    cursors = {subscriber: read_as(Cursor, document.value) for subscriber, document in source.ledger.read(CURSOR).items()}
    reached = {subscriber: moving.cursors.get(subscriber, moving.since) for subscriber in cursors}
    for lines in pages(source, moving.lines):
        ours = [written for written in lines if written.route in moving.routes]
        places = _take_over_lines(target, source, ours)
        for subscriber, cursor in cursors.items():
            passed = [place for written, place in zip(ours, places, strict=True) if written.seq <= cursor.seq]
            reached[subscriber] = max([reached[subscriber], *passed])
        moving = replace(moving, lines=lines[-1].seq, place=max([moving.place, *places]), cursors=dict(reached))
        target.ledger.write(MOVING, name, moving)
        tell("lines", moving.lines, newest)
    report.lines = moving.place - moving.since
    live = {subscriber: cursor for subscriber, cursor in cursors.items() if not cursor.removed}
    report.subscribers = {subscriber: moving.place - reached[subscriber] for subscriber in live}
    return moving


def _take_over_lines(target: Context, source: Context, lines: Sequence[HistoryEntry]) -> list[int]:
    """Copy lines in runs of one route each, so that lines of several routes keep their order."""
    places: list[int] = []
    start = 0
    for end in range(1, len(lines) + 1):
        if end == len(lines) or lines[end].route != lines[start].route:
            plan = _plan(target, source, lines[start].route)
            places += target.ledger.take_over(plan, (), lines[start:end], (), target.clock.now()).places
            start = end
    return places


def _rows(source: Context, target: Context, routes: Sequence[str], report: MoveReport, tell: Progress) -> None:
    whole = sum(count.n for route in routes for count in source.ledger.counts(route))
    for route in routes:
        plan, query = _plan(target, source, route), Query(route=route, with_content=True, limit=ITEMS)
        while True:
            page = source.ledger.find(query)
            taken = target.ledger.take_over(plan, page.items, (), (), target.clock.now())
            report.differences += [TransferDifference(route, key, why) for key, why in taken.refused]
            report.differences += [TransferDifference(route, one.key, f"not moved: {unreadable(one)}") for one in page.refused]
            report.items += len(page.items)
            for item in page.items:
                report.statuses[item.row.status] = report.statuses.get(item.row.status, 0) + 1
            tell("items", report.items, whole)
            if page.next is None:
                break
            query = replace(query, after=page.next)
        after: str | None = None
        while True:
            seals, after = source.ledger.sealed(route, after, SEALS)
            target.ledger.take_over(plan, (), (), seals, target.clock.now())
            report.seals += len(seals)
            if plan.route.evidence:
                report.blobs += sum(_copy_evidence(source, target, route, seal.key) for seal in seals)
            tell("seals", report.seals, None)
            if after is None:
                break


def _documents(source: Context, target: Context, routes: Sequence[str], report: MoveReport) -> None:
    """Copy pauses, limits, back-fills, lists with their keys, acts and parked events; existing documents stay."""
    for kind in CARRIED:
        for name, document in source.ledger.read(kind).items():
            if not _concerns(kind, name, document.value, routes):
                continue
            if kind == LIST:
                report.blobs += _copy_blob(source, target, read_as(ListRecord, document.value).keys_blob)
            if not (kind == HOLD and name in routes):
                target.ledger.write(kind, name, document.value, expect=0)
            report.documents += 1


def _concerns(kind: str, name: str, value: object, routes: Sequence[str]) -> bool:
    if kind in (HOLD, LIMIT, BREAKER, BACK_FILL):
        return name.split("/", 1)[0] in routes
    if kind == PARKED:
        return read_as(Parked, value).route in routes
    assert isinstance(value, dict)
    return value["route"] in routes


def _copy_blob(source: Context, target: Context, name: str) -> int:
    if not name:
        return 0
    target.blobs.write(name, source.blobs.read(name))
    return 1


def _copy_evidence(source: Context, target: Context, route: str, key: str) -> int:
    """Copy the evidence of a removed row, if there is any."""
    try:
        return _copy_blob(source, target, blob_name(route, key))
    except FileNotFoundError:
        return 0


def pages(ctx: Context, after: int) -> Iterator[list[HistoryEntry]]:
    """The feed after a position, in pages."""
    while lines := ctx.ledger.feed(after, LINES):
        yield lines
        after = lines[-1].seq


def _plan(target: Context, source: Context, route: str) -> Plan:
    return target.plans.get(route) or source.plan(route)


def _count(source: Context, report: MoveReport) -> None:
    """Count what there is to transfer."""
    for route in report.routes:
        for count in source.ledger.counts(route):
            report.items += count.n
            report.statuses[count.status] = report.statuses.get(count.status, 0) + count.n
        after: str | None = None
        while True:
            seals, after = source.ledger.sealed(route, after, SEALS)
            report.seals += len(seals)
            if after is None:
                break
    for lines in pages(source, 0):
        report.lines += sum(written.route in report.routes for written in lines)
    newest = source.ledger.last_seq()
    for subscriber, document in source.ledger.read(CURSOR).items():
        cursor = read_as(Cursor, document.value)
        if not cursor.removed:
            report.subscribers[subscriber] = max(0, newest - cursor.seq)
    for kind in CARRIED:
        documents = source.ledger.read(kind)
        report.documents += sum(_concerns(kind, name, document.value, report.routes) for name, document in documents.items())
