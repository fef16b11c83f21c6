"""Lists: take in a delivered file of items, reconcile it with the ledger, and record it.

An interrupted list is submitted again: its items are known by then.
"""

from __future__ import annotations

import errno
import os
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from itertools import islice

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from milepost.core.errors import LedgerError, LedgerFull, MilepostError, UsageError
from milepost.core.item import digest_of
from milepost.core.routes.route import Route
from milepost.core.status import TERMINAL, Status
from milepost.core.values.durations import Moment, iso
from milepost.engine.act_log import signed
from milepost.engine.context import Context
from milepost.engine.intake import Receipt, check_open, start_ms, take_in
from milepost.engine.lists.changes import ChangedLine, ReplaceChanged
from milepost.engine.lists.formats import BadLine, LineBatch, bad_line, read_batches
from milepost.engine.lists.keys import SortedKeys, missing, pack, unpack
from milepost.engine.lists.source import Bytes, Source, open_source
from milepost.ports.documents import LIST, ListRecord, read_as

SHOWN = 1_000
"""Most malformed lines, changed lines and vanished keys in a report; the counts include all."""
PROGRESS_MS = 100
NUMBER, DIGEST = 12, 16
"""Characters of the line number and of the content digest in a dry run's note of each new line."""
MEANING = {
    "new": "accepted",
    "replaced": "known with different content; replaced",
    "in_progress": "known, in progress",
    "finished": "known, completed",
    "failed": "known, failed",
    "changed": "known with different content; the first content stays",
    "repeated": "repeated in this list",
    "malformed": "refused",
    "vanished": "in the previous full list, not in this one",
}
"""Meaning of each count, in the order in which they are shown."""

Progress = Callable[[int, int, int | None], None]
"""Called with lines done, bytes done, and total bytes if known."""

# A key that occurs several times counts once, under the lowest of its marks; shown in this order.
_CATEGORIES = {"a": "new", "A": "replaced", "c": "in_progress", "d": "finished", "e": "failed", "f": "changed"}
_MARK_OF_STATUS = {status: "d" if status is Status.COMPLETED else "e" if status in TERMINAL else "c" for status in Status}


_MARK_OF_ANSWER = {"new": "a", "replaced": "A"}


class ListReport(Struct, frozen=True, kw_only=True):
    """Result of a list. `lines` counts non-empty lines and is the sum of all counts except `vanished`."""

    id: str
    """Empty after a dry run, because nothing was recorded."""
    route: str
    name: str
    digest: str
    """SHA-256 of the file's bytes."""
    at: int
    full: bool
    dry_run: bool
    lines: int
    counts: dict[str, int]
    """new, in_progress, finished, failed, changed, repeated, malformed; for a full list also vanished."""
    malformed: list[BadLine]
    changed: list[ChangedLine]
    """Lines whose key is known with other content, or that differ from an earlier line of the list."""
    vanished: list[str]
    compared_with: str = ""
    """The previous full list, with which `vanished` was determined."""
    notes: list[str] = []
    """Notes for the submitter, such as a missing header."""


def submit_list(
    ctx: Context,
    route: str,
    path: str | Bytes,
    *,
    name: str | None = None,
    format: str | None = None,
    no_header: bool = False,
    full: bool = False,
    dry_run: bool = False,
    by: str | None = None,
    not_before: Moment | None = None,
    replace_changed: bool = False,
    rerun: bool = False,
    failed_again: bool = False,
    reason: str = "",
    on_progress: Progress | None = None,
) -> ListReport:
    """Take in the list at `path` ("-": standard input; or an open stream, with its `name`), reconcile and record it. `full`: it is the complete list, so vanished keys can be
    reported. `no_header`: the first line of a CSV is an item. With `dry_run` nothing is written. UsageError if it cannot be read.

    `not_before`: earliest start of new items. `replace_changed`: known items with other content get that of the list, signed by `by` with
    a `reason`; with `rerun` also COMPLETED ones, which then run again. `failed_again`: keys that failed or were cancelled and whose rows
    were pruned are taken in again, signed in the same way."""
    ctx.plan(route)
    if not isinstance(path, str) and not name:
        raise UsageError("submit_list: give the name of a list that is a stream; its end, such as .csv, says the format")
    with open_source(path) if isinstance(path, str) else nullcontext(Source(path, name or "")) as source:
        title = name or ("stdin" if path == "-" else os.path.basename(source.name))
        return take_in_list(
            ctx,
            route,
            source,
            title,
            format=format,
            no_header=no_header,
            full=full,
            dry_run=dry_run,
            by=by,
            not_before=not_before,
            replace_changed=replace_changed,
            rerun=rerun,
            failed_again=failed_again,
            reason=reason,
            on_progress=on_progress,
        )


