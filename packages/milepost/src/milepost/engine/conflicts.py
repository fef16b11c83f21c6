"""Write the changes of items, and decide again on the present row after each conflict."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import TypeVar

from milepost.core.change import Change
from milepost.engine.context import Context
from milepost.ports.items import Conflict, Refused

TRIES = 5
"""How often one item is decided while other processes keep changing it."""


class ItemWrite(ABC):
    """The write of one item: how it decides, and what each answer of the ledger means to it."""

    checks_version = True
    """Whether the write must fail if the ledger holds a newer version of the route. All writes of
    one round agree in it."""

    @abstractmethod
    def decide(self) -> Change | None:
        """The change of the item as it is now; None: nothing is to be written."""

    @abstractmethod
    def written(self, change: Change) -> None:
        """The change was written: this write is over."""

    @abstractmethod
    def refused(self, refused: Refused) -> Conflict | None:
        """The storage can never take the change. None: this write is over; Conflict: what was
        written in its place has lost a race."""

    @abstractmethod
    def lost(self, conflict: Conflict) -> bool:
        """Another write came first. Returns whether this one decides again; otherwise it is
        over."""


W = TypeVar("W", bound=ItemWrite)


def retry_on_conflict(
    ctx: Context, writes: Iterable[W], read_again: Callable[[list[W]], list[W]] = list
) -> None:
    """Decide and write each item, in rounds of one call of the ledger; those that lost a race and
    decide again are the next round. After `TRIES` rounds the rest is left as it is.

    `read_again` prepares the next round: it reads what the writes need to decide again, and leaves
    out those that are over by what it has read.
    """
    waiting = list(writes)
    for _ in range(TRIES):
        losers = _write_once(ctx, waiting)
        if not losers:
            return
        waiting = read_again(losers)


def _write_once(ctx: Context, writes: list[W]) -> list[W]:
    """One round; returns the writes that decide again."""
    decided: list[tuple[W, Change]] = []
    for write in writes:
        change = write.decide()
        if change is not None:
            decided.append((write, change))
    if not decided:
        return []
    changes = [change for _, change in decided]
    answers = ctx.ledger.apply(changes, ctx.clock.now(), _versions(ctx, decided))
    losers: list[W] = []
    for (write, change), answer in zip(decided, answers, strict=True):
        if answer is None:
            write.written(change)
            continue
        conflict = write.refused(answer) if isinstance(answer, Refused) else answer
        if conflict is not None and write.lost(conflict):
            losers.append(write)
    return losers


def _versions(ctx: Context, decided: list[tuple[W, Change]]) -> dict[str, int] | None:
    """The route versions by which these changes were decided; None: they stand in any version."""
    if not decided[0][0].checks_version:
        return None
    routes = {change.before.route for _, change in decided}
    return {route: ctx.plan(route).version for route in routes}
