"""Worker processes that kill themselves (SIGKILL) at a given fault point. `worker.py LEDGER` has
imported everything and forks the others: for each line of its input, a list of [PHASE, N], it
begins these side by side and answers how each of them ended. One whose phase is none runs until
idle.

Phases: claimed (leases are written, nothing runs yet), running (inside a handler), settling
(outcomes are known, nothing written), commit (inside the transaction, before COMMIT), committed (on
disk, before the engine knows), step-commit and step-committed (the same in the one write that
settles and claims), stepped (the engine knows of both, and no handler has been started).
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import sys
import traceback
from typing import Any

from tests.ledgers.sqlite.crash.route import route

from milepost.composition import open_context
from milepost.ledgers.sqlite.file import store
from milepost.ledgers.sqlite.ledger import SqliteLedger
from milepost.station import Station


class Fault:
    """Dies at the n-th passing of its phase."""

    def __init__(self, phase: str, passes: int) -> None:
        self.phase = phase
        self.left = passes

    def reach(self, phase: str) -> None:
        if phase == self.phase:
            self.left -= 1
            if self.left <= 0:
                os.kill(os.getpid(), signal.SIGKILL)


def arm(fault: Fault) -> None:
    claim, apply, apply_and_claim = (
        SqliteLedger.claim,
        SqliteLedger.apply,
        SqliteLedger.apply_and_claim,
    )
    holding = [0]
    in_a_step = [False]

    def claim_and_die(self: SqliteLedger, asks: Any, now: int, jitter: float) -> Any:
        answers = claim(self, asks, now, jitter)
        got = sum(len(answer.items) for answer in answers)
        holding[0] += got
        if got:
            fault.reach("claimed")
        return answers

    def apply_and_die(self: SqliteLedger, changes: Any, now: int, versions: Any = None) -> Any:
        if changes:
            fault.reach("settling")
        return apply(self, changes, now, versions)

    def step_and_die(
        self: SqliteLedger, changes: Any, now: int, versions: Any, asks: Any, jitter: float
    ) -> Any:
        fault.reach("settling")
        in_a_step[0] = True
        answers, claims = apply_and_claim(self, changes, now, versions, asks, jitter)
        in_a_step[0] = False
        holding[0] += sum(len(claimed.items) for claimed in claims)
        if any(claimed.items for claimed in claims):
            fault.reach("claimed")
            fault.reach("stepped")
        return answers, claims

    class DyingConnection(sqlite3.Connection):
        def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:
            if sql == "COMMIT" and holding[0]:
                fault.reach("commit")
                if in_a_step[0]:
                    fault.reach("step-commit")
                cursor = super().execute(sql, *values)
                fault.reach("committed")
                if in_a_step[0]:
                    fault.reach("step-committed")
                return cursor
            return super().execute(sql, *values)

    SqliteLedger.claim = claim_and_die  # type: ignore[method-assign]
    SqliteLedger.apply = apply_and_die  # type: ignore[method-assign]
    SqliteLedger.apply_and_claim = step_and_die  # type: ignore[method-assign]
    connect = sqlite3.connect

    def dying_connect(*values: Any, **options: Any) -> sqlite3.Connection:
        return connect(*values, factory=DyingConnection, **options)

    store.sqlite3 = _Module(dying_connect)  # type: ignore[assignment]
    for stage in route.stages:
        _wrap(stage, fault)


def _wrap(stage: Any, fault: Fault) -> None:
    from msgspec.structs import force_setattr

    handler = stage.handler

    def dying(item: Any) -> Any:
        outcome = handler(item)
        fault.reach("running")
        return outcome

    force_setattr(stage, "handler", dying)


class _Module:
    """sqlite3, but for `connect`."""

    def __init__(self, connect: Any) -> None:
        self.connect = connect

    def __getattr__(self, name: str) -> Any:
        return getattr(sqlite3, name)


def live(path: str, phase: str, passes: int) -> None:
    if phase != "none":
        arm(Fault(phase, passes))
    ctx = open_context(f"sqlite:///{path}", [route])
    Station(ctx).run(until_idle_s=0.3)
    ctx.ledger.close()


def fork(path: str, phase: str, passes: int) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        live(path, phase, passes)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def main() -> None:
    for line in sys.stdin:
        begun = [fork(sys.argv[1], phase, passes) for phase, passes in json.loads(line)]
        print(
            json.dumps([os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in begun]),
            flush=True,
        )


if __name__ == "__main__":
    main()