def take_in_list(
    ctx: Context,
    route: str,
    source: Source,
    title: str,
    *,
    format: str | None = None,
    no_header: bool = False,
    full: bool = False,
    dry_run: bool = False,
    by: str | None = None,
    not_before: Moment | None = None,
    replace_changed: bool = False,
    rerun: bool = False,
    failed_again: bool = False,
    reason: str = "",
    on_progress: Progress | None = None,
) -> ListReport:
    """`submit_list` for an open source."""
    plan = ctx.plan(route)
    check_open(plan)
    starts_at = start_ms(ctx, not_before)
    if rerun and not replace_changed:
        raise UsageError("rerun needs replace_changed")
    if (replace_changed or failed_again) and not dry_run:
        signed(by or "", reason)
    again = reason if failed_again else None
    earlier = records(ctx, route)
    # Keep lists in order of time, even if two arrive within a millisecond.
    at = max(ctx.clock.now(), earlier[-1].at + 1 if earlier else 0)
    record = ListRecord(ctx.chance.token(), route, title, "", at, full, {"replaced": 0} if replace_changed else {}, "", by or "")
    malformed: list[BadLine] = []
    changed: list[ChangedLine] = []
    notes: list[str] = []
    refused = conflicts = 0
    fresh = 0
    told_at = 0
    begun = dry_run
    replacing = ReplaceChanged(ctx, plan, record, by or "", reason, rerun, dry_run) if replace_changed else None
    with SortedKeys() as keys, SortedKeys(width=NUMBER + DIGEST) as previewed:
        for batch in read_batches(source.slices(), source.name, plan.route, format, no_header=no_header):
            if not begun:
                # Recorded before its first item, so that an item's list can be found even if the list is interrupted.
                _write(ctx, record)
                begun = True
            if batch.note:
                notes.append(batch.note)
            bad = batch.bad
            if batch.inputs:
                try:
                    receipts = take_in(
                        ctx, plan, batch.inputs, by=by, list_id=record.id, dry_run=dry_run, not_before=starts_at, failed_again=again
                    )
                except LedgerError as error:
                    if fresh:
                        error.after(f"{fresh:,} new items of this list are recorded; submit it again: recorded items are recognised")
                    raise
                answers = [receipt.answer for receipt in receipts]
                fresh += answers.count("new")
                changed_lines: list[ChangedLine] = []
                if replacing is not None:
                    receipts, changed_lines = replacing.batch(batch, receipts)
                    answers = [receipt.answer for receipt in receipts]
                bad = _sorted_out(batch, receipts, keys)
                others: list[ChangedLine] = []
                if "changed" in answers:
                    lines = zip(batch.numbers, receipts, strict=True)
                    others = [ChangedLine(number, receipt.key) for number, receipt in lines if receipt.answer == "changed"]
                conflicts += len(others)
                changed += (others if replacing is None else changed_lines)[: SHOWN - len(changed)]
                if dry_run:
                    _note_new(plan.route, batch, receipts, previewed)
            refused += len(bad)
            malformed += bad[: SHOWN - len(malformed)]
            if on_progress is not None and (now := ctx.clock.now()) - told_at >= PROGRESS_MS:
                told_at = now
                on_progress(source.lines_done, source.bytes_done, source.size)
        if on_progress is not None:
            on_progress(source.lines_done, source.bytes_done, source.size)
        record = replace(record, digest=source.digest)
        if replacing is not None:
            replacing.finish()
        if dry_run:
            others = sorted(_previewed_conflicts(previewed), key=lambda one: one.line)
            conflicts += len(others)
            changed = sorted(changed + others, key=lambda one: one.line)[:SHOWN]
        return _finish(ctx, record, keys, malformed, changed, conflicts, refused, notes, _last_full(earlier), dry_run)


def _note_new(route: Route, batch: LineBatch, receipts: list[Receipt], previewed: SortedKeys) -> None:
    """Note key, line and digest of new lines: a dry run writes nothing, so the ledger cannot recognise a repeated key."""
    new = [
        (n, content, receipt.key)
        for n, content, receipt in zip(batch.numbers, batch.inputs, receipts, strict=True)
        if receipt.answer == "new"
    ]
    marks = [f"{n:0{NUMBER}d}{digest_of(route.read(content).content).hex()[:DIGEST]}" for n, content, _ in new]
    previewed.add([key for _, _, key in new], marks)


def _previewed_conflicts(previewed: SortedKeys) -> Iterator[ChangedLine]:
    """Lines of a dry run that differ from the first line with their key."""
    last = first = ""
    for key, mark in previewed.all():
        if key != last:
            last, first = key, mark[NUMBER:]
        elif mark[NUMBER:] != first:
            yield ChangedLine(int(mark[:NUMBER]), key)


