"""Who may be claimed now: pauses, rates, and what each lane has in hand. A rate is shared by all processes through its tokens."""

from __future__ import annotations

import math
from collections.abc import Sequence

from msgspec import Struct

from milepost.core.routes.route import Limits
from milepost.core.values.durations import rate_per_second
from milepost.ledgers.aws.claim.tokens import SAVED_S, take
from milepost.ledgers.aws.queues.messages import SqsMessage
from milepost.ledgers.aws.store import AwsStore
from milepost.ports.documents import is_held, scope
from milepost.ports.ledger import ClaimRequest


class Admitted(Struct):
    """Messages by what is to become of them. `next_at`: when there will be a token again, where that is why some must wait."""

    chosen: list[SqsMessage] = []
    paused: list[SqsMessage] = []
    waiting: list[SqsMessage] = []
    next_at: int | None = None


class Gate:
    """One stage's gate for one ask."""

    def __init__(self, store: AwsStore, ask: ClaimRequest, now: int) -> None:
        self._store, self._ask, self._now = store, ask, now
        self._stage = ask.plan.by_name[ask.stage]
        self._rate = self._rate_of(None, self._stage.rate)
        self._taken: dict[str | None, int] = {}
        self.next_at: int | None = None

    def room(self) -> int:
        """How many items to ask the queue for: no more than there can be tokens for."""
        want = min(self._ask.want, 1) if self._ask.fragile else self._ask.want
        for lane, spent in self._ask.spent.items():
            rate = self._rate_of(lane, self._lane(lane).rate)
            if spent and rate is not None:
                take(self._store.control, self._name(lane), rate, self._now, 0, spent)
        if self._rate is None:
            return want
        grant = take(self._store.control, self._name(None), self._rate, self._now, 0, sum(self._ask.spent.values()))
        self.next_at = grant.next_at
        if grant.next_at is not None:
            return 0
        return min(want, math.floor(max(1.0, self._rate * SAVED_S)) * self._ask.batch)

    def admit(self, messages: Sequence[SqsMessage], known_lanes: set[str]) -> Admitted:
        """Let in what may be claimed: lanes in turn, the one with the least in hand first."""
        holds = self._store.holds(self._now)
        admitted = Admitted()
        lanes: dict[str, list[SqsMessage]] = {}
        for message in messages:
            lane = lane_of(message)
            if is_held(holds, self._ask.plan.name, self._ask.stage, lane):
                admitted.paused.append(message)
            else:
                lanes.setdefault(lane, []).append(message)
        room = self._rooms(lanes, known_lanes)
        picked: list[SqsMessage] = []
        taken = dict.fromkeys(lanes, 0)
        want = min(self._ask.want, 1) if self._ask.fragile else self._ask.want
        while len(picked) < want:
            turn = [lane for lane in lanes if lanes[lane] and taken[lane] < room[lane]]
            if not turn:
                break
            lane = min(turn, key=lambda lane: self._ask.held.get(lane, 0) + taken[lane])
            picked.append(lanes[lane].pop(0))
            taken[lane] += 1
        admitted.waiting = [message for left in lanes.values() for message in left]
        if self._rate is not None and picked:
            allowed = self._take(None, self._rate, len(picked)) * self._ask.batch
            admitted.waiting += picked[allowed:]
            picked = picked[:allowed]
        admitted.chosen = picked
        admitted.next_at = self.next_at
        return admitted

    def settle(self, claimed: Sequence[str]) -> None:
        """Calls were paid for before it was known who would come: what nobody used goes back. `claimed` are the items' lanes."""
        for lane, paid in self._taken.items():
            used = len(claimed) if lane is None else sum(one == lane for one in claimed)
            over = paid - math.ceil(used / self._ask.batch)
            rate = self._rate if lane is None else self._rate_of(lane, self._lane(lane).rate)
            if over > 0 and rate is not None:
                take(self._store.control, self._name(lane), rate, self._now, 0, -over)

    def _rooms(self, lanes: dict[str, list[SqsMessage]], known: set[str]) -> dict[str, float]:
        """How many items each lane may still be given, by its limit of calls in hand and by its rate."""
        ask, room = self._ask, {}
        half = math.inf
        if len(lanes) == 1 and len(known) > 1:
            # The others only have no work just now; it may come any moment.
            (lane,) = lanes
            half = math.ceil((ask.want + ask.held.get(lane, 0)) / 2)
        for lane, messages in lanes.items():
            limits = self._lane(lane)
            cap = self._store.limit(self._name(lane), self._now).concurrency or limits.concurrency
            room[lane] = (half if cap is None else min(half, cap * ask.batch)) - ask.held.get(lane, 0)
            rate = self._rate_of(lane, limits.rate)
            if rate is not None and room[lane] > 0:
                room[lane] = min(room[lane], self._take(lane, rate, int(min(len(messages), room[lane], ask.want))) * ask.batch)
        return room

    def _take(self, lane: str | None, rate: float, items: int) -> int:
        grant = take(self._store.control, self._name(lane), rate, self._now, math.ceil(items / self._ask.batch))
        self._taken[lane] = grant.granted
        if grant.next_at is not None:
            self.next_at = grant.next_at if self.next_at is None else min(self.next_at, grant.next_at)
        return grant.granted

    def _lane(self, lane: str) -> Limits:
        return self._stage.lanes.get(lane, Limits())

    def _name(self, lane: str | None) -> str:
        return scope(self._ask.plan.name, self._ask.stage, lane)

    def _rate_of(self, lane: str | None, own: str | float | None) -> float | None:
        rate = self._store.limit(self._name(lane), self._now).rate or own
        return None if rate is None else rate_per_second(rate, f"the rate of {self._name(lane)}")


def lane_of(message: SqsMessage) -> str:
    lane = message.body.get("lane", "")
    return lane if isinstance(lane, str) else ""
