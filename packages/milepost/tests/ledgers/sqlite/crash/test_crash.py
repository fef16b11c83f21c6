"""Kill a real worker process again and again while it holds leases, then ask the ledger whether
every promise still holds."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from tests.ledgers.sqlite.crash.route import route
from tests.project import ROOT, TEST_PATH

from milepost.composition import open_context
from milepost.core.due import FRAGILE
from milepost.core.routes.plan import Plan
from milepost.core.status import Reason, Status
from milepost.engine.intake import submit
from milepost.ports.items import Query
from milepost_testing.audit import audit

ITEMS = 600
KILLS = 55
LAST = 4
PHASES = ("claimed", "running", "settling", "commit", "committed")
STEPS = ("step-commit", "step-committed", "stepped")


class Workers:
    """Processes on one ledger, for `with`: whoever is still alive at the end is killed."""

    def __init__(self, ledger: Path) -> None:
        self._words = ledger.with_suffix(".log")
        environment = {
            **os.environ,
            "CRASH_CALLS": str(ledger.with_suffix(".calls")),
            "PYTHONPATH": TEST_PATH,
        }
        command = [sys.executable, "-m", "tests.ledgers.sqlite.crash.worker", str(ledger)]
        with self._words.open("wb") as words:
            self._process = subprocess.Popen(
                command,
                cwd=ROOT,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=words,
                start_new_session=True,
            )

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        # Not waited for yet, so the group is theirs.
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.communicate()

    def live(self, *lives: tuple[str, int]) -> list[int]:
        """Side by side: how each of them ended, its exit code, or the signal that killed it,
        negative."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(lives).encode() + b"\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, self._words.read_text()
        codes: list[int] = json.loads(answer)
        assert {*codes} <= {0, -signal.SIGKILL}, self._words.read_text()
        return codes


@pytest.mark.slow
def test_fifty_and_more_kills_lose_nothing_and_break_no_promise(tmp_path: Path) -> None:
    path = tmp_path / "crash.db"
    ctx = open_context(f"sqlite:///{path}", [route])
    inputs = [{"id": f"item-{number}"} for number in range(ITEMS)]
    assert {receipt.answer for receipt in submit(ctx, "crash", inputs)} == {"new"}
    kills: Counter[str] = Counter()
    turn = 0
    with Workers(path) as workers:
        while sum(kills.values()) < KILLS or min(kills[phase] for phase in PHASES) < KILLS // 6:
            turn += 1
            assert turn <= 2 * KILLS, (
                f"the worker was not killed often enough while it held leases: {kills}"
            )
            phase = PHASES[turn % len(PHASES)]
            killed = workers.live((phase, 1 + turn % 4)) == [-signal.SIGKILL]
            if (
                killed
                and ctx.ledger.find(
                    Query(route="crash", statuses=frozenset({Status.PROCESSING}), limit=1)
                ).items
            ):
                kills[phase] += 1  # only kills that left leases behind count
        print("kills with leases held, by phase:", dict(kills))
        # Many items have taken two workers with them by now, and run one at a time in each process.
        assert workers.live(*[("none", 0)] * LAST) == [0] * LAST

    # 1: accepted once. 8: rows, histories and counters agree; 5, 6: in order and bounded (see
    # audit).
    assert {receipt.answer for receipt in submit(ctx, "crash", inputs)} == {"known"}
    plan = Plan(route)
    assert audit(ctx.ledger, "crash", plan) == ITEMS
    items = ctx.ledger.find(Query(route="crash", limit=ITEMS + 1)).items
    assert len(items) == ITEMS
    # 3: nothing lost. An item may only have ended early because ten workers died with it.
    for item in items:
        assert item.row.status is Status.COMPLETED or (
            item.row.error is not None and item.row.error.category == "WORKER_LOST"
        ), item
    assert sum(item.row.status is Status.COMPLETED for item in items) >= ITEMS * 0.9
    # 4: fenced. Whoever was lost has no outcome after its loss.
    losses = 0
    for item in items:
        lost: set[tuple[str | None, int | None]] = set()
        for written in ctx.ledger.history("crash", item.key):
            line = written.line
            if line.reason is Reason.LOST:
                losses += 1
                lost.add((line.by, line.since))
            elif line.since is not None:
                assert (line.by, line.since) not in lost, (item.key, line)
    assert losses >= FRAGILE
    ctx.ledger.close()


