"""Outcomes that remote workers report: which of them were recorded already."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import milepost as mp
from milepost.engine.work.remote import Remote, RemoteClaimRequest, ShownLease
from milepost_testing import SeededChance, VirtualClock


class Desk:
    """A stage for remote workers, and processes that take their reports."""

    def __init__(self, url: str) -> None:
        route = mp.Route("parcels", key="id")
        route.stage("weigh", remote=True)
        self.clock = VirtualClock()
        self.ledger = mp.open(url, routes=[route], clock=self.clock, chance=SeededChance(1))
        self.plan = self.ledger.context.plans["parcels"]
        self.stage = self.plan.by_name["weigh"]
        self.ledger.submit("parcels", {"id": "p1"})

    def process(self) -> Remote:
        return Remote(self.ledger.context)

    def claim(self, process: Remote) -> ShownLease:
        [item] = process.claim(RemoteClaimRequest(self.plan, self.stage, "worker", 1, 30_000)).items
        assert item.row.lease is not None
        return ShownLease("p1", item.row.lease)

    def report(self, process: Remote, lease: ShownLease, outcome: mp.Outcome) -> bool:
        [accepted] = process.settle(self.plan, self.stage, [(lease, outcome)])
        return accepted

    def status(self) -> str:
        return str(self.ledger.show("parcels", "p1")["status"])


@pytest.fixture(params=["memory", "sqlite"])
def desk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Desk]:
    desk = Desk("memory:" if request.param == "memory" else f"sqlite:///{tmp_path}/m.db")
    yield desk
    desk.ledger.close()


def lease_settled_by_a_repeated_look(desk: Desk) -> ShownLease:
    """The lease of a second NotYet, which writes no line: only the row remembers that it was
    settled."""
    process = desk.process()
    for _ in range(2):
        lease = desk.claim(process)
        assert desk.report(process, lease, mp.NotYet(after="1s"))
        desk.clock.advance("2s")
    assert [line["reason"] for line in desk.ledger.show("parcels", "p1")["history"]] == [
        "accepted",
        "not-yet",
    ]
    return lease


def test_another_outcome_under_a_lease_that_a_repeated_look_has_settled_is_refused(
    desk: Desk,
) -> None:
    lease = lease_settled_by_a_repeated_look(desk)
    assert desk.report(desk.process(), lease, mp.Done()) is False
    assert desk.status() == "WAITING"


def test_the_same_look_reported_once_more_through_another_process_is_known(desk: Desk) -> None:
    lease = lease_settled_by_a_repeated_look(desk)
    assert desk.report(desk.process(), lease, mp.NotYet(after="1s")) is True
    assert desk.status() == "WAITING"
