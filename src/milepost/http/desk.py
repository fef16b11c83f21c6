"""What all endpoints share: the ledger with its routes, the threads that ask it, and the submits that wait."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from milepost.core.errors import UsageError
from milepost.core.plan import Plan
from milepost.engine.context import Context
from milepost.engine.intake import Receipt, submit
from milepost.http.calls import Call
from milepost.http.problems import trouble
from milepost.http.submitting import Submitting

THREADS = 8


class Desk:
    """One for each server. Everything that asks the ledger runs in its threads: the event loop never waits for a disk."""

    def __init__(self, ctx: Context) -> None:
        self.ctx = ctx
        self.pool = ThreadPoolExecutor(THREADS, thread_name_prefix="http")
        self.submitting = Submitting(self._take, self.pool)

    def plan(self, call: Call) -> Plan:
        """The route that a call's address names; one that the caller may not see is as if it were not there."""
        name = call.path["route"]
        try:
            plan = self.ctx.plan(name)
        except UsageError:
            plan = None
        if plan is None or not call.caller.sees(name):
            seen = ", ".join(route for route in sorted(self.ctx.plans) if call.caller.sees(route))
            raise trouble("unknown-route", f"there is no route {name!r}", field="route", expected=seen or "none is known")
        return plan

    def close(self) -> None:
        self.pool.shutdown(wait=True, cancel_futures=True)

    def _take(self, route: str, contents: Sequence[Any], by: str) -> list[Receipt]:
        return submit(self.ctx, route, contents, by=by)
