"""Lists: take in a delivered file of items, reconcile it with the ledger, and record it.

A list that is interrupted (the file cannot be read further, the process dies, the ledger fails):

1. Its record is written before its first item, so each item's list can be found.
2. The items of all whole lines that were read are recorded, and stay; see `Source.slices`.
3. Its record has no `keys_blob`. It is shown as not finished, and is not compared with other lists
   for vanished keys; see `_last_full`.
4. Someone must submit the file again. Items that are recorded already are then recognised.
"""

from __future__ import annotations

import os
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from itertools import chain
from typing import Generic, TypedDict, TypeVar, Unpack

from msgspec import Struct
from msgspec.structs import replace

from milepost.core.change import Change
from milepost.core.errors import LedgerError, MilepostError, UsageError
from milepost.core.item import Item, Row
from milepost.core.routes.plan import Plan
from milepost.core.status import TERMINAL, Status
from milepost.core.values.difference import FieldDifference, difference
from milepost.core.values.durations import Moment, iso
from milepost.core.values.refusal import Refusal, RefusalKind
from milepost.engine.act_log import enter, finish, has_line, signed
from milepost.engine.acts.replacement import NewContent, read_content, replaced
from milepost.engine.apply import Decision, apply_all
from milepost.engine.context import Context
from milepost.engine.intake import (
    InputBatch,
    IntakeOptions,
    TakenBatch,
    check_open,
    start_ms,
    take_in_batch,
)
from milepost.engine.lists.formats import BadLine, LineBatch, bad_line
from milepost.engine.lists.keys import SortedKeys, missing, unpack
from milepost.engine.lists.recording import NOTE, ListPreview, ListRecording
from milepost.engine.lists.source import Bytes, ParsedLines, Source, open_source, parse_ahead
from milepost.engine.views.items import counted, lists
from milepost.ports.documents import Act, ListRecord
from milepost.ports.items import Same

T = TypeVar("T")

SHOWN = 1_000
"""Most malformed lines, changed lines and vanished keys in a report; the counts include all."""
PROGRESS_MS = 100
COMPARED = 100
"""Changed lines whose difference a dry run shows."""
SPARSE = 20
"""If at most one of so many lines is new, changed or malformed, these are few and are sorted
apart."""
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
    with SortedKeys() as keys, SortedKeys(width=NOTE) as new_lines:
        return Reconciliation(ctx, route, source, title, keys, new_lines, **options).run()


class Sample(Generic[T]):
    """Counts all values, and keeps the first ones to show."""

    def __init__(self) -> None:
        self.total = 0
        self.shown: list[T] = []

    def add(self, values: Sequence[T]) -> None:
        self.total += len(values)
        self.shown += values[: SHOWN - len(self.shown)]


