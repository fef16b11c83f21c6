"""Several machines at once: workers, readers of the stream, resenders and somebody else's
confirmer, each a process of its own on one table, with clocks that disagree. A worker and the
reader at work are killed in the middle."""

from __future__ import annotations

import os
import signal
from collections import Counter
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
from tests.standins import REGION

from milepost.core.status import Reason, Status
from milepost.engine.context import Context
from milepost.engine.intake import submit

pytestmark = pytest.mark.wire

ITEMS = 80
LEASE_MS, RESEND_DELAY_MS = 20_000, 6_000
"""Long enough for clocks that are six seconds apart, so that only who is dead is taken for dead."""
CREW = {
    "worker-a": ("worker", -3_000),
    "worker-b": ("worker", 0),
    "worker-c": ("worker", 3_000),
    "reader-a": ("relay", -1_500),
    "reader-b": ("relay", 1_500),
    "resender-a": ("resender", -3_000),
    "resender-b": ("resender", 3_000),
}


@pytest.mark.slow
def test_two_deaths_among_eight_processes_whose_clocks_disagree(
    endpoint: str, prefix: str, tmp_path: Path
) -> None:
    base = Life(
        endpoint=endpoint,
        prefix=prefix,
        folder=str(tmp_path),
        region=REGION,
        external=True,
        lease_ms=LEASE_MS,
        resend_delay_ms=RESEND_DELAY_MS,
        shard_lease_ms=20_000,
        slowness_s=0.2,
    )
    ctx = open_process_ledger(base)
    names = [f"item-{number}" for number in range(ITEMS)]
    calls, told = tmp_path / "calls", tmp_path / "told"
    with ForkServer(tmp_path) as forks:
        pids = {
            name: forks.start(replace(base, holder=name, roles=(role,), skew_ms=skew))
            for name, (role, skew) in CREW.items()
        }
        pids["confirmer"] = forks.start(replace(base, holder="confirmer"), "confirm")
        assert {
            receipt.answer for receipt in submit(ctx, ROUTE, [{"id": name} for name in names])
        } == {"new"}

        wait_until(lambda: lines_of(calls) > ITEMS // 2, otherwise=forks.words)
        worker = hands(calls)[0]
        kill(pids.pop(worker), forks)
        wait_until(lambda: lines_of(told) > ITEMS, otherwise=forks.words)
        reader = wait_until(lambda: holder_of_the_shard(ctx), otherwise=forks.words)
        kill(pids.pop(reader), forks)

        wait_until_ended(ctx, names, tmp_path, forks)
        for pid in pids.values():
            os.kill(pid, signal.SIGTERM)
        assert {name: forks.wait(pid) for name, pid in pids.items()} == dict.fromkeys(pids, 0), (
            forks.words()
        )

    items = check_whole(ctx, names)
    assert {item.row.status for item in items} == {Status.COMPLETED}
    # Only the one that was killed has lost anything: no clock that is wrong takes work away from a
    # worker that lives.
    assert set(check_fenced(ctx, items)) <= {worker}
    check_calls(ctx, items, tmp_path)
    assert untold(ctx, tmp_path) == set()
    # And it was many hands' work.
    assert {name for name in CREW if name.startswith("worker")} == set(hands(calls))
    confirmed = Counter(
        line.line.reason for item in items for line in ctx.ledger.history(ROUTE, item.key)
    )[Reason.CONFIRMED]
    assert confirmed == ITEMS
    ctx.ledger.close()


def kill(pid: int, forks: ForkServer) -> None:
    os.kill(pid, signal.SIGKILL)
    assert forks.wait(pid) == -signal.SIGKILL


def hands(calls: Path) -> list[str]:
    """Who made the calls, the latest first."""
    return [line.split("\t")[3] for line in reversed(calls.read_text().splitlines())]


def holder_of_the_shard(ctx: Context) -> str:
    return next(
        (
            document.value["holder"]
            for document in ctx.ledger.read("shard").values()
            if document.value.get("holder")
        ),
        "",
    )
