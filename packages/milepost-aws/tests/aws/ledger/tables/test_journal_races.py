"""Races of many relays for the journal's next place, simulated: refused puts stay within what one
partition key can take.

A put takes 5 to 10 ms and a query 4 to 8 ms, a block of 33 lines is 2 write units, and a relay
works for 0.27 s between two blocks. A partition of DynamoDB gives 1,000 write units a second; the
simulation does not throttle.
"""

from __future__ import annotations

import heapq
import random

import pytest

from milepost_aws.ledger.tables.journal import (
    FIRST_RACE_PAUSE_S,
    LONGEST_RACE_PAUSE_S,
    race_pause_s,
)

PUT_S, QUERY_S, WORK_S, SECONDS = (0.005, 0.010), (0.004, 0.008), 0.27, 20.0
UNITS, LINES_AN_ITEM, LINES = 2, 2, 33
PARTITION = 1_000


class Races:
    """So many relays that put blocks for some seconds of virtual time."""

    def __init__(self, relays: int, seed: int = 1) -> None:
        self._chance = random.Random(seed)
        self.head = self.placed = self.refused = 0
        self._seen, self._losses = [0] * relays, [0] * relays
        self._events: list[tuple[float, int, int, str]] = []
        for relay in range(relays):
            self._later(self._chance.random() * WORK_S, relay, "put")
        while self._events[0][0] <= SECONDS:
            at, _, relay, step = heapq.heappop(self._events)
            getattr(self, f"_{step}")(at, relay)

    def _later(self, at: float, relay: int, step: str) -> None:
        heapq.heappush(self._events, (at, self.placed + self.refused, relay, step))

    def _half(self, span: tuple[float, float]) -> float:
        return self._chance.uniform(*span) / 2

    def _put(self, at: float, relay: int) -> None:
        self._later(at + self._half(PUT_S), relay, "arrive")

    def _arrive(self, at: float, relay: int) -> None:
        answered = at + self._half(PUT_S)
        if self._seen[relay] == self.head:
            self.head += 1
            self.placed += 1
            self._seen[relay], self._losses[relay] = self.head, 0
            self._later(answered + self._chance.uniform(0.7, 1.3) * WORK_S, relay, "put")
        else:
            self.refused += 1
            pause = race_pause_s(self._losses[relay], self._chance.random())
            self._losses[relay] += 1
            self._later(answered + pause, relay, "query")

    def _query(self, at: float, relay: int) -> None:
        self._later(at + self._half(QUERY_S), relay, "read")

    def _read(self, at: float, relay: int) -> None:
        self._seen[relay] = self.head
        self._later(at + self._half(QUERY_S), relay, "put")

    @property
    def units(self) -> float:
        """Write units a second on the one key."""
        return (self.placed + self.refused) * UNITS / SECONDS

    @property
    def items(self) -> float:
        """Items a second, of two lines each."""
        return self.placed * LINES / LINES_AN_ITEM / SECONDS


@pytest.mark.parametrize(("relays", "items"), [(4, 200), (16, 800), (32, 1_350), (64, 1_700)])
def test_refused_puts_stay_within_the_units_of_a_partition(relays: int, items: int) -> None:
    """Without pauses 64 relays would use 3,800 units a second: nearly four times what there is."""
    races = Races(relays)
    assert races.units < PARTITION
    assert races.items > items


def test_a_pause_grows_with_the_races_lost_and_has_an_end() -> None:
    assert race_pause_s(0, 1.0) == FIRST_RACE_PAUSE_S
    assert race_pause_s(1, 0.5) == FIRST_RACE_PAUSE_S
    assert race_pause_s(1000, 1.0) == LONGEST_RACE_PAUSE_S
    assert race_pause_s(5, 0.0) == 0.0
