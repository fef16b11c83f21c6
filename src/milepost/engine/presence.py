"""The heartbeat: says that this process is alive and what its roles last did, and takes back what dead processes held."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from milepost.core.values.durations import iso
from milepost.engine.context import Context
from milepost.engine.views.items import live_processes, processes
from milepost.ports.documents import PROCESS, Process, read_as

EVERY_MS = 2_000
FORGET_MS = 7 * 86_400_000
HEARD_MS = 150_000
"""A role without a good run for this long is worth a word; some are called by a clock, once a minute."""


class Heartbeat:
    """`facts` gives what the process document says beside who and when (roles, in_hand, overrunning, outdated)."""

    name = "heartbeat"

    def __init__(self, ctx: Context, holder: str, facts: Callable[[], dict[str, Any]]) -> None:
        self.ctx = ctx
        self.holder = holder
        self.facts = facts
        self.started_at = ctx.clock.now()
        self.taken_back = 0
        self._started = False

    def start(self) -> None:
        """Sign on, take back the leases of the dead, forget processes not heard of for a week."""
        self.ctx.ledger.sign_on(self.holder)
        self.take_back()
        now = self.ctx.clock.now()
        for name, document in self.ctx.ledger.read(PROCESS).items():
            if read_as(Process, document.value).seen_at < now - FORGET_MS:
                self.ctx.ledger.write(PROCESS, name, None, document.version)
        self.beat()
        self._started = True

    def take_back(self) -> None:
        dead = self.ctx.ledger.dead_workers()
        if not dead:
            return
        self.taken_back += self.ctx.ledger.reclaim(dead, self.ctx.clock.now())
        # Nobody else can tell any more that they are dead: without this they would be taken for alive until they are silent for long.
        for name, document in self.ctx.ledger.read(PROCESS).items():
            if name in dead:
                gone = replace(read_as(Process, document.value), in_hand=0, stopped=True)
                self.ctx.ledger.write(PROCESS, name, msgspec.to_builtins(gone), document.version)

    def beat(self, *, stopped: bool = False) -> None:
        now = self.ctx.clock.now()
        sheet = Process(self.holder, platform.node(), os.getpid(), self.started_at, now, **self.facts(), stopped=stopped)
        self.ctx.ledger.write(PROCESS, self.holder, msgspec.to_builtins(sheet))

    def turn(self) -> float:
        if not self._started:
            self.start()
        self.take_back()
        self.beat()
        if not self.facts().get("in_hand"):
            self.ctx.ledger.rest()
        return EVERY_MS / 1000

    def stop(self) -> None:
        self.beat(stopped=True)
        self.ctx.ledger.sign_off(self.holder)


def last_runs(ctx: Context) -> dict[str, tuple[int, str]]:
    """When each role last had a good run anywhere, and who had it."""
    last: dict[str, tuple[int, str]] = {}
    for process in processes(ctx):
        for role, at in process.roles.items():
            last[role] = max(last.get(role, (0, "")), (at, process.holder))
    return last


class ProcessView(Struct, frozen=True):
    """A process of the last week. `alive`: it is at work now. `stopped`: it has ended by itself; one that is neither has died, or cannot be
    heard. `roles`: when each last had a good run. `overrunning`: handlers that take longer than they may; `outdated`: routes of which it
    has an older version, so that it stands by."""

    holder: str
    host: str
    pid: int
    started_at: str | None
    seen_at: str | None
    alive: bool
    stopped: bool
    roles: dict[str, str | None]
    in_hand: int | None
    """Of all routes together, so that it is null for somebody who sees only some."""
    overrunning: list[dict[str, Any]]
    outdated: list[str]


class RoleView(Struct, frozen=True):
    """A role: when it last had a good run anywhere, and in which process."""

    role: str
    at: str | None
    holder: str


class Processes(Struct, frozen=True):
    """The latest heard of first."""

    processes: list[ProcessView]
    roles: list[RoleView]


def processes_view(ctx: Context, sees: Callable[[str], bool] | None = None) -> Processes:
    """Who is at work and who was, for people and programs. With `sees`: for somebody who sees only some routes."""
    alive = {process.holder for process in live_processes(ctx)}
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
                [slow for slow in process.overrunning if sees is None or sees(str(slow.get("route", "")))],
                [route for route in process.outdated if sees is None or sees(route)],
            )
            for process in processes(ctx)
        ],
        [RoleView(role, iso(at), holder) for role, (at, holder) in sorted(last_runs(ctx).items())],
    )
