"""Transfer of routes to another ledger: copy history lines, rows, seals and documents, then compare
everything.

Meanwhile no process works on the routes, neither here (they are marked as moving) nor there (they
are paused, and their subscribers are held). Only after a complete comparison are the routes opened
there, and closed here for good. An interrupted transfer continues with the same call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from milepost.core.errors import LedgerDamaged, LedgerError
from milepost.core.routes.plan import Plan
from milepost.engine.act_log import signed
from milepost.engine.alerts.record import AlertRecord
from milepost.engine.apply import unreadable
from milepost.engine.context import Context
from milepost.engine.evidence import life_before, records_of
from milepost.engine.ledger_pages import line_pages, query_pages, seal_pages
from milepost.engine.transfer.lock import at_rest, check, close, finish, marks
from milepost.engine.transfer.verify import Progress, TransferDifference, compare
from milepost.engine.views.items import counted
from milepost.evidence.record import blob_name
from milepost.ports import documents as kinds
from milepost.ports.documents import (
    MOVER,
    Cursor,
    DamagedValue,
    Document,
    ListRecord,
    Moving,
    Parked,
    read_all,
    read_as,
)
from milepost.ports.feed import HistoryEntry
from milepost.ports.items import KnownKey, Query

LINES = 500
ITEMS = 200
SEALS = 500
CARRIED = (
    kinds.HOLD,
    kinds.LIMIT,
    kinds.BREAKER,
    kinds.BACK_FILL,
    kinds.LIST,
    kinds.ACT,
    kinds.PARKED,
    kinds.ALERT,
    kinds.APPLICATION,
    kinds.TALLY,
)

Place = Callable[[int], int]
"""The place in the target's feed of the last line that was moved from up to this place."""
Translation = Callable[[str, Any, Place], Any]
"""A document of an application, by its name, as it must be in the target."""

HELD_MS = 7 * 86_400_000
"""Lease of the subscribers there during the transfer; it limits how long an abandoned transfer
holds them."""


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
    left: list[str] = field(default_factory=list)
    """Documents that are not moved: of applications that are not named, or whose routes do not all
    move, and API keys."""
    blobs: int = 0
    lost: int = 0
    """Items that dead workers had claimed; their losses were written first."""
    subscribers: dict[str, int] = field(default_factory=dict)
    """Lines that each subscriber has not received yet; it receives them from there."""
    differences: list[TransferDifference] = field(default_factory=list)
    finished: bool = False
    before: bool = False
    """An earlier call had already finished the transfer."""


def move(
    source: Context,
    target: Context,
    routes: Sequence[str],
    *,
    by: str,
    reason: str,
    dry_run: bool = False,
    on_progress: Progress | None = None,
    applications: Mapping[str, Translation] | None = None,
) -> MoveReport:
    """Move these routes, and the documents of these applications. If the report has `differences`,
    the transfer is not finished and the routes stay closed."""
    report_progress = on_progress or (lambda what, done, whole: None)
    report = MoveReport(target.ledger.url, list(routes), dry_run)
    if not dry_run:
        signed(by, reason)
    check(source, target, routes, dry_run)
    documents = DocumentTransfer(source, routes, applications or {})
    report.left = documents.left()
    if dry_run:
        _count(source, documents, report)
        return report
    name = _name(source, routes)
    if all(
        route in marks(source) and marks(source)[route].finished_at is not None for route in routes
    ):
        # Interrupted at the very end, or done. Work that has continued there is not touched.
        finish(
            source,
            target,
            read_as(Moving, target.ledger.read(kinds.MOVING)[name].value),
            name,
            by,
            reason,
        )
        report.finished = report.before = True
        return report
    _carry_secret(source, target)
    report.lost = at_rest(source, routes)
    close(source, target, routes, by, reason)
    report.lost += at_rest(source, routes)
    moving = _begin(source, target, routes, name)
    moving = _lines(source, target, moving, name, report, report_progress)
    _rows(source, target, routes, report, report_progress)
    report.documents, blobs = documents.carry(target, moving)
    report.blobs += blobs
    report.differences += compare(source, target, routes, moving.since, report_progress)
    if not report.differences:
        finish(source, target, moving, name, by, reason)
        report.finished = True
    return report


def _name(source: Context, routes: Sequence[str]) -> str:
    """Name of the transfer's document in the target ledger."""
    return sha256("\n".join([source.ledger.url, *sorted(routes)]).encode()).hexdigest()[:16]


def _carry_secret(source: Context, target: Context) -> None:
    """Give the target the secret by which forgotten keys stay known; it must not have another."""
    secret = source.ledger.read_one(kinds.FORGET, kinds.SECRET)
    if secret is None or target.ledger.write(kinds.FORGET, kinds.SECRET, secret.value, expect=0):
        return
    theirs = target.ledger.read_one(kinds.FORGET, kinds.SECRET)
    if theirs is not None and theirs.value["secret"] != secret.value["secret"]:
        raise LedgerError(
            f"{target.ledger.url} has forgotten items of its own, by another secret; move to another prefix"
        )


