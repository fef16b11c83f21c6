"""Comparison of a transferred route with its source: history lines byte for byte, rows, contents
and seals."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice

from msgspec import Struct

from milepost.core.item import Content, Item, digest_of
from milepost.core.status import Status
from milepost.core.values.json import canonical_json
from milepost.engine.context import Context
from milepost.engine.ledger_pages import line_pages, query_pages, seal_pages
from milepost.engine.views.items import chain_broken_at, counted
from milepost.ports.feed import HistoryEntry
from milepost.ports.items import KnownKey, Query, Refused

PAGE, LINES = 200, 500
SHOWN = 100
SAME = (
    "stage", "status", "version", "head", "created_at", "entered_at", "correlation_id", "input_digest", "lane", "overdue_at", "attempts",
    "total_attempts", "looks", "losses", "round", "pass_no", "unknown", "alone", "handed_over", "again", "list_id", "note", "kept", "undecided", "not_before", "content_digest", "life",
)  # fmt: skip
"""Fields that must be equal in a row that has not changed since."""

Progress = Callable[[str, int, int | None], None]
"""Called with the current step, the amount done, and the total if known."""


class TransferDifference(Struct, frozen=True):
    """One difference between source and target."""

    route: str
    key: str
    what: str


def compare(
    source: Context, target: Context, routes: Sequence[str], since: int, report_progress: Progress
) -> list[TransferDifference]:
    """Up to a hundred differences in lines and their order, rows and contents, seals, and row
    counts."""
    return list(islice(_differences(source, target, routes, since, report_progress), SHOWN))


def _differences(
    source: Context, target: Context, routes: Sequence[str], since: int, report_progress: Progress
) -> Iterator[TransferDifference]:
    yield from _lines(source, target, routes, since, report_progress)
    for route in routes:
        counts: dict[Status, int] = {}
        for items in _items(source, route):
            yield from _rows(source, target, items, counts)
            report_progress("compared", sum(counts.values()), None)
        yield from _numbers(target, route, counts)
        yield from _seals(source, target, route)


def _lines(
    source: Context, target: Context, routes: Sequence[str], since: int, report_progress: Progress
) -> Iterator[TransferDifference]:
    """Every source line must be in the target, byte for byte and in order; other lines may lie in
    between."""
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
            yield TransferDifference(
                written.route,
                written.key,
                f"its line {written.line.version} is missing or out of order",
            )
            return
        if done % 1000 == 0:
            report_progress("lines compared", done, None)


def _identity(written: HistoryEntry) -> tuple[object, ...]:
    return written.route, written.key, written.correlation_id, written.previous, written.body


def _feed(ctx: Context, after: int) -> Iterator[HistoryEntry]:
    return chain.from_iterable(line_pages(ctx.ledger, after, LINES))


def _items(ctx: Context, route: str) -> Iterator[list[Item]]:
    return (
        page.items
        for page in query_pages(ctx.ledger, Query(route=route, with_content=True, limit=PAGE))
    )


def _rows(
    source: Context, target: Context, items: Sequence[Item], counts: dict[Status, int]
) -> Iterator[TransferDifference]:
    """Compare rows with contents. All lines are equal, so a chain that is valid here up to this
    head is valid there."""
    for item, other in zip(
        items, target.ledger.get([(item.route, item.key) for item in items]), strict=True
    ):
        if isinstance(other, Refused):
            yield TransferDifference(
                item.route, item.key, f"its row in the target cannot be read: {other.reason}"
            )
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
    return (
        "it is missing"
        if known is None or not known.sealed or known.input_digest != item.row.input_digest
        else None
    )


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
    """The content as canonical JSON; a removed result counts as absent."""
    results = {stage: value for stage, value in content.results.items() if value is not None}
    return canonical_json([content.input, content.payloads, results])


def _numbers(
    target: Context, route: str, counts: dict[Status, int]
) -> Iterator[TransferDifference]:
    """Compare the numbers of rows. The target may have more, because items may have been submitted
    there."""
    there = sum(len(items) for items in _items(target, route))
    here = sum(counts.values())
    if there < here:
        yield TransferDifference(
            route, "", f"the target has {counted(there, 'row')}, the source {here:,}"
        )


def _seals(source: Context, target: Context, route: str) -> Iterator[TransferDifference]:
    for seals in seal_pages(source.ledger, route, PAGE):
        for seal, known in zip(
            seals, target.ledger.peek(route, [seal.key for seal in seals]), strict=True
        ):
            if known is None or _facts(known) != _facts(seal):
                yield TransferDifference(route, seal.key, "its seal is missing or different")


def _facts(seal: KnownKey) -> tuple[object, ...]:
    return (
        seal.status,
        seal.input_digest,
        seal.stage,
        seal.list_id,
        seal.ended_at,
        seal.head,
        seal.content_digest,
        seal.life,
    )
