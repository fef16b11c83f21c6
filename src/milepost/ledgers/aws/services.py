"""Background services of the AWS ledger: the stream reader and the sweeper."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress

from milepost.core.errors import LedgerBusy, LedgerError, LedgerMissing, RouteChanged
from milepost.core.item import Row
from milepost.core.routes.plan import Plan
from milepost.ledgers.aws.claim.paused_lanes import resume
from milepost.ledgers.aws.relay import StreamRelay
from milepost.ledgers.aws.repair.repair import Repair
from milepost.ledgers.aws.retention import finish
from milepost.ledgers.aws.store import AwsStore
from milepost.ledgers.aws.stream import Stream, StreamRecord
from milepost.ports.runner import Clock

POLL_S, STAND_BY_S = 0.2, 5.0
SWEEP_S = 60.0
SETTLED_MS = 600_000
"""Minimum uptime before a process starts the daily repair, so that short commands never do."""


class StreamReader:
    """Reads the streams of all routes and carries out the consequences."""

    name = "stream"

    def __init__(self, store: AwsStore, plans: Mapping[str, Plan], clock: Clock, jitter: Callable[[], float], holder: str) -> None:
        self._store, self._clock = store, clock
        self._relay = StreamRelay(store, plans, jitter)
        self.streams = {route: Stream(store.requests, store.control, route, store.names.rows(route), holder) for route in plans}
        self._ended: list[Row] = []
        """Ended rows that are not finished yet, because AWS had a problem."""
        self._quiet_turns = 0

    def turn(self) -> float:
        done, trouble = 0, False
        for stream in self.streams.values():
            try:
                done += stream.poll(self._handle, self._clock.now())
            except (LedgerBusy, LedgerMissing, RouteChanged):
                # The records stay in that stream; the streams of the other routes are still read.
                trouble = True
        self._finish()
        self._quiet_turns = 0 if done or trouble else self._quiet_turns + 1
        return 0.0 if done else STAND_BY_S if trouble else POLL_S

    @property
    def quiet(self) -> bool:
        """True after several turns without records, if no row waits to be finished and no dead reader has left a shard unread."""
        return self._quiet_turns > 2 and not self._ended and not any(stream.shards.maybe_unread for stream in self.streams.values())

    def stop(self) -> None:
        """Release the shards to other readers."""
        now = self._clock.now()
        finish(self._store, self._ended, now)
        for stream in self.streams.values():
            stream.shards.leave(now)

    def _handle(self, records: list[StreamRecord]) -> None:
        now = self._clock.now()
        self._ended += self._relay.handle(records, now)
        # Before the shard's checkpoint, since no reader sees these records again; if this process dies, the repair finds them.
        with suppress(LedgerError):
            self._finish()

    def _finish(self) -> None:
        if not self._ended:
            return
        finish(self._store, self._ended, self._clock.now())
        self._ended = []


class Sweeper:
    """Resumes paused lanes, and runs the repair once a day and after a gap in a stream."""

    name = "sweeper"

    def __init__(self, store: AwsStore, plans: Mapping[str, Plan], clock: Clock, jitter: Callable[[], float]) -> None:
        self._store, self._clock = store, clock
        self._repairs = [Repair(store, plan, jitter) for plan in plans.values()]
        self._sweep_at = 0
        self._started_at = clock.now()

    def turn(self) -> float:
        now = self._clock.now()
        try:
            if now >= self._sweep_at or self._sweep_at > now + SWEEP_S * 1000:
                resume(self._store, now)
                self._sweep_at = now + round(SWEEP_S * 1000)
            return self._repair(now)
        except (LedgerBusy, RouteChanged):
            return STAND_BY_S  # the work is still there at the next turn

    def _repair(self, now: int) -> float:
        """Run one page of each repair that is due; returns seconds until the next."""
        next_at = self._sweep_at
        settled = now - self._started_at >= SETTLED_MS
        for repair in self._repairs:
            if (settled and repair.due(now)) or repair.urgent():
                progress = repair.step(now)
                if not progress.done and progress.next_at is not None:
                    next_at = min(next_at, progress.next_at)
        return max(0.0, (next_at - now) / 1000)
