"""What keeps an item from being started: pauses over its lane, and the open breaker of its lane.
One rule for single views and lists."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from msgspec import Struct

from milepost.core.admission.controls import Hold, lanes_above, scope
from milepost.core.item import Row
from milepost.core.status import Status
from milepost.core.values.durations import iso
from milepost.engine.breakers import BreakerView, breaker_of, breaker_views
from milepost.engine.context import Context
from milepost.ports.documents import HOLD, read_each

T = TypeVar("T")

BREAKER_FIELDS = ("scope", "state", "since", "retry_at", "error")
"""Fields of a breaker that an item's JSON repeats."""


class Blocks(Struct, frozen=True):
    """What keeps one item from being started. Empty: nothing of this kind does."""

    pauses: tuple[tuple[str, Hold], ...] = ()
    """By scope, the widest first. A claimed item goes on to its outcome; its pauses count from then
    on."""
    breaker: BreakerView | None = None

    @property
    def word(self) -> str:
        """For a column of a list: 'paused', 'breaker open', or nothing."""
        if self.pauses:
            return "paused"
        return "" if self.breaker is None else f"breaker {self.breaker.state}"

    @property
    def text(self) -> str:
        """The reasons in one sentence without times; empty: there are none. While it is paused, its
        breaker lets nothing through either."""
        return "; ".join(self.reasons)

    @property
    def reasons(self) -> list[str]:
        """One clause for each pause; without a pause, one for the breaker."""
        if self.pauses:
            return [
                f"{name} is paused by {pause.by}: {pause.reason}" for name, pause in self.pauses
            ]
        return [] if self.breaker is None else [self.breaker.text]


UNBLOCKED = Blocks()


def blocks_of(row: Row, pauses: Mapping[str, Hold], breakers: Mapping[str, BreakerView]) -> Blocks:
    """The rule: what keeps this item back, of these pauses and open breakers by scope. Nothing
    keeps back an item that has ended, and no breaker one that a worker has claimed."""
    if row.terminal:
        return UNBLOCKED
    over = pauses_over(pauses, row.route, row.stage, row.lane)
    breaker = (
        None
        if row.status is Status.PROCESSING
        else breakers.get(scope(row.route, row.stage, row.lane))
    )
    return Blocks(tuple(over), breaker) if over or breaker is not None else UNBLOCKED


def pauses_over(pauses: Mapping[str, T], route: str, stage: str, lane: str) -> list[tuple[str, T]]:
    """The pauses that hold back the items of a lane, by scope: of its route, of its stage, of the
    wider lane within which it lies, its own."""
    names = [
        scope(route),
        scope(route, stage),
        *(scope(route, stage, one) for one in reversed(lanes_above(lane))),
    ]
    return [(name, pauses[name]) for name in names if name in pauses]


class BlockedLanes:
    """The pauses and open breakers of a route, read once for a list of its items."""

    def __init__(self, ctx: Context, route: str) -> None:
        self._pauses = read_each(ctx.ledger, HOLD, Hold)
        self._breakers = {breaker.scope: breaker for breaker in breaker_views(ctx, route)}

    def of(self, row: Row) -> Blocks:
        return blocks_of(row, self._pauses, self._breakers)


def read_blocks(ctx: Context, row: Row) -> Blocks:
    """What keeps this one item back now. Of an item that has ended nothing is read."""
    if row.terminal:
        return UNBLOCKED
    breaker = breaker_of(ctx, row)
    return blocks_of(
        row, read_each(ctx.ledger, HOLD, Hold), {} if breaker is None else {breaker.scope: breaker}
    )


def blocks_view(blocks: Blocks) -> dict[str, Any]:
    """The fields of an item's JSON that say what keeps it from being started: `blocked` in a word,
    `blocked_because` in a sentence, and the `pauses` and the `breaker` themselves."""
    pauses = [
        {
            "scope": name,
            "by": pause.by,
            "reason": pause.reason,
            "since": iso(pause.at),
            "until": iso(pause.until),
        }
        for name, pause in blocks.pauses
    ]
    breaker = (
        None
        if blocks.breaker is None
        else {name: getattr(blocks.breaker, name) for name in BREAKER_FIELDS}
    )
    return {
        "blocked": blocks.word or None,
        "blocked_because": blocks.text or None,
        "pauses": pauses,
        "breaker": breaker,
    }
