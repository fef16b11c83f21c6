"""The database is killed and restarted while processes use it: they wait longer than their retries,
and continue by themselves."""

from __future__ import annotations

import os
import signal
from functools import partial
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.aws.ledger.processes.fork_server import ForkServer
from tests.aws.ledger.processes.ledger_checks import (
    check_calls,
    check_fenced,
    check_whole,
    lines_of,
    untold,
    wait_until_ended,
)
from tests.aws.ledger.processes.worker_process import ROUTE, Life, open_process_ledger
from tests.polling import wait_until
from tests.standins import REGION, Server

from milepost.core.status import Status
from milepost.engine.intake import submit

pytestmark = pytest.mark.wire

ITEMS = 40
CREW = {"worker": ("worker",), "others": ("resender", "relay")}


@pytest.mark.slow
def test_a_killed_database_loses_nothing_and_ends_nobody(
    dynoxide_on_file: Server, endpoint: str, prefix: str, tmp_path: Path
) -> None:
    database = dynoxide_on_file
    base = Life(
        endpoint=database.url,
        endpoints={"sqs": endpoint},
        prefix=prefix,
        folder=str(tmp_path),
        region=REGION,
        lease_ms=3_000,
        slowness_s=0.1,
        deadline_s=0.5,
    )
    ctx = open_process_ledger(replace(base, deadline_s=30.0))
    names = [f"item-{number}" for number in range(ITEMS)]
    assert {receipt.answer for receipt in submit(ctx, ROUTE, [{"id": name} for name in names])} == {
        "new"
    }
    with ForkServer(tmp_path) as forks:
        pids = {
            role: forks.start(replace(base, holder=role, roles=roles))
            for role, roles in CREW.items()
        }
        for progress in (ITEMS // 4, ITEMS):
            wait_until(partial(has_lines, tmp_path / "calls", progress), otherwise=forks.words)
            database.kill()
            for log in [tmp_path / f"{role}.log" for role in pids]:
                wait_until(partial(has_lines, log, lines_of(log) + 1), otherwise=forks.words)
            database.start()
        wait_until_ended(ctx, names, tmp_path, forks)
        for pid in pids.values():
            os.kill(pid, signal.SIGTERM)
        assert {role: forks.wait(pid) for role, pid in pids.items()} == dict.fromkeys(pids, 0), (
            forks.words()
        )
        assert "is waiting for the ledger" in forks.words()
    items = check_whole(ctx, names)
    assert {item.row.status for item in items} == {Status.COMPLETED}
    check_fenced(ctx, items)
    check_calls(ctx, items, tmp_path)
    assert untold(ctx, tmp_path) == set()
    ctx.ledger.close()


def has_lines(path: Path, wanted: int) -> bool:
    return lines_of(path) >= wanted
