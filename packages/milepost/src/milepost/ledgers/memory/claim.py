"""Claims in the memory ledger: a full scan for each request."""

from __future__ import annotations

import math

from msgspec import Struct

from milepost.core.admission.breakers import (
    PROBE_CANDIDATES,
    ask_again_at,
    probe_order,
    room_for,
    with_probes,
)
from milepost.core.admission.controls import scope
from milepost.core.due import fragile, look
from milepost.core.failures import unreadable
from milepost.core.item import Item
from milepost.core.routes.route import Limits
from milepost.core.status import Status
from milepost.ledgers.memory.state import Bucket, MemoryRecord, State
from milepost.ports.items import ClaimRequest, ClaimResult, Refused


def claim_one(state: State, ask: ClaimRequest, now: int, jitter: float) -> ClaimResult:
    """Answer one claim request: due rows of open lanes, oldest first in each lane, the lanes in
    turn."""
    route, stage = ask.plan.name, ask.plan.by_name[ask.stage]
    if state.outdated(route, ask.plan.version):
        return ClaimResult([], outdated=True)
    tokens = state.bucket(scope(route, ask.stage), stage.rate, now)
    left: float = ask.want
    if tokens is not None:
        tokens.tokens -= sum(ask.spent.values())
        left = min(left, tokens.calls * ask.batch)
    due = _due_by_lane(state, ask, now)
    lanes = {
        lane: [record for record in records if fragile(record.row) is ask.fragile]
        for lane, records in due.items()
    }
    skipped_fragile = not ask.fragile and any(len(lanes[lane]) < len(due[lane]) for lane in due)
    if ask.fragile:
        left = min(left, 1)
    room, lane_tokens = _room(state, ask, list(lanes), now)
    wider_lanes = _wider_lanes(state, ask, now)
    probing, closed_until = _limit_by_breakers(state, ask, room, now)
    for lane in probing & lanes.keys():
        lanes[lane] = _probe_candidates(state, ask, lane, lanes[lane])
    claimed: list[Item] = []
    taken = dict.fromkeys(lanes, 0)
    moved: list[MemoryRecord] = []
    refused: list[Refused] = []
    lost = 0
    while left > 0:
        # The lane with the fewest claimed items comes first, then the one that was served longest
        # ago: none starves another.
        turn = [
            lane
            for lane in lanes
            if lanes[lane]
            and taken[lane] < room[lane]
            and all(wide.lets_through(lane, taken) for wide in wider_lanes)
        ]
        if not turn:
            break
        lane = min(
            turn,
            key=lambda lane: (
                ask.held.get(lane, 0) + taken[lane],
                state.served.get(scope(route, ask.stage, lane), 0),
            ),
        )
        record = lanes[lane].pop(0)
        item = record.read()
        if isinstance(item, Refused):
            refused.append(item)
            moved.append(record)
            if item.row is None:
                state.set_aside(record, item.reason, now)
            else:
                state.write(record, unreadable(item.row, stage, item.reason, now))
            continue
        change = look(item, ask.plan, now, jitter, ask.lease)
        if change is None:
            continue
        state.write(record, change)
        lost += change.after.losses > change.before.losses
        if record.row.status is Status.PROCESSING and record.row.lease == ask.lease.token:
            claimed.append(record.item())
            if lane in probing:
                _note_probe(state, ask, record, now)
            taken[lane] += 1
            left -= 1
            state.served[scope(route, ask.stage, lane)] = state.writes
        else:
            moved.append(record)
    for lane, bucket in lane_tokens.items():
        bucket.tokens -= math.ceil(taken[lane] / ask.batch)
    for wide in wider_lanes:
        wide.charge(taken)
    if tokens is not None:
        tokens.tokens -= sum(math.ceil(number / ask.batch) for number in taken.values())
        if any(lanes.values()) and len(claimed) < ask.want and not tokens.calls:
            return ClaimResult(
                claimed,
                len(moved),
                tokens.next_at,
                fragile=skipped_fragile,
                lost=lost,
                refused=refused,
            )
    waits = [
        bucket.next_at for lane, bucket in lane_tokens.items() if lanes[lane] and not bucket.calls
    ]
    waits += [
        wide.next_at
        for wide in wider_lanes
        if not wide.calls and any(lanes[lane] for lane in lanes if wide.has_within(lane))
    ]
    waits += [at for lane, at in closed_until.items() if lanes.get(lane)]
    waits += _next_due(state, ask, now, moved, closed_until)
    return ClaimResult(
        claimed,
        len(moved),
        min(waits, default=None),
        fragile=skipped_fragile,
        lost=lost,
        refused=refused,
    )


