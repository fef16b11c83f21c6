"""Bisection of a failed batch: the item that causes the failure is found alone and quickly, and no
other item is counted."""

from __future__ import annotations

import math
from collections import Counter

from hypothesis import example, given
from hypothesis import strategies as st

from milepost.core.item import Content, Item
from milepost.core.outcome import Done, Outcome, Retry
from milepost.core.routes.plan import Plan
from milepost.core.routes.route import Route
from milepost.engine.work.bisection import call_budget, halving
from milepost.engine.work.execute import run_plain
from milepost.ledgers.memory import MemoryLedger
from milepost.ports.runner import JobResult
from milepost_testing.contract import World


def make_items(n: int) -> list[Item]:
    world = World(MemoryLedger())
    return [
        Item(world.new_item(str(number)).change.after, Content({"id": str(number)}))
        for number in range(n)
    ]


ITEMS = make_items(300)


class Partner:
    """Fails whenever a culprit is among those it is given; keeps each call."""

    def __init__(self, culprits: set[int], how: str = "raise") -> None:
        self.culprits = {str(number) for number in culprits}
        self.how = how
        self.calls: list[list[str]] = []
        self.done: Counter[str] = Counter()

    def __call__(self, batch: list[Item]) -> object:
        self.calls.append([item.key for item in batch])
        if self.culprits.isdisjoint(self.calls[-1]):
            self.done.update(self.calls[-1])
            return [Done({"key": item.key}) for item in batch]
        if self.how == "raise":
            raise ValueError("one of these is bad")
        return {
            "short": [Done()] * (len(batch) - 1),
            "long": [Done()] * (len(batch) + 1),
            "none": None,
            "text": "ok",
        }[self.how]


def run(n: int, partner: Partner) -> dict[int, JobResult]:
    route = Route("parcels")
    route.stage("weigh", batch=max(2, n))(lambda items: partner(items))
    rans = run_plain(Plan(route).first, ITEMS[:n], lambda: 0)
    assert sorted(int(ran.item.key) for ran in rans) == list(range(n)), (
        "everybody has exactly one outcome"
    )
    assert sum(ran.calls for ran in rans) == len(partner.calls) - 1
    return {int(ran.item.key): ran for ran in rans}


@st.composite
def batches(draw: st.DrawFn) -> tuple[int, int]:
    n = draw(st.integers(1, 300))
    return n, draw(st.integers(0, n - 1))


@given(batches(), st.sampled_from(["raise", "short", "long", "none", "text"]))
@example((1, 0), "raise")
@example((5, 3), "raise")
@example((100, 99), "short")
def test_one_culprit_is_found_alone_and_nobody_else_is_counted(
    batch: tuple[int, int], how: str
) -> None:
    n, culprit = batch
    partner = Partner({culprit}, how)
    rans = run(n, partner)
    assert len(partner.calls) <= 2 * math.log2(n) + 2
    for number, ran in rans.items():
        if number == culprit:
            assert isinstance(ran.outcome, Retry)
            assert ran.failed_alone
            assert ran.outcome.category == ("EXCEPTION" if how == "raise" else "WRONG_ANSWER")
        else:
            assert ran.outcome == Done({"key": str(number)})
            assert not ran.failed_alone
    assert [str(culprit)] in partner.calls
    assert set(partner.done.values()) <= {1}, "what went well is not called again"


def test_every_size_and_every_place_of_one_culprit_stays_within_the_bound() -> None:
    for n in range(1, 70):
        for culprit in range(n):
            partner = Partner({culprit})
            rans = run(n, partner)
            assert len(partner.calls) <= 2 * math.log2(n) + 2
            assert [number for number, ran in rans.items() if isinstance(ran.outcome, Retry)] == [
                culprit
            ]


@given(st.integers(1, 120), st.data())
def test_with_several_culprits_everybody_is_settled_once_within_the_bound(
    n: int, data: st.DataObject
) -> None:
    culprits = data.draw(st.sets(st.integers(0, n - 1), max_size=6))
    partner = Partner(culprits)
    rans = run(n, partner)
    assert len(partner.calls) <= 2 * math.log2(n) + 2
    for number, ran in rans.items():
        assert isinstance(ran.outcome, Retry) or partner.done[str(number)] == 1
        if isinstance(ran.outcome, Done):
            assert number not in culprits
        if ran.failed_alone:
            assert number in culprits
    assert all(isinstance(rans[number].outcome, Retry) for number in culprits)
    if culprits:
        assert any(ran.failed_alone for ran in rans.values()), (
            "each round brings at least one to light"
        )
    assert set(partner.done.values()) <= {1}


def test_a_batch_that_goes_well_is_one_call() -> None:
    partner = Partner(set())
    run(50, partner)
    assert len(partner.calls) == 1


def test_a_fault_that_passes_costs_nobody_anything() -> None:
    """The first call fails, no later one does: then nobody was a culprit."""
    calls = []

    def once(items: list[Item]) -> list[Outcome]:
        calls.append(len(items))
        if len(calls) == 1:
            raise ConnectionError
        return [Done() for _ in items]

    route = Route("parcels")
    route.stage("weigh", batch=8)(once)
    rans = run_plain(Plan(route).first, ITEMS[:8], lambda: 0)
    assert [ran.outcome for ran in rans] == [Done()] * 8
    assert not any(ran.failed_alone for ran in rans)


def test_what_is_unsettled_at_the_end_has_the_failure_of_a_call_it_was_in() -> None:
    search = halving(ITEMS[:4])
    group, number = next(search), 0
    failures: dict[str, Retry] = {}
    while True:
        number += 1
        failure = Retry(f"failure {number}", unknown=True)
        failures |= {item.key: failure for item in group}
        try:
            group = search.send(failure)
        except StopIteration as end:
            settled = end.value
            break
    assert number == call_budget(4) == 6
    assert {index: outcome for index, (outcome, _) in settled.items()} == {
        index: failures[str(index)] for index in range(4)
    }
