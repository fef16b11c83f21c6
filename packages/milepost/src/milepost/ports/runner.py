"""Runner: runs the engine's services and the users' handlers. The engine itself starts no thread
and never sleeps."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from milepost.core.item import Item
from milepost.core.outcome import Outcome
from milepost.core.routes.route import Stage
from milepost.ports.service import Service


class JobResult(Struct, gc=False, eq=False):
    """One item's outcome, as reported by the handler pool."""

    item: Item
    outcome: Outcome
    response_ms: int
    calls: int = 0
    """Extra handler calls that this job needed (a halved batch); counted on one of its items."""
    failed_alone: bool = False
    cancelled: bool = False
    """The call's task was cancelled, and not by its pool: a failed attempt or, while the worker
    drains, an item to give back."""


Job = list[Item]
"""The items of one handler call: one, or up to the stage's batch."""


class HandlerPool(Protocol):
    """Runs one stage's handler calls, at most `width` at a time."""

    def put(
        self,
        jobs: Sequence[Job],
        caps: Mapping[str, int | None],
        joint_caps: Mapping[str, int | None],
    ) -> None:
        """Add jobs; returns at once. `caps` has the number of calls at a time of each of their
        lanes, `joint_caps` that of all lanes within each wider lane together; None: as many as the
        pool's."""

    def take(self) -> list[JobResult]:
        """Results since the last take."""

    def recall(self, unwanted: Callable[[Item], bool] | None = None) -> list[Item]:
        """Take back jobs that have not started: all, or those with an unwanted item."""

    def oldest(self) -> Item | None:
        """The item that has waited longest to start."""

    def cancel(self) -> None:
        """Ask running calls to stop, where possible (async handlers); interrupted calls are not
        reported."""

    def running(self) -> list[tuple[Item, int]]:
        """The first item of each running call, with its duration so far in milliseconds."""

    def resize(self, width: int) -> None: ...


Execute = Callable[[Stage, Job, Callable[[], int]], list[JobResult]]
ExecuteAsync = Callable[[Stage, Job, Callable[[], int]], Awaitable[list[JobResult]]]


class Runner(Protocol):
    def pool(
        self,
        stage: Stage,
        width: int,
        execute: Execute,
        execute_async: ExecuteAsync,
        wake: Callable[[], None],
    ) -> HandlerPool:
        """The handler pool of one stage; `wake` is called when there are results to take."""

    def run(self, services: Sequence[Service], stopped: Callable[[], bool]) -> None:
        """Run all services until `stopped()`; if one raises, all stop and the error is raised
        here."""

    def wake(self, name: str) -> None:
        """Run the next turn of the service with this name now."""


class Clock(Protocol):
    def now(self) -> int:
        """Milliseconds since 1970, UTC."""


class Chance(Protocol):
    def jitter(self) -> float:
        """Uniform in [-1, 1]."""

    def token(self) -> str:
        """A unique token."""