def records(ctx: Context, route: str) -> list[ListRecord]:
    """The route's lists, oldest first. One without `keys_blob` was interrupted or is in progress."""
    found = (read_as(ListRecord, document.value) for document in ctx.ledger.read(LIST).values())
    return sorted((record for record in found if record.route == route), key=lambda record: (record.at, record.id))


def vanished_keys(ctx: Context, route: str, list_id: str) -> Iterator[str]:
    """The sorted keys of the previous full list that this full list does not have; none if there was no previous one."""
    known = records(ctx, route)
    place = next((place for place, record in enumerate(known) if record.id == list_id), None)
    if place is None:
        raise UsageError(f"route {route!r} has no list {list_id!r}; the latest are: {', '.join(r.id for r in known[-3:]) or 'none yet'}")
    record, before = known[place], _last_full(known[:place])
    if not (record.full and record.keys_blob):
        cure = "submit it again" if record.full else "submit it with --full if it is complete"
        raise UsageError(
            f"list {list_id!r} is {'not finished' if record.full else 'not a full list'}, so vanished keys are unknown; {cure}"
        )
    return iter(()) if before is None else missing(_keys_of(ctx, before), _keys_of(ctx, record))


def _sorted_out(batch: LineBatch, receipts: list[Receipt], keys: SortedKeys) -> list[BadLine]:
    """Record each key with its category; returns all malformed lines of the batch in order."""
    sound = [receipt for receipt in receipts if receipt.answer != "malformed"]
    marks = [_MARK_OF_STATUS[r.status] if r.answer == "known" and r.status else _MARK_OF_ANSWER.get(r.answer, "f") for r in sound]
    keys.add([receipt.key for receipt in sound], marks)
    if len(sound) == len(receipts):
        return batch.bad
    lines = zip(batch.numbers, receipts, batch.raw, strict=True)
    bad = [bad_line(number, receipt.error, raw) for number, receipt, raw in lines if receipt.answer == "malformed"]
    return sorted(batch.bad + bad, key=lambda bad: bad.line)


def _finish(
    ctx: Context,
    record: ListRecord,
    keys: SortedKeys,
    malformed: list[BadLine],
    changed: list[ChangedLine],
    conflicts: int,
    refused: int,
    notes: list[str],
    before: ListRecord | None,
    dry_run: bool,
) -> ListReport:
    """Count keys and conflicts, store the keys, find vanished keys, and record the list."""
    tally = dict.fromkeys(_CATEGORIES, 0)

    def counted() -> Iterator[str]:
        for some, marks in keys.distinct_blocks():
            for mark, count in Counter(marks).items():
                tally[mark] += count
            yield from some

    if dry_run:
        for _ in counted():
            pass
    else:
        record = replace(record, keys_blob=f"lists/{record.id}")
        try:
            ctx.blobs.write(record.keys_blob, pack(counted()))
        except OSError as error:
            full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            what = f"the keys of the list {record.name!r} cannot be stored: {'the disk is full' if full else error}"
            raise (LedgerFull if full else LedgerError)(
                f"{what}; its items are recorded. Submit it again: recorded items are recognised"
            ) from error
    counts = {category: tally[mark] for mark, category in _CATEGORIES.items()}
    counts["changed"] = conflicts
    if "replaced" not in record.counts:
        del counts["replaced"]
    counts |= {"repeated": keys.total - sum(counts.values()), "malformed": refused}
    lines = sum(counts.values())
    vanished: list[str] = []
    if record.full:
        try:
            gone = iter(()) if before is None else missing(_keys_of(ctx, before), (key for key, _ in keys.distinct()))
            vanished = list(islice(gone, SHOWN))
            counts["vanished"] = len(vanished) + sum(1 for _ in gone)
        except MilepostError as error:
            notes.append(f"vanished keys are unknown: {error}")
    if not dry_run:
        _write(ctx, replace(record, counts=counts))
    return ListReport(
        id="" if dry_run else record.id,
        route=record.route,
        name=record.name,
        digest=record.digest,
        at=record.at,
        full=record.full,
        dry_run=dry_run,
        lines=lines,
        counts=counts,
        malformed=malformed,
        changed=changed,
        vanished=vanished,
        compared_with=before.id if before is not None and "vanished" in counts else "",
        notes=notes,
    )


def _write(ctx: Context, record: ListRecord) -> None:
    ctx.ledger.write(LIST, record.id, msgspec.to_builtins(record))


def _last_full(earlier: list[ListRecord]) -> ListRecord | None:
    return next((record for record in reversed(earlier) if record.full and record.keys_blob), None)


def _keys_of(ctx: Context, record: ListRecord) -> Iterator[str]:
    try:
        yield from unpack(ctx.blobs.read(record.keys_blob))
    except (OSError, EOFError, zlib.error) as error:
        raise MilepostError(f"the keys of list {record.id!r} of {iso(record.at)} cannot be read: {error}") from error
