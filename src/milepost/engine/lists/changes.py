"""Changed lines of a list: known keys with other content, reported or replaced."""

from __future__ import annotations

from collections import Counter

from msgspec import Struct
from msgspec.structs import replace

from milepost.core.change import Change
from milepost.core.item import Item, Row
from milepost.core.routes.plan import Plan
from milepost.core.values.difference import FieldDifference, difference
from milepost.core.values.refusal import Refusal, RefusalKind
from milepost.engine.act_log import enter, finish, has_line
from milepost.engine.acts.bulk import NewContent, read_content, replaced
from milepost.engine.apply import Decision, apply_all
from milepost.engine.context import Context
from milepost.engine.intake import TakenBatch
from milepost.engine.lists.formats import LineBatch
from milepost.ports.documents import Act, ListRecord

COMPARED = 100
"""Changed lines whose difference a dry run shows."""
_TWICE = Refusal(RefusalKind.DONE_BEFORE, "the list has this key more than once, with different content")
_GONE = Refusal(RefusalKind.GONE, "its row has been removed; only the seal remains")


class ChangedLine(Struct, frozen=True, omit_defaults=True):
    """A line whose key is known with other content. The first content stays, unless the list was submitted to replace it; `left` then says
    why this one was not replaced."""

    line: int
    key: str
    left: str = ""
    difference: list[FieldDifference] = []
    """For a dry run: the fields that differ."""


class ReplaceChanged:
    """Replaces the content of known items by that of the list, batch by batch, as one act."""

    def __init__(self, ctx: Context, plan: Plan, record: ListRecord, by: str, reason: str, rerun: bool, dry_run: bool) -> None:
        self._ctx, self._plan, self._record = ctx, plan, record
        self._by, self._reason, self._rerun, self._dry_run = by, reason, rerun, dry_run
        self._act: Act | None = None
        self._seen: set[int] = set()
        """Hashes of the keys so far: a key that the list has twice with different content is not replaced."""
        self._done = 0
        self._compared = 0

    def batch(self, batch: LineBatch, taken: TakenBatch) -> list[ChangedLine]:
        """Replace changed items and update their receipts; returns the changed lines with their results."""
        receipts = taken.others
        times = Counter(taken.keys)
        places = [place for place, receipt in receipts.items() if receipt.answer == "changed"]
        answers: dict[int, Row | Change | Refusal | None] = {}
        work: list[tuple[int, Item, NewContent]] = []
        keys = [receipts[place].key for place in places]
        items = self._ctx.ledger.get([(self._plan.name, key) for key in keys]) if keys else []
        for place, item in zip(places, items, strict=True):
            key = receipts[place].key
            if times[key] > 1 or hash(key) in self._seen:
                answers[place] = _TWICE
            elif isinstance(item, Item):
                work.append((place, item, read_content(self._plan, batch.inputs[place])))
            else:
                answers[place] = _GONE
        self._seen.update(map(hash, taken.keys))
        decisions = [(item, self._decision(new)) for _, item, new in work]
        made = [decision(item) for item, decision in decisions] if self._dry_run else apply_all(self._ctx, decisions)
        answers |= dict(zip((place for place, _, _ in work), made, strict=True))
        compared = {place: self._compare(item, new) for place, item, new in work}
        changed_lines = []
        for place in places:
            answer = answers[place]
            left = answer.text if isinstance(answer, Refusal) else ""
            changed_lines.append(ChangedLine(batch.numbers[place], receipts[place].key, left, compared.get(place, [])))
            if not left:
                self._done += 1
                receipts[place] = replace(receipts[place], answer="replaced", error="")
        return changed_lines

    def _decision(self, new: NewContent) -> Decision:
        def decision(item: Item) -> Change | Refusal:
            if self._dry_run:
                return replaced(self._ctx, item, self._plan, new, here=False, rerun=self._rerun, dry_run=True)
            act = self._begun()
            if item.row.updated_at >= act.started_at and has_line(self._ctx, item.row, act.id):
                return _TWICE
            return replaced(self._ctx, item, self._plan, new, here=False, rerun=self._rerun, by=self._by, why=self._reason, act=act.id)

        return decision

    def _begun(self) -> Act:
        """The act, recorded when its first item is replaced."""
        if self._act is None:
            about = {"list": self._record.id, "name": self._record.name, "rerun": self._rerun or None}
            kept = {name: value for name, value in about.items() if value is not None}
            self._act = enter(self._ctx, "replace", self._plan.name, self._by, self._reason, kept)
        return self._act

    def _compare(self, item: Item, new: NewContent) -> list[FieldDifference]:
        if not self._dry_run or self._compared >= COMPARED:
            return []
        self._compared += 1
        return difference(item.input, new.content)

    def finish(self) -> None:
        """Finish the act at the end of the list."""
        if self._act is not None:
            finish(self._ctx, self._act, self._done)