class Reconciliation:
    """Takes in one list, batch by batch, and reconciles it with the ledger. A dry run differs in
    its recording alone (see `ListPreview`): nothing is written, and the report is the same."""

    def __init__(
        self,
        ctx: Context,
        route: str,
        source: Source,
        title: str,
        keys: SortedKeys,
        new_lines: SortedKeys,
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
    ) -> None:
        self._ctx, self._plan = ctx, ctx.plan(route)
        self._source, self._title = source, title
        self._format, self._no_header = format, no_header
        check_open(self._plan)
        starts_at = start_ms(ctx, not_before)
        if rerun and not replace_changed:
            raise UsageError("rerun needs replace_changed")
        if (replace_changed or failed_again) and not dry_run:
            signed(by or "", reason)
        earlier = lists(ctx, route)
        # Keep lists in order of time, even if two arrive within a millisecond.
        at = max(ctx.clock.now(), earlier[-1].at + 1 if earlier else 0)
        counts = {"replaced": 0} if replace_changed else {}
        self._record = ListRecord(
            ctx.chance.token(), route, title, "", at, full, counts, "", by or ""
        )
        self._last_full = _last_full(earlier)
        self._intake: IntakeOptions = {
            "by": by,
            "list_id": self._record.id,
            "dry_run": dry_run,
            "not_before": starts_at,
            "failed_again": reason if failed_again else None,
        }
        self._replacing: ReplaceChanged | None = None
        if replace_changed:
            self._replacing = ReplaceChanged(
                ctx, self._plan, self._record, by or "", reason, rerun, dry_run
            )
        self._recording: ListRecording | ListPreview = ListRecording(ctx)
        if dry_run:
            self._recording = ListPreview(self._plan.route, new_lines)
        self._on_progress = on_progress
        self._reported_at = 0
        self._keys = keys
        self._malformed = Sample[BadLine]()
        self._changed: list[ChangedLine] = []
        self._conflicts = 0
        """Lines whose key is known with other content, and stays so."""
        self._new_items = 0
        self._notes: list[str] = []

    def run(self) -> ListReport:
        """Take in all lines; returns the report."""
        source = self._source
        with parse_ahead(source, self._plan, self._format, self._no_header) as batches:
            for lines in batches:
                self._add(lines)
                self._show_progress(lines)
        if self._on_progress is not None:
            self._on_progress(source.lines_done, source.bytes_done, source.size)
        if self._keys.total == self._malformed.total == 0:
            raise UsageError(
                f"{self._title} is empty: no line of it holds an item. Nothing was recorded; check its delivery, and submit it again"
            )
        if self._replacing is not None:
            self._replacing.finish()
        return self._finish()

    def _add(self, lines: ParsedLines) -> None:
        batch = lines.batch
        if batch.inputs or batch.bad:
            self._recording.begin(self._record)
        if batch.note:
            self._notes.append(batch.note)
        malformed = batch.bad
        if batch.inputs:
            taken = self._take_in(lines.inputs)
            replaced_lines: list[ChangedLine] = []
            if self._replacing is not None:
                replaced_lines = self._replacing.batch(batch, taken)
            malformed = _add_keys(batch, taken, self._keys)
            self._add_changed(batch, taken, replaced_lines)
        self._malformed.add(malformed)

    def _take_in(self, inputs: InputBatch) -> TakenBatch:
        try:
            taken = take_in_batch(self._ctx, self._plan, inputs, **self._intake)
        except LedgerError as error:
            recorded = self._new_items + error.recorded
            if recorded:
                verb = "is" if recorded == 1 else "are"
                error.after(
                    f"{counted(recorded, 'new item')} of this list {verb} recorded; submit it again: recorded items are recognised"
                )
            raise
        self._new_items += taken.counts()["new"]
        return taken

    def _add_changed(
        self, batch: LineBatch, taken: TakenBatch, replaced_lines: list[ChangedLine]
    ) -> None:
        """Note the lines whose key is known with other content. Where known items are replaced, all
        lines that were to be replaced are shown."""
        noted = self._recording.note_new(batch, taken)
        conflicts = [
            ChangedLine(batch.numbers[place], receipt.key)
            for place, receipt in taken.others.items()
            if receipt.answer == "changed" and place not in noted
        ]
        self._conflicts += len(conflicts)
        shown = conflicts if self._replacing is None else replaced_lines
        self._changed += shown[: SHOWN - len(self._changed)]

    def _show_progress(self, lines: ParsedLines) -> None:
        if self._on_progress is None:
            return
        now = self._ctx.clock.now()
        if now - self._reported_at >= PROGRESS_MS:
            self._reported_at = now
            self._on_progress(lines.lines_done, lines.bytes_done, self._source.size)

    def _finish(self) -> ListReport:
        """Count keys and conflicts, store the keys, find vanished keys, and record the list."""
        record = replace(self._record, digest=self._source.digest)
        if record.full and self._keys.total == 0:
            # Compared with nothing, every key would have vanished.
            record = replace(record, full=False)
            self._notes.append(
                "vanished keys are not determined: no line of this list has a key that can be read"
            )
        changed = self._all_changed()
        marks = dict.fromkeys(_CATEGORIES, 0)
        record = self._recording.store_keys(record, self._counted_blocks(marks))
        counts = {category: marks[mark] for mark, category in _CATEGORIES.items()}
        counts["changed"] = self._conflicts
        if self._replacing is None:
            del counts["replaced"]
        counts["repeated"] = self._keys.total - sum(counts.values())
        counts["malformed"] = self._malformed.total
        lines = sum(counts.values())
        vanished = self._vanished() if record.full else None
        if vanished is not None:
            counts["vanished"] = vanished.total
        self._recording.finish(replace(record, counts=counts))
        compared_with = self._last_full if vanished is not None else None
        return ListReport(
            id=self._recording.id_of(record),
            route=record.route,
            name=record.name,
            digest=record.digest,
            at=record.at,
            full=record.full,
            dry_run=self._recording.dry_run,
            lines=lines,
            counts=counts,
            malformed=self._malformed.shown,
            changed=changed,
            vanished=[] if vanished is None else vanished.shown,
            compared_with="" if compared_with is None else compared_with.id,
            notes=self._notes,
        )

    def _all_changed(self) -> list[ChangedLine]:
        """The changed lines, with those that only the end of a dry run shows."""
        left = "" if self._replacing is None else _TWICE.text
        repeated = [
            ChangedLine(line, key, left)
            for line, key in self._recording.repeated_with_other_content()
        ]
        self._conflicts += len(repeated)
        # One that comes twice in a batch is in both, where known items are replaced.
        by_line = {changed.line: changed for changed in [*repeated, *self._changed]}
        return [by_line[line] for line in sorted(by_line)][:SHOWN]

    def _counted_blocks(self, marks_total: dict[str, int]) -> Iterator[list[str]]:
        """The sorted keys in blocks, each key once; meanwhile the marks are counted."""
        for keys, marks in self._keys.distinct_blocks():
            for mark in marks_total:
                marks_total[mark] += marks.count(mark)
            yield keys

    def _vanished(self) -> Sample[str] | None:
        """The keys that the last full list has and this one has not; None: they are unknown."""
        vanished = Sample[str]()
        if self._last_full is None:
            return vanished
        own_keys = (keys for keys, _ in self._keys.distinct_blocks())
        try:
            for keys in missing(_keys_of(self._ctx, self._last_full), own_keys):
                vanished.add(keys)
        except MilepostError as error:
            self._notes.append(f"vanished keys are unknown: {error}")
            return None
        return vanished


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
