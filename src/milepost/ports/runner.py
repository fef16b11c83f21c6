"""The Runner: who runs the engine's turns and the users' handlers. The engine itself starts no thread and never sleeps."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from msgspec import Struct

from milepost.core.item import Item
from milepost.core.outcome import Outcome
from milepost.core.routes.route import Stage


class JobResult(Struct, gc=False, eq=False):
    """One item's outcome, as the crew that ran it reports it."""

    item: Item
    outcome: Outcome
    response_ms: int
    calls: int = 0
    """Handler calls beyond the first that this job needed (a halved batch); counted on one of its items."""
    failed_alone: bool = False
    cancelled: bool = False
    """The call's task was cancelled, and not by its crew: a failed try, or, while the worker drains, an item to give back."""


Job = list[Item]
"""The items of one handler call: one, or up to the stage's batch."""


class HandlerPool(Protocol):
    """Runs one stage's handler calls, at most `width` at a time."""

    def put(self, jobs: Sequence[Job]) -> None:
        """Hand over work; returns at once."""

    def take(self) -> list[JobResult]:
        """What has finished since the last take."""

    def recall(self, unwanted: Callable[[Item], bool] | None = None) -> list[Item]:
        """Take back what has not been started: everything, or the jobs with an unwanted item."""

    def oldest(self) -> Item | None:
        """Of what has not been started, the item that has waited longest."""

    def cancel(self) -> None:
        """Ask running calls to stop, where they can (async handlers); what was cut off is not reported."""

    def running(self) -> list[tuple[Item, int]]:
        """The first item of each call under way, with the milliseconds it has taken so far."""

    def resize(self, width: int) -> None: ...


class Service(Protocol):
    """Something that is given turns: it does what is to be done now and says when it wants the next turn."""

    name: str

    def turn(self) -> float:
        """Seconds until the next turn; a wake-up may bring it sooner."""


Execute = Callable[[Stage, Job, Callable[[], int]], list[JobResult]]
ExecuteAsync = Callable[[Stage, Job, Callable[[], int]], Awaitable[list[JobResult]]]


class Runner(Protocol):
    def pool(self, stage: Stage, width: int, execute: Execute, execute_async: ExecuteAsync, wake: Callable[[], None]) -> HandlerPool:
        """Hands for one stage; `wake` is called when there is something to take."""

    def run(self, services: Sequence[Service], stopped: Callable[[], bool]) -> None:
        """Give turns to all services until `stopped()`; a service that raises stops them all and the error is raised here."""

    def wake(self, name: str) -> None:
        """Bring the next turn of the service of that name forward to now."""


class Clock(Protocol):
    def now(self) -> int:
        """Milliseconds since 1970, UTC."""


class Chance(Protocol):
    def jitter(self) -> float:
        """Uniform in [-1, 1]."""

    def token(self) -> str:
        """Never given twice."""
