"""Limits of wider lanes, on random backlogs: the SQLite ledger and its oracle in memory keep them
alike."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from milepost.core.admission.controls import lanes_above
from milepost.ledgers.memory import MemoryLedger
from milepost.ledgers.sqlite import SqliteLedger
from milepost.ports.ledger import Ledger
from milepost_testing.contract.world import World

LANES = ("north", "amy@north", "bob@north", "eve@north", "amy@south")
backlogs = st.dictionaries(st.sampled_from(LANES), st.integers(1, 12), min_size=1)


@contextmanager
def both() -> Iterator[list[Ledger]]:
    with tempfile.TemporaryDirectory() as folder:
        ledgers: list[Ledger] = [MemoryLedger(), SqliteLedger.open(str(Path(folder) / "ledger.db"))]
        yield ledgers
        for ledger in ledgers:
            ledger.close()


def filled(ledger: Ledger, backlog: dict[str, int]) -> World:
    world = World(ledger)
    for lane, number in backlog.items():
        world.add(*(f"{lane}-{n}" for n in range(number)), lane=lane)
    return world


def within_north(world: World, **ask: Any) -> tuple[int, Counter[str]]:
    claimed = Counter(item.lane for item in world.claim(**ask).items)
    return sum(number for lane, number in claimed.items() if "north" in lanes_above(lane)), claimed


@settings(max_examples=25, deadline=None)
@given(backlogs, st.integers(1, 40), st.lists(st.integers(0, 700), min_size=1, max_size=12))
def test_a_wider_rate_is_never_exceeded_and_never_left_unused(
    backlog: dict[str, int], per_second: int, pauses: list[int]
) -> None:
    with both() as ledgers:
        worlds = [filled(ledger, backlog) for ledger in ledgers]
        for world in worlds:
            world.limit("parcels/weigh/north", rate=f"{per_second}/s")
        left, passed, got = (
            sum(number for lane, number in backlog.items() if "north" in lanes_above(lane)),
            0,
            0,
        )
        for pause in pauses:
            numbers = {within_north(world)[0] for world in worlds}
            assert len(numbers) == 1, "memory and SQLite let the same number through"
            [number] = numbers
            got += number
            burst = max(1.0, per_second / 10)
            assert got <= burst + per_second * passed / 1000 + 1e-6
            assert number or got == left or per_second * passed / 1000 < got + 1, "a token is left"
            passed += pause
            for world in worlds:
                world.clock.advance(pause / 1000)


@settings(max_examples=25, deadline=None)
@given(
    backlogs,
    st.integers(1, 9),
    st.integers(1, 9),
    st.dictionaries(st.sampled_from(LANES), st.integers(1, 5)),
)
def test_a_wider_concurrency_is_never_exceeded(
    backlog: dict[str, int], joint: int, own: int, held: dict[str, int]
) -> None:
    with both() as ledgers:
        for ledger in ledgers:
            world = filled(ledger, backlog)
            world.limit("parcels/weigh/north", concurrency=joint)
            world.limit("parcels/weigh/amy@north", concurrency=own)
            number, claimed = within_north(world, held=held)
            had = sum(n for lane, n in held.items() if "north" in lanes_above(lane))
            assert number <= max(0, joint - had)
            assert claimed["amy@north"] <= max(0, own - held.get("amy@north", 0))
