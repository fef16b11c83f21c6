"""The feed of events: a page of it, or a stream that continues as events happen."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing
from typing import Annotated, Any

from msgspec import Meta, Struct
from starlette.responses import StreamingResponse
from starlette.types import Message, Send

from milepost.core.errors import MilepostError, UsageError
from milepost.core.events import KINDS, Event
from milepost.engine.events.feed import FeedPlace, page
from milepost.engine.views.items import route_names
from milepost.http.auth.authenticator import LOCAL
from milepost.http.protocol.endpoint import Answer, Call, endpoint
from milepost.http.protocol.problems import ProblemError, problem_error
from milepost.http.state.event_stream import MOST, EncodedEvent
from milepost.http.state.state import ServerState

log = logging.getLogger(__name__)
STREAM = "text/event-stream"
STALLED_S = 60.0
"""A listener that reads nothing for this long is disconnected."""
CHUNK = 32 << 10
CHECK_S = 2.0
"""How often a listener's key is checked. Keys are cached for a while too; together, a revoked key
receives nothing after five seconds."""


class EventsQuery(Struct, frozen=True, kw_only=True):
    """From which place on, and which events. Without `after` a page begins at the oldest event, and
    a stream with new events."""

    after: str | None = None
    limit: Annotated[int, Meta(ge=1, le=1000)] = 100
    route: list[str] = []
    kind: list[str] = []


class EventPage(Struct, frozen=True):
    """A page of events, each as CloudEvents 1.0 with `seq`, its place in the order of all events.
    Give `next` as `after` to continue, now or later; a page may be short, or empty, even if there
    is `more`."""

    events: list[dict[str, Any]]
    next: str
    more: bool


def _filter(call: Call) -> Callable[[str, str], bool]:
    """A test, by route and kind, for the events that the caller wants and is allowed to see."""
    caller, routes, kinds = call.caller, frozenset(call.query.route), frozenset(call.query.kind)
    return lambda route, kind: (
        caller.sees(route) and (not routes or route in routes) and (not kinds or kind in kinds)
    )


@endpoint(
    "GET",
    "/api/v1/events",
    scope="read",
    query=EventsQuery,
    answers={200: EventPage},
    problems=("unknown-route", "too-many"),
    summary="Events of all items in the order in which they happened: a page, or a stream",
)
async def events(state: ServerState, call: Call) -> Answer:
    """`route` and `kind` may be repeated. With `Accept: text/event-stream` the answer is a stream
    of server-sent events that does not end: `id` is the place, `event` the kind, `data` the event;
    a comment is sent every 15 seconds. A client that reconnects with `Last-Event-ID` (or `after`)
    continues there, without loss and without repeat, as long as the lines are kept."""
    # A HEAD request would never get the end of a stream.
    streaming = STREAM in call.headers.get("accept", "") and call.raw.method != "HEAD"
    after = _place(call, streaming)
    newest = await state.feed.newest()
    if after is not None and after.seq + bool(after.read_events) > newest:
        raise problem_error(
            "wrong-value",
            "the feed has not reached this place; it may be of another ledger",
            field="after",
            expected=f"up to {newest}",
        )
    loop, takes = asyncio.get_running_loop(), _filter(call)
    await loop.run_in_executor(state.pool, _check, state, call)
    if streaming:
        if state.feed.listeners >= MOST:
            raise problem_error(
                "too-many",
                f"the server has {MOST:,} listeners already",
                expected="fewer listeners, or pages",
            )
        return Answer(EventStream(_stream(state, call, after)))

    def wants(event: Event) -> bool:
        return takes(event.route, event.kind)

    found = await loop.run_in_executor(
        state.pool, page, state.ctx, after or FeedPlace(), call.query.limit, wants
    )
    return Answer(EventPage([one.view() for one in found.events], found.next, found.more))


def _place(call: Call, streaming: bool) -> FeedPlace | None:
    """The place to start from. A browser that reconnects sends its first URL and the place that it
    has reached: the latter counts."""
    name, text = "after", call.query.after
    if streaming and call.headers.get("last-event-id"):
        name, text = "Last-Event-ID", call.headers["last-event-id"]
    try:
        return None if text is None else FeedPlace.read(text)
    except UsageError as error:
        raise problem_error("wrong-value", str(error), field=name) from None


def _check(state: ServerState, call: Call) -> None:
    known = [name for name in route_names(state.ctx) if call.caller.sees(name)]
    for name in call.query.route:
        if name not in known:
            raise problem_error(
                "unknown-route",
                f"there is no route {name!r}",
                field="route",
                expected=", ".join(known) or "none is known",
            )
    for kind in call.query.kind:
        if kind not in KINDS:
            raise problem_error(
                "wrong-value",
                f"there is no event of the kind {kind!r}",
                field="kind",
                expected=", ".join(sorted(KINDS)),
            )


async def _stream(
    state: ServerState, call: Call, after: FeedPlace | None
) -> AsyncGenerator[bytes, None]:
    loop, takes = asyncio.get_running_loop(), _filter(call)
    yield b"retry: 2000\n"
    spoke = loop.time()
    async with aclosing(followed(state, call, after)) as following:
        async for found, place in following:
            blocks = [event.block for event in found if takes(event.route, event.kind)]
            if blocks:
                for chunk in _chunks(blocks):
                    yield chunk
            elif not found or loop.time() - spoke >= state.feed.heartbeat_s:
                # An id without data moves the reader's place and is no event: a listener that
                # receives little need not read everything again.
                yield f": here\nid: {place}\n\n".encode()
            else:
                continue
            spoke = loop.time()


async def followed(
    state: ServerState, call: Call, after: FeedPlace | None, heartbeat_s: float | None = None
) -> AsyncGenerator[tuple[list[EncodedEvent], FeedPlace], None]:
    """The entries of `Feed.follow`, until the caller may not receive the stream any more, or the
    ledger cannot be read."""
    loop, checked = asyncio.get_running_loop(), asyncio.get_running_loop().time()
    try:
        async with aclosing(state.feed.follow(after, heartbeat_s)) as following:
            async for found, place in following:
                if call.caller == LOCAL or loop.time() - checked >= CHECK_S:
                    if not await _welcome(state, call):
                        return
                    checked = loop.time()
                yield found, place
    except MilepostError as error:
        # The reader reconnects, and continues at its place.
        log.warning("event stream closed: %s", error)


def _chunks(blocks: list[bytes]) -> Iterator[bytes]:
    """Small chunks: between two of them the server sees whether the reader reads, and at most one
    chunk waits for it."""
    chunk = bytearray()
    for block in blocks:
        chunk += block
        if len(chunk) >= CHUNK:
            yield bytes(chunk)
            chunk.clear()
    if chunk:
        yield bytes(chunk)


async def _welcome(state: ServerState, call: Call) -> bool:
    """Whether the caller may still receive the stream. While the ledger cannot be read, a connected
    caller stays connected."""
    try:
        return await state.caller(call.raw, call.raw.scope["endpoint"]) == call.caller
    except ProblemError as found:
        return found.problem.status not in (401, 403)
    except MilepostError:
        return True


class EventStream(StreamingResponse):
    """A stream that ends when its reader has disconnected or has read nothing for long."""

    def __init__(self, blocks: AsyncGenerator[bytes, None]) -> None:
        super().__init__(
            blocks,
            headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
            media_type=STREAM,
        )
        self._blocks = blocks

    async def stream_response(self, send: Send) -> None:
        async def in_time(message: Message) -> None:
            async with asyncio.timeout(STALLED_S):
                await send(message)

        try:
            await super().stream_response(in_time)
        except TimeoutError:
            return
        finally:
            # Otherwise the stream would count as a listener until it is garbage collected.
            await self._blocks.aclose()
