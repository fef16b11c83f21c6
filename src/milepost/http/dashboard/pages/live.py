"""Telling open pages that something has changed; what it is they find out by asking for themselves again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator

from starlette.responses import Response

from milepost.core.errors import MilepostError
from milepost.http.api.events import CHECK_S, STREAM, EventStream, welcome
from milepost.http.protocol.endpoint import Answer, Call, Endpoints
from milepost.http.protocol.problems import problem_error
from milepost.http.state.event_stream import MOST
from milepost.http.state.state import ServerState

ENDPOINTS = Endpoints(pages=True)
log = logging.getLogger(__name__)
CALM_S = 0.5
"""However much happens, a page is told no more often."""


@ENDPOINTS.add("GET", "/live", scope="read", summary="Tells a page when to look again")
async def live(state: ServerState, call: Call) -> Answer:
    """Server-sent events: `changed`, first when it is listened for (what happened before that, nobody tells), and then whenever
    something has happened to an item that the caller may see."""
    if call.raw.method == "HEAD":
        # Who asks only for the head would never be sent its end.
        return Answer(Response(media_type=STREAM))
    if state.observability.feed.listeners >= MOST:
        raise problem_error("too-many", f"{MOST:,} listen already", expected="fewer open pages")
    return Answer(EventStream(_changes(state, call), {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}))


async def _changes(state: ServerState, call: Call) -> AsyncGenerator[bytes, None]:
    loop, following = asyncio.get_running_loop(), state.observability.feed.follow(None)
    yield b"retry: 2000\n\n"
    checked, first = loop.time(), True
    try:
        async for found, place in following:
            if loop.time() - checked >= CHECK_S:
                if not await welcome(state, call):
                    return
                checked = loop.time()
            if first or any(call.caller.sees(event.route) for event in found):
                first = False
                yield f"event: changed\ndata: {place}\n\n".encode()
                await asyncio.sleep(CALM_S)
            elif not found:
                yield b": here\n\n"
    except MilepostError as error:
        # The page comes again.
        log.warning("a page is told no more of what has changed: %s", error)
    finally:
        await following.aclose()
