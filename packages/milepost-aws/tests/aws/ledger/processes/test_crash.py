"""Kill real processes on the AWS ledger again and again, at every point where one can stand, then
ask whether every promise still holds."""

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
    untold,
    wait_until_ended,
)
from tests.aws.ledger.processes.worker_process import POINTS, Life, open_process_ledger
from tests.standins import REGION

from milepost.core.status import Status

pytestmark = pytest.mark.wire

KILLS = 26
AT_ONCE = 2
EACH = 4
"""Items that a process hands over before it starts to work."""


@pytest.mark.slow
def test_26_kills_lose_nothing_and_break_no_promise(
    endpoint: str, prefix: str, tmp_path: Path
) -> None:
    first = Life(endpoint=endpoint, prefix=prefix, folder=str(tmp_path), region=REGION)
    ctx = open_process_ledger(first)
    kills: Counter[str] = Counter()
    names: list[str] = []
    points = list(POINTS)
    turn = 0
    with ForkServer(tmp_path) as forks:
        while sum(kills.values()) < KILLS or min(kills[point] for point in points) < 2:
            assert turn < 3 * KILLS, (
                f"nobody comes to some of the points: {dict(kills)}\n{forks.words()}"
            )
            # The ones that have been seen least; each process has another, and dies at its first,
            # second or third passing.
            points.sort(key=lambda point: kills[point])
            begun = []
            for point in points[:AT_ONCE]:
                turn += 1
                items = tuple(f"item-{turn}-{number}" for number in range(5, 5 + EACH))
                names += items
                passes = 1 + turn % 3 if point != "finishing" else 1
                life = {
                    "items": items,
                    "holder": f"heart-{turn}",
                    "point": point,
                    "passes": passes,
                    "at_most_s": 5.0,
                }
                begun.append((point, forks.start(replace(first, **life))))
            for point, pid in begun:
                code = forks.wait(pid)
                assert code in (0, -signal.SIGKILL), forks.words()
                kills[point] += code == -signal.SIGKILL
        print("kills by point:", dict(kills))
        # Who died while handing items over does not know which ones were taken: they are handed
        # over again.
        last = forks.start(replace(first, items=tuple(names), holder="last"))
        wait_until_ended(ctx, names, tmp_path, forks)
        os.kill(last, signal.SIGTERM)
        assert forks.wait(last) == 0, forks.words()

    items = check_whole(ctx, names)
    # 3: nothing lost. An item may only have ended early because ten processes died with it.
    for item in items:
        assert item.row.status is Status.COMPLETED or (
            item.row.error is not None and item.row.error.category == "WORKER_LOST"
        ), item
    assert sum(item.row.status is Status.COMPLETED for item in items) >= len(names) * 0.9
    assert sum(check_fenced(ctx, items).values()) > 0
    check_calls(ctx, items, tmp_path)
    assert untold(ctx, tmp_path) == set()
    ctx.ledger.close()
