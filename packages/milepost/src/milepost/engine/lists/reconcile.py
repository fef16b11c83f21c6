"""Lists: take in a delivered file of items, reconcile it with the ledger, and record it.

A list that is interrupted (the file cannot be read further, the process dies, the ledger fails):

1. Its record is written before its first item, so each item's list can be found.
2. The items of all whole lines that were read are recorded, and stay; see `Source.slices`.
3. Its record has no `keys_blob`. It is shown as not finished, and is not compared with other lists
   for vanished keys; see `_last_full`.
4. Someone must submit the file again. Items that are recorded already are then recognised.
"""

from __future__ import annotations

import errno
import os
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import nullcontext
from itertools import chain
from typing import TypedDict, Unpack

from msgspec import Struct
from msgspec.structs import replace

from milepost.core.change import Change
from milepost.core.errors import LedgerError, LedgerFull, MilepostError, UsageError
from milepost.core.item import Item, Row, digest_of
from milepost.core.routes.plan import Plan
from milepost.core.routes.route import Route
from milepost.core.status import TERMINAL, Status
from milepost.core.values.difference import FieldDifference, difference
from milepost.core.values.durations import Moment, iso
from milepost.core.values.refusal import Refusal, RefusalKind
from milepost.engine.act_log import enter, finish, has_line, signed
from milepost.engine.acts.replacement import NewContent, read_content, replaced
from milepost.engine.apply import Decision, apply_all
from milepost.engine.context import Context
from milepost.engine.intake import TakenBatch, check_open, start_ms, take_in_batch
from milepost.engine.lists.formats import BadLine, LineBatch, bad_line
from milepost.engine.lists.keys import SortedKeys, missing, pack, unpack
from milepost.engine.lists.source import Bytes, Source, open_source, parse_ahead
from milepost.engine.views.items import counted, lists
from milepost.ports.documents import LIST, Act, ListRecord
from milepost.ports.items import Same

SHOWN = 1_000
"""Most malformed lines, changed lines and vanished keys in a report; the counts include all."""
PROGRESS_MS = 100
COMPARED = 100
"""Changed lines whose difference a dry run shows."""
SPARSE = 20
"""If at most one of so many lines is new, changed or malformed, these are few and are sorted
apart."""
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
_CATEGORIES = {
    "a": "new",
    "A": "replaced",
    "c": "in_progress",
    "d": "finished",
    "e": "failed",
    "f": "changed",
}
_MARK_OF_STATUS = {
    status: "d" if status is Status.COMPLETED else "e" if status in TERMINAL else "c"
    for status in Status
}
_MALFORMED = "x"
_MARK_OF_ANSWER = {
    "new": "a",
    "replaced": "A",
    "known": "f",
    "changed": "f",
    "malformed": _MALFORMED,
}


_TWICE = Refusal(
    RefusalKind.DONE_BEFORE, "the list has this key more than once, with different content"
)
_GONE = Refusal(RefusalKind.GONE, "its row has been removed; only the seal remains")


class ChangedLine(Struct, frozen=True, omit_defaults=True):
    """A line whose key is known with other content. The first content stays, unless the list was
    submitted to replace it; `left` then says why this one was not replaced."""

    line: int
    key: str
    left: str = ""
    difference: list[FieldDifference] = []
    """For a dry run: the fields that differ."""


class ListReport(Struct, frozen=True, kw_only=True):
    """Result of a list. `lines` counts non-empty lines and is the sum of all counts except
    `vanished`."""

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
    """new, in_progress, finished, failed, changed, repeated, malformed; for a full list also
    vanished."""
    malformed: list[BadLine]
    changed: list[ChangedLine]
    """Lines whose key is known with other content, or that differ from an earlier line of the
    list."""
    vanished: list[str]
    compared_with: str = ""
    """The previous full list, with which `vanished` was determined."""
    notes: list[str] = []
    """Notes for the submitter, such as a missing header."""


class ListOptions(TypedDict, total=False):
    """Options for a list."""

    format: str | None
    """txt, csv or jsonl; None: by file extension, else by content."""
    no_header: bool
    """The first line of a CSV is an item."""
    full: bool
    """It is the complete list, so vanished keys can be reported."""
    dry_run: bool
    """Nothing is written."""
    by: str | None
    not_before: Moment | None
    """Earliest start of new items."""
    replace_changed: bool
    """Known items with other content get that of the list, signed by `by` with a `reason`."""
    rerun: bool
    """With `replace_changed`: also COMPLETED items, which then run again."""
    failed_again: bool
    """Keys that failed or were cancelled and whose rows were pruned are taken in again, signed by
    `by` with a `reason`."""
    reason: str
    on_progress: Progress | None


