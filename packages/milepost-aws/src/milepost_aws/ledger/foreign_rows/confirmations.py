"""Attributes that partners put on a row: confirmations of its stage, and repeated answers for
earlier stages; the same for the relay (stream record) and the repair (scan)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from milepost.core.change import Author, Change, change
from milepost.core.claims import kept_author, without_author
from milepost.core.confirmations import confirm, noted_once, refused
from milepost.core.decide import NOTE_LIMIT, decide, without
from milepost.core.item import Item, Put, Row
from milepost.core.outcome import Done, outcome_from_builtins
from milepost.core.routes.plan import Plan
from milepost.core.status import FAILED, Reason, Status
from milepost.core.values.json import canonical_json
from milepost.core.values.refusal import Refusal
from milepost_aws.ledger.store import AwsStore
from milepost_aws.ledger.stream import StreamRecord
from milepost_aws.ledger.tables.conditional_write import Update, place_of
from milepost_aws.ledger.tables.item_rows import Handle, is_ours
from milepost_aws.ledger.tables.keys import WAITING, Image, Layout
from milepost_aws.ledger.tables.values import WITH_KEY, Values

OUTSIDE = Author("outside")


def keep_input(store: AwsStore, layout: Layout, old: Image, new: Image) -> None:
    """For a confirmer that has rewritten `input`: keep its stage's original payload, so that a
    resend or send-back gives the same. The confirmation in this record is judged by that payload
    too. Both images of the record must be of the same version."""
    if old.get("input") == new.get("input"):
        return
    name = f"payload_{old['queue']['S']}"
    if name in new or "input" not in old:
        return
    key, payload = layout.key_of(new), old["input"]
    if "M" in payload and WITH_KEY not in payload["M"]:
        # As text: a map of another program might read like a reference to a result.
        payload = store.values.encode(store.values.decode(payload), place_of(layout.route, key))
    update = Update(layout, key)
    update.set(name, payload)
    update.unchanged(new, name, "version")
    # If the row has changed, the writer of that change has read the rewritten input.
    if update.written(store.requests):
        new[name] = payload


def confirmed_change(
    item: Item, plan: Plan, now: int, jitter: Callable[[], float]
) -> Change | None:
    """The change for confirmations found on the row; None: there is nothing to do.

    A confirmation of the row's stage is applied, unless a worker has claimed the item: then it
    takes precedence when the worker settles. A confirmation of the stage at which the item failed
    still moves it. It does not move a cancelled item, since it may be older than the cancellation.
    A confirmation of an earlier stage came too late and is noted."""
    row = item.row
    here = plan.position.get(row.stage)
    if here is None:
        return None  # `routes apply` moves it
    if row.status is Status.COMPLETED:
        here = len(plan.stages)
    elif row.status in FAILED and row.stage in row.kept:
        kept = row.kept[row.stage]
        moved = confirm(
            item, row.stage, outcome_from_builtins(kept), plan, now, jitter(), by=kept_author(kept)
        )
        return moved if isinstance(moved, Change) else None
    elif row.stage in row.kept and not row.terminal and row.status is not Status.PROCESSING:
        return decide(item, Done(), plan, now, jitter())
    for stage, outcome in row.kept.items():
        if plan.position.get(stage, here) < here:
            note = {"for": stage, "differs": without_author(outcome)}
            return change(
                row,
                Reason.NOTED,
                now,
                row.status,
                {"kept": without(row.kept, stage)},
                OUTSIDE,
                note=note,
            )
    return None


def has_refused_answer(row: Row) -> bool:
    """Whether the row has an answer for its stage that does not confirm it."""
    handle = row.handle
    if not isinstance(handle, Handle) or handle.confirmation is None:
        return False
    ended = row.status in (Status.COMPLETED, Status.CANCELLED)
    return not ended and row.stage not in row.kept and row.stage not in handle.through


def remove_refused_answer(
    store: AwsStore, item: Item, plan: Plan, now: int, jitter: Callable[[], float]
) -> Change | None:
    """The change for an answer that does not confirm its stage: note it once and remove it from the
    row, so that the same answer, given again, makes a new stream record. None: there is no such
    answer."""
    row = item.row
    if row.stage not in plan.by_name or not has_refused_answer(row):
        return None
    value = store.values.decode(row.handle.confirmation)
    decided: Change | Refusal | None = None
    if value is not None:
        noted = refused(item, value, plan, now, jitter(), by=OUTSIDE.by or "")
        lines = store.journal.history
        decided = (
            None
            if noted is None
            else noted_once(noted, lambda: (written.line for written in lines(row.route, row.key)))
        )
    off = (Put("result", row.stage, None),)
    return replace(decided, puts=off) if isinstance(decided, Change) else Change(row, row, puts=off)


def still_waiting(row: Row, image: Image, plan: Plan, now: int) -> Change | None:
    """The write for a confirmer's report of what it still waits for, such as missing files: it
    becomes the row's note, with a history line if it is new, and its attribute is removed. None:
    there is no report for the row's stage."""
    stage = plan.by_name.get(row.stage)
    report = image.get(WAITING + row.stage)
    if stage is None or not stage.external or report is None:
        return None
    text = str(report.get("S", ""))[:NOTE_LIMIT]
    off = (Put("waiting", row.stage, None),)
    if row.terminal or not text or row.note == text:
        return Change(row, row, puts=off)
    return change(row, Reason.NOTED, now, row.status, {"note": text}, OUTSIDE, note=text, puts=off)


def disputed(
    row: Row,
    image: Image,
    layout: Layout,
    records: Sequence[StreamRecord],
    values: Values,
    now: int,
) -> Change | None:
    """The change for answers of completed stages that another program has overwritten, emptied or
    removed: the first valid answer is written back, and the other one is noted. None: there is no
    such answer."""
    puts, notes = [], []
    for stage, before in _overwritten(layout, records).items():
        after = image.get(layout.prefix + stage)
        first, value = values.decode(before), None if after is None else values.decode(after)
        if canonical_json(first) != canonical_json(value):
            puts.append(Put("result", stage, first))
            notes.append({"for": stage, "differs": value})
    if not puts:
        return None
    return change(
        row,
        Reason.NOTED,
        now,
        row.status,
        {},
        OUTSIDE,
        note=notes[0] if len(notes) == 1 else notes,
        puts=tuple(puts),
    )


def _overwritten(layout: Layout, records: Sequence[StreamRecord]) -> Image:
    """The answers for completed stages before another program overwrote them. Our own writes raise
    the version."""
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