class _WiderLane(Struct):
    """The limits of a wider lane, which hold for the lanes within it together; the lanes named
    `A@B` lie within `B`."""

    name: str
    batch: int
    room: float
    """Number of items that may still be claimed of the wider lane and the lanes within it, by their
    limit of concurrent calls."""
    bucket: Bucket | None

    def has_within(self, lane: str) -> bool:
        return lane.endswith(f"@{self.name}")

    @property
    def calls(self) -> float:
        return math.inf if self.bucket is None else self.bucket.calls

    @property
    def next_at(self) -> int:
        assert self.bucket is not None
        return self.bucket.next_at

    def lets_through(self, lane: str, taken: dict[str, int]) -> bool:
        """Whether one more item of this lane may be claimed."""
        if lane != self.name and not self.has_within(lane):
            return True
        if (
            sum(
                number
                for other, number in taken.items()
                if other == self.name or self.has_within(other)
            )
            >= self.room
        ):
            return False
        following = {**taken, lane: taken[lane] + 1}
        own_calls = math.ceil(following.get(self.name, 0) / self.batch)
        return own_calls + self._calls_within(following) <= self.calls

    def charge(self, taken: dict[str, int]) -> None:
        """Spend the calls of the lanes within; those of the wider lane itself are charged as every
        lane's are."""
        if self.bucket is not None:
            self.bucket.tokens -= self._calls_within(taken)

    def _calls_within(self, taken: dict[str, int]) -> int:
        return sum(
            math.ceil(number / self.batch)
            for lane, number in taken.items()
            if self.has_within(lane)
        )


def _wider_lanes(state: State, ask: ClaimRequest, now: int) -> list[_WiderLane]:
    """The wider lanes of the stage that have a limit of their own."""
    route, stage = ask.plan.name, ask.plan.by_name[ask.stage]
    here = {
        record.row.lane
        for record in state.records.values()
        if (record.row.route, record.row.stage) == (route, stage.name)
    }
    found = []
    for name in sorted(
        {
            lane.rpartition("@")[2]
            for lane in here | ask.held.keys() | ask.spent.keys()
            if "@" in lane
        }
    ):
        declared = stage.lanes[name] if name in stage.lanes else Limits()
        limit, bucket = state.limit(scope(route, stage.name, name)), None
        if limit.rate or declared.rate:
            bucket = state.bucket(scope(route, stage.name, name), declared.rate, now)
        if bucket is not None:
            bucket.tokens -= sum(
                calls for lane, calls in ask.spent.items() if lane.endswith(f"@{name}")
            )
        cap = limit.concurrency or declared.concurrency
        held, ahead = (
            sum(
                number
                for lane, number in by_lane.items()
                if lane == name or lane.endswith(f"@{name}")
            )
            for by_lane in (ask.held, ask.ahead)
        )
        room = math.inf if cap is None else cap * ask.batch + ahead - held
        found.append(_WiderLane(name, ask.batch, room, bucket))
    return found


def _due_by_lane(state: State, ask: ClaimRequest, now: int) -> dict[str, list[MemoryRecord]]:
    lanes: dict[str, list[MemoryRecord]] = {}
    for record in state.records.values():
        row = record.row
        if (
            (row.route, row.stage) == (ask.plan.name, ask.stage)
            and row.due_at is not None
            and row.due_at <= now
            and state.workable(record)
        ):
            lanes.setdefault(row.lane, []).append(record)
    for records in lanes.values():
        records.sort(key=lambda record: (record.row.due_at, record.number))
    return lanes