def submit_list(
    ctx: Context,
    route: str,
    path: str | Bytes,
    *,
    name: str | None = None,
    **options: Unpack[ListOptions],
) -> ListReport:
    """Take in the list at `path` ("-": standard input; or an open stream, with its `name`),
    reconcile and record it. UsageError if it cannot be read."""
    ctx.plan(route)
    if not isinstance(path, str) and not name:
        raise UsageError(
            "submit_list: give the name of a list that is a stream; its end, such as .csv, says the format"
        )
    with (
        open_source(path)
        if isinstance(path, str)
        else nullcontext(Source(path, name or "")) as source
    ):
        title = name or ("stdin" if path == "-" else os.path.basename(source.name))
        return take_in_list(ctx, route, source, title, **options)


def take_in_list(
    ctx: Context, route: str, source: Source, title: str, **options: Unpack[ListOptions]
) -> ListReport:
    """`submit_list` for an open source."""
    by, reason = options.get("by"), options.get("reason", "")
    dry_run, on_progress = options.get("dry_run", False), options.get("on_progress")
    replace_changed, rerun = options.get("replace_changed", False), options.get("rerun", False)
    failed_again = options.get("failed_again", False)
    plan = ctx.plan(route)
    check_open(plan)
    starts_at = start_ms(ctx, options.get("not_before"))
    if rerun and not replace_changed:
        raise UsageError("rerun needs replace_changed")
    if (replace_changed or failed_again) and not dry_run:
        signed(by or "", reason)
    again = reason if failed_again else None
    earlier = lists(ctx, route)
    # Keep lists in order of time, even if two arrive within a millisecond.
    at = max(ctx.clock.now(), earlier[-1].at + 1 if earlier else 0)
    counts = {"replaced": 0} if replace_changed else {}
    record = ListRecord(
        ctx.chance.token(), route, title, "", at, options.get("full", False), counts, "", by or ""
    )
    malformed: list[BadLine] = []
    changed: list[ChangedLine] = []
    notes: list[str] = []
    refused = conflicts = new_items = reported_at = 0
    begun = dry_run
    replacing = (
        ReplaceChanged(ctx, plan, record, by or "", reason, rerun, dry_run)
        if replace_changed
        else None
    )
    parsed = parse_ahead(source, plan, options.get("format"), options.get("no_header", False))
    with SortedKeys() as keys, SortedKeys(width=NUMBER + DIGEST) as previewed, parsed as batches:
        for batch, inputs, lines_done, bytes_done in batches:
            if not begun and (batch.inputs or batch.bad):
                # Recorded before its first item, so that an item's list can be found even if the
                # list is interrupted.
                ctx.ledger.write(LIST, record.id, record)
                begun = True
            if batch.note:
                notes.append(batch.note)
            bad = batch.bad
            if batch.inputs:
                try:
                    taken = take_in_batch(
                        ctx,
                        plan,
                        inputs,
                        by=by,
                        list_id=record.id,
                        dry_run=dry_run,
                        not_before=starts_at,
                        failed_again=again,
                    )
                except LedgerError as error:
                    if n := new_items + error.recorded:
                        done = f"{counted(n, 'new item')} of this list {'is' if n == 1 else 'are'} recorded"
                        error.after(f"{done}; submit it again: recorded items are recognised")
                    raise
                new_items += taken.counts()["new"]
                changed_lines = [] if replacing is None else replacing.batch(batch, taken)
                bad = _add_keys(batch, taken, keys)
                noted = _note_new(plan.route, batch, taken, previewed) if dry_run else frozenset()
                others = [
                    ChangedLine(batch.numbers[place], one.key)
                    for place, one in taken.others.items()
                    if one.answer == "changed" and place not in noted
                ]
                conflicts += len(others)
                changed += (others if replacing is None else changed_lines)[: SHOWN - len(changed)]
            refused += len(bad)
            malformed += bad[: SHOWN - len(malformed)]
            if on_progress is not None and (now := ctx.clock.now()) - reported_at >= PROGRESS_MS:
                reported_at = now
                on_progress(lines_done, bytes_done, source.size)
        if on_progress is not None:
            on_progress(source.lines_done, source.bytes_done, source.size)
        if keys.total == refused == 0:
            raise UsageError(
                f"{title} is empty: no line of it holds an item. Nothing was recorded; check its delivery, and submit it again"
            )
        if record.full and keys.total == 0:
            # Compared with nothing, every key would have vanished.
            record = replace(record, full=False)
            notes.append(
                "vanished keys are not determined: no line of this list has a key that can be read"
            )
        record = replace(record, digest=source.digest)
        if replacing is not None:
            replacing.finish()
        if dry_run:
            others = [
                ChangedLine(line, key, "" if replacing is None else _TWICE.text)
                for line, key in _previewed_conflicts(previewed)
            ]
            conflicts += len(others)
            # One that comes twice in a batch is among them already, where known ones are replaced.
            changed = sorted(
                {one.line: one for one in [*others, *changed]}.values(), key=lambda one: one.line
            )[:SHOWN]
        return _finish(
            ctx,
            record,
            keys,
            malformed,
            changed,
            conflicts,
            refused,
            notes,
            _last_full(earlier),
            dry_run,
        )


