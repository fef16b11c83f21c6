"""Comparison of a transferred route with its source: history lines byte for byte, rows, contents and seals."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from milepost.core.item import Content, Item, digest_of
from milepost.core.status import Status
from milepost.core.values.json import canonical_json
from milepost.engine.context import Context
from milepost.engine.views.items import chain_broken_at, counted
from milepost.ports.feed import HistoryEntry
from milepost.ports.items import Query, Refused

PAGE = 200
SHOWN = 100
SAME = (
    "stage", "status", "version", "head", "created_at", "entered_at", "correlation_id", "input_digest", "lane", "overdue_at", "attempts",
    "total_attempts", "looks", "losses", "round", "pass_no", "unknown", "alone", "handed_over", "again", "list_id", "note", "kept", "undecided", "not_before", "content_digest", "life",
)  # fmt: skip
"""Fields that must be equal in a row that has not changed since."""

Progress = Callable[[str, int, int | None], None]


class TransferDifference(Struct, frozen=True):
    """One difference between source and target."""

    route: str
    key: str
    what: str


def compare(source: Context, target: Context, routes: Sequence[str], since: int, tell: Progress) -> list[TransferDifference]:
    """Up to a hundred differences in lines and their order, rows and contents, seals, and row counts."""
    found: list[TransferDifference] = []
    for finding in _differences(source, target, routes, since, tell):
        found.append(finding)
        if len(found) == SHOWN:
            break
    return found


def _differences(source: Context, target: Context, routes: Sequence[str], since: int, tell: Progress) -> Iterator[TransferDifference]:
    yield from _lines(source, target, routes, since, tell)
    for route in routes:
        counts: dict[Status, int] = {}
        for items in _items(source, route):
            yield from _rows(source, target, items, counts)
            tell("compared", sum(counts.values()), None)
        yield from _numbers(target, route, counts)
        yield from _seals(source, target, route)


def _lines(source: Context, target: Context, routes: Sequence[str], since: int, tell: Progress) -> Iterator[TransferDifference]:
    """Every source line must be in the target, byte for byte and in order; other lines may lie in between."""
    theirs = _feed(target, since)
    done = 0
    for written in _feed(source, 0):
        if written.route not in routes:
            continue
        done += 1
        for other in theirs:
            if _identity(other) == _identity(written):
                break
        else:
            yield TransferDifference(written.route, written.key, f"its line {written.line.version} is missing or out of order")
            return
        if done % 1000 == 0:
            tell("lines compared", done, None)


def _identity(written: HistoryEntry) -> tuple[object, ...]:
    return written.route, written.key, written.correlation_id, written.previous, written.body


def _feed(ctx: Context, after: int) -> Iterator[HistoryEntry]:
    while lines := ctx.ledger.feed(after, 500):
        yield from lines
        after = lines[-1].seq


def _items(ctx: Context, route: str) -> Iterator[list[Item]]:
    query = Query(route=route, with_content=True, limit=PAGE)
    while True:
        page = ctx.ledger.find(query)
        yield page.items
        if page.next is None:
            return
        query = replace(query, after=page.next)


def _rows(source: Context, target: Context, items: Sequence[Item], counts: dict[Status, int]) -> Iterator[TransferDifference]:
    """Compare rows with contents. All lines are equal, so a chain that is valid here up to this head is valid there."""
    for item, other in zip(items, target.ledger.get([(item.route, item.key) for item in items]), strict=True):
        if isinstance(other, Refused):
            yield TransferDifference(item.route, item.key, f"its row in the target cannot be read: {other.reason}")
            continue
        if other is not None:
            counts[item.row.status] = counts.get(item.row.status, 0) + 1
        what = _gone(target, item) if other is None else _differs(item, other)
        if what is None and chain_broken_at(source, item) is not None:
            what = "its chain is already broken in the source; see 'milepost show'"
        if what is not None:
            yield TransferDifference(item.route, item.key, what)


def _gone(target: Context, item: Item) -> str | None:
    """A row that has ended and been removed in the target must have a seal."""
    known = target.ledger.peek(item.route, [item.key])[0]
    return "it is missing" if known is None or not known.sealed or known.input_digest != item.row.input_digest else None


def _differs(item: Item, other: Item) -> str | None:
    if other.row.version > item.row.version:
        return None  # it has moved on; the comparison of lines covers it
    for name in SAME:
        if getattr(item.row, name) != getattr(other.row, name):
            return f"its {name} is {getattr(other.row, name)!r} in the target, {getattr(item.row, name)!r} in the source"
    if (item.row.error and item.row.error.group) != (other.row.error and other.row.error.group):
        return "its last error differs"
    if digest_of(other.input) != item.row.current_digest:
        return "its input in the target does not have the recorded digest"
    ours, theirs = _carried(item.content), _carried(other.content)
    return None if ours == theirs else "its content differs"


def _carried(content: Content) -> bytes:
    results = {stage: value for stage, value in content.results.items() if value is not None}
    return canonical_json([content.input, content.payloads, results])


def _numbers(target: Context, route: str, counts: dict[Status, int]) -> Iterator[TransferDifference]:
    """There must be at least as many rows. (Items may have been submitted there.)"""
    there = sum(len(items) for items in _items(target, route))
    here = sum(counts.values())
    if there < here:
        yield TransferDifference(route, "", f"the target has {counted(there, 'row')}, the source {here:,}")


def _seals(source: Context, target: Context, route: str) -> Iterator[TransferDifference]:
    after: str | None = None
    while True:
        seals, after = source.ledger.sealed(route, after, PAGE)
        for seal, known in zip(seals, target.ledger.peek(route, [seal.key for seal in seals]), strict=True):
            facts = (
                None
                if known is None
                else (known.status, known.input_digest, known.stage, known.list_id, known.ended_at, known.head, known.content_digest)
            )
            if facts != (seal.status, seal.input_digest, seal.stage, seal.list_id, seal.ended_at, seal.head, seal.content_digest):
                yield TransferDifference(route, seal.key, "its seal is missing or different")
        if after is None:
            return
