"""What lies ready for a crew, lane by lane."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence

from milepost.core.item import Item
from milepost.ports.runner import Job


class Jobs:
    """A queue for many takers. The next job comes from the lane with the fewest calls under way, and where there are several
    lanes none is given the last hand: a slow lane has its share of them, and never all."""

    def __init__(self) -> None:
        self._lanes: dict[str, deque[Job]] = {}
        self._under_way: dict[str, int] = {}
        self._known: set[str] = set()
        self._lock = threading.Lock()

    def __bool__(self) -> bool:
        return bool(self._lanes)

    def __len__(self) -> int:
        with self._lock:
            return sum(len(jobs) for jobs in self._lanes.values())

    def put(self, jobs: Sequence[Job]) -> None:
        with self._lock:
            for job in jobs:
                lane = job[0].row.lane
                waiting = self._lanes.get(lane)
                if waiting is None:
                    waiting = self._lanes[lane] = deque()
                    self._known.add(lane)
                waiting.append(job)

    def take(self, width: int) -> Job | None:
        """The next job for one of `width` hands, None if there is none for it; `done` must follow."""
        with self._lock:
            lanes = self._lanes
            if not lanes:
                return None
            lane = next(iter(lanes)) if len(lanes) == 1 else min(lanes, key=lambda name: self._under_way.get(name, 0))
            if len(self._known) > 1 and width > 1 and self._under_way.get(lane, 0) >= width - 1:
                return None
            waiting = lanes[lane]
            job = waiting.popleft()
            if not waiting:
                del lanes[lane]
            self._under_way[lane] = self._under_way.get(lane, 0) + 1
            return job

    def done(self, job: Job) -> None:
        lane = job[0].row.lane
        with self._lock:
            left = self._under_way[lane] - 1
            if left:
                self._under_way[lane] = left
            else:
                del self._under_way[lane]

    def recall(self, unwanted: Callable[[Item], bool] | None = None) -> list[Item]:
        """Take back what has not been started: everything, or the jobs with an unwanted item."""
        taken: list[Item] = []
        with self._lock:
            for lane, waiting in list(self._lanes.items()):
                kept = deque(job for job in waiting if unwanted is not None and not any(unwanted(item) for item in job))
                taken += [item for job in waiting if unwanted is None or any(unwanted(item) for item in job) for item in job]
                if kept:
                    self._lanes[lane] = kept
                else:
                    del self._lanes[lane]
        return taken

    def oldest(self) -> Item | None:
        """The item that has waited longest to be started."""
        with self._lock:
            return min((waiting[0][0] for waiting in self._lanes.values()), key=lambda item: item.row.claimed_at or 0, default=None)
