"""Feed of events: pages from any position, forward for followers and backward for views."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct

from milepost.core.errors import UsageError
from milepost.core.events import Event, cloud_event, events_of
from milepost.core.values.redaction import redacted
from milepost.engine.context import Context
from milepost.ports.feed import HistoryEntry

PAGE = 500
PAGES = 20
"""Pages of lines searched for one page of events; a rare kind of event takes several requests."""
_PLACE = re.compile(r"(\d{1,18})(?:\.([1-9]\d?))?")

Wanted = Callable[[Event], bool]
Ref = tuple[str, str]
"""(route, key)"""


class FeedPlace(Struct, frozen=True):
    """Position in the feed: everything up to line `seq`, and the first `read_events` events of the
    next line, has been read.

    Written "57", or "57.1" if line 57 has more events than the one read, so that an interrupted
    reader neither loses nor repeats one.
    """

    seq: int = 0
    read_events: int = 0

    @classmethod
    def read(cls, text: str) -> FeedPlace:
        found = _PLACE.fullmatch(text)
        if found is None:
            raise UsageError(
                f"{text!r} is not a position in the feed; give the id of an event, such as 57"
            )
        seq, read_events = int(found[1]), int(found[2] or 0)
        return cls(seq - 1, read_events) if read_events else cls(seq)

    def __str__(self) -> str:
        return f"{self.seq + 1}.{self.read_events}" if self.read_events else str(self.seq)

    def has(self, seq: int, number: int) -> bool:
        """Whether the event with that number in line `seq` is before this position."""
        return seq <= self.seq or (seq == self.seq + 1 and number <= self.read_events)


class FeedEvent(Struct, frozen=True):
    """An event in the feed, with the position of its line."""

    seq: int
    number: int
    """Its number among the events of its line, from 1."""
    last: bool
    """It is the last event of its line."""
    event: Event

    @property
    def id(self) -> str:
        """The position after it."""
        return str(self.seq) if self.last else f"{self.seq}.{self.number}"

    @property
    def ref(self) -> Ref:
        """The item that it is about."""
        return (self.event.route, self.event.key)

    def view(self) -> dict[str, Any]:
        """As CloudEvents 1.0 plus `seq`; never in a route's own format, so that one reader
        understands all routes. Apparent secrets in its data are replaced by `…`: subscribers
        receive them, readers of the feed do not."""
        envelope = cloud_event(self.event)
        data = {
            name: redacted(value) if name in ("payload", "note") else value
            for name, value in envelope["data"].items()
        }
        return {**envelope, "data": data, "seq": self.seq}


class FeedPage(Struct, frozen=True):
    """A page of events."""

    events: list[FeedEvent]
    next: str
    """Position after this page and after all lines searched for it."""
    more: bool
    """More lines exist after it."""


class EventsBefore(Struct, frozen=True):
    """Events before a line, newest first, and the line from which to continue backward; 0 if there
    are none."""

    events: list[FeedEvent]
    next: int


def feed_events(lines: Sequence[HistoryEntry]) -> list[FeedEvent]:
    """The events of these lines, in order. A line whose content was removed has none."""
    found: list[FeedEvent] = []
    for written in lines:
        if written.removed:
            continue
        events = events_of(
            written.line, written.route, written.key, written.correlation_id, written.payload
        )
        found += [
            FeedEvent(written.seq, number, number == len(events), event)
            for number, event in enumerate(events, 1)
        ]
    return found


def page(ctx: Context, after: FeedPlace, limit: int, wanted: Wanted) -> FeedPage:
    """The next matching events, at most `limit`."""
    found: list[FeedEvent] = []
    at, seq = str(after), after.seq
    for _ in range(PAGES):
        lines = ctx.ledger.feed(seq, PAGE)
        for entry in feed_events(lines):
            if after.has(entry.seq, entry.number) or not wanted(entry.event):
                continue
            if len(found) == limit:
                return FeedPage(found, at, True)
            found.append(entry)
            at = entry.id
        if not lines:
            return FeedPage(found, at, False)
        seq = lines[-1].seq
        if len(found) < limit:
            at = str(seq)
        if len(lines) < PAGE:
            return FeedPage(found, at, False)
    return FeedPage(found, at, True)


def page_back(
    ctx: Context, before: int | None, limit: int, wanted: Wanted, look: int
) -> EventsBefore:
    """The newest matching events before line `before` (None: of all), about `limit`, because a line
    is never split. Searches at most `look` lines, so a page may be short or empty although there
    are more."""
    end = ctx.ledger.last_seq() + 1 if before is None else before
    start = max(0, end - 1 - look)
    lines = [written for written in ctx.ledger.feed(start, look) if written.seq < end]
    found: list[FeedEvent] = []
    for written in reversed(lines):
        if len(found) >= limit:
            return EventsBefore(found, written.seq + 1)
        found += [entry for entry in reversed(feed_events([written])) if wanted(entry.event)]
    # After pruning there may be nothing before these lines, however high their numbers are.
    oldest = ctx.ledger.feed(0, 1) if start and len(lines) < look else []
    nothing = start == 0 or (len(lines) < look and (not oldest or oldest[0].seq > start))
    return EventsBefore(found, 0 if nothing else start + 1)
