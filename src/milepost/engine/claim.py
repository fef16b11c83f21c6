"""Claim: how much one stage may take in hand, and in which jobs it is given to the crew."""

from __future__ import annotations

from milepost.core.due import Grip
from milepost.core.item import Item
from milepost.core.plan import Plan
from milepost.core.route import Stage
from milepost.ports.ledger import Ask
from milepost.ports.runner import Crew, Job, Ran

MOST_IN_HAND = 1000


class Desk:
    """One stage in one process: its crew, what it has in hand, and how fast it gets through it."""

    def __init__(self, plan: Plan, stage: Stage, crew: Crew) -> None:
        self.plan = plan
        self.stage = stage
        self.crew = crew
        self.width = stage.concurrency
        self.in_hand: dict[tuple[str, str | None], Item] = {}
        """By key and lease: an item that was lost here and claimed again is two calls, each with an end of its own."""
        self.finished: list[Ran] = []
        """What the crew has done and the ledger has not taken down yet."""
        self.lanes: dict[str, int] = {}
        self.spent: dict[str, int] = {}
        self.next_at: int | None = 0
        self.mean_ms: float | None = None

    def room(self, arriving: int = 0) -> int:
        """How many more items to claim: no more in hand than can be started within a second, and never a trickle, unless some arrive
        in the same write. What has finished is as good as gone: it is settled before the next claim, or with it."""
        # With lanes there is room for more than can run, so that a slow lane does not fill it.
        least = self.width * self.stage.batch * (1 if self.stage.lane is None else 2)
        most = least
        if self.mean_ms is not None:
            most = max(least, min(MOST_IN_HAND, int(least * 1000 / max(self.mean_ms, 1))))
        staying = len(self.in_hand) - len(self.finished)
        free = max(0, most - staying)
        return free if free * 2 >= most or staying < least or arriving else 0

    def ask(self, grip: Grip, want: int, *, fragile: bool = False) -> Ask:
        spent, self.spent = self.spent, {}
        held = dict(self.lanes) if self.stage.lane else {}
        return Ask(self.plan, self.stage.name, want, grip, self.stage.batch, held, spent, fragile)

    def take_in_hand(self, items: list[Item]) -> None:
        self.in_hand.update(((item.row.key, item.row.lease), item) for item in items)
        if self.stage.lane is not None:
            for item in items:
                self.lanes[item.lane] = self.lanes.get(item.lane, 0) + 1

    def let_go(self, items: list[Item]) -> None:
        for item in items:
            if self.in_hand.pop((item.row.key, item.row.lease), None) is not None and self.stage.lane is not None:
                self.lanes[item.lane] -= 1

    def learn(self, rans: list[Ran]) -> None:
        """Take the pace from what has just finished."""
        for ran in rans:
            if ran.calls:
                self.spent[ran.item.lane] = self.spent.get(ran.item.lane, 0) + ran.calls
        mean = sum(ran.response_ms for ran in rans) / len(rans)
        self.mean_ms = mean if self.mean_ms is None else self.mean_ms + (mean - self.mean_ms) * 0.3

    def jobs(self, items: list[Item]) -> list[Job]:
        """Items in the portions in which they are given to the handler, lane by lane. What failed alone, or was lost once,
        goes alone."""
        size = self.stage.batch
        if size == 1:
            return [[item] for item in items]
        jobs: list[Job] = []
        for lane in dict.fromkeys(item.lane for item in items):
            here = [item for item in items if item.lane == lane]
            alone = [[item] for item in here if item.row.alone or item.row.losses]
            others = [item for item in here if not (item.row.alone or item.row.losses)]
            portions = [others[start : start + size] for start in range(0, len(others), size)] + alone
            # The rate was charged for full batches; it counts calls, so the calls that come on top are told with the next claim.
            self.spent[lane] = self.spent.get(lane, 0) + len(portions) - -(-len(here) // size)
            jobs += portions
        return jobs
