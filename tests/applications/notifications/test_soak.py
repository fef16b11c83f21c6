"""Chaos soak: a partner that fails, workers that are killed, ledger errors; every message that was accepted reaches its end.

MILEPOST_SOAK=10000 runs it in full; by default it is small.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from tests.applications.notifications.partners import ROUTE, Partner, Service, message, service
from tests.net.partner import Line
from tests.polling import wait_until
from tests.standins import REGION

from milepost.core.errors import LedgerBusy
from milepost.testing.aws_model import Faults, kinds

MESSAGES = int(os.environ.get("MILEPOST_SOAK", "200"))
FAILING = 0.3
RETRY = {"attempts": 3, "base": "0.02s", "cap": "0.05s"}
NO_BREAKER = {"failures": 1_000_000_000}
PATIENCE = 60.0 + MESSAGES / 10
TOML = """
applications = ["notifications"]
[notifications]
allow_cidrs = ["127.0.0.0/8"]
retry = { attempts = 3, base = "0.02s", cap = "0.05s" }
breaker = { failures = 1_000_000_000 }
"""


class Capricious:
    """A partner that fails 30% of the requests: an error, or a connection that is cut before or after it has acted. It knows which
    ids it has acted on, as a receiver should: it accepts a repeat of these."""

    def __init__(self, seed: int) -> None:
        self._dice, self._lock = random.Random(seed), threading.Lock()
        self.acted: dict[str, int] = {}
        """How often it got a request that it acts on, by webhook-id."""
        self.unexplained: list[str] = []
        """Ids of repeats, after it had answered, that do not say that the outcome before is unknown."""
        self.requests = count()
        self.on_request: Callable[[int], None] = lambda number: None

    def __call__(self, line: Line) -> None:
        while (request := line.read()) is not None:
            with self._lock:
                identity, chance = request.headers["webhook-id"], self._dice.random()
                known = identity in self.acted
                fails = chance < FAILING and not known
                acts = not fails or chance < FAILING / 3
                if acts:
                    if known and request.headers.get("x-previous-outcome") != "unknown":
                        self.unexplained.append(identity)
                    self.acted[identity] = self.acted.get(identity, 0) + 1
                number = next(self.requests)
            self.on_request(number)
            if fails and chance < 2 * FAILING / 3:
                line.reset()
                return
            if not line.answer(500 if fails else 200):
                return


class Workers:
    """Two worker processes on a SQLite file. They are killed at every so many requests, one of which is then under way, and others take
    their place."""

    def __init__(self, folder: Path, every: int) -> None:
        (folder / "milepost.toml").write_text(TOML)
        self._folder, self._every = folder, every
        self._lock = threading.Lock()
        self.killed = 0
        self.often_killed = threading.Event()
        self.processes = [self._start() for _ in range(2)]

    def _start(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "milepost", "work", "--ledger", f"sqlite:///{self._folder / 'n.db'}"]
        return subprocess.Popen(command, cwd=self._folder, stderr=subprocess.DEVNULL)

    def on_request(self, number: int) -> None:
        if number % self._every != self._every - 1:
            return
        with self._lock:
            self.end()
            self.killed += 1
            if self.killed >= 3:
                self.often_killed.set()
            self.processes = [self._start() for _ in range(2)]

    def end(self) -> None:
        for process in self.processes:
            process.send_signal(signal.SIGKILL)
            process.wait()


def accept_all(at: Service, url: str) -> list[dict[str, Any]]:
    """Hand over all messages, each again until it is accepted."""
    sent = [message(url, messageId=str(number), body={"number": number}) for number in range(MESSAGES)]

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


def wait_for_ends(at: Service) -> None:
    def ended() -> bool:
        return at.milepost.status()["routes"][ROUTE]["total"] == MESSAGES and not at.milepost.items(ROUTE, statuses=["live"], limit=1)

    wait_until(ended, PATIENCE, lambda: f"not all have ended: {at.milepost.status()['routes'][ROUTE]}")


def check(at: Service, partner: Capricious, sent: list[dict[str, Any]]) -> None:
    """Received is accepted minus dead letters, and a repeat says why it may be one."""
    ends: dict[str, set[str]] = {}
    for one in sent:
        item = at.item(one)
        ends.setdefault(item["status"], set()).add(f"msg_{item['work_id']}")
    assert ends.keys() <= {"COMPLETED", "MAX_RETRIES_EXCEEDED"}
    dead = ends.get("MAX_RETRIES_EXCEEDED", set())
    assert sum(map(len, ends.values())) == MESSAGES
    assert ends["COMPLETED"] <= partner.acted.keys()
    # A message whose last answers were cut off may have been received all the same, and its record says so.
    doubtful = {f"msg_{one['work_id']}" for one in map(at.item, sent) if one["attempts"] and any_unknown(one)}
    assert partner.acted.keys() & dead <= doubtful
    assert partner.unexplained == []


def any_unknown(item: dict[str, Any]) -> bool:
    return any(line.get("error_category") == "CONNECTION_RESET" for line in item["history"]) or item["losses"] > 0


@pytest.mark.slow
def test_s35_chaos_on_sqlite_with_workers_that_are_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    partner = Capricious(35)
    with Partner(partner) as listening, service(f"sqlite:///{tmp_path / 'n.db'}", retry=RETRY, breaker=NO_BREAKER) as at:
        faulty(at, monkeypatch, {"add": {3, 17}, "apply": {2, 9}, "apply_and_claim": {4, 30}, "claim": {5}})
        workers = Workers(tmp_path, every=MESSAGES // 5)
        partner.on_request = workers.on_request
        try:
            sent = accept_all(at, listening.url)
            assert workers.often_killed.wait(PATIENCE)
            at.milepost.start()  # a worker whose ledger fails now and then
            wait_for_ends(at)
            at.milepost.stop()
        finally:
            workers.end()
        check(at, partner, sent)
        assert sum(at.item(one)["losses"] for one in sent) >= 3


def faulty(at: Service, monkeypatch: pytest.MonkeyPatch, calls: dict[str, set[int]]) -> None:
    """These calls of the ledger fail, by name and number."""
    for name, places in calls.items():
        work, numbers = getattr(at.ctx.ledger, name), count(1)

        def call(*arguments: Any, work: Any = work, numbers: Any = numbers, places: Any = places, **options: Any) -> Any:
            if next(numbers) in places:
                raise LedgerBusy("a fault, put in by a test")
            return work(*arguments, **options)

        monkeypatch.setattr(at.ctx.ledger, name, call)


@pytest.mark.slow
def test_s35_chaos_on_aws_with_calls_that_fail(endpoint: str, prefix: str, tmp_path: Path) -> None:
    partner, dice = Capricious(36), random.Random(36)
    place = f"dynamodb://{REGION}/{prefix}?endpoint={endpoint}&blobs={tmp_path / 'blobs'}"
    with Partner(partner) as listening, service(place, retry=RETRY, breaker=NO_BREAKER) as at:
        faults = Faults()
        faults.attach(at.ctx.ledger.store.requests)  # type: ignore[attr-defined]
        for operation, service_name in (("UpdateItem", "dynamodb"), ("PutItem", "dynamodb"), ("SendMessageBatch", "sqs")):
            for nth in dice.sample(range(1, MESSAGES), MESSAGES // 20):
                faults.plan((operation, nth), dice.choice(kinds(service_name, operation)))
        at.milepost.start()
        sent = accept_all(at, listening.url)
        wait_for_ends(at)
        at.milepost.stop()
        check(at, partner, sent)
