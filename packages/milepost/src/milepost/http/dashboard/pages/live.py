"""Notifies open pages that something has changed; each page then fetches itself again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

from starlette.responses import Response

from milepost.http.api.events import STREAM, EventStream, followed
from milepost.http.protocol.endpoint import Answer, Call, endpoint
from milepost.http.protocol.problems import problem_error
from milepost.http.state.event_stream import MOST
from milepost.http.state.state import ServerState

CALM_S = 0.5
"""Minimum time between two notifications of a page."""
HEARTBEAT_S = 3.0
"""A page that hears nothing for longer takes the server to hang."""


@endpoint("GET", "/live", scope="read", page=True, summary="Notifies a page when to refresh")
async def live(state: ServerState, call: Call) -> Answer:
    """Server-sent events: `changed`, first when the page connects (earlier changes are not sent),
    and then whenever something has happened to an item that the caller may see; and `here` every
    few seconds while nothing happens."""
    if call.raw.method == "HEAD":
        # A HEAD request would never get the end of a stream.
        return Answer(Response(media_type=STREAM))
    if state.feed.listeners >= MOST:
        raise problem_error(
            "too-many", f"the server has {MOST:,} listeners already", expected="fewer open pages"
        )
    return Answer(EventStream(_changes(state, call)))


async def _changes(state: ServerState, call: Call) -> AsyncGenerator[bytes, None]:
    yield b"retry: 2000\n\n"
    first = True
    async with aclosing(followed(state, call, None, HEARTBEAT_S)) as following:
        async for found, place in following:
            if first or any(call.caller.sees(event.route) for event in found):
                first = False
                yield f"event: changed\ndata: {place}\n\n".encode()
                await asyncio.sleep(CALM_S)
            elif not found:
                yield f"event: here\ndata: {place}\n\n".encode()
