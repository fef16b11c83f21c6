"""Telling open pages that something has changed: one look at the ledger for all of them, and nothing while nobody watches."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from starlette.responses import StreamingResponse

from milepost.http.calls import Answer, Call, Endpoints
from milepost.http.desk import Desk

ENDPOINTS = Endpoints()
LOOK_S = 1.0
HEARTBEAT_S = 15.0


class Changes:
    """How far the ledger has been written, for any number of listeners. Belongs to one event loop."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._seq = -1
        self._changed = asyncio.Condition()
        self._listeners = 0
        self._task: asyncio.Task[None] | None = None

    async def listen(self) -> AsyncIterator[bytes]:
        """Server-sent events: `changed` whenever something was written, and a comment now and then."""
        self._listeners += 1
        if self._task is None:
            self._task = asyncio.create_task(self._look())
        seen = self._seq
        try:
            yield b": listening\n\n"
            while True:
                try:
                    async with asyncio.timeout(HEARTBEAT_S), self._changed:
                        while self._seq == seen:
                            await self._changed.wait()
                    first, seen = seen == -1, self._seq
                    if not first:
                        yield b"event: changed\ndata: " + str(seen).encode() + b"\n\n"
                except TimeoutError:
                    yield b": still here\n\n"
        finally:
            self._listeners -= 1

    async def _look(self) -> None:
        loop = asyncio.get_running_loop()
        while self._listeners:
            try:
                seq = await loop.run_in_executor(self._desk.pool, self._desk.ctx.ledger.last_seq)
            except Exception:
                seq = self._seq  # the pages say so by themselves when they ask
            if seq != self._seq:
                async with self._changed:
                    self._seq = seq
                    self._changed.notify_all()
            await asyncio.sleep(LOOK_S)
        self._task = None


@ENDPOINTS.add("GET", "/live", scope="read", summary="Tells a page when to look again")
async def live(desk: Desk, call: Call) -> Answer:
    changes = getattr(desk, "changes", None)
    if changes is None:
        changes = desk.changes = Changes(desk)  # type: ignore[attr-defined]
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return Answer(StreamingResponse(changes.listen(), media_type="text/event-stream", headers=headers))
