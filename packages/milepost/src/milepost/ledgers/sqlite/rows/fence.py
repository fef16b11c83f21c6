"""Fence: decides which changes may be written over the present rows of the file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from milepost.core.change import Change, keeps_lease
from milepost.ledgers.sqlite.rows.codec import CODES, UNREADABLE, json_text, look_at_of
from milepost.ledgers.sqlite.rows.names import NameNumbers, Transaction
from milepost.ledgers.sqlite.rows.row_groups import FEW, OWN_DIGEST, digests_of

LOST = (
    "SELECT json_each.key FROM json_each(?) LEFT JOIN item ON item.id = json_each.value"
    f" WHERE item.head IS NOT {OWN_DIGEST} OR item.lease IS NOT ? OR item.status IS NOT ? OR item.place IS NOT ?"
)
"""Positions, in a list of row numbers, of the rows that have changed since they were read."""
NOW = "SELECT id, head, lease, status, place, due_at, look_at FROM item WHERE id IN (SELECT value FROM json_each(?))"


def fenced(tx: Transaction, changes: Sequence[Change]) -> list[Change | None]:
    """The changes as they may be written now, with None for each one that lost its race (see
    `core.change.holds`). At most one change per item. The head covers the version too: it is the
    digest of a line that contains it."""
    answers: list[Change | None] = list(changes)
    groups: dict[tuple[Any, ...], list[int]] = {}
    singles: list[int] = []
    for index, change in enumerate(changes):
        row = change.before
        if change.expired_at is not None or change.after.lease is not None:
            singles.append(index)
            continue
        state = (row.lease, row.status, row.route, row.stage, row.lane)
        if state in groups:
            groups[state].append(index)
        else:
            groups[state] = [index]
    for (lease, status, *place), group in groups.items():
        heads = (
            digests_of([changes[index].before.head for index in group])
            if len(group) > FEW
            else None
        )
        if heads is None:
            singles += group
            continue
        numbers = json_text([changes[index].before.handle for index in group])
        for (place_in_group,) in tx.execute(
            LOST, (numbers, heads, lease, CODES[status], tx.names.places.get(tuple(place)))
        ):
            answers[group[place_in_group]] = None
    if singles:
        now = {
            row[0]: row[1:]
            for row in tx.execute(
                NOW, (json_text([changes[index].before.handle for index in singles]),)
            )
        }
        for index in singles:
            answers[index] = _fenced_alone(
                changes[index], now.get(changes[index].before.handle), tx.names
            )
    return answers


def _fenced_alone(change: Change, now: tuple[Any, ...] | None, names: NameNumbers) -> Change | None:
    before = change.before
    if now is None:
        return None
    head, lease, status, place, due_at, kept_look = now
    try:
        same = (head, lease, status, names.by_id[place].stage) == (
            before.head,
            before.lease,
            CODES[before.status],
            before.stage,
        )
    except UNREADABLE:
        return None  # it is damaged, and so not the row that was read
    look_at = look_at_of(due_at, kept_look)
    if not same or change.expired_at not in (None, look_at):
        return None
    if keeps_lease(change) and look_at != change.after.look_at:
        # The worker has extended its lease since the row was read.
        return replace(change, after=replace(change.after, look_at=look_at))
    return change
