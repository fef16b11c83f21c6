"""Chaos soak: the messages, a partner that fails, and the check that every accepted message has its
end.

`make test` runs it with a few hundred messages, `make thorough` with 10,000, MILEPOST_SOAK=N with
N.
"""

from __future__ import annotations

import os
import random
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import Any

from tests.net.partner import Line
from tests.notifications.partners import ROUTE, Service, message
from tests.polling import wait_until
from tests.seeds import examples

MESSAGES = int(os.environ.get("MILEPOST_SOAK", "0")) or examples(300, 10_000)
FAILING = 0.3
RETRY = {"attempts": 3, "base": "0.02s", "cap": "0.05s"}
NO_BREAKER = {"failures": 1_000_000_000}
PATIENCE = 120.0 + MESSAGES / 4
DOUBTFUL = frozenset({"CONNECTION_RESET", "READ_TIMEOUT", "TIMEOUT"})
"""Failures of which nobody knows whether the partner has acted."""


class Capricious:
    """A partner that fails 30% of the requests: an error, or a connection that is cut before or
    after it has acted; and that lets some of them (`hangs`) wait until the caller gives up. It
    knows which ids it has acted on, as a receiver should: it accepts a repeat of these."""

    def __init__(self, seed: int, hangs: float = 0.0) -> None:
        self._dice, self._lock, self._hangs = random.Random(seed), threading.Lock(), hangs
        self.acted: Counter[str] = Counter()
        """How often it got a request that it acts on, by webhook-id."""
        self.unexplained: list[str] = []
        """Ids of repeats, after it had answered, that do not say that the outcome before is
        unknown."""
        self.requests = count()
        self.on_request: Callable[[int], None] = lambda number: None

    def __call__(self, line: Line) -> None:
        while (request := line.read()) is not None:
            with self._lock:
                identity, chance = request.headers["webhook-id"], self._dice.random()
                known = identity in self.acted
                fails = chance < FAILING and not known
                acts = not fails or chance < FAILING / 3
                hangs = self._dice.random() < self._hangs
                if acts:
                    if known and request.headers.get("x-previous-outcome") != "unknown":
                        self.unexplained.append(identity)
                    self.acted[identity] += 1
                number = next(self.requests)
            self.on_request(number)
            if hangs:
                line.read()  # the caller closes the connection
                return
            if fails and chance < 2 * FAILING / 3:
                line.reset()
                return
            if not line.answer(500 if fails else 200):
                return


def accept_all(at: Service, url: str) -> list[dict[str, Any]]:
    """Hand over all messages, each again until it is accepted."""
    sent = [
        message(url, messageId=str(number), body={"number": number}) for number in range(MESSAGES)
    ]

    def post(one: dict[str, Any]) -> None:
        for _ in range(100):
            answer = at.post(one)
            if answer.status == 200:
                return
            assert (answer.status, answer.body["error"]) == (503, "SYSTEM_ERROR")
        raise AssertionError("never accepted")

    with ThreadPoolExecutor(8) as senders:
        list(senders.map(post, sent))
    return sent


def wait_for_ends(at: Service, otherwise: Callable[[], str] = lambda: "") -> None:
    """Wait until no accepted message is on its way. (Counters may lag behind; rows do not.)"""

    def ended() -> bool:
        return not at.milepost.items(ROUTE, statuses=["live"], limit=1)

    def left() -> str:
        live = at.milepost.items(ROUTE, statuses=["live"], limit=20)
        return f"not all have ended: {[(one['key'], one['status'], one['due_at']) for one in live]}\n{otherwise()}"

    wait_until(ended, PATIENCE, left, pause_s=0.5)


def check(at: Service, partner: Capricious, sent: list[dict[str, Any]]) -> str:
    """Received is accepted minus dead letters; a repeat says why it may be one, and the record says
    so too. Returns the numbers."""
    items = {f"msg_{item['work_id']}": item for item in map(at.item, sent)}
    assert len(items) == MESSAGES, "each has an id of its own"
    ends = {
        name: {id for id, item in items.items() if item["status"] == name}
        for name in ("COMPLETED", "MAX_RETRIES_EXCEEDED")
    }
    delivered, dead = ends.values()
    assert len(delivered) + len(dead) == MESSAGES, Counter(
        item["status"] for item in items.values()
    )
    received = partner.acted.keys()
    assert received <= items.keys()
    assert delivered <= received
    # A message whose last answers were cut off may have been received all the same, and its record
    # says so.
    assert all(doubts(items[id]) for id in received & dead)
    repeated = {id: n for id, n in partner.acted.items() if n > 1}
    assert all(doubts(items[id]) for id in repeated), {
        id: items[id]["history"] for id in repeated if not doubts(items[id])
    }
    assert partner.unexplained == []
    reasons = Counter(" and ".join(sorted(doubts(items[id]))) for id in repeated)
    return (
        f"{MESSAGES} accepted, {len(received)} received, {len(dead)} dead letters, {len(received & dead)} of them received with their answer lost;"
        f" {sum(repeated.values()) - len(repeated)} repeats of {len(repeated)} messages: {dict(reasons)};"
        f" {sum(item['losses'] > 0 for item in items.values())} messages at their end with losses, {sum(given_back(item) for item in items.values())} given back"
    )


def doubts(item: dict[str, Any]) -> set[str]:
    """Why a try of this message may have reached the partner though no outcome of it was
    written."""
    found = {
        line["error_category"] for line in item["history"] if line.get("error_category") in DOUBTFUL
    }
    found |= {line["reason"] for line in item["history"] if line["reason"] == "lost"}
    return found | ({"given-back"} if given_back(item) else set())


def given_back(item: dict[str, Any]) -> bool:
    return any(line["reason"] == "given-back" for line in item["history"])
