"""What outsiders put on a row: confirmations of the present stage, and answers that come again for stages long past."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from milepost.core.change import Change, Teller, change
from milepost.core.decide import without
from milepost.core.item import Item, Put, canonical_json, digest_of
from milepost.core.outcome import Done, outcome_to_builtins
from milepost.core.plan import Plan
from milepost.core.status import Reason
from milepost.ledgers.aws.image import is_ours
from milepost.ledgers.aws.keys import Layout
from milepost.ledgers.aws.stream import Record
from milepost.ledgers.aws.values import Values

OUTSIDE = Teller("outside")


def confirmed(item: Item) -> Item:
    """The item as its confirmation is applied to it. A confirmer may have rewritten `input` with it: that is what the next
    stage is to work on."""
    row = item.row
    told = row.kept[row.stage]
    if told.get("type") != "done" or "payload" in told or digest_of(item.input) == row.input_digest:
        return item
    kept = {**row.kept, row.stage: outcome_to_builtins(Done(told.get("output"), payload=item.input))}
    return Item(replace(row, kept=kept), item.content)


def disputed(item: Item, layout: Layout, record: Record, values: Values, plan: Plan, now: int) -> Change | None:
    """The first valid answer wins. One that differs and comes when its stage is behind the item is noted, and what stood there
    before stands there again."""
    row = item.row
    here = plan.position.get(row.stage, 0)
    for stage, told in row.kept.items():
        if plan.position.get(stage, here) < here:
            note = {"for": stage, "differs": told}
            return change(row, Reason.NOTED, now, row.status, {"kept": without(row.kept, stage)}, OUTSIDE, note=note)
    if record.old is None or record.new is None or not is_ours(record.old):
        return None
    for stage, value in item.results.items():
        name = layout.prefix + stage
        before = record.old.get(name)
        if before is None or before == record.new.get(name) or stage not in record.old.get("through", {}).get("SS", ()):
            continue
        first = values.decode(before)
        if not _same(first, value):
            puts = (Put("result", stage, first),)
            note = {"for": stage, "differs": value}
            return change(row, Reason.NOTED, now, row.status, {}, OUTSIDE, note=note, puts=puts)
    return None


def _same(one: Any, other: Any) -> bool:
    return canonical_json(one) == canonical_json(other)
