"""What became of the items of an act: how many have completed since, failed again, or are still in
progress."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from milepost.core.errors import UsageError
from milepost.core.operators import VERBS
from milepost.core.status import FAILED, LIVE, Status
from milepost.engine.context import Context
from milepost.engine.views.page_tokens import make_token, read_token
from milepost.ports.documents import Act

PAGE = 1_000
LOOK_LINES = 10_000
"""History lines that one look reads at most to find those of an act."""
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
    """Where the items that an act has changed are now, as far as one look counts them. `unknown`:
    their history lines have left or were not found, or nothing is recorded of their keys any more.
    `counted`: the items in these numbers, of `total` that the act has changed. `next`: the token
    with which the next look continues; None: no more can be found."""

    completed: int = 0
    failed: int = 0
    cancelled: int = 0
    in_progress: int = 0
    unknown: int = 0
    counted: int = 0
    total: int = 0
    next: str | None = None

    def words(self, verb: str) -> str:
        """'0 completed, 1,660 failed again'."""
        again = " again" if verb in ("retry", "rerun") else ""
        parts = [f"{self.completed:,} completed", f"{self.failed:,} failed{again}"]
        others = (
            (self.in_progress, "in progress"),
            (self.cancelled, "cancelled"),
            (self.unknown, "not known any more"),
        )
        words = ", ".join([*parts, *(f"{n:,} {word}" for n, word in others if n)])
        return (
            words
            if self.counted == self.total
            else f"{words} (counted {self.counted:,} of {self.total:,} so far)"
        )

    def plus(self, later: ActOutcome) -> ActOutcome:
        """The sums of this look and of the one that continued it."""
        return ActOutcome(
            self.completed + later.completed,
            self.failed + later.failed,
            self.cancelled + later.cancelled,
            self.in_progress + later.in_progress,
            self.unknown + later.unknown,
            self.counted + later.counted,
            self.total,
            later.next,
        )


class _Place(Struct, frozen=True):
    """Where a look begins: after this place in the feed, when so many items of the act have been
    found."""

    seq: int
    found: int


def deed_words(verb: str, n: int) -> str:
    """'1,660 restarted'."""
    return f"{n:,} {DEEDS.get(verb, 'done')}"


def outcome_of(ctx: Context, act: Act, after: str | None = None) -> ActOutcome | None:
    """What became of the items that the act has changed, by their statuses now. One look reads at
    most `LOOK_LINES` history lines; `after`, the `next` of a look, continues it. None: the act
    changes no items, or an earlier version recorded it, without the place from which its lines are
    found. Raises UsageError if `after` is no token of this act."""
    if act.verb not in VERBS or not act.done:
        return None
    key = act.filter.get("key")
    if key is not None:
        return _counted(ctx, act, [str(key)], _Place(0, 0), None)
    if act.from_seq is None:
        return None
    begin = _Place(act.from_seq, 0) if after is None else _place_of(act, after)
    keys, end = _look(ctx, act, begin)
    return _counted(ctx, act, keys, begin, end)


def whole_outcome_of(ctx: Context, act: Act) -> ActOutcome | None:
    """As `outcome_of`, look after look until no more can be found: it may read every line that was
    written since the act began."""
    outcome = outcome_of(ctx, act)
    while outcome is not None and outcome.next is not None:
        later = outcome_of(ctx, act, outcome.next)
        if later is None:
            break
        outcome = outcome.plus(later)
    return outcome


def _counted(
    ctx: Context, act: Act, keys: Sequence[str], begin: _Place, end: _Place | None
) -> ActOutcome:
    """The outcome of one look, which has found these keys. `end`: where the next look begins; None:
    this was the last one, and what was not found is not known."""
    parts = (keys[start : start + PAGE] for start in range(0, len(keys), PAGE))
    statuses = [
        known.status
        for part in parts
        for known in ctx.ledger.peek(act.route, part)
        if known is not None
    ]
    counted = len(keys) if end is not None else max(len(keys), act.done - begin.found)
    return ActOutcome(
        sum(status is Status.COMPLETED for status in statuses),
        sum(status in FAILED for status in statuses),
        sum(status is Status.CANCELLED for status in statuses),
        sum(status in LIVE for status in statuses),
        counted - len(statuses),
        counted,
        max(act.done, begin.found + len(keys)),
        None if end is None else make_token(act.id, [end.seq, end.found]),
    )


def _look(ctx: Context, act: Act, begin: _Place) -> tuple[list[str], _Place | None]:
    """The keys of the items that have a line of this act, in the order of the lines, and the place
    where the next look begins."""
    mark, keys, seq = f'"{act.id}"'.encode(), list[str](), begin.seq
    for _ in range(LOOK_LINES // PAGE):
        page = ctx.ledger.feed(seq, PAGE)
        keys += [
            entry.key
            for entry in page
            if mark in entry.body and entry.route == act.route and entry.line.act == act.id
        ]
        if len(page) < PAGE or begin.found + len(keys) >= act.done:
            return keys, None
        seq = page[-1].seq
        if act.to_seq is not None and seq >= act.to_seq:
            return keys, None
    return keys, _Place(seq, begin.found + len(keys))


def _place_of(act: Act, after: str) -> _Place:
    token = read_token(act.id, after)
    if token is None:
        raise UsageError(
            "the place is invalid, or belongs to another act; give the `next` of the last look, or none"
        )
    seq, found = token.place
    return _Place(seq, found)
