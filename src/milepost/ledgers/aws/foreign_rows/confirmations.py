"""What outsiders put on a row: confirmations of the present stage, and answers that come again for stages long past."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from msgspec.structs import replace

from milepost.core.change import Change, change
from milepost.core.confirmations import noted_once, refused
from milepost.core.decide import NOTE_LIMIT
from milepost.core.item import Item, Put, Row, canonical_json
from milepost.core.routes.plan import Plan
from milepost.core.status import Reason, Status
from milepost.ledgers.aws.requests.client import ConditionFailed
from milepost.ledgers.aws.row_duties import OUTSIDE
from milepost.ledgers.aws.store import AwsStore
from milepost.ledgers.aws.stream.records import StreamRecord
from milepost.ledgers.aws.tables.conditional_write import Update
from milepost.ledgers.aws.tables.item_rows import Handle, is_ours
from milepost.ledgers.aws.tables.keys import WAITING, Image, Layout
from milepost.ledgers.aws.tables.values import Values


def keep_input(store: AwsStore, layout: Layout, record: StreamRecord) -> None:
    """A confirmer has rewritten `input`. What its stage was given to work on is kept apart, so that sending it again, or the item
    back to it, gives the same; and the confirmation that came with it is judged by that, in this very record too."""
    old, new = record.old, record.new
    if old is None or new is None or not is_ours(old) or not is_ours(new) or old.get("input") == new.get("input"):
        return
    name = f"payload_{old['queue']['S']}"
    if name in new or "input" not in old or old["version"] != new["version"]:
        return
    update = Update(layout, layout.key_of(new))
    update.set(name, old["input"])
    update.equal(name, None)
    update.equal("version", new["version"])
    try:
        store.requests.call("dynamodb", "update_item", **update.params())
    except ConditionFailed:
        return  # the row has gone on; whoever wrote it read the rewritten input
    new[name] = old["input"]


def has_refused(row: Row) -> bool:
    """Has the row an answer for its stage that does not confirm it?"""
    handle = row.handle
    if not isinstance(handle, Handle) or handle.confirmation is None:
        return False
    ended = row.status in (Status.COMPLETED, Status.CANCELLED)
    return not ended and row.stage not in row.kept and row.stage not in handle.through


def take_off(store: AwsStore, item: Item, plan: Plan, now: int, jitter: Callable[[], float]) -> Change | None:
    """The write for an answer on the row that does not confirm its stage: it is noted, once, and leaves the row, so that the same
    answer given again is seen again. None: there is no such answer."""
    row = item.row
    if row.stage not in plan.by_name or not has_refused(row):
        return None
    value = store.values.decode(row.handle.confirmation)
    decided: Change | str | None = None
    if value is not None:
        noted = refused(item, value, plan, now, jitter(), by=OUTSIDE.by or "")
        lines = store.journal.history
        decided = None if noted is None else noted_once(noted, lambda: (written.line for written in lines(row.route, row.key)))
    off = (Put("result", row.stage, None),)
    return replace(decided, puts=off) if isinstance(decided, Change) else Change(row, row, puts=off)


def still_waiting(row: Row, image: Image, plan: Plan, now: int) -> Change | None:
    """The write for what a confirmer says that it still waits for, such as the files that are missing: it becomes the row's note, with a
    line in the history when it says something new, and leaves its attribute. None: a confirmer has said nothing of the row's stage."""
    stage = plan.by_name.get(row.stage)
    said = image.get(WAITING + row.stage)
    if stage is None or not stage.external or said is None:
        return None
    text = str(said.get("S", ""))[:NOTE_LIMIT]
    off = (Put("waiting", row.stage, None),)
    if row.terminal or not text or row.note == text:
        return Change(row, row, puts=off)
    return change(row, Reason.NOTED, now, row.status, {"note": text}, OUTSIDE, note=text, puts=off)


def disputed(row: Row, image: Image, layout: Layout, records: Sequence[StreamRecord], values: Values, now: int) -> Change | None:
    """The first valid answer wins. One that differs and comes when its stage is behind the item is noted, and what stood there
    before stands there again; so it does when somebody empties it or takes it off."""
    puts, notes = [], []
    for stage, before in _overwritten(layout, records).items():
        after = image.get(layout.prefix + stage)
        first, value = values.decode(before), None if after is None else values.decode(after)
        if not _same(first, value):
            puts.append(Put("result", stage, first))
            notes.append({"for": stage, "differs": value})
    if not puts:
        return None
    return change(row, Reason.NOTED, now, row.status, {}, OUTSIDE, note=notes[0] if len(notes) == 1 else notes, puts=tuple(puts))


def _overwritten(layout: Layout, records: Sequence[StreamRecord]) -> Image:
    """What stood on the row for stages that the item is through, before outsiders wrote over it. Our own writes raise the version."""
    first: Image = {}
    for record in records:
        old, new = record.old, record.new
        if old is None or new is None or not is_ours(old) or not is_ours(new):
            continue
        for stage in old.get("through", {}).get("SS", ()):
            name = layout.prefix + stage
            if name not in old or old[name] == new.get(name):
                continue
            if old["version"] == new["version"]:
                first.setdefault(stage, old[name])
            else:
                first.pop(stage, None)
    return first


def _same(one: Any, other: Any) -> bool:
    return canonical_json(one) == canonical_json(other)
