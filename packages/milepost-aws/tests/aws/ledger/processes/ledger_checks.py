"""Checks of a ledger whose processes have died, against the records of its handlers and
subscriber."""

from __future__ import annotations

import json
import time
from collections import Counter
from pathlib import Path
from typing import TypeVar

from tests.aws.ledger.processes.fork_server import ForkServer
from tests.aws.ledger.processes.worker_process import ROUTE

from milepost.core.item import Item
from milepost.core.status import Reason, Status
from milepost.engine.context import Context
from milepost.engine.events.feed import feed_events
from milepost.engine.intake import submit
from milepost.ports.feed import HistoryEntry
from milepost_aws.ledger.ledger import AwsLedger
from milepost_aws.ledger.repair.repair import Repair
from milepost_testing.audit import audit, every_item, problems
from milepost_testing.clock import VirtualClock

T = TypeVar("T")
RAN_AGAIN = frozenset({Reason.LOST, Reason.RETRY, Reason.GIVEN_BACK})
"""Lines after which a handler is called once more."""


def lines_of(path: Path) -> int:
    return path.read_text().count("\n") if path.exists() else 0


def wait_until_ended(
    ctx: Context, names: list[str], folder: Path, forks: ForkServer, at_most_s: float = 150.0
) -> None:
    """Wait until all these items have ended, their lines are in the journal, and everything has
    been told."""
    until = time.monotonic() + at_most_s
    while True:
        items = list(every_item(ctx.ledger, ROUTE))
        left = [item.row for item in items if not item.row.terminal]
        if len(items) == len(set(names)) and not left:
            copied = {(written.key, written.line.version) for written in feed(ctx)}
            if all((item.key, item.row.version) in copied for item in items) and not untold(
                ctx, folder
            ):
                return
        if time.monotonic() >= until:
            assert isinstance(ctx.ledger, AwsLedger)
            where = Counter((row.stage, row.status.value) for row in left)
            queues = ctx.ledger.store.queues
            depths = {
                stage: queues.depth(queues.url(ROUTE, stage))
                for stage in {row.stage for row in left}
            }
            told = f"on their way: {where}; messages visible, in flight and delayed: {depths}"
            raise AssertionError(
                f"{len(items)} of {len(names)} items are there; {told}\n{forks.words()}"
            )
        time.sleep(0.3)


def put_right(ctx: Context) -> None:
    """The daily repair, at once: what the dead have left undone, and the counters."""
    assert isinstance(ctx.ledger, AwsLedger)
    repair = Repair(ctx.ledger.store, ctx.plans[ROUTE], ctx.chance.jitter, pace=1e9)
    clock = VirtualClock(ctx.clock.now())
    for _ in range(20):
        progress = repair.step(clock)
        if progress.done:
            return
        clock.advance_to(progress.next_at or 0)
    raise AssertionError(f"the repair does not come to an end: {progress}")


def check_whole(ctx: Context, names: list[str]) -> list[Item]:
    """Promises 1, 5, 6 and 8. Before the repair only counters may be wrong, after it nothing."""
    assert {receipt.answer for receipt in submit(ctx, ROUTE, [{"id": name} for name in names])} == {
        "known"
    }
    wrong = [
        problem
        for problem in problems(ctx.ledger, ROUTE, ctx.plans[ROUTE])
        if not problem.startswith(("counters say", "error groups"))
    ]
    assert not wrong, "\n".join(wrong)
    put_right(ctx)
    assert audit(ctx.ledger, ROUTE, ctx.plans[ROUTE]) == len(names)
    return list(every_item(ctx.ledger, ROUTE))


def check_fenced(ctx: Context, items: list[Item]) -> Counter[str]:
    """Promise 4: whoever was lost has no outcome after its loss. How many losses each holder
    had."""
    losses: Counter[str] = Counter()
    for item in items:
        lost: set[tuple[str | None, int | None]] = set()
        for written in ctx.ledger.history(ROUTE, item.key):
            line = written.line
            if line.reason is Reason.LOST:
                losses[line.by or ""] += 1
                lost.add((line.by, line.since))
            elif line.since is not None:
                assert (line.by, line.since) not in lost, (item.key, line)
    return losses


def check_calls(ctx: Context, items: list[Item], folder: Path) -> None:
    """A handler was called for every stage that was passed; again only where a line says why, and
    always under one work_id."""
    calls: Counter[tuple[str, str]] = Counter()
    work_ids: dict[tuple[str, str], set[str]] = {}
    for line in (folder / "calls").read_text().splitlines():
        stage, key, work_id, _ = line.split("\t")
        calls[key, stage] += 1
        work_ids.setdefault((key, stage), set()).add(work_id)
    assert {len(found) for found in work_ids.values()} == {1}
    for item in items:
        again: Counter[str] = Counter()
        passed: set[str] = set()
        for written in ctx.ledger.history(ROUTE, item.key):
            line = written.line
            again[line.stage] += line.reason in RAN_AGAIN
            if line.to is not None or line.status is Status.COMPLETED:
                passed.add(line.stage)
        for stage in ("one", "two"):
            assert (stage in passed) <= calls[item.key, stage] <= 1 + again[stage], (
                item.key,
                stage,
                calls[item.key, stage],
            )


def untold(ctx: Context, folder: Path) -> set[str]:
    """Events of the ledger that the subscriber has not been told; nothing else was told either."""
    events = {entry.event.id for entry in feed_events(feed(ctx))}
    path = folder / "told"
    told = (
        {json.loads(line)["id"] for line in path.read_text().splitlines()}
        if path.exists()
        else set()
    )
    assert told <= events, told - events
    return events - told


def feed(ctx: Context) -> list[HistoryEntry]:
    lines: list[HistoryEntry] = []
    while more := ctx.ledger.feed(lines[-1].seq if lines else 0, 500):
        lines += more
    return lines
