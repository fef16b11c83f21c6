"""Following the feed: one reader for everybody. What it has read lately is kept once; who is slower reads from the ledger.

There is no buffer for each listener: a listener is a place. One that does not take what it is sent waits at its own expense.
"""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_right
from collections.abc import AsyncGenerator, Callable, Sequence
from concurrent.futures import Executor
from typing import TypeVar

import msgspec
from msgspec import Struct

from milepost.core.errors import MilepostError
from milepost.engine.context import Context
from milepost.engine.events.feed import PAGE, FeedEvent, FeedPlace, feed_events

KEPT = 4_000
"""Events kept for all listeners together."""
POLL_S, POLL_REMOTE_S = 0.2, 2.0
TROUBLE_S = 1.0
HEARTBEAT_S = 15.0
STEP = 100
"""Events given to a listener at once, so that one who stalls holds on to no more than these."""
MOST = 1_000
"""Listeners of one server."""
REPLAYS = 2
"""Reads of the past at the same time: they must not keep calls from the threads."""

log = logging.getLogger(__name__)
T = TypeVar("T")
_encode = msgspec.json.Encoder().encode


class Sent(Struct, frozen=True):
    """An event, made ready once for all who hear of it."""

    seq: int
    number: int
    route: str
    kind: str
    block: bytes
    """In the form of server-sent events."""


class Lines(Struct, frozen=True):
    """What was read: up to where, and the events on the way."""

    end: int
    events: list[Sent]
    full: bool = False


class Feed:
    """Belongs to one event loop; only `end` may be called from elsewhere. Nothing is read while nobody listens."""

    def __init__(self, ctx: Context, pool: Executor) -> None:
        self._ctx, self._pool = ctx, pool
        self._poll_s = POLL_REMOTE_S if "pulse" in ctx.ledger.missing_capabilities else POLL_S
        self.heartbeat_s = HEARTBEAT_S
        self.listeners = 0
        self.reads = 0
        """How often the ledger was asked for what is new."""
        self.ended = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._reader: asyncio.Task[None] | None = None
        self._kept: list[Sent] = []
        self._start = self._end = 0
        """What is kept begins behind line `_start`; lines up to `_end` have been read."""
        self._news = asyncio.Event()
        self._joining = asyncio.Lock()
        self._replaying = asyncio.Semaphore(REPLAYS)

    def end(self) -> None:
        """The server stops: every listener is let go of, and comes again elsewhere."""
        self.ended = True
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._tell)

    async def follow(self, after: FeedPlace | None) -> AsyncGenerator[tuple[list[Sent], FeedPlace], None]:
        """What is behind that place (None: what is new), for ever; each time with the place behind it. First, and whenever
        there is nothing for a while, an empty list: whoever listens hears that somebody is there, and where."""
        await self._join()
        try:
            place = after or FeedPlace(self._end)
            yield [], place
            while not self.ended:
                news = self._news
                found, end = await self._next(place.seq)
                events = [event for event in found if not place.has(event.seq, event.number)]
                moved = end > place.seq
                if moved:
                    place = FeedPlace(end)
                if events:
                    yield events, place
                elif not moved:
                    try:
                        await asyncio.wait_for(news.wait(), self.heartbeat_s)
                    except TimeoutError:
                        yield [], place
        finally:
            self.listeners -= 1

    async def newest(self) -> int:
        """The place of the newest line."""
        return await self._ask(self._ctx.ledger.last_seq)

    async def _join(self) -> None:
        async with self._joining:
            if self._reader is None or self._reader.done():
                self._loop = asyncio.get_running_loop()
                self._kept, self._start = [], await self.newest()
                self._end = self._start
                self._reader = self._loop.create_task(self._read())
            self.listeners += 1

    async def _read(self) -> None:
        while self.listeners and not self.ended:
            try:
                self.reads += 1
                lines = await self._ask(self._lines, self._end, PAGE)
            except Exception as error:
                # Whatever it is: those who listen would wait in vain for a reader that has gone.
                log.warning("the feed waits for the ledger: %s", error, exc_info=not isinstance(error, MilepostError))
                await asyncio.sleep(TROUBLE_S)
                continue
            if lines.end > self._end:
                self._end = lines.end
                self._kept += lines.events
                if len(self._kept) > KEPT:
                    self._let_go()
                self._tell()
            if not lines.full:
                await asyncio.sleep(self._poll_s)

    def _let_go(self) -> None:
        """Of the oldest half, by whole lines."""
        self._start = self._kept[len(self._kept) - KEPT // 2 - 1].seq
        del self._kept[: bisect_right(self._kept, self._start, key=_seq)]

    async def _next(self, seq: int) -> tuple[list[Sent], int]:
        """Some events behind a line, and the line up to which these are all. Lines are never cut in two."""
        start = self._start
        if seq < start:
            async with self._replaying:
                past = await self._ask(self._lines, seq, STEP)
            # All up to where the kept ones began before this was asked; they may have moved on meanwhile.
            return past.events, past.end if past.full else max(past.end, start)
        first = bisect_right(self._kept, seq, key=_seq)
        last = first + STEP
        if last >= len(self._kept):
            return self._kept[first:], max(seq, self._end)
        last = bisect_right(self._kept, self._kept[last].seq, key=_seq)
        return self._kept[first:last], self._kept[last - 1].seq

    def _lines(self, after: int, limit: int) -> Lines:
        lines = self._ctx.ledger.feed(after, limit)
        return Lines(lines[-1].seq if lines else after, _sent(feed_events(lines)), len(lines) == limit)

    def _tell(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()

    async def _ask(self, question: Callable[..., T], *given: int) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, question, *given)


def _seq(event: Sent) -> int:
    return event.seq


def _sent(found: Sequence[FeedEvent]) -> list[Sent]:
    return [
        Sent(
            told.seq,
            told.number,
            told.event.route,
            told.event.kind,
            f"id: {told.id}\nevent: {told.event.kind}\ndata: ".encode() + _encode(told.view()) + b"\n\n",
        )
        for told in found
    ]