def _room(
    state: State, ask: ClaimRequest, lanes: list[str], now: int
) -> tuple[dict[str, float], dict[str, Bucket]]:
    """Number of items that each lane may still get, by its limit of concurrent calls and by its
    rate; and its token bucket."""
    room: dict[str, float] = {}
    known = state.lanes.setdefault((ask.plan.name, ask.stage), set())
    known.update(lanes)
    half = math.inf
    if len(lanes) == 1 and len(known) > 1:
        # The other lanes have no work now, but may get some at any moment.
        half = math.ceil((ask.want + ask.held.get(lanes[0], 0)) / 2)
    buckets: dict[str, Bucket] = {}
    for lane in lanes:
        name = scope(ask.plan.name, ask.stage, lane)
        own = ask.plan.by_name[ask.stage].lanes.get(lane, Limits())
        cap = state.limit(name).concurrency or own.concurrency
        room[lane] = (
            half if cap is None else min(half, cap * ask.batch + ask.ahead.get(lane, 0))
        ) - ask.held.get(lane, 0)
        bucket = state.bucket(name, own.rate, now)
        if bucket is not None:
            bucket.tokens -= ask.spent.get(lane, 0)
            buckets[lane] = bucket
            room[lane] = min(room[lane], bucket.calls * ask.batch)
    return room, buckets


def _limit_by_breakers(
    state: State, ask: ClaimRequest, room: dict[str, float], now: int
) -> tuple[set[str], dict[str, int]]:
    """Limit each lane's room by its breaker. Returns the lanes whose breaker is not closed, and
    those that get no item, each with the time to ask again."""
    probing: set[str] = set()
    closed: dict[str, int] = {}
    here = (ask.plan.name, ask.stage)
    for lane in {
        record.row.lane
        for record in state.records.values()
        if (record.row.route, record.row.stage) == here
    }:
        breaker = ask.plan.by_name[ask.stage].breaker_of(lane)
        record = (
            None
            if breaker is None
            else state.breaker_at(
                scope(ask.plan.name, ask.stage, lane), breaker, ask.plan.name, now
            )
        )
        if breaker is None or record is None:
            continue
        let_through = room_for(record, breaker, now)
        if let_through is not None:
            probing.add(lane)
            room[lane] = min(room.get(lane, 0), let_through)
        at = ask_again_at(record, breaker, now)
        if at is not None:
            closed[lane] = at
    return probing, closed


def _probe_candidates(
    state: State, ask: ClaimRequest, lane: str, records: list[MemoryRecord]
) -> list[MemoryRecord]:
    """The due items of a lane in the order in which its breaker lets them through as probes."""
    by_key = {record.row.key: record for record in records[:PROBE_CANDIDATES]}
    order = probe_order(
        state.breaker(scope(ask.plan.name, ask.stage, lane)),
        ask.plan.by_name[ask.stage],
        list(by_key),
    )
    return [*(by_key[key] for key in order), *records[PROBE_CANDIDATES:]]


def _note_probe(state: State, ask: ClaimRequest, record: MemoryRecord, now: int) -> None:
    name, breaker = (
        scope(ask.plan.name, ask.stage, record.row.lane),
        ask.plan.by_name[ask.stage].breaker_of(record.row.lane),
    )
    kept = state.breaker(name)
    if breaker is not None and kept is not None and not kept.closed:
        state.put_breaker(name, with_probes(kept, breaker, [record.row.key], now, ask.lease.until))


def _next_due(
    state: State,
    ask: ClaimRequest,
    now: int,
    moved: list[MemoryRecord],
    closed_until: dict[str, int],
) -> list[int]:
    """Times at which rows of this stage are due; a row that was moved and is due again counts as
    due now."""
    waits = []
    for record in state.records.values():
        row = record.row
        if (
            (row.route, row.stage) == (ask.plan.name, ask.stage)
            and row.due_at is not None
            and state.open(row)
        ):
            if row.due_at > now:
                waits.append(max(row.due_at, closed_until.get(row.lane, 0)))
            elif record in moved:
                waits.append(now)
    return waits
