"""What became of the items of an act: how many have completed since, failed again, or are still in progress."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec import Struct

from milepost.core.operators import VERBS
from milepost.core.status import FAILED, LIVE, Status
from milepost.engine.context import Context
from milepost.ports.documents import Act
from milepost.ports.feed import HistoryEntry

PAGE = 1_000
MOST_LINES = 1_000_000
"""Lines that are read at most to find those of an act."""
DEEDS = {
    "retry": "restarted",
    "rerun": "started again",
    "resend": "offered again",
    "skip": "skipped",
    "confirm": "confirmed",
    "cancel": "cancelled",
    "replace": "replaced",
    "reschedule": "rescheduled",
    "redate": "dated as of now",
}
"""What each verb has done to an item."""


class ActOutcome(Struct, frozen=True):
    """Where the items that an act has changed are now. `unknown`: their history lines have left, or were not found."""

    completed: int = 0
    failed: int = 0
    cancelled: int = 0
    in_progress: int = 0
    unknown: int = 0

    def words(self, verb: str) -> str:
        """'0 completed, 1,660 failed again'."""
        again = " again" if verb in ("retry", "rerun") else ""
        parts = [f"{self.completed:,} completed", f"{self.failed:,} failed{again}"]
        others = ((self.in_progress, "in progress"), (self.cancelled, "cancelled"), (self.unknown, "not known any more"))
        return ", ".join([*parts, *(f"{n:,} {word}" for n, word in others if n)])


def deed_words(verb: str, n: int) -> str:
    """'1,660 restarted'."""
    return f"{n:,} {DEEDS.get(verb, 'done')}"


def outcome_of(ctx: Context, act: Act) -> ActOutcome | None:
    """What became of the items that the act has changed, by their statuses now. None: it changes no items, or an earlier version recorded
    it, without the place from which its lines are found."""
    if act.verb not in VERBS or not act.done:
        return None
    key = act.filter.get("key")
    if key is None and act.from_seq is None:
        return None
    keys = [str(key)] if key is not None else list(changed_keys(ctx, act))
    parts = (keys[start : start + PAGE] for start in range(0, len(keys), PAGE))
    statuses = [known.status for part in parts for known in ctx.ledger.peek(act.route, part) if known is not None]
    return _sums(statuses, act.done)


def _sums(statuses: Iterable[Status], done: int) -> ActOutcome:
    found = list(statuses)
    return ActOutcome(
        sum(status is Status.COMPLETED for status in found),
        sum(status in FAILED for status in found),
        sum(status is Status.CANCELLED for status in found),
        sum(status in LIVE for status in found),
        max(0, done - len(found)),
    )


def changed_keys(ctx: Context, act: Act) -> Iterator[str]:
    """The keys of the items that have a line of this act, in the order of the lines."""
    mark, left = f'"{act.id}"'.encode(), act.done
    for entry in _lines_since(ctx, act.from_seq or 0):
        if mark in entry.body and entry.route == act.route and entry.line.act == act.id:
            yield entry.key
            left -= 1
            if not left:
                return


def _lines_since(ctx: Context, after: int) -> Iterator[HistoryEntry]:
    for _ in range(MOST_LINES // PAGE):
        page = ctx.ledger.feed(after, PAGE)
        yield from page
        if len(page) < PAGE:
            return
        after = page[-1].seq