def _begin(source: Context, target: Context, routes: Sequence[str], name: str) -> Moving:
    """Create the transfer's document. Subscribers are held before the first line arrives, so that
    nothing is delivered twice."""
    document = target.ledger.read_one(kinds.MOVING, name)
    for route in routes:
        if document is None and target.ledger.find(Query(route=route, limit=1)).items:
            raise LedgerError(
                f"{target.ledger.url} already has items of {route!r}; move to another prefix"
            )
        target.ledger.write(
            kinds.ROUTE, route, source.ledger.read(kinds.ROUTE)[route].value, expect=0
        )
    if document is not None:
        return read_as(Moving, document.value)
    newest = target.ledger.last_seq()
    ours, theirs = (
        read_all(source.ledger, kinds.CURSOR, Cursor),
        read_all(target.ledger, kinds.CURSOR, Cursor),
    )
    for subscriber in sorted(ours.keys() & theirs.keys()):
        behind = newest - theirs[subscriber].seq
        if behind > 0 and not theirs[subscriber].removed:
            raise LedgerError(
                f"{subscriber} has {counted(behind, 'line')} waiting at {target.ledger.url}; run 'milepost up --until-idle' there first"
            )
    until = target.clock.now() + HELD_MS
    for subscriber, cursor in ours.items():
        held_there = replace(
            cursor, seq=newest, lease=MOVER, until=until, failures=0, retry_at=0, error=""
        )
        target.ledger.write(kinds.CURSOR, subscriber, held_there)
    moving = Moving(source.ledger.url, sorted(routes), newest, place=newest)
    target.ledger.write(kinds.MOVING, name, moving, expect=0)
    return moving


# Copy ---------------------------------------------------------------------------------------------
def _lines(
    source: Context,
    target: Context,
    moving: Moving,
    name: str,
    report: MoveReport,
    report_progress: Progress,
) -> Moving:
    """Copy all lines in order, and translate each subscriber's cursor to positions in the
    target."""
    newest = source.ledger.last_seq()
    cursors = read_all(source.ledger, kinds.CURSOR, Cursor)
    reached = {subscriber: moving.cursors.get(subscriber, moving.since) for subscriber in cursors}
    for lines in line_pages(source.ledger, moving.lines, LINES):
        ours = [written for written in lines if written.route in moving.routes]
        places = _take_over_lines(target, source, ours)
        for subscriber, cursor in cursors.items():
            passed = [
                place
                for written, place in zip(ours, places, strict=True)
                if written.seq <= cursor.seq
            ]
            reached[subscriber] = max([reached[subscriber], *passed])
        moving = replace(
            moving, lines=lines[-1].seq, place=max([moving.place, *places]), cursors=dict(reached)
        )
        target.ledger.write(kinds.MOVING, name, moving)
        report_progress("lines", moving.lines, newest)
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
            places += target.ledger.take_over(
                plan, (), lines[start:end], (), target.clock.now()
            ).places
            start = end
    return places


def _rows(
    source: Context,
    target: Context,
    routes: Sequence[str],
    report: MoveReport,
    report_progress: Progress,
) -> None:
    whole = sum(count.n for route in routes for count in source.ledger.counts(route))
    for route in routes:
        plan, query = (
            _plan(target, source, route),
            Query(route=route, with_content=True, limit=ITEMS),
        )
        for page in query_pages(source.ledger, query):
            taken = target.ledger.take_over(plan, page.items, (), (), target.clock.now())
            report.differences += [
                TransferDifference(route, key, why) for key, why in taken.refused
            ]
            report.differences += [
                TransferDifference(route, one.key, f"not moved: {unreadable(one)}")
                for one in page.refused
            ]
            report.items += len(page.items)
            report.blobs += sum(
                _copy_earlier_lives(source, target, route, item.key)
                for item in page.items
                if item.row.life
            )
            for item in page.items:
                report.statuses[item.row.status] = report.statuses.get(item.row.status, 0) + 1
            report_progress("items", report.items, whole)
        for seals in seal_pages(source.ledger, route, SEALS):
            target.ledger.take_over(plan, (), (), seals, target.clock.now())
            report.seals += len(seals)
            if plan.route.evidence:
                report.blobs += sum(_copy_evidence(source, target, route, seal) for seal in seals)
                report.blobs += sum(
                    _copy_earlier_lives(source, target, route, seal.key)
                    for seal in seals
                    if seal.life
                )
            report_progress("seals", report.seals, None)


def _copy_evidence(source: Context, target: Context, route: str, seal: KnownKey) -> int:
    """Copy the evidence of a removed row, if there is any."""
    return _copy_kept(source, target, blob_name(route, seal.key, seal.life))


def _copy_kept(source: Context, target: Context, name: str) -> int:
    try:
        return copy_blob(source, target, name)
    except FileNotFoundError:
        return 0


