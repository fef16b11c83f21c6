"""Job queue of a handler pool, fair between lanes."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from milepost.core.admission.controls import lanes_above
from milepost.core.item import Item
from milepost.ports.runner import Job

NO_CAPS: Mapping[str, int | None] = MappingProxyType({})
MANY_TAKERS = 64
"""From so many takers on, some are reserved for lanes whose last call has succeeded."""
MOST_LANES = 10_000
"""Lanes that are remembered as sound."""
_NO_JOBS: deque[Job] = deque()
"""The rest of every portion of one job."""


class Portion:
    """The jobs of one lane that a thread or task has taken to run in sequence. It never grows; a
    job that has not started can be recalled or taken by another."""

    __slots__ = ("_left", "lane")

    def __init__(self, lane: str, jobs: deque[Job]) -> None:
        self.lane = lane
        self._left = jobs

    def __len__(self) -> int:
        return len(self._left)

    def next(self) -> Job | None:
        """The next job, for the owner of the portion. Needs no lock: a deque gives a job to exactly
        one taker."""
        if not self._left:
            return None
        try:
            return self._left.popleft()
        except IndexError:
            return None

    def last(self, most: int) -> deque[Job]:
        """Up to so many jobs from the end, in order, for another taker."""
        taken: deque[Job] = deque()
        try:
            while len(taken) < most:
                taken.appendleft(self._left.pop())
        except IndexError:
            pass
        return taken

    def first(self) -> Job | None:
        """The next job, without removing it."""
        try:
            return self._left[0]
        except IndexError:
            return None


class Jobs:
    """A queue for many takers. The next job comes from the lane with the fewest takers at work;
    among equals, from the one served longest ago. In a stage with lanes one taker is kept free for
    other lanes, even if only one lane has jobs now: its calls may hang when a job of another lane
    arrives. A lane with a cap has at most so many takers, and so have all lanes within a wider lane
    together.

    Where there are many takers, a lane in doubt, which has not succeeded since it was first seen or
    has failed last, has a few of them alone, and all such lanes together three quarters: so many
    partners that hang do not delay one that answers.
    """

    def __init__(self, *, lanes: bool = False) -> None:
        self._keeps_one = lanes
        self._lanes: dict[str, deque[Job]] = {}
        self._portions: dict[int, Portion] = {}
        """Portions that have jobs not started yet, by identity."""
        self._under_way: dict[str, int] = {}
        self._caps: dict[str, int | None] = {}
        self._joint_caps: dict[str, int] = {}
        """Caps of wider lanes."""
        self._sound: set[str] = set()
        """Lanes whose last call has succeeded."""
        self._lock = threading.Lock()

    def __bool__(self) -> bool:
        """Whether any job has not started."""
        if self._lanes:
            return True
        with self._lock:
            return bool(self._lanes) or any(self._portions.values())

    def __len__(self) -> int:
        with self._lock:
            return sum(map(len, self._lanes.values())) + sum(map(len, self._portions.values()))

    def put(
        self,
        jobs: Sequence[Job],
        caps: Mapping[str, int | None] = NO_CAPS,
        joint_caps: Mapping[str, int | None] = NO_CAPS,
    ) -> None:
        """Add jobs, and set the caps of lanes, and those of all lanes within a wider lane together;
        None: no cap."""
        with self._lock:
            self._caps.update(caps)
            if joint_caps:
                self._joint_caps = {
                    lane: cap
                    for lane, cap in {**self._joint_caps, **joint_caps}.items()
                    if cap is not None
                }
            for job in jobs:
                lane = job[0].row.lane
                waiting = self._lanes.get(lane)
                if waiting is None:
                    waiting = self._lanes[lane] = deque()
                waiting.append(job)

    def take(self, width: int, most: int = 1) -> tuple[Job, Portion] | None:
        """The next job for one of `width` takers, with up to `most` of its lane in all; None if
        there is none. If no job waits, half of another taker's unstarted jobs. Call `done`
        afterwards."""
        with self._lock:
            found = self._waiting(width, most) or self._unbegun(width)
            if found is not None:
                portion = found[1]
                self._under_way[portion.lane] = self._under_way.get(portion.lane, 0) + 1
                if portion:
                    self._portions[id(portion)] = portion
            return found

    def _waiting(self, width: int, most: int) -> tuple[Job, Portion] | None:
        lanes = self._lanes
        lane = self._next_lane(width) if lanes else None
        if lane is None:
            return None
        waiting = lanes[lane]
        job = waiting.popleft()
        if len(waiting) < most:
            del lanes[lane]
            return job, Portion(lane, waiting)
        if len(lanes) > 1:
            lanes[lane] = lanes.pop(lane)  # the others come first next time
        return job, Portion(
            lane, deque([waiting.popleft() for _ in range(most - 1)]) if most > 1 else _NO_JOBS
        )

    def _next_lane(self, width: int) -> str | None:
        """The waiting lane with the fewest takers that may have another one; the first of them."""
        found, fewest = None, 0
        under_way = self._under_way
        for lane in self._lanes:
            takers = under_way.get(lane, 0)
            if (found is None or takers < fewest) and self._may_have_another(lane, takers, width):
                if not takers:
                    return lane
                found, fewest = lane, takers
        return found

    def _unbegun(self, width: int) -> tuple[Job, Portion] | None:
        others = [
            portion
            for portion in self._portions.values()
            if portion and self._may_have_another(portion.lane, self._takers(portion.lane), width)
        ]
        for portion in sorted(
            others, key=lambda portion: (self._takers(portion.lane), -len(portion))
        ):
            taken = portion.last((len(portion) + 1) // 2)
            if taken:
                return taken.popleft(), Portion(portion.lane, taken)
        return None

    def _takers(self, lane: str) -> int:
        return self._under_way.get(lane, 0)

    def _may_have_another(self, lane: str, takers: int, width: int) -> bool:
        cap = self._caps.get(lane)
        if cap is not None and takers >= cap:
            return False
        if self._joint_caps and not self._wider_lane_has_room(lane):
            return False
        if not self._keeps_one or width == 1:
            return True
        if width >= MANY_TAKERS and lane not in self._sound:
            in_doubt = sum(
                count for other, count in self._under_way.items() if other not in self._sound
            )
            return takers < width // 32 and in_doubt < width * 3 // 4
        return takers < width - 1

    def _wider_lane_has_room(self, lane: str) -> bool:
        for above in lanes_above(lane):
            cap = self._joint_caps.get(above)
            if (
                cap is not None
                and sum(n for other, n in self._under_way.items() if above in lanes_above(other))
                >= cap
            ):
                return False
        return True

    def learn(self, lane: str, *, sound: bool) -> bool:
        """Note whether the last call of a lane has succeeded. True: it may have more takers from
        now on."""
        if not self._keeps_one or (lane in self._sound) is sound:
            return False
        with self._lock:
            if not sound:
                self._sound.discard(lane)
                return False
            if len(self._sound) >= MOST_LANES:
                self._sound.clear()
            self._sound.add(lane)
        return True

    def done(self, portion: Portion) -> None:
        """Note that a taker is free again. The rest of its portion is next in its lane."""
        with self._lock:
            self._portions.pop(id(portion), None)
            if portion:
                self._put_first(portion.lane, portion.last(len(portion)))
            takers = self._under_way[portion.lane] - 1
            if takers:
                self._under_way[portion.lane] = takers
            else:
                del self._under_way[portion.lane]
                if portion.lane not in self._lanes:
                    self._caps.pop(portion.lane, None)  # the next job brings it again

    def _put_first(self, lane: str, jobs: deque[Job]) -> None:
        if jobs:
            self._lanes[lane] = jobs + self._lanes.get(lane, deque())

    def recall(self, unwanted: Callable[[Item], bool] | None = None) -> list[Item]:
        """Take back jobs that have not started: all, or those with an unwanted item."""
        taken: list[Item] = []
        with self._lock:
            for portion in self._portions.values():
                self._put_first(portion.lane, portion.last(len(portion)))
            for lane, waiting in list(self._lanes.items()):
                kept: deque[Job] = deque()
                for job in waiting:
                    if unwanted is None or any(unwanted(item) for item in job):
                        taken += job
                    else:
                        kept.append(job)
                if kept:
                    self._lanes[lane] = kept
                else:
                    del self._lanes[lane]
        return taken

    def oldest(self) -> Item | None:
        """The item that has waited longest to start."""
        with self._lock:
            next_ones = [waiting[0] for waiting in self._lanes.values()] + [
                portion.first() for portion in self._portions.values()
            ]
            return min(
                (job[0] for job in next_ones if job is not None),
                key=lambda item: item.row.claimed_at or 0,
                default=None,
            )
