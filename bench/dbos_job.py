"""DBOS Transact on SQLite: a workflow of three trivial steps per item. Runs in its own venv:
`python -m bench.dbos_job`.

default: the documented set-up (a queue, an enqueue per item). tuned: WAL with FULL, enqueues of a
thousand in one transaction, 8 threads. (A shorter polling interval, or fewer workflows taken at
once, made it slower.)
"""

from __future__ import annotations

import argparse
import os
import sqlite3
import time
from typing import Any

import sqlalchemy as sa
from dbos import DBOS, DBOSClient, DBOSConfig

from bench.measure import Span, tell

QUEUE = "bench"
THREADS = 8
BULK = 1_000
PATIENCE_S = 120


@DBOS.step()
def first(key: str) -> str:
    return key


@DBOS.step()
def second(key: str) -> str:
    return key


@DBOS.step()
def third(key: str) -> str:
    return key


@DBOS.workflow(name="job")
def job(key: str) -> str:
    return third(second(first(key)))


def tuned_engine(path: str) -> sa.Engine:
    engine = sa.create_engine(f"sqlite:///{path}", pool_size=THREADS * 2, max_overflow=THREADS * 2)

    @sa.event.listens_for(engine, "connect")
    def settle(connection: Any, _: Any) -> None:
        connection.isolation_level = "IMMEDIATE"
        connection.execute("PRAGMA busy_timeout = 30000")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA foreign_keys = ON")

    return engine


def launch(path: str, tuned: bool, *, listen: bool) -> None:
    config: DBOSConfig = {
        "name": "bench",
        "system_database_url": f"sqlite:///{path}",
        "application_version": "1",
        "log_level": "ERROR",
    }
    if tuned:
        config["system_database_engine"] = tuned_engine(path)
        config["max_executor_threads"] = THREADS
    DBOS(config=config)
    if not listen:
        DBOS.listen_queues(["nobody"])
    DBOS.launch()
    DBOS.register_queue(QUEUE)


def submit(path: str, n: int, tuned: bool) -> None:
    """Enqueue n workflows with ids of their own; the second time adds nothing."""
    launch(path, tuned, listen=False)
    client = DBOSClient(
        system_database_url=f"sqlite:///{path}",
        system_database_engine=tuned_engine(path) if tuned else None,
    )
    with Span() as span:
        if tuned:
            engine = tuned_engine(path)
            for start in range(0, n, BULK):
                with engine.begin() as connection:
                    for number in range(start, min(start + BULK, n)):
                        client.enqueue_in_transaction(
                            connection, options(number), f"p-{number:011}"
                        )
        else:
            for number in range(n):
                client.enqueue(options(number), f"p-{number:011}")
    there = count(path)
    if there != n:
        raise SystemExit(f"expected {n} workflows, got {there}")
    tell(span, n)


def options(number: int) -> Any:
    return {"workflow_name": "job", "queue_name": QUEUE, "workflow_id": f"p-{number:011}"}


def work(path: str, n: int, tuned: bool) -> None:
    """From the moment the first workflow is taken off the queue until the last is SUCCESS."""
    launch(path, tuned, listen=True)
    wait_until(path, "status <> 'ENQUEUED'", 1, 0.005)
    with Span() as span:
        wait_until(path, "status = 'SUCCESS'", n, 0.05)
    with sqlite3.connect(path, timeout=30) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    tell(span, n, bytes_each=os.path.getsize(path) / n)


def wait_until(path: str, condition: str, n: int, pause: float) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while (there := count(path, f" WHERE {condition}")) < n:
        if time.monotonic() > deadline:
            raise SystemExit(f"after {PATIENCE_S} s only {there} of {n} workflows had {condition}")
        time.sleep(pause)


def count(path: str, where: str = "") -> int:
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=30)
    try:
        return int(connection.execute(f"SELECT count(*) FROM workflow_status{where}").fetchone()[0])
    finally:
        connection.close()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=("submit", "work"))
    parser.add_argument("path")
    parser.add_argument("n", type=int)
    parser.add_argument("--tuned", action="store_true")
    a = parser.parse_args()
    (submit if a.what == "submit" else work)(a.path, a.n, a.tuned)
    # Its threads need not be waited for: everything that was measured is on disk.
    os._exit(0)


if __name__ == "__main__":
    main()
