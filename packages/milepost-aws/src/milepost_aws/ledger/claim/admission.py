"""Admission on AWS: which messages of a stage may be claimed now, by pauses, breakers, rates and
the calls of each lane."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from zlib import crc32

from msgspec import Struct

from milepost.core.admission.breakers import BreakerRecord, ask_again_at, room_for
from milepost.core.admission.controls import Controls, LaneItems, scope
from milepost.core.admission.lanes import share_out
from milepost.core.admission.rates import (
    CallRate,
    TokenBucket,
    calls_left,
    next_call_at,
    refill,
    spend,
    was_set_back,
)
from milepost.core.item import Item
from milepost.ports.documents import update
from milepost.ports.items import ClaimRequest
from milepost_aws.ledger.breakers import record_of, release_probes, take_probes
from milepost_aws.ledger.requests.queues import SqsMessage
from milepost_aws.ledger.store import AwsStore
from milepost_aws.ledger.tables.documents import BUCKET, Control


class _Granted(Struct):
    """Number of items for which the tokens suffice that were taken for one lane, or for several
    together."""

    left: int


class _Payment(Struct, frozen=True):
    """Tokens that were taken of a scope for calls of these lanes."""

    scope: str
    rate: CallRate
    calls: int
    lanes: frozenset[str]


class StageAdmission:
    """Admission for one claim request of a stage. `admit` sorts its messages by the next step for
    each."""

    def __init__(self, store: AwsStore, ask: ClaimRequest, now: int) -> None:
        self._store, self._ask, self._now = store, ask, now
        self._route, self._stage = ask.plan.name, ask.plan.by_name[ask.stage]
        self._scope = scope(self._route, ask.stage)
        self._controls = Controls(store.holds(now), store.limits(now), {})
        self._rate = self._controls.rate(self._route, self._stage, None)
        self._want = min(ask.want, 1) if ask.fragile else ask.want
        self._payments: list[_Payment] = []
        self._probes: dict[str, list[str]] = {}
        self.next_at: int | None = None
        """The earliest time at which messages that wait for a token or a breaker may be claimed."""
        self.chosen: list[SqsMessage] = []
        self.paused: list[SqsMessage] = []
        """Their lanes are paused, or their breaker is open."""
        self.waiting: list[SqsMessage] = []
        self.closed = False
        """The breaker of a stage without lanes lets nothing through now."""

    def room(self) -> int:
        """Number of messages to receive: no more than there can be tokens for, and than the breaker
        lets through."""
        want = self._want
        for lane, spent in self._ask.spent.items():
            for name, rate in (
                self._controls.lane_rates(self._route, self._stage, lane) if spent else ()
            ):
                take_tokens(self._store.control, name, rate, self._now, 0, spent)
        if self._rate is not None:
            grant = take_tokens(
                self._store.control,
                self._scope,
                self._rate,
                self._now,
                0,
                sum(self._ask.spent.values()),
            )
            self.next_at = grant.next_at
            if grant.next_at is not None:
                return 0
            want = min(want, math.floor(self._rate.burst) * self._ask.batch)
        return want if self._stage.lane is not None else self._let_through(want)

    def _let_through(self, want: int) -> int:
        """How many items of a stage without lanes its breaker lets through. The messages of the
        others stay in the queue."""
        record, breaker = self._record(""), self._stage.breaker_of("")
        if record is None or breaker is None:
            return want
        room = room_for(record, breaker, self._now)
        if room == 0:
            self.closed = True
            # An operator may close the breaker early, and no message tells a worker: it must poll.
            self.next_at = min(
                self._now + self._store.settings.poll_ms,
                ask_again_at(record, breaker, self._now) or self._now,
            )
        return want if room is None else min(want, room)

    def admit(self, messages: Sequence[SqsMessage], known_lanes: set[str]) -> None:
        """Admit the messages that may be claimed, shared among the lanes (see
        `core.admission.lanes.share_out`). `known_lanes`: the lanes of the stage that have been
        seen; empty if no lane need leave room for another."""
        lanes: dict[str, list[SqsMessage]] = {}
        for message in messages:
            lane = lane_of(message)
            if self._controls.held(self._route, self._ask.stage, lane):
                self.paused.append(message)
            else:
                lanes.setdefault(lane, []).append(message)
        for lane in list(lanes):
            self.paused += self._shut_out(lane, lanes)
        granted = self._granted({lane: len(found) for lane, found in lanes.items()})
        picked = self._pick(self._want, lanes, granted, len(known_lanes))
        if self._rate is not None and picked:
            allowed = self._take(self._scope, self._rate, len(picked), lanes)
            if allowed.left < len(picked):
                picked_lanes = {
                    lane: [message for message in picked if lane_of(message) == lane]
                    for lane in lanes
                }
                picked = self._pick(allowed.left, picked_lanes, {lane: [] for lane in lanes}, 1)
        self.chosen = picked
        chosen = {id(message) for message in picked}
        self.waiting = [
            message for found in lanes.values() for message in found if id(message) not in chosen
        ]

    def _pick(
        self,
        want: int,
        lanes: dict[str, list[SqsMessage]],
        granted: dict[str, list[_Granted]],
        known: int,
    ) -> list[SqsMessage]:
        taken, held, ahead = (
            dict.fromkeys(lanes, 0),
            LaneItems(self._ask.held),
            LaneItems(self._ask.ahead),
        )

        def pick(lane: str, share: int) -> int:
            free = self._controls.room(self._route, self._stage, lane, self._ask.batch, held, ahead)
            rooms = [
                share,
                len(lanes[lane]) - taken[lane],
                *(tokens.left for tokens in granted[lane]),
            ]
            got = max(0, min(rooms if free is None else [*rooms, free]))
            taken[lane] += got
            held.add(lane, got)
            for tokens in granted[lane]:
                tokens.left -= got
            return got

        share_out(want, self._in_turn(lanes), lambda lane: held.by_lane.get(lane, 0), known, pick)
        return [message for lane, found in lanes.items() for message in found[: taken[lane]]]

    def _in_turn(self, lanes: Iterable[str]) -> list[str]:
        """The lanes in an order that differs from claim to claim: of lanes that share a rate or a
        limit, the first gets what is left of it."""
        return sorted(
            lanes,
            key=lambda lane: crc32(f"{self._ask.lease.token}/{lane}".encode(errors="replace")),
        )

    def _shut_out(self, lane: str, lanes: dict[str, list[SqsMessage]]) -> list[SqsMessage]:
        """The messages of a lane that its breaker does not let through; the others stay with the
        lane, as probes."""
        found = lanes[lane]
        record, breaker = self._record(lane), self._stage.breaker_of(lane)
        if record is None or breaker is None:
            return []
        room = room_for(record, breaker, self._now)
        keys = [message.body["key"] for message in found] if room is None or room > 0 else []
        let_through = (
            take_probes(
                self._store, self._route, self._stage, lane, keys, self._now, self._ask.lease.until
            )
            if keys
            else []
        )
        self._probes[lane] = let_through
        lanes[lane] = [message for message in found if message.body["key"] in let_through]
        if not lanes[lane]:
            del lanes[lane]
        return [message for message in found if message.body["key"] not in let_through]

    def settle(self, claimed: Sequence[Item]) -> None:
        """Return unused tokens and probes: they were taken before it was known which items would be
        claimed."""
        for payment in self._payments:
            by_lane = Counter(item.lane for item in claimed if item.lane in payment.lanes)
            over = payment.calls - sum(
                math.ceil(items / self._ask.batch) for items in by_lane.values()
            )
            if over:
                take_tokens(self._store.control, payment.scope, payment.rate, self._now, 0, -over)
        keys = {item.key for item in claimed}
        for lane, probes in self._probes.items():
            unused = [key for key in probes if key not in keys]
            if unused:
                release_probes(self._store, self._route, self._ask.stage, lane, unused)

    def _granted(self, found: Mapping[str, int]) -> dict[str, list[_Granted]]:
        """The tokens for each lane, of its own rate and of the wider lane's, which the lanes within
        that one share. `found`: the number of messages of each lane."""
        controls, route, stage = self._controls, self._route, self._stage
        held, ahead = LaneItems(self._ask.held), LaneItems(self._ask.ahead)
        granted: dict[str, list[_Granted]] = {lane: [] for lane in found}
        wanted: dict[str, int] = {}
        sharing: dict[str, list[str]] = {}
        rates: dict[str, CallRate] = {}
        for lane, messages in found.items():
            free = controls.room(route, stage, lane, self._ask.batch, held, ahead)
            wanted[lane] = messages if free is None else max(0, min(messages, free))
            for name, rate in controls.lane_rates(route, stage, lane):
                sharing.setdefault(name, []).append(lane)
                rates[name] = min(rate, rates.get(name, rate), key=lambda one: one.per_second)
        # A lane's own rate first: it may want less of the rate that it shares.
        for name in sorted(sharing, key=lambda name: len(sharing[name])):
            tokens = self._take(
                name, rates[name], sum(wanted[lane] for lane in sharing[name]), sharing[name]
            )
            for lane in sharing[name]:
                granted[lane].append(tokens)
                wanted[lane] = min(wanted[lane], tokens.left)
        return granted

    def _take(self, name: str, rate: CallRate, items: int, lanes: Collection[str]) -> _Granted:
        """Take tokens of a scope for so many items of these lanes."""
        if items <= 0:
            return _Granted(0)
        wanted = math.ceil(min(items, self._ask.want) / self._ask.batch)
        grant = take_tokens(self._store.control, name, rate, self._now, wanted)
        self._payments.append(_Payment(name, rate, grant.granted, frozenset(lanes)))
        if grant.next_at is not None:
            self.next_at = (
                grant.next_at if self.next_at is None else min(self.next_at, grant.next_at)
            )
        return _Granted(grant.granted * self._ask.batch)

    def _record(self, lane: str) -> BreakerRecord | None:
        return record_of(self._store, self._route, self._stage, lane, self._now)


def lane_of(message: SqsMessage) -> str:
    lane = message.body.get("lane", "")
    return lane if isinstance(lane, str) else ""


class Grant(Struct, frozen=True):
    """Number of calls that may be made now, and when another one may be made (None: the bucket has
    more already)."""

    granted: int
    next_at: int | None


def take_tokens(
    control: Control, name: str, rate: CallRate, now: int, wanted: int, spent: int = 0
) -> Grant:
    """Take up to `wanted` tokens of a scope; `spent` ones are used already and may leave the bucket
    in debt. (A negative number returns unused tokens.)

    One read; one conditional write if tokens were taken or charged, or if the clock was set back. A
    lost race is repeated: the winners empty the bucket, so this ends soon.
    """
    grant = Grant(0, None)

    def taken(kept: TokenBucket | None) -> TokenBucket | None:
        nonlocal grant
        bucket = spend(refill(kept, rate, now), rate, spent)
        granted = min(wanted, calls_left(bucket))
        bucket = spend(bucket, rate, granted)
        grant = Grant(granted, None if calls_left(bucket) else next_call_at(bucket, rate))
        set_back = kept is not None and was_set_back(kept, now)
        return bucket if granted or spent or set_back else kept

    update(control, BUCKET, name, TokenBucket, taken)
    return grant