def _note_new(
    route: Route, batch: LineBatch, taken: TakenBatch, previewed: SortedKeys
) -> Collection[int]:
    """Note key, line and digest of each line with a new key: a dry run writes nothing, so the
    ledger cannot recognise a repeated key. Returns their places."""
    keys = {receipt.key for receipt in taken.others.values() if receipt.answer == "new"}
    new = {place: receipt.key for place, receipt in taken.others.items() if receipt.key in keys}
    digests = [digest_of(route.read(batch.inputs[place]).content).hex()[:DIGEST] for place in new]
    marks = [
        f"{batch.numbers[place]:0{NUMBER}d}{digest}"
        for place, digest in zip(new, digests, strict=True)
    ]
    previewed.add(list(new.values()), marks)
    return new.keys()


def _previewed_conflicts(previewed: SortedKeys) -> Iterator[tuple[int, str]]:
    """The numbers and keys of a dry run's lines that differ from the first line with their key."""
    last = first = ""
    for key, mark in previewed.all():
        if key != last:
            last, first = key, mark[NUMBER:]
        elif mark[NUMBER:] != first:
            yield int(mark[:NUMBER]), key


def vanished_keys(ctx: Context, route: str, list_id: str) -> Iterator[str]:
    """The sorted keys of the previous full list that this full list does not have; none if there
    was no previous one."""
    known = lists(ctx, route)
    place = next((place for place, record in enumerate(known) if record.id == list_id), None)
    if place is None:
        raise UsageError(
            f"route {route!r} has no list {list_id!r}; the latest are: {', '.join(r.id for r in known[-3:]) or 'none yet'}"
        )
    record, before = known[place], _last_full(known[:place])
    if not (record.full and record.keys_blob):
        cure = "submit it again" if record.full else "submit it with --full if it is complete"
        raise UsageError(
            f"list {list_id!r} is {'not finished' if record.full else 'not a full list'}, so vanished keys are unknown; {cure}"
        )
    return (
        iter(())
        if before is None
        else chain.from_iterable(missing(_keys_of(ctx, before), _keys_of(ctx, record)))
    )


def _add_keys(batch: LineBatch, taken: TakenBatch, keys: SortedKeys) -> list[BadLine]:
    """Record each key with its category; returns all malformed lines of the batch in order."""
    marks = _marks_of(taken)
    bad = [
        bad_line(batch.numbers[place], receipt.error, batch.raw[place])
        for place, receipt in taken.others.items()
        if receipt.answer == "malformed"
    ]
    if not taken.others:
        keys.add(taken.keys, marks)
    elif len(taken.others) * SPARSE > len(marks):
        sound = [place for place, mark in enumerate(marks) if mark != _MALFORMED]
        keys.add([taken.keys[place] for place in sound], [marks[place] for place in sound])
    else:
        # In a sorted list new keys are often out of order. Without them the others need no sorting.
        apart = [place for place in taken.others if marks[place] != _MALFORMED]
        keys.add(
            [taken.keys[place] for place in apart], [marks[place] for place in apart], ordered=False
        )
        usual = list(taken.keys)
        for place in reversed(taken.others):
            del usual[place], marks[place]
        keys.add(usual, marks)
    return sorted(batch.bad + bad, key=lambda bad: bad.line) if bad else batch.bad


def _marks_of(taken: TakenBatch) -> list[str]:
    """The mark of each line's category. Usually all known items of a batch are in the same one."""
    usual = next((answer for answer in taken.answers if type(answer) is Same), None)
    odd = sum(taken.answers[place] != usual for place in taken.others)
    if usual is None or taken.answers.count(usual) + odd == len(taken.answers):
        marks = [_MARK_OF_STATUS[usual.status] if usual else ""] * len(taken.answers)
    else:
        marks = [
            _MARK_OF_STATUS[answer.status] if type(answer) is Same else ""
            for answer in taken.answers
        ]
    for place, receipt in taken.others.items():
        known = receipt.answer == "known" and receipt.status
        marks[place] = _MARK_OF_STATUS[known] if known else _MARK_OF_ANSWER[receipt.answer]
    return marks


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

    def blocks() -> Iterator[list[str]]:
        for some, marks in keys.distinct_blocks():
            for mark in tally:
                tally[mark] += marks.count(mark)
            yield some

    if dry_run:
        for _ in blocks():
            pass
    else:
        record = replace(record, keys_blob=f"lists/{record.id}")
        try:
            ctx.blobs.write(record.keys_blob, pack(blocks()))
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
        n, known = (
            0,
            ()
            if before is None
            else missing(_keys_of(ctx, before), (some for some, _ in keys.distinct_blocks())),
        )
        try:
            for gone in known:
                n += len(gone)
                vanished += gone[: SHOWN - len(vanished)]
            counts["vanished"] = n
        except MilepostError as error:
            vanished = []
            notes.append(f"vanished keys are unknown: {error}")
    if not dry_run:
        ctx.ledger.write(LIST, record.id, replace(record, counts=counts))
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


