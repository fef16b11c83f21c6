"""Name resolution: the system's resolver, in threads that no exit of the process waits for.

A lookup that hangs keeps its slot until the system gives up, which may take half a minute. So slots
are shared: a caller's share of them is never all, a call that gets no slot soon ends with
`LookupsBusy`, which says nothing about its partner, and a name that was too slow is not looked up
again for a while.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress

LOOKUPS = 100
"""Names that are looked up at once."""
WAITING = 10
"""Calls of one share that wait for a slot at once; the others are refused at once."""
WAIT_S = 1.0
"""Seconds that a call waits for a slot."""
SLOW_S = 30.0
"""Seconds for which a name that was too slow is not looked up again."""
MOST_SLOW = 10_000

Resolver = Callable[[str], Awaitable[Sequence[str]]]
"""The addresses of a name, as texts, in the order in which they are tried. Raises OSError if there
are none."""
Lookup = Callable[[str], Sequence[str]]
"""The same, blocking: called in a thread of its own."""


class LookupsBusy(Exception):
    """There was no slot for a lookup: nothing is known of the name, and its owner has nothing to do
    with it."""


class SlowName(OSError):
    """The name was too slow a moment ago."""


def may_look_up(running: int, all_running: int, lookups: int) -> bool:
    """May a share with so many running lookups begin another? Never more than are free then, so
    that some are always left for others."""
    return running < lookups - all_running


def next_share(waiting: Mapping[str, int], running: Mapping[str, int]) -> str | None:
    """The share, of those with waiting calls, that is next: the one with the fewest running
    lookups, the first of these."""
    return min(
        (share for share, count in waiting.items() if count),
        key=lambda share: running.get(share, 0),
        default=None,
    )


def system_lookup(host: str) -> Sequence[str]:
    """Ask the operating system. Blocks."""
    entries = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in entries))


class SystemResolver:
    """Asks the operating system. Calls for one name at the same time share one lookup; at most 100
    names are looked up at once, shared fairly among those that `share` names, such as the senders
    of messages. Belongs to one event loop."""

    def __init__(self, lookup: Lookup | None = None, lookups: int = LOOKUPS) -> None:
        self._lookup = lookup or system_lookup
        self._lookups = lookups
        self._running: dict[str, asyncio.Future[Sequence[str]]] = {}
        self._by_share: Counter[str] = Counter()
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        self._slow: dict[str, float] = {}
        """Names that were too slow, and until when they are not looked up again (seconds of the
        event loop)."""

    async def __call__(self, host: str, share: str = "") -> Sequence[str]:
        loop = asyncio.get_running_loop()
        if self._slow and self._slow.get(host, 0.0) > loop.time():
            raise SlowName("it was too slow a moment ago")
        if host not in self._running:
            await self._enter(share, loop)
            if host in self._running:  # another call has begun it meanwhile
                self._leave(share)
            else:
                self._begin(host, share, loop)
        # A caller that gives up does not take the answer from the others.
        return await asyncio.shield(self._running[host])

    def too_slow(self, host: str) -> None:
        """A caller has given this name up: it is not looked up again for a while."""
        if host in self._running:
            if len(self._slow) >= MOST_SLOW:
                self._slow.clear()
            self._slow[host] = asyncio.get_running_loop().time() + SLOW_S

    # Slots ----------------------------------------------------------------------------------------
    async def _enter(self, share: str, loop: asyncio.AbstractEventLoop) -> None:
        """Take a slot for this share; raises LookupsBusy if there is none soon."""
        if may_look_up(self._by_share[share], self._by_share.total(), self._lookups):
            self._by_share[share] += 1
            return
        waiting = self._waiting.setdefault(share, deque())
        if sum(not turn.done() for turn in waiting) >= WAITING:
            raise LookupsBusy
        turn: asyncio.Future[None] = loop.create_future()
        waiting.append(turn)
        try:
            async with asyncio.timeout(WAIT_S):
                await turn
        except BaseException as error:
            if turn.done() and not turn.cancelled():
                self._leave(share)  # the slot came at the last moment
            if isinstance(error, TimeoutError):
                raise LookupsBusy from None
            raise

    def _leave(self, share: str) -> None:
        self._by_share[share] -= 1
        if not self._by_share[share]:
            del self._by_share[share]
        for name, queue in list(self._waiting.items()):
            still = deque(turn for turn in queue if not turn.done())
            self._waiting[name] = still
            if not still:
                del self._waiting[name]
        following = next_share(
            {name: len(queue) for name, queue in self._waiting.items()}, self._by_share
        )
        if following is not None and may_look_up(
            self._by_share[following], self._by_share.total(), self._lookups
        ):
            self._by_share[following] += 1
            self._waiting[following].popleft().set_result(None)

    # Lookups --------------------------------------------------------------------------------------
    def _begin(self, host: str, share: str, loop: asyncio.AbstractEventLoop) -> None:
        answer: asyncio.Future[Sequence[str]] = loop.create_future()
        self._running[host] = answer
        answer.add_done_callback(lambda done: self._end(host, share, done))
        # Not the loop's own executor: the process would wait at its end for a lookup that hangs.
        threading.Thread(
            target=_ask,
            args=(self._lookup, host, loop, answer),
            name="milepost-resolve",
            daemon=True,
        ).start()

    def _end(self, host: str, share: str, answer: asyncio.Future[Sequence[str]]) -> None:
        self._running.pop(host, None)
        if not answer.cancelled() and answer.exception() is None:
            self._slow.pop(host, None)
        self._leave(share)


def _ask(
    lookup: Lookup,
    host: str,
    loop: asyncio.AbstractEventLoop,
    answer: asyncio.Future[Sequence[str]],
) -> None:
    addresses: Sequence[str] = []
    failure: Exception | None = None
    try:
        addresses = lookup(host)
    except (OSError, UnicodeError) as error:
        failure = (
            error if isinstance(error, OSError) else OSError("not a name that can be resolved")
        )

    def tell() -> None:
        if answer.done():
            return
        if failure is not None:
            answer.set_exception(failure)
        else:
            answer.set_result(addresses)

    with suppress(RuntimeError):  # the loop was closed meanwhile
        loop.call_soon_threadsafe(tell)
