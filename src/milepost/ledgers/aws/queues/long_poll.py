"""Long polling of idle queues: a thread for each waits at SQS, so that neither a worker nor another stage does."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from msgspec import Struct, field

from milepost.core.errors import LedgerError
from milepost.ledgers.aws.queues.messages import Queues, SqsMessage

IDLE_POLLS = 10
"""A queue is idle when so many receives in a row have brought nothing. Whoever comes only to work off what there is has left by then."""

log = logging.getLogger(__name__)


class _Wait(Struct):
    """One long poll. What it brings is ours until its visibility runs out."""

    thread: threading.Thread
    visibility_s: int
    done: threading.Event = field(default_factory=threading.Event)
    messages: list[SqsMessage] = field(default_factory=list)
    received_at: float = 0.0


class LongPolls:
    """The idle queues of one ledger, by address. For several threads."""

    def __init__(self, queues: Queues, wait_s: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._queues, self._wait_s, self._clock = queues, wait_s, clock
        self._lock = threading.Lock()
        self._empty: dict[str, int] = {}
        self._waits: dict[str, _Wait] = {}
        self._closed = False

    def waiting(self, url: str) -> bool:
        """Is the queue being waited for? Then a receive would cost a request and bring nothing that the wait does not."""
        with self._lock:
            wait = self._waits.get(url)
            return wait is not None and not wait.done.is_set()

    def take(self, url: str) -> list[SqsMessage]:
        """What a wait has brought, once. Messages whose visibility may have run out are left to come again."""
        with self._lock:
            wait = self._waits.get(url)
            if wait is None or not wait.done.is_set():
                return []
            del self._waits[url]
            if wait.messages:
                self._empty.pop(url, None)
            return wait.messages if self._clock() - wait.received_at < wait.visibility_s / 2 else []

    def received(self, url: str, n: int, visibility_s: int) -> None:
        """A receive has brought so many messages. After several that brought none the queue is waited for."""
        with self._lock:
            self._empty[url] = 0 if n else self._empty.get(url, 0) + 1
            if not self._wait_s or self._closed or self._empty[url] < IDLE_POLLS or url in self._waits:
                return
            thread = threading.Thread(target=self._wait, args=(url,), name=f"milepost-wait-{url.rpartition('/')[2]}", daemon=True)
            self._waits[url] = _Wait(thread, visibility_s)
            thread.start()

    def give_up(self, url: str) -> None:
        """Nobody here will work on what the wait has brought: others may have it at once."""
        self._release(self.take(url))

    def close(self) -> None:
        """Give back what has come. A wait that is under way is not waited for: what it still brings comes again by itself."""
        with self._lock:
            self._closed = True
            urls = list(self._waits)
        for url in urls:
            self.give_up(url)

    def _wait(self, url: str) -> None:
        wait = self._waits[url]
        found: list[SqsMessage] = []
        try:
            found = self._queues.receive(url, 10, wait.visibility_s, self._wait_s)
        except LedgerError as error:
            log.info("waiting for messages of %s failed: %s", url, error)
        except Exception:
            if not self._closed:  # else the connections were closed under it
                log.exception("waiting for messages of %s failed", url)
        with self._lock:
            wait.messages, wait.received_at = found, self._clock()
            wait.done.set()
            closed = self._closed
        if closed:
            self._release(found)

    def _release(self, messages: list[SqsMessage]) -> None:
        with suppress(LedgerError):
            self._queues.release(messages)