def _last_full(earlier: list[ListRecord]) -> ListRecord | None:
    return next((record for record in reversed(earlier) if record.full and record.keys_blob), None)


def _keys_of(ctx: Context, record: ListRecord) -> Iterator[list[str]]:
    try:
        yield from unpack(ctx.blobs.read(record.keys_blob))
    except (OSError, EOFError, zlib.error) as error:
        raise MilepostError(
            f"the keys of list {record.id!r} of {iso(record.at)} cannot be read: {error}"
        ) from error


class ReplaceChanged:
    """Replaces the content of known items by that of the list, batch by batch, as one act."""

    def __init__(
        self,
        ctx: Context,
        plan: Plan,
        record: ListRecord,
        by: str,
        reason: str,
        rerun: bool,
        dry_run: bool,
    ) -> None:
        self._ctx, self._plan, self._record = ctx, plan, record
        self._by, self._reason, self._rerun, self._dry_run = by, reason, rerun, dry_run
        self._act: Act | None = None
        self._seen: set[int] = set()
        """Hashes of the keys so far: a key that the list has twice with different content is not
        replaced."""
        self._done = 0
        self._to_compare = COMPARED if dry_run else 0

    def batch(self, batch: LineBatch, taken: TakenBatch) -> list[ChangedLine]:
        """Replace changed items and update their receipts; returns the changed lines with their
        results, of equal ones the first."""
        receipts = taken.others
        times = Counter(taken.keys)
        places: dict[str, list[int]] = {}
        for place, receipt in receipts.items():
            if receipt.answer == "changed":
                places.setdefault(receipt.key, []).append(place)
        answers: dict[int, Row | Change | Refusal | None] = {}
        work: list[tuple[list[int], Item, NewContent]] = []
        items = self._ctx.ledger.get([(self._plan.name, key) for key in places]) if places else []
        for (key, at), item in zip(places.items(), items, strict=True):
            new, *others = (read_content(self._plan, batch.inputs[place]) for place in at)
            if (
                hash(key) in self._seen
                or len(at) < times[key]
                or any(other.digest != new.digest for other in others)
            ):
                answers |= dict.fromkeys(at, _TWICE)
            elif isinstance(item, Item):
                work.append((at, item, new))
            else:
                answers |= dict.fromkeys(at, _GONE)
        self._seen.update(map(hash, taken.keys))
        decisions = [(item, self._decision(new)) for _, item, new in work]
        made = (
            [decision(item) for item, decision in decisions]
            if self._dry_run
            else apply_all(self._ctx, decisions)
        )
        for (at, _, _), answer in zip(work, made, strict=True):
            answers |= dict.fromkeys(at, answer)
        compared = {
            at[0]: difference(item.input, new.content) for at, item, new in work[: self._to_compare]
        }
        self._to_compare -= len(compared)
        repeated = {place for at in places.values() for place in at[1:]}
        changed_lines = []
        for place, answer in sorted(answers.items()):
            left = answer.text if isinstance(answer, Refusal) else ""
            if left or place not in repeated:
                changed_lines.append(
                    ChangedLine(
                        batch.numbers[place], receipts[place].key, left, compared.get(place, [])
                    )
                )
            if not left:
                self._done += place not in repeated
                receipts[place] = replace(receipts[place], answer="replaced", error="")
        return changed_lines

    def _decision(self, new: NewContent) -> Decision:
        def decision(item: Item) -> Change | Refusal:
            if self._dry_run:
                return replaced(
                    self._ctx, item, self._plan, new, here=False, rerun=self._rerun, dry_run=True
                )
            act = self._begun()
            if item.row.updated_at >= act.started_at and has_line(self._ctx, item.row, act.id):
                return _TWICE
            return replaced(
                self._ctx,
                item,
                self._plan,
                new,
                here=False,
                rerun=self._rerun,
                by=self._by,
                why=self._reason,
                act=act.id,
            )

        return decision

    def _begun(self) -> Act:
        """The act, recorded when its first item is replaced."""
        if self._act is None:
            about = {
                "list": self._record.id,
                "name": self._record.name,
                **({"rerun": True} if self._rerun else {}),
            }
            self._act = enter(self._ctx, "replace", self._plan.name, self._by, self._reason, about)
        return self._act

    def finish(self) -> None:
        """Finish the act at the end of the list."""
        if self._act is not None:
            finish(self._ctx, self._act, self._done)
