"""Name resolution: the system's resolver, in threads that no exit of the process waits for."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

LOOKUPS = 100

Resolver = Callable[[str], Awaitable[Sequence[str]]]
"""The addresses of a name, as texts, in the order in which they are tried. Raises OSError if there are none."""


class SystemResolver:
    """Asks the operating system. Calls for one name at the same time share one lookup; at most 100 names are looked up at once."""

    def __init__(self) -> None:
        self._running: dict[str, asyncio.Future[list[str]]] = {}
        self._slots = asyncio.Semaphore(LOOKUPS)

    async def __call__(self, host: str) -> Sequence[str]:
        lookup = self._running.get(host)
        if lookup is None:
            lookup = self._running[host] = asyncio.ensure_future(self._look_up(host))
            lookup.add_done_callback(lambda done: self._forget(host, done))
        # A caller that gives up does not take the answer from the others.
        return await asyncio.shield(lookup)

    def _forget(self, host: str, lookup: asyncio.Future[list[str]]) -> None:
        self._running.pop(host, None)
        if not lookup.cancelled():
            lookup.exception()

    async def _look_up(self, host: str) -> list[str]:
        async with self._slots:
            loop = asyncio.get_running_loop()
            answer: asyncio.Future[list[str]] = loop.create_future()
            # Not the loop's own executor: the process would wait at its end for a lookup that hangs.
            threading.Thread(target=_ask, args=(host, loop, answer), name="milepost-resolve", daemon=True).start()
            return await answer


def _ask(host: str, loop: asyncio.AbstractEventLoop, answer: asyncio.Future[list[str]]) -> None:
    addresses: list[str] = []
    failure: Exception | None = None
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        addresses = list(dict.fromkeys(str(entry[4][0]) for entry in found))
    except (OSError, UnicodeError) as error:
        failure = error if isinstance(error, OSError) else OSError("not a name that can be resolved")

    def tell() -> None:
        if answer.done():
            return
        if failure is not None:
            answer.set_exception(failure)
        else:
            answer.set_result(addresses)

    with suppress(RuntimeError):  # the loop was closed meanwhile
        loop.call_soon_threadsafe(tell)
