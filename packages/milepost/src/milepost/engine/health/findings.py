"""Findings of health checks, and what the checks of one run share."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import cached_property
from typing import Any, TypeVar

from msgspec import Struct

from milepost.core.admission.controls import Hold
from milepost.core.status import Status
from milepost.engine.context import Context
from milepost.engine.presence import RoleRun, last_runs
from milepost.engine.views.items import live_processes
from milepost.engine.views.snapshot import Snapshot, snapshots
from milepost.engine.views.timestamps import Watch
from milepost.ports.documents import HOLD, Process, read_each

OK, WARN, BAD = "ok", "warn", "bad"
DOCTOR, READY, OVERVIEW = "doctor", "ready", "overview"
"""The views."""

T = TypeVar("T")

NO_ROOM = 1_048_576
"""Free bytes on the ledger's disk below which there is no room."""


class Finding(Struct, frozen=True):
    """One result of a check. `level` is ok, warn or bad; `next` says what to do."""

    level: str
    about: str
    what: str
    next: str = ""


class CheckResult(Struct, frozen=True):
    """A finding, and how the other views show it. A finding without `what` is not shown by
    `doctor`."""

    finding: Finding
    headline: str = ""
    """For the overview: a sentence if something is wrong, a part of the "all is well" line if the
    level is ok. Empty: not shown there."""
    page: str = "/system"
    """The dashboard page where an operator can act on it."""
    part: str = ""
    """For `/readyz`: the part of the process that is not ready. Empty: this finding does not affect
    readiness."""
    unready: str = ""
    """For `/readyz`: why that part is not ready. No names of routes, keys, files or hosts: every
    caller may read it."""


class CheckRun:
    """State that the checks of one run share. `routes`: the snapshots of the routes that the viewer
    sees (None: of all). `everything`: the viewer sees all routes. `thorough`: read rows even if the
    counters say that there are none. `once` caches expensive answers."""

    def __init__(
        self,
        ctx: Context,
        watch: Watch | None = None,
        *,
        routes: Iterable[Snapshot] | None = None,
        everything: bool = True,
        thorough: bool = True,
        once: Callable[[tuple[str, ...], Callable[[], Any]], Any] | None = None,
    ) -> None:
        self.ctx = ctx
        self.watch = watch or Watch(ctx.clock.now())
        self.everything, self.thorough = everything, thorough
        self._routes = None if routes is None else {one.route: one for one in routes}
        self._once = once

    @property
    def now(self) -> int:
        return self.watch.now

    def once(self, about: tuple[str, ...], ask: Callable[[], T]) -> T:
        """The answer to an expensive query; a view that is shown often accepts an answer that is up
        to a minute old."""
        return ask() if self._once is None else self._once(about, ask)

    @cached_property
    def seen(self) -> Mapping[str, Snapshot]:
        """The routes that the viewer sees."""
        return snapshots(self.ctx) if self._routes is None else self._routes

    def sees(self, route: str) -> bool:
        return self._routes is None or route in self._routes

    @cached_property
    def facts(self) -> dict[str, Any]:
        return self.ctx.ledger.describe()

    @cached_property
    def holds(self) -> dict[str, Hold]:
        return read_each(self.ctx.ledger, HOLD, Hold)

    @cached_property
    def alive(self) -> list[Process]:
        return live_processes(self.ctx)

    @cached_property
    def no_heartbeats(self) -> str | None:
        """Why no process can write its heartbeat now, so that it is not known which ones run; None:
        nothing is known to prevent it."""
        if self.alive:
            return None
        free = self.once(("free bytes",), lambda: self.facts.get("free_bytes"))
        return "the disk is full" if free is not None and free < NO_ROOM else None

    @cached_property
    def last_runs(self) -> dict[str, RoleRun]:
        return last_runs(self.ctx)

    def worth_asking(self, route: str, stage: str, statuses: Iterable[Status]) -> bool:
        """Whether to query for problems of this stage's items. A quick view queries only where the
        counters say that there are any, and for routes that its viewer sees."""
        if self.thorough:
            return self.sees(route)
        wanted = tuple(statuses)
        return route in self.seen and any(
            one.name == stage and one.among(*wanted) for one in self.seen[route].stages
        )


class Check(Struct, frozen=True):
    """One rule and the views that show its findings."""

    name: str
    function: Callable[[CheckRun], Iterable[CheckResult]]
    views: Collection[str]
