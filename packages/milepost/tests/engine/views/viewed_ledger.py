"""A memory ledger with a frozen clock and items at chosen states, for tests of views and health
checks."""

from __future__ import annotations

from typing import Any

from milepost.blobs.memory import MemoryBlobs
from milepost.core.decide import decide
from milepost.core.due import Lease
from milepost.core.item import Item
from milepost.core.outcome import Done, Outcome
from milepost.core.routes.backoff import Backoff, Checks
from milepost.core.routes.plan import Plan
from milepost.core.routes.route import Route
from milepost.engine.context import Context
from milepost.engine.intake import submit
from milepost.engine.routes.versions import register
from milepost.ledgers.memory import MemoryLedger
from milepost.ports.documents import PROCESS, Process
from milepost.ports.items import ClaimRequest
from milepost_testing.clock import SeededChance, VirtualClock


def parcels() -> Route:
    """Two stages of our own, then an external one."""
    route = Route("parcels", key="id")

    @route.stage("weigh", retry=Backoff(attempts=3, base=60, factor=2, cap="1h", jitter=0))
    def weigh(item: Item) -> Outcome:
        return Done()

    @route.stage("stamp", checks=Checks(every="10m", up_to="6h", overdue="14d"))
    def stamp(item: Item) -> Outcome:
        return Done()

    route.external("delivered", resend_after="14d")
    return route


class World:
    """The context, and a hand that claims and settles."""

    def __init__(self, *routes: Route) -> None:
        self.clock = VirtualClock()
        self.ledger = MemoryLedger()
        plans = {route.name: Plan(route) for route in routes or (parcels(),)}
        self.ctx = Context(self.ledger, plans, self.clock, SeededChance(), MemoryBlobs())
        for plan in plans.values():
            self.ctx.take(register(self.ledger, plan, self.clock.now(), "test"))

    def add(self, *keys: str, **more: Any) -> None:
        submit(self.ctx, "parcels", [{"id": key, **more} for key in keys], correlation_id="corr-1")

    def claim(self, stage: str, want: int = 1, holder: str = "host-a:1") -> list[Item]:
        now = self.clock.now()
        ask = ClaimRequest(
            self.ctx.plan("parcels"),
            stage,
            want,
            Lease(self.ctx.chance.token(), holder, now + 30_000),
        )
        [claimed] = self.ledger.claim([ask], now, 0.0)
        return claimed.items

    def settle(self, stage: str, outcome: Outcome, want: int = 1, **options: Any) -> None:
        """Claim and answer so many items at a stage."""
        items = self.claim(stage, want)
        assert len(items) == want
        changes = [
            decide(item, outcome, self.ctx.plan("parcels"), self.clock.now(), 0.0, **options)
            for item in items
        ]
        assert self.ledger.apply(changes, self.clock.now()) == [None] * want

    def process(self, *, ago_ms: int = 0, holder: str = "host-a:1", **more: Any) -> None:
        """A process that was heard of so long ago, all its roles at that moment."""
        at = self.clock.now() - ago_ms
        more.setdefault("roles", dict.fromkeys(("worker", "resender", "relay"), at))
        self.ledger.write(PROCESS, holder, Process(holder, "host-a", 1, at, at, **more))