def _copy_earlier_lives(source: Context, target: Context, route: str, key: str) -> int:
    """Copy the evidence of the lives of a key before the present one."""
    earlier = [life_before(found) for found in records_of(source, route, key)]
    lives = [life for life in earlier if life is not None]
    return sum(_copy_kept(source, target, blob_name(route, key, life)) for life in lives)


def _plan(target: Context, source: Context, route: str) -> Plan:
    return target.plans.get(route) or source.plan(route)


def _count(source: Context, documents: DocumentTransfer, report: MoveReport) -> None:
    """Count what there is to transfer."""
    for route in report.routes:
        for count in source.ledger.counts(route):
            report.items += count.n
            report.statuses[count.status] = report.statuses.get(count.status, 0) + count.n
        report.seals += sum(map(len, seal_pages(source.ledger, route, SEALS)))
    for lines in line_pages(source.ledger, 0, LINES):
        report.lines += sum(written.route in report.routes for written in lines)
    newest = source.ledger.last_seq()
    for subscriber, cursor in read_all(source.ledger, kinds.CURSOR, Cursor).items():
        if not cursor.removed:
            report.subscribers[subscriber] = max(0, newest - cursor.seq)
    report.documents = sum(1 for _ in documents.carried())


# Documents ----------------------------------------------------------------------------------------
class DocumentTransfer:
    """The documents that move with some routes. `applications` are those whose routes all move,
    each with the translation of its documents."""

    def __init__(
        self, source: Context, routes: Sequence[str], applications: Mapping[str, Translation]
    ) -> None:
        self._source, self._routes, self._applications = source, routes, applications

    def carried(self) -> Iterator[tuple[str, str, Document]]:
        """Kind, name and document of those that move."""
        for kind in CARRIED:
            for name, document in self._source.ledger.read(kind).items():
                if isinstance(document.value, DamagedValue):
                    raise LedgerDamaged(document.value.why)
                if self._concerns(kind, name, document.value):
                    yield kind, name, document

    def left(self) -> list[str]:
        """Documents that people might expect in the new ledger and that stay in the old one:
        documents of other applications, and API keys."""
        documents = [
            f"document {name}"
            for kind in (kinds.APPLICATION, kinds.TALLY)
            for name in self._source.ledger.read(kind)
            if name.split("/", 1)[0] not in self._applications
        ]
        return documents + [f"API key {name}" for name in self._source.ledger.read(kinds.KEY)]

    def carry(self, target: Context, moving: Moving) -> tuple[int, int]:
        """Copy them; existing documents stay. The numbers of documents and of blobs."""
        documents = blobs = 0
        for kind, name, document in self.carried():
            value = document.value
            if kind == kinds.LIST:
                blobs += copy_blob(self._source, target, read_as(ListRecord, value).keys_blob)
            if kind == kinds.ACT and value.get("from_seq") is not None:
                # Its lines have other places there, among those that were moved.
                to_seq = None if value.get("finished_at") is None else moving.place
                value = {**value, "from_seq": moving.since, "to_seq": to_seq}
            if kind in (kinds.APPLICATION, kinds.TALLY):
                application, _, own = name.partition("/")
                value = self._applications[application](
                    own, value, lambda place: self._place(target, moving, place)
                )
            if not (kind == kinds.HOLD and name in self._routes):
                target.ledger.write(kind, name, value, expect=0)
            documents += 1
        return documents, blobs

    def _concerns(self, kind: str, name: str, value: Any) -> bool:
        if kind in (kinds.HOLD, kinds.LIMIT, kinds.BREAKER, kinds.BACK_FILL):
            return name.split("/", 1)[0] in self._routes
        if kind in (kinds.APPLICATION, kinds.TALLY):
            return name.split("/", 1)[0] in self._applications
        if kind == kinds.PARKED:
            return read_as(Parked, value).route in self._routes
        if kind == kinds.ALERT:
            return read_as(AlertRecord, value).trouble.route in self._routes
        assert isinstance(value, dict)
        return value["route"] in self._routes

    def _place(self, target: Context, moving: Moving, place: int) -> int:
        """Lines keep their order: the n-th that was moved is the n-th of these routes there."""
        if place >= moving.lines:
            return moving.place
        moved = (
            line.seq
            for lines in line_pages(self._source.ledger, 0, LINES)
            for line in lines
            if line.route in self._routes
        )
        number = sum(1 for seq in moved if seq <= place)
        there = (
            line.seq
            for lines in line_pages(target.ledger, moving.since, LINES)
            for line in lines
            if line.route in self._routes
        )
        return next((seq for n, seq in enumerate(there, 1) if n == number), moving.since)


def copy_blob(source: Context, target: Context, name: str) -> int:
    """1: the blob is copied; 0: there is none to copy."""
    if not name:
        return 0
    target.blobs.write(name, source.blobs.read(name))
    return 1
