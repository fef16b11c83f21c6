"""Event stream for listeners: one reader of the feed for all. Recent events are cached once; a
slower listener reads from the ledger.

There is no buffer per listener: a listener is a position. A listener that does not read its data
delays only itself.
"""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_right
from collections.abc import AsyncGenerator, Callable, Sequence
from concurrent.futures import Executor
from operator import attrgetter
from typing import TypeVar

import msgspec
from msgspec import Struct

from milepost.core.errors import MilepostError
from milepost.engine.context import Context
from milepost.engine.events.feed import PAGE, FeedEvent, FeedPlace, feed_events

KEPT = 4_000
"""Events cached for all listeners together."""
POLL_S, POLL_REMOTE_S = 0.2, 2.0
TROUBLE_S = 1.0
HEARTBEAT_S = 15.0
STEP = 100
"""Events given to a listener at once, so that a stalled listener holds no more than these in
memory."""
MOST = 1_000
"""Maximum listeners of one server."""
REPLAYS = 2
"""Maximum concurrent reads of past events: other calls need threads too."""

log = logging.getLogger(__name__)
T = TypeVar("T")
_encode = msgspec.json.Encoder().encode
_seq = attrgetter("seq")


class EncodedEvent(Struct, frozen=True):
    """An event, encoded once for all listeners."""

    seq: int
    number: int
    route: str
    kind: str
    block: bytes
    """In the form of server-sent events."""


class Feed:
    """Belongs to one event loop; only `end` may be called from other threads. The ledger is not
    read while there are no listeners."""

    def __init__(self, ctx: Context, pool: Executor) -> None:
        self._ctx, self._pool = ctx, pool
        self._poll_s = (
            POLL_REMOTE_S if "change counter" in ctx.ledger.missing_capabilities else POLL_S
        )
        self.heartbeat_s = HEARTBEAT_S
        self.listeners = 0
        self.reads = 0
        """How often the ledger was queried for new lines."""
        self.ended = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._reader: asyncio.Task[None] | None = None
        self._kept: list[EncodedEvent] = []
        self._start = self._end = 0
        """The cache begins after line `_start`; lines up to `_end` have been read."""
        self._news = asyncio.Event()
        self._joining = asyncio.Lock()
        self._replaying = asyncio.Semaphore(REPLAYS)

    def end(self) -> None:
        """The server stops: disconnect every listener, so that it reconnects elsewhere."""
        self.ended = True
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._tell)

    async def follow(
        self, after: FeedPlace | None, heartbeat_s: float | None = None
    ) -> AsyncGenerator[tuple[list[EncodedEvent], FeedPlace], None]:
        """Events after that place (None: new ones), without end; each time with the place after
        them. An empty list comes first, and whenever there is nothing for a while (`heartbeat_s`),
        so that the listener knows that the server is alive, and its place."""
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
                        await asyncio.wait_for(news.wait(), heartbeat_s or self.heartbeat_s)
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
                end, events, full = await self._ask(self._lines, self._end, PAGE)
            except Exception as error:
                # Any error: without the reader, listeners would wait in vain.
                log.warning(
                    "the event stream cannot read the ledger, and tries again: %s",
                    error,
                    exc_info=not isinstance(error, MilepostError),
                )
                await asyncio.sleep(TROUBLE_S)
                continue
            if end > self._end:
                self._end = end
                self._kept += events
                if len(self._kept) > KEPT:
                    self._let_go()
                self._tell()
            if not full:
                await asyncio.sleep(self._poll_s)

    def _let_go(self) -> None:
        """Drop the oldest half of the cache, by whole lines."""
        self._start = self._kept[len(self._kept) - KEPT // 2 - 1].seq
        del self._kept[: bisect_right(self._kept, self._start, key=_seq)]

    async def _next(self, seq: int) -> tuple[list[EncodedEvent], int]:
        """Some events after a line, and the line up to which they are complete. A line is never
        split."""
        start = self._start
        if seq < start:
            async with self._replaying:
                end, events, full = await self._ask(self._lines, seq, STEP)
            # All lines up to the start of the cache at the time of the call; the cache may have
            # moved since.
            return events, end if full else max(end, start)
        first = bisect_right(self._kept, seq, key=_seq)
        last = first + STEP
        if last >= len(self._kept):
            return self._kept[first:], max(seq, self._end)
        last = bisect_right(self._kept, self._kept[last].seq, key=_seq)
        return self._kept[first:last], self._kept[last - 1].seq

    def _lines(self, after: int, limit: int) -> tuple[int, list[EncodedEvent], bool]:
        """The next lines: up to which one, their events, and whether there may be more."""
        lines = self._ctx.ledger.feed(after, limit)
        return lines[-1].seq if lines else after, _sent(feed_events(lines)), len(lines) == limit

    def _tell(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()

    async def _ask(self, question: Callable[..., T], *given: int) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, question, *given)


def _sent(found: Sequence[FeedEvent]) -> list[EncodedEvent]:
    return [
        EncodedEvent(
            one.seq,
            one.number,
            one.event.route,
            one.event.kind,
            f"id: {one.id}\nevent: {one.event.kind}\ndata: ".encode()
            + _encode(one.view())
            + b"\n\n",
        )
        for one in found
    ]
