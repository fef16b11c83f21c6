"""The feed of events, from any place on: for whoever asks for a page of it, or follows it as it grows."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct

from milepost.core.errors import UsageError
from milepost.core.events import QUIET, Event, cloud_event
from milepost.core.status import Reason
from milepost.engine.context import Context
from milepost.engine.events.parked_events import entries_of
from milepost.ports.ledger import HistoryEntry

PAGE = 500
PAGES = 20
"""So many pages of lines are looked through for one page of events; a rare kind of event takes several questions."""
KINDS = frozenset(reason.value for reason in Reason if reason not in QUIET | {Reason.CLAIMED}) | {"offered"}
"""All kinds of events."""
_PLACE = re.compile(r"(\d{1,18})(?:\.([1-9]\d?))?")

Wanted = Callable[[Event], bool]


class FeedPlace(Struct, frozen=True):
    """Everything up to line `seq` has been told, and the first `told` events of the line after it.

    Written "57", or "57.1" where line 57 has more events than the one that was told: so nothing is lost and nothing comes twice,
    wherever a reader was cut off.
    """

    seq: int = 0
    told: int = 0

    @classmethod
    def read(cls, text: str) -> FeedPlace:
        found = _PLACE.fullmatch(text)
        if found is None:
            raise UsageError(f"{text!r} is no place in the feed; give the id of an event, such as 57")
        seq, told = int(found[1]), int(found[2] or 0)
        return cls(seq - 1, told) if told else cls(seq)

    def __str__(self) -> str:
        return f"{self.seq + 1}.{self.told}" if self.told else str(self.seq)

    def has(self, seq: int, number: int) -> bool:
        """Has the event with that number in line `seq` been told?"""
        return seq <= self.seq or (seq == self.seq + 1 and number <= self.told)


class FeedEvent(Struct, frozen=True):
    """An event in the feed: `id` names the place behind it."""

    id: str
    seq: int
    number: int
    """Its number among the events of its line, from 1."""
    event: Event

    def view(self) -> dict[str, Any]:
        """As CloudEvents 1.0 with `seq` beside; never in a route's own form, so that one reader understands all routes."""
        return {**cloud_event(self.event), "seq": self.seq}


class FeedPage(Struct, frozen=True):
    events: list[FeedEvent]
    next: str
    """The place behind this page, and behind what was looked through for it."""
    more: bool
    """There is something behind it already."""


class Before(Struct, frozen=True):
    """Events before a line, the newest first, and the line before which to go on; 0: nothing is before it."""

    events: list[FeedEvent]
    next: int


def told_of(lines: Sequence[HistoryEntry]) -> list[FeedEvent]:
    """The events of these lines, in order."""
    found: list[FeedEvent] = []
    for written in lines:
        entries = entries_of(written)
        for number, entry in enumerate(entries, 1):
            name = str(written.seq) if number == len(entries) else f"{written.seq}.{number}"
            found.append(FeedEvent(name, written.seq, number, entry.event))
    return found


def page(ctx: Context, after: FeedPlace, limit: int, wanted: Wanted) -> FeedPage:
    """The next events that are wanted, at most `limit`."""
    found: list[FeedEvent] = []
    at, seq = str(after), after.seq
    for _ in range(PAGES):
        lines = ctx.ledger.feed(seq, PAGE)
        for told in told_of(lines):
            if after.has(told.seq, told.number) or not wanted(told.event):
                continue
            if len(found) == limit:
                return FeedPage(found, at, True)
            found.append(told)
            at = told.id
        if not lines:
            return FeedPage(found, at, False)
        seq = lines[-1].seq
        if len(found) < limit:
            at = str(seq)
        if len(lines) < PAGE:
            return FeedPage(found, at, False)
    return FeedPage(found, at, True)


def page_back(ctx: Context, before: int | None, limit: int, wanted: Wanted, look: int) -> Before:
    """The newest events before line `before` (None: the newest of all) that are wanted: about `limit`, for no line is cut in two.
    At most `look` lines are looked through, so a page may be short, or empty, though there is more before it."""
    end = ctx.ledger.last_seq() + 1 if before is None else before
    start = max(0, end - 1 - look)
    lines = [written for written in ctx.ledger.feed(start, look) if written.seq < end]
    found: list[FeedEvent] = []
    for written in reversed(lines):
        if len(found) >= limit:
            return Before(found, written.seq + 1)
        found += [told for told in reversed(told_of([written])) if wanted(told.event)]
    # Where lines have been pruned there may be nothing before these, however high their numbers are.
    oldest = ctx.ledger.feed(0, 1) if start and len(lines) < look else []
    nothing = start == 0 or (len(lines) < look and (not oldest or oldest[0].seq > start))
    return Before(found, 0 if nothing else start + 1)
