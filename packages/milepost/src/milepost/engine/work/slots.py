"""Slots of a stage in one process: how many items to claim, how to group them into jobs, and how
they leave the handler pool."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence

from milepost.core.admission.controls import Controls, Limit
from milepost.core.item import Item
from milepost.core.outcome import Done
from milepost.core.routes.plan import Plan
from milepost.core.routes.route import Stage
from milepost.engine.context import Context
from milepost.engine.work.settle import SettleResult, give_back, settle
from milepost.engine.work.stage_claims import StageClaims
from milepost.ports.items import ClaimRequest, Refused
from milepost.ports.runner import HandlerPool, Job, JobResult

MOST_IN_HAND = 1000
PACE_MS = 100
"""The pace is measured over this span, or over as many items as may be in hand."""
AHEAD_MS = 50
"""A lane with a limit of calls holds as many more items as it completed in such a span, so that its
next calls need not wait for a settle and a claim, and these can be large."""
QUICK_IN_HAND = 2 * MOST_IN_HAND
"""Maximum items that all quick stages of a process hold together."""


class StageSlots(StageClaims):
    """One stage in one process: its handler pool, items in hand, and pace."""

    def __init__(self, plan: Plan, stage: Stage, pool: HandlerPool) -> None:
        super().__init__(plan, stage)
        self.pool = pool
        self.finished: list[JobResult] = []
        """Results that are not settled yet."""
        self.next_at: int | None = 0
        self.mean_ms: float | None = None
        self.pace: float | None = None
        """Items per second that this process completed here recently. Waiting calls run
        concurrently, but computing calls share one interpreter, which the mean response time alone
        would not show."""
        self._lane_paces: dict[str, float] = {}
        """The same by lane, per millisecond. A lane that has completed nothing of late has none."""
        self._lane_counts: Counter[str] = Counter()
        self._counted, self._busy_ms, self._learned_at = 0, 0, 0
        self._controls = Controls((), {}, {})

    @property
    def staying(self) -> int:
        """Held items that are not finished; finished ones are settled before or with the next
        claim."""
        return len(self.in_hand) - len(self.finished)

    @property
    def quick(self) -> bool:
        """Whether this process completes as many items in a second as all quick stages may hold."""
        return self.stage.lane is None and self._done_in_a_second() >= QUICK_IN_HAND

    def room(self, arriving: int = 0) -> int:
        """Number of items to claim: hold no more than this process completes in a second, so that
        other processes get work too; and do not claim a few at a time, unless some arrive in the
        same write."""
        least = self._least()
        most = max(least, min(MOST_IN_HAND, self._done_in_a_second()))
        free = max(0, most - self.staying)
        return free if free * 2 >= most or self.staying < least or arriving else 0

    def _least(self) -> int:
        # With lanes allow more than can run, so that a slow lane does not fill all slots.
        return self.width * self.stage.batch * (1 if self.stage.lane is None else 2)

    def _done_in_a_second(self) -> int:
        if self.mean_ms is None:
            return 0
        beside_each_other = self._least() * 1000 / max(self.mean_ms, 1)
        # Until the pace is known, a few per slot.
        return int(min(beside_each_other, 8 * self._least() if self.pace is None else self.pace))

    def set_width(self, limits: Mapping[str, Limit]) -> bool:
        self._controls = Controls((), limits, {})
        if self.lanes:
            # A lane that holds enough is not claimed for: its waiting items would all start by the
            # old limit.
            self._put((), self.lanes)
        changed = super().set_width(limits)
        if changed:
            self.pool.resize(self.width)
        return changed

    def _busy_lanes(self) -> dict[str, int]:
        """Unfinished items per lane, as `staying` counts them."""
        if self.stage.lane is None:
            return {}
        finished = Counter([ran.item.row.lane for ran in self.finished])
        return {lane: max(0, count - finished[lane]) for lane, count in self.lanes.items()}

    def _ahead(self) -> dict[str, int]:
        # Not where there is a rate: the claim uses it up, and waiting items would then be called
        # later, several at once.
        rates, route, stage = self._controls.rates, self.plan.name, self.stage
        return {
            lane: int(pace * AHEAD_MS)
            for lane, pace in self._lane_paces.items()
            if not rates(route, stage, lane)
        }

    def start(
        self, ctx: Context, items: list[Item], lost: int = 0, refused: Sequence[Refused] = ()
    ) -> None:
        """Take claimed items in hand, and run them in the pool."""
        self.take(ctx, items, lost, refused)
        if items:
            self._put(self.jobs(items), {item.lane for item in items})

    def _put(self, jobs: Sequence[Job], lanes: Collection[str]) -> None:
        """Run jobs in the pool, by the limits that their lanes have now."""
        if self.stage.lane is None:
            self.pool.put(jobs, {}, {})
            return
        controls, route, stage = self._controls, self.plan.name, self.stage
        self.pool.put(
            jobs,
            {lane: controls.cap(route, stage, lane) for lane in lanes},
            controls.joint_caps(route, stage, lanes),
        )

    def collect(self) -> list[JobResult]:
        """The results that are not settled yet, with those that the pool has now."""
        self.finished += self.pool.take()
        return self.finished

    def recall(self, ctx: Context, why: str, unwanted: Callable[[Item], bool] | None = None) -> int:
        """Give back items whose calls have not started: all, or the unwanted ones."""
        return self.give_back(ctx, self.pool.recall(unwanted), why)

    def recall_late(self, ctx: Context, before: int) -> int:
        """Give back the items of a lane in which one has waited for its call since then: the calls
        have become slow."""
        oldest = self.pool.oldest()
        if oldest is None or (oldest.row.claimed_at or before) >= before:
            return 0
        self._lane_paces.pop(oldest.lane, None)
        return self.recall(
            ctx, "it could not be started soon enough", lambda item: item.lane == oldest.lane
        )

    def cut_off(self, ctx: Context, why: str) -> int:
        """Give back all items that still run or are not settled: whether their partner has done the
        work is not known."""
        left = list(self.in_hand.values())
        if left:
            self.pool.cancel()
        return self.give_back(ctx, left, why, unknown=True)

    def learn(self, rans: list[JobResult], now: int) -> None:
        """Update the pace from finished jobs."""
        for ran in rans:
            if ran.calls:
                self.spent[ran.item.lane] = self.spent.get(ran.item.lane, 0) + ran.calls
        mean = sum(ran.response_ms for ran in rans) / len(rans)
        self.mean_ms = mean if self.mean_ms is None else self.mean_ms + (mean - self.mean_ms) * 0.3
        # Busy since they were claimed, or since the previous results.
        began = max(self._learned_at, min(ran.item.row.claimed_at or now for ran in rans))
        self._learned_at = now
        self._counted += len(rans)
        if self.stage.lane is not None:
            self._lane_counts.update([ran.item.row.lane for ran in rans])
        self._busy_ms += max(0, now - began)
        if self._busy_ms >= PACE_MS or self._counted >= MOST_IN_HAND:
            self.pace = self._counted * 1000 / max(1, self._busy_ms)
            self._lane_paces = {
                lane: count / max(1, self._busy_ms) for lane, count in self._lane_counts.items()
            }
            self._lane_counts.clear()
            self._counted = self._busy_ms = 0

    def jobs(self, items: list[Item]) -> list[Job]:
        """Group items into handler calls, lane by lane. An item that failed alone or was lost once
        gets its own call."""
        size = self.stage.batch
        if size == 1:
            return [[item] for item in items]
        jobs: list[Job] = []
        for lane in dict.fromkeys(item.lane for item in items):
            here = [item for item in items if item.lane == lane]
            alone = [[item] for item in here if item.row.alone or item.row.losses]
            others = [item for item in here if not (item.row.alone or item.row.losses)]
            portions = [
                others[start : start + size] for start in range(0, len(others), size)
            ] + alone
            # The rate was charged for full batches but counts calls; additional calls are reported
            # with the next claim.
            self.spent[lane] = self.spent.get(lane, 0) + len(portions) - -(-len(here) // size)
            jobs += portions
        return jobs


def rooms_after_a_settle(all_slots: Sequence[StageSlots]) -> list[tuple[StageSlots, int]]:
    """Number of items that each stage may claim in the write that settles finished jobs.

    Items that advance to a quick stage are claimed there in any case, because they take no more
    room than at the previous stage. Quick stages share one limit, so that new items are claimed as
    others leave.
    """
    arriving: dict[tuple[str, str], int] = {}
    for slots in all_slots:
        following = slots.plan.following[slots.stage.name] if slots.finished else None
        if following is not None:
            arriving[slots.plan.name, following.name] = sum(
                type(ran.outcome) is Done for ran in slots.finished
            )
    coming = [arriving.get((slots.plan.name, slots.stage.name), 0) for slots in all_slots]
    quick_in_hand = sum(
        slots.staying + n for slots, n in zip(all_slots, coming, strict=True) if slots.quick
    )
    spare = QUICK_IN_HAND - quick_in_hand
    if spare * 2 < MOST_IN_HAND:
        spare = 0
    rooms = [
        n + spare if slots.quick else slots.room(n)
        for slots, n in zip(all_slots, coming, strict=True)
    ]
    return [
        (slots, min(room, QUICK_IN_HAND))
        for slots, room in zip(all_slots, rooms, strict=True)
        if room > 0
    ]


def settle_finished(
    ctx: Context,
    all_slots: Sequence[StageSlots],
    asks: Sequence[ClaimRequest] = (),
    *,
    stopping: bool = False,
) -> SettleResult:
    """Settle the collected results of these stages in one write, and claim in the same step. If the
    ledger cannot be reached, they stay collected for the next try. `stopping`: calls that the
    program cancelled are given back instead."""
    rans = [ran for slots in all_slots for ran in slots.finished]
    if stopping:
        cancelled = [ran.item for ran in rans if ran.cancelled]
        rans = [ran for ran in rans if not ran.cancelled]
        give_back(
            ctx,
            cancelled,
            "the program cancelled the handler's task while it was stopping",
            unknown=True,
        )
    result = settle(ctx, rans, asks)
    now = ctx.clock.now()
    for slots in all_slots:
        finished, slots.finished = slots.finished, []
        if finished:
            slots.learn(finished, now)
            slots.release([ran.item for ran in finished])
    return result
