"""Notifies open pages that something has changed; each page then fetches itself again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator

from starlette.responses import Response

from milepost.core.errors import MilepostError
from milepost.http.api.events import CHECK_S, STREAM, EventStream, welcome
from milepost.http.protocol.endpoint import Answer, Call, endpoint
from milepost.http.protocol.problems import problem_error
from milepost.http.state.event_stream import MOST
from milepost.http.state.state import ServerState

log = logging.getLogger(__name__)
CALM_S = 0.5
"""Minimum time between two notifications of a page."""


@endpoint("GET", "/live", scope="read", page=True, summary="Notifies a page when to refresh")
async def live(state: ServerState, call: Call) -> Answer:
    """Server-sent events: `changed`, first when the page connects (earlier changes are not sent), and then whenever something has
    happened to an item that the caller may see."""
    if call.raw.method == "HEAD":
        # A HEAD request would never get the end of a stream.
        return Answer(Response(media_type=STREAM))
    if state.feed.listeners >= MOST:
        raise problem_error("too-many", f"the server has {MOST:,} listeners already", expected="fewer open pages")
    return Answer(EventStream(_changes(state, call)))


async def _changes(state: ServerState, call: Call) -> AsyncGenerator[bytes, None]:
    loop, following = asyncio.get_running_loop(), state.feed.follow(None)
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
        # The page connects again.
        log.warning("live updates of a page stopped: %s", error)
    finally:
        await following.aclose()
