"""Long polling of idle queues: one thread per queue waits at SQS, so that no worker and no other stage has to wait."""

from __future__ import annotations

import logging
import threading
import time
from contextlib import suppress

from msgspec import Struct, field

from milepost.core.errors import LedgerError
from milepost.ledgers.aws.queues.messages import Queues, SqsMessage

IDLE_POLLS = 10
"""A queue is idle after so many empty receives in a row. A process that only works off a backlog has stopped by then."""

log = logging.getLogger(__name__)


class _Wait(Struct):
    """One long poll. Its messages are ours until their visibility ends."""

    thread: threading.Thread
    visibility_s: int
    done: threading.Event = field(default_factory=threading.Event)
    messages: list[SqsMessage] = field(default_factory=list)
    received_at: float = 0.0


class LongPolls:
    """The idle queues of one ledger, by address. Thread-safe."""

    def __init__(self, queues: Queues, wait_s: int) -> None:
        self._queues, self._wait_s = queues, wait_s
        self._lock = threading.Lock()
        self._empty: dict[str, int] = {}
        self._waits: dict[str, _Wait] = {}
        self._closed = False

    def waiting(self, url: str) -> bool:
        """Whether a long poll is running: then a receive would cost a request and return nothing more."""
        with self._lock:
            wait = self._waits.get(url)
            return wait is not None and not wait.done.is_set()

    def take(self, url: str) -> list[SqsMessage]:
        """The messages of a finished poll, once. Messages whose visibility may have ended are left to be delivered again."""
        with self._lock:
            wait = self._waits.get(url)
            if wait is None or not wait.done.is_set():
                return []
            del self._waits[url]
            if wait.messages:
                self._empty.pop(url, None)
            return wait.messages if time.monotonic() - wait.received_at < wait.visibility_s / 2 else []

    def received(self, url: str, n: int, visibility_s: int) -> None:
        """Report a receive of `n` messages. After several empty ones a long poll begins."""
        with self._lock:
            self._empty[url] = 0 if n else self._empty.get(url, 0) + 1
            if not self._wait_s or self._closed or self._empty[url] < IDLE_POLLS or url in self._waits:
                return
            thread = threading.Thread(target=self._wait, args=(url,), name=f"milepost-wait-{url.rpartition('/')[2]}", daemon=True)
            self._waits[url] = _Wait(thread, visibility_s)
            thread.start()

    def give_up(self, url: str) -> None:
        """Release the messages of the poll, because no worker here handles them: others may receive them at once."""
        self._release(self.take(url))

    def close(self) -> None:
        """Release received messages. A running poll is not waited for: SQS delivers its messages again."""
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
            log.info("long poll of %s failed: %s", url, error)
        except Exception:
            if not self._closed:  # otherwise the connections were closed during the poll
                log.exception("long poll of %s failed", url)
        with self._lock:
            wait.messages, wait.received_at = found, time.monotonic()
            wait.done.set()
            closed = self._closed
        if closed:
            self._release(found)

    def _release(self, messages: list[SqsMessage]) -> None:
        with suppress(LedgerError):
            self._queues.release(messages)
