"""Heartbeat of a process: announce that it is alive, and take back the leases of dead processes."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from milepost.core.values.durations import iso
from milepost.engine.context import Context
from milepost.engine.old_documents import old_processes
from milepost.engine.views.items import live_processes, processes
from milepost.ports.documents import PROCESS, Process, StandingStill, read_each_versioned
from milepost.ports.service import Service

EVERY_MS = 2_000
HEARD_MS = 150_000
"""A role that has not run for this long after it was to run is reported; some roles run once a
minute by schedule."""


class RoleRun(NamedTuple):
    """The last successful run of a role, and the process in which it was."""

    at: int = 0
    holder: str = ""
    next_at: int = 0
    """When it was to run next; 0: unknown."""

    def late(self, now: int) -> bool:
        """Whether it should have run again by now: by its own interval, which its last turn has
        said."""
        return now - max(self.at, self.next_at) > HEARD_MS


class Heartbeat(Service):
    """Service that writes the process document; `facts` gives its variable part (roles, in_hand,
    overrunning, outdated)."""

    name = "heartbeat"

    def __init__(self, ctx: Context, holder: str, facts: Callable[[], dict[str, Any]]) -> None:
        self.ctx = ctx
        self.holder = holder
        self.facts = facts
        self.started_at = ctx.clock.now()
        self._started = False

    def start(self) -> None:
        """Sign on, take back the leases of dead processes, delete old process documents."""
        self.ctx.ledger.sign_on(self.holder)
        self.take_back()
        recorded = read_each_versioned(self.ctx.ledger, PROCESS, Process)
        for name in old_processes(
            {name: process for name, (process, _) in recorded.items()}, self.ctx.clock.now()
        ):
            self.ctx.ledger.write(PROCESS, name, None, recorded[name][1])
        self.beat()
        self._started = True

    def take_back(self) -> None:
        """Take back the leases of processes that are proved dead."""
        dead = self.ctx.ledger.dead_workers()
        if not dead:
            return
        self.ctx.ledger.reclaim(dead, self.ctx.clock.now())
        # Mark them as stopped: no other process can prove their death any more, and they would
        # count as alive until the timeout.
        for name, (process, version) in read_each_versioned(
            self.ctx.ledger, PROCESS, Process
        ).items():
            if name in dead:
                self.ctx.ledger.write(
                    PROCESS, name, replace(process, in_hand=0, stopped=True), version
                )

    def beat(self, *, stopped: bool = False) -> None:
        """Write the process document."""
        clock = self.ctx.check_clock()
        now = self.ctx.clock.now()
        process = Process(
            self.holder,
            platform.node(),
            os.getpid(),
            self.started_at,
            now,
            **self.facts(),
            stopped=stopped,
            clock=clock,
            known_format=self.ctx.ledger.known_format,
        )
        self.ctx.ledger.write(PROCESS, self.holder, process)

    def turn(self) -> float:
        if not self._started:
            self.start()
        self.take_back()
        self.beat()
        if not self.facts().get("in_hand"):
            self.ctx.ledger.idle_upkeep()
        return EVERY_MS / 1000

    def stop(self) -> None:
        """Announce that this process has ended."""
        self.beat(stopped=True)
        self.ctx.ledger.sign_off(self.holder)


def last_runs(ctx: Context) -> dict[str, RoleRun]:
    """Each role's last successful run, in any process."""
    last: dict[str, RoleRun] = {}
    for process in processes(ctx):
        for role, at in process.roles.items():
            last[role] = max(
                last.get(role, RoleRun()),
                RoleRun(at, process.holder, process.next_runs.get(role, 0)),
            )
    return last


def standing_still(before: StandingStill | None, why: str, now: int) -> StandingStill | None:
    """The record of a role whose service stands still for this reason, or, if there is none,
    works."""
    if not why:
        return None
    return StandingStill(now if before is None else before.since, why)


class StandingRole(NamedTuple):
    """A role that no process carries out now, since the one that did stands still."""

    holder: str
    since: int
    why: str


def standing_roles(ctx: Context, last: Mapping[str, RoleRun]) -> dict[str, StandingRole]:
    """The roles that stand still in a process that was heard of lately, where no process has
    carried them out since. `last`: the last successful runs."""
    found: dict[str, StandingRole] = {}
    for process in processes(ctx):
        if process.stopped or ctx.clock.now() - process.seen_at > HEARD_MS:
            continue
        for role, still in process.standing_still.items():
            if last.get(role, RoleRun()).at <= still.since and (
                role not in found or still.since < found[role].since
            ):
                found[role] = StandingRole(process.holder, still.since, still.why)
    return found


class ProcessView(Struct, frozen=True):
    """A process of the last week. `alive`: running now. `stopped`: has ended regularly; neither: it
    died or cannot be reached. `roles`: last successful run of each. `overrunning`: handlers that
    exceed their timeout. `outdated`: routes of which it has an older version, so that it stands
    by."""

    holder: str
    host: str
    pid: int
    started_at: str | None
    seen_at: str | None
    alive: bool
    stopped: bool
    roles: dict[str, str | None]
    in_hand: int | None
    """Over all routes; null for a caller who may see only some."""
    overrunning: list[dict[str, Any]]
    outdated: list[str]


class RoleView(Struct, frozen=True):
    """A role: its last successful run in any process, and in which. `late`: it should have run
    again by now. `stands_still`: why no process does its work now, though one has it."""

    role: str
    at: str | None
    holder: str
    late: bool = False
    stands_still: str = ""


class Processes(Struct, frozen=True):
    """Processes, the most recently seen first, and roles."""

    processes: list[ProcessView]
    roles: list[RoleView]


def processes_view(ctx: Context, sees: Callable[[str], bool] | None = None) -> Processes:
    """Processes and roles as a view. `sees` limits it to the routes that the caller may see."""
    alive = {process.holder for process in live_processes(ctx)}
    last = last_runs(ctx)
    standing = standing_roles(ctx, last)
    return Processes(
        [
            ProcessView(
                process.holder,
                process.host,
                process.pid,
                iso(process.started_at),
                iso(process.seen_at),
                process.holder in alive,
                process.stopped,
                {role: iso(at) for role, at in sorted(process.roles.items())},
                process.in_hand if sees is None else None,
                [
                    slow
                    for slow in process.overrunning
                    if sees is None or sees(str(slow.get("route", "")))
                ],
                [route for route in process.outdated if sees is None or sees(route)],
            )
            for process in processes(ctx)
        ],
        [
            _role_view(role, last.get(role, RoleRun()), standing.get(role), ctx.clock.now())
            for role in sorted({*last, *standing})
        ],
    )


def _role_view(role: str, run: RoleRun, standing: StandingRole | None, now: int) -> RoleView:
    at = iso(run.at) if run.at else None
    return RoleView(role, at, run.holder, run.late(now), "" if standing is None else standing.why)
