"""Read connections: bounded by the reads of one moment, whatever threads come and go; and a process
without a free file descriptor."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest
from tests.descriptors import no_free_descriptor, open_descriptors
from tests.polling import wait_until

import milepost as mp
from milepost.core.errors import TooManyOpenFiles
from milepost.ledgers.sqlite import SqliteLedger
from milepost.ledgers.sqlite.file.readers import KEPT
from milepost.ledgers.sqlite.rows.names import Transaction
from milepost.runners import handler_pool

MOST = 2 * KEPT + 8
"""Descriptors that the connections of the pool and a few services may have together: a file and its
log for each."""


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[SqliteLedger]:
    ledger = SqliteLedger.open(str(tmp_path / "m.db"))
    yield ledger
    ledger.close()


def in_a_thread(call: Callable[[], object]) -> None:
    thread = threading.Thread(target=call)
    thread.start()
    thread.join()


def test_1000_short_threads_leave_the_descriptors_flat(ledger: SqliteLedger) -> None:
    in_a_thread(ledger.last_seq)
    before = open_descriptors()
    for _ in range(1_000):
        in_a_thread(ledger.last_seq)
    assert open_descriptors() == before


def test_reads_at_the_same_moment_have_a_connection_each_and_few_stay_open(
    ledger: SqliteLedger,
) -> None:
    readers = 2 * KEPT
    together = threading.Barrier(readers)

    def read(tx: Transaction) -> int:
        together.wait(timeout=60)
        return id(tx)

    with ThreadPoolExecutor(readers) as pool:
        used = list(pool.map(lambda _: ledger._store.read(read), range(readers)))
    assert len(set(used)) == readers
    assert len(ledger._store._readers._free) == KEPT


def test_a_read_inside_a_read_has_a_connection_of_its_own(ledger: SqliteLedger) -> None:
    assert ledger._store.read(lambda tx: (tx.connection.in_transaction, ledger.last_seq())) == (
        True,
        0,
    )


def test_a_connection_that_is_lent_while_the_ledger_closes_is_closed_afterwards(
    tmp_path: Path,
) -> None:
    before = open_descriptors()
    ledger = SqliteLedger.open(str(tmp_path / "other.db"))
    ledger._store.read(lambda tx: ledger.close())
    assert open_descriptors() == before


def test_100_bursts_of_a_stage_leave_the_descriptors_flat(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handler_pool, "IDLE_S", 0.001)
    route = mp.Route("parcels", key="id")
    stage_threads: set[threading.Thread] = set()
    weighed: list[str] = []

    @route.stage("weigh", concurrency=8)
    def weigh(item: mp.Item) -> mp.Outcome:
        stage_threads.add(threading.current_thread())
        ledger.show("parcels", item.key)
        weighed.append(item.key)
        return mp.Done()

    with mp.open(f"sqlite:///{tmp_path}/m.db", routes=[route]) as ledger:
        ledger.start()
        for burst in range(100):
            ledger.submit("parcels", *[{"id": f"{burst}-{number}"} for number in range(8)])
            all_weighed = 8 * (burst + 1)
            wait_until(partial(_ended, weighed, all_weighed, stage_threads))
            if burst == 0:
                before = open_descriptors()
        assert len(stage_threads) >= 100
        assert open_descriptors() <= before + MOST


def _ended(weighed: list[str], all_weighed: int, threads: set[threading.Thread]) -> bool:
    return len(weighed) == all_weighed and not any(thread.is_alive() for thread in threads)


def test_cycles_of_start_and_stop_leave_the_descriptors_flat(tmp_path: Path) -> None:
    route = mp.Route("parcels", key="id")
    route.stage("weigh")(lambda item: mp.Done())
    with mp.open(f"sqlite:///{tmp_path}/m.db", routes=[route]) as ledger:
        before = open_descriptors()
        for _ in range(30):
            ledger.start()
            ledger.stop(grace=0)
        assert open_descriptors() <= before + 10


def test_a_read_without_a_free_descriptor_says_what_where_and_what_next(
    ledger: SqliteLedger,
) -> None:
    with no_free_descriptor(), pytest.raises(TooManyOpenFiles) as short:
        ledger.last_seq()
    assert "m.db: cannot be opened, because too many files are open (limit of this process:" in str(
        short.value
    )
    assert "Raise the limit (ulimit -n, or LimitNOFILE= of systemd)" in str(short.value)
    assert ledger.last_seq() == 0


@pytest.mark.parametrize("call", ["sign_on", "dead_workers"])
def test_lock_files_without_a_free_descriptor_say_the_same(ledger: SqliteLedger, call: str) -> None:
    ledger.sign_on("own")
    with (
        no_free_descriptor(),
        pytest.raises(
            TooManyOpenFiles,
            match=r"m\.db-workers: cannot be opened, because too many files are open",
        ),
    ):
        ledger.sign_on("another") if call == "sign_on" else ledger.dead_workers()


def test_a_ledger_that_cannot_be_opened_without_a_free_descriptor_says_so(tmp_path: Path) -> None:
    with no_free_descriptor(), pytest.raises(TooManyOpenFiles, match="too many files are open"):
        SqliteLedger.open(str(tmp_path / "new.db"))
