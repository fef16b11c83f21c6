"""What outsiders put on a row: confirmations of the present stage, and answers that come again for stages long past."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from milepost.core.change import Change, change
from milepost.core.item import Put, Row, canonical_json
from milepost.core.status import Reason
from milepost.ledgers.aws.client import ConditionFailed
from milepost.ledgers.aws.image import is_ours
from milepost.ledgers.aws.keys import Image, Layout
from milepost.ledgers.aws.standing import OUTSIDE
from milepost.ledgers.aws.store import Store
from milepost.ledgers.aws.stream import Record
from milepost.ledgers.aws.values import Values
from milepost.ledgers.aws.writing import Update


def keep_input(store: Store, layout: Layout, record: Record) -> None:
    """A confirmer has rewritten `input`. What its stage was given to work on is kept apart, so that sending it again, or the item
    back to it, gives the same."""
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


def disputed(row: Row, image: Image, layout: Layout, records: Sequence[Record], values: Values, now: int) -> Change | None:
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


def _overwritten(layout: Layout, records: Sequence[Record]) -> Image:
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
