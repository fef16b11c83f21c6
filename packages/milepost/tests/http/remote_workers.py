"""A route with a remote stage, a server for it, and calls of its workers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.http.live_server import HttpAnswer, LiveServer
from tests.http.servers_on_ledgers import server_over

import milepost as mp
from milepost_testing import VirtualClock

CLAIMS = "/api/v1/routes/images/stages/resize/claims"
DONE = {"type": "done", "output": {"width": 80}}


def images(**options: Any) -> mp.Route:
    route = mp.Route("images", key="id")
    route.stage("resize", remote=True, retry=mp.Backoff(attempts=2, base=1), **options)
    route.external("publish")
    return route


class RemoteWorkers:
    """A door, a clock in the test's own hands, and short ways to call."""

    def __init__(self, visitor: LiveServer, clock: VirtualClock) -> None:
        self.visitor, self.clock, self.call = visitor, clock, visitor.call

    def submit(self, *keys: str, **more: Any) -> None:
        self.visitor.milepost.submit("images", *({"id": key, **more} for key in keys))

    def claim(self, worker: str = "w1", **asked: Any) -> list[dict[str, Any]]:
        return items(self.call("POST", CLAIMS, {"worker": worker, **asked}))

    def settle(self, *works: dict[str, Any], outcome: dict[str, Any] = DONE) -> list[str]:
        said = [{"key": work["key"], "lease": work["lease"], "outcome": outcome} for work in works]
        answered = self.call("POST", f"{CLAIMS}/settle", {"outcomes": said})
        assert answered.status == 200, answered
        return [one["answer"] for one in answered.body["outcomes"]]

    def show(self, key: str) -> dict[str, Any]:
        found = self.visitor.milepost.show("images", key)
        assert found is not None
        return found


def items(answered: HttpAnswer) -> list[dict[str, Any]]:
    assert answered.status == 200, answered
    return list(answered.body["items"])


def lease_of(work: dict[str, Any]) -> dict[str, str]:
    return {"key": work["key"], "lease": work["lease"]}


@contextmanager
def open_remote_workers(ledger: str, **options: Any) -> Iterator[RemoteWorkers]:
    """With these options of its stage."""
    clock = VirtualClock()
    with server_over(ledger, images(**options), clock) as visitor:
        yield RemoteWorkers(visitor, clock)