@pytest.mark.parametrize("passes", [1, 2, 5])
@pytest.mark.parametrize("phase", STEPS)
def test_a_kill_in_the_write_that_settles_and_claims_loses_nothing(
    phase: str, passes: int, tmp_path: Path
) -> None:
    path = tmp_path / "step.db"
    ctx = open_context(f"sqlite:///{path}", [route])
    submit(ctx, "crash", [{"id": f"item-{number}"} for number in range(200)])
    with Workers(path) as workers:
        assert workers.live((phase, passes)) == [-signal.SIGKILL]
        lost = {
            item.key: item
            for item in ctx.ledger.find(
                Query(route="crash", statuses=frozenset({Status.PROCESSING}), limit=201)
            ).items
        }
        assert lost
        assert workers.live(("none", 0)) == [0]
    assert audit(ctx.ledger, "crash", Plan(route)) == 200
    calls = Counter(
        tuple(line.split("\t")[1:3]) for line in path.with_suffix(".calls").read_text().splitlines()
    )
    for item in ctx.ledger.find(Query(route="crash", limit=201)).items:
        assert item.row.status is Status.COMPLETED
        lines = [written.line for written in ctx.ledger.history("crash", item.key)]
        assert [
            line.stage for line in lines if line.reason in (Reason.ADVANCED, Reason.COMPLETED)
        ] == ["one", "two", "three"]
        # An item that the dead worker held lost exactly that claim; no other stage was called twice
        # for want of a record.
        assert [line.stage for line in lines if line.reason is Reason.LOST] == (
            [lost[item.key].stage] if item.key in lost else []
        )
        for stage in ("one", "three"):
            most = 2 if item.key in lost and lost[item.key].stage == stage else 1
            assert 1 <= calls[stage, item.key] <= most
    ctx.ledger.close()


def test_after_a_kill_between_the_partners_yes_and_our_settle_verify_asks_and_the_partner_is_not_called_again(
    tmp_path: Path,
) -> None:
    path = tmp_path / "verify.db"
    calls = tmp_path / "calls"
    script = tmp_path / "deposit.py"
    script.write_text(
        f"""
import os, signal, sys
import milepost as mp

deposits = mp.Route("deposits", key="doi")
CALLS = {str(calls)!r}


def note(text):
    with open(CALLS, "a") as out:
        out.write(text + "\\n")


def already_there(item):
    note(f"verify {{item.work_id}}")
    return mp.Done({{"found": True}}) if f"deposit {{item.work_id}}" in open(CALLS).read().splitlines() else None


@deposits.stage("deposit", verify=already_there)
def deposit(item):
    note(f"deposit {{item.work_id}}")
    if "die" in sys.argv:
        os.kill(os.getpid(), signal.SIGKILL)
    return mp.Done({{"found": False}})


with mp.open("sqlite:///{path}", [deposits]) as post:
    print(post.submit("deposits", {{"doi": "10.1/x"}})[0].answer)
    post.run(until_idle=0.2)
    print(post.show("deposits", "10.1/x")["status"], post.show("deposits", "10.1/x")["results"])
"""
    )
    first = subprocess.run([sys.executable, str(script), "die"], capture_output=True, timeout=60)
    assert first.returncode == -signal.SIGKILL
    second = subprocess.run(
        [sys.executable, str(script)], capture_output=True, timeout=60, text=True
    )
    assert second.returncode == 0, second.stderr
    assert second.stdout.split("\n")[:2] == ["known", "COMPLETED {'deposit': {'found': True}}"]
    lines = calls.read_text().splitlines()
    assert [line.split()[0] for line in lines] == ["deposit", "verify"]
    assert len({line.split()[1] for line in lines}) == 1
