"""Chaos soak: a partner that fails, workers that are killed, ledger errors; every message that was
accepted reaches its end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.aws.ledger.processes.fork_server import ForkServer
from tests.notifications.partners import LOOPBACK, Partner, Service, service
from tests.notifications.soak import (
    MESSAGES,
    NO_BREAKER,
    PATIENCE,
    RETRY,
    Capricious,
    accept_all,
    check,
    wait_for_ends,
)
from tests.notifications.soak_process import SoakLife, planned_faults
from tests.standins import REGION

from milepost.core.errors import LedgerBusy

TOML = """
applications = ["notifications"]
[notifications]
allow_cidrs = ["127.0.0.0/8"]
retry = { attempts = 3, base = "0.02s", cap = "0.05s" }
breaker = { failures = 1_000_000_000 }
"""


class Workers:
    """Two worker processes on a SQLite file. They are killed at every so many requests, one of
    which is then under way, and others take their place."""

    def __init__(self, folder: Path, every: int) -> None:
        (folder / "milepost.toml").write_text(TOML)
        self._folder, self._every = folder, every
        self._lock = threading.Lock()
        self.killed = 0
        self.often_killed = threading.Event()
        self.processes = [self._start() for _ in range(2)]

    def _start(self) -> subprocess.Popen[bytes]:
        command = [
            sys.executable,
            "-m",
            "milepost",
            "work",
            "--ledger",
            f"sqlite:///{self._folder / 'n.db'}",
        ]
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


@pytest.mark.slow
@pytest.mark.timeout(2 * PATIENCE)
def test_s35_chaos_on_sqlite_with_workers_that_are_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    partner = Capricious(35)
    with (
        Partner(partner) as listening,
        service(f"sqlite:///{tmp_path / 'n.db'}", retry=RETRY, breaker=NO_BREAKER) as at,
    ):
        faulty(
            at,
            monkeypatch,
            {"add": {3, 17}, "apply": {2, 9}, "apply_and_claim": {4, 30}, "claim": {5}},
        )
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
        print(check(at, partner, sent), f"; {workers.killed} times both workers were killed")
        assert sum(at.item(one)["losses"] for one in sent) >= 3


def faulty(at: Service, monkeypatch: pytest.MonkeyPatch, calls: dict[str, set[int]]) -> None:
    """These calls of the ledger fail, by name and number."""
    for name, places in calls.items():
        work, numbers = getattr(at.ctx.ledger, name), count(1)

        def call(
            *arguments: Any,
            work: Any = work,
            numbers: Any = numbers,
            places: Any = places,
            **options: Any,
        ) -> Any:
            if next(numbers) in places:
                raise LedgerBusy("a fault, put in by a test")
            return work(*arguments, **options)

        monkeypatch.setattr(at.ctx.ledger, name, call)


class Crew:
    """Stations and Lambda workers on one AWS ledger. At every so many requests of the partner a
    station is killed; a container that its time limit has ended is replaced at the next one."""

    def __init__(self, forks: ForkServer, life: SoakLife, every: int) -> None:
        self._forks, self._life, self._every = forks, life, every
        self._lock = threading.Lock()
        self._seeds = count(1)
        self.killed = self.cut = 0
        self.stations = [self._start("station") for _ in range(2)]
        self.functions = [self._start("function") for _ in range(2)]

    def _start(self, kind: str) -> int:
        seed = next(self._seeds)
        return self._forks.start(
            msgspec.structs.replace(self._life, holder=f"{kind}-{seed}", seed=seed), kind
        )

    def on_request(self, number: int) -> None:
        with self._lock:
            if number % self._every == self._every - 1:
                pid = self.stations.pop(0)
                os.kill(pid, signal.SIGKILL)
                assert self._forks.wait(pid) == -signal.SIGKILL, self._forks.words()
                self.killed += 1
                self.stations.append(self._start("station"))
                print(f"{number + 1} requests", flush=True)
            if number % 10 == 0:
                self.functions = [self._replaced(pid) for pid in self.functions]

    def _replaced(self, pid: int) -> int:
        code = self._forks.ended(pid)
        if code is None:
            return pid
        assert code == -signal.SIGKILL, self._forks.words()
        self.cut += 1
        return self._start("function")

    def end(self) -> None:
        """Ask the stations to stop; the functions have nothing left to do."""
        with self._lock:
            for pid in (*self.stations, *self.functions):
                if self._forks.ended(pid) is None:
                    os.kill(pid, signal.SIGTERM)
                    assert self._forks.wait(pid) in (0, -signal.SIGKILL), self._forks.words()


@pytest.mark.slow
@pytest.mark.wire
@pytest.mark.timeout(2 * PATIENCE)
def test_s35_chaos_on_aws_with_workers_that_are_killed_and_calls_that_fail(
    endpoint: str, prefix: str, tmp_path: Path
) -> None:
    partner = Capricious(36, hangs=0.01)
    # Longer than a Lambda worker has, so that it must give back what hangs.
    settings = {
        "retry": RETRY,
        "breaker": NO_BREAKER,
        "timeouts": {"read": "11s", "total": "11s"},
        "destination_concurrency": 32,
    }
    place = f"dynamodb://{REGION}/{prefix}?endpoint={endpoint}&blobs={tmp_path / 'blobs'}"
    life = SoakLife(
        endpoint=endpoint, prefix=prefix, region=REGION, folder=str(tmp_path), settings={"allow_cidrs": LOOPBACK, **settings}, holder="", seed=0
    )  # fmt: skip
    with (
        Partner(partner) as listening,
        service(place, **settings) as at,
        ForkServer(tmp_path, "tests.notifications.soak_process") as forks,
    ):
        planned_faults(life).attach(at.ctx.ledger.store.requests)  # type: ignore[attr-defined]
        crew = Crew(forks, life, every=max(50, MESSAGES // 20))
        partner.on_request = crew.on_request
        sent = accept_all(at, listening.url)
        wait_for_ends(at, forks.words)
        crew.end()
        print(
            check(at, partner, sent),
            f"; {crew.killed} stations killed, {crew.cut} functions ended by their time limit",
        )
        assert crew.killed >= 5
