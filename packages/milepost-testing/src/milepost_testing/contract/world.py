"""Test world around one ledger: a clock, seeded randomness, a sample route, and helpers for common
steps."""

from __future__ import annotations

from typing import Any

from milepost.core.admission.breakers import BreakerRecord
from milepost.core.change import Change
from milepost.core.confirmations import confirm
from milepost.core.decide import accept, decide
from milepost.core.due import Lease, look
from milepost.core.history import Line
from milepost.core.item import Item, Row, digest_of
from milepost.core.outcome import Done, Outcome
from milepost.core.routes.backoff import Backoff, Checks
from milepost.core.routes.plan import Plan
from milepost.core.routes.route import Limits, Route
from milepost.core.values.refusal import Refusal
from milepost.ports.documents import BREAKER, HOLD, LIMIT, ROUTE, read_as
from milepost.ports.items import ClaimRequest, ClaimResult, Conflict, KnownKey, NewItem, Refused
from milepost.ports.ledger import Ledger
from milepost_testing.audit import audit
from milepost_testing.clock import SeededChance, VirtualClock

LEASE = 60_000


def sample_route(name: str = "parcels", **weigh: Any) -> Route:
    """Three stages: one with a handler, one that people wait for, one external. `weigh` are the
    first one's options."""
    route = Route(name)
    options: dict[str, Any] = {
        "retry": Backoff(attempts=3, base=1, jitter=0),
        "checks": Checks(every="10s", up_to="1m"),
        "lane": lambda content: content.get("lane", ""),
    }
    route.stage("weigh", **(options | weigh))(_handler)
    route.stage(
        "stamp",
        checks=Checks(every="1h", up_to="6h", overdue="1d"),
        retry=Backoff(attempts=2, base=1, jitter=0),
    )(_handler)
    route.external("delivered", resend_after="14d", overdue="30d")
    return route


def _handler(item: Item) -> Outcome:
    return Done()


class World:
    """One ledger, and what a test needs to drive it. Every claim gets a fresh token."""

    def __init__(
        self, ledger: Ledger, route: Route | None = None, *, clock: VirtualClock | None = None
    ) -> None:
        self.ledger = ledger
        self.clock = clock or VirtualClock()
        self.chance = SeededChance()
        timing = ledger.timing
        self.plan = ledger.prepare(
            Plan(
                route or sample_route(),
                grace_ms=timing.grace_ms,
                offer_life_ms=timing.offer_life_ms,
            )
        )

    @property
    def now(self) -> int:
        return self.clock.now()

    # In -------------------------------------------------------------------------------------------
    def new_item(
        self, key: str, *, list_id: str | None = None, not_before: int | None = None, **content: Any
    ) -> NewItem:
        content = {"id": key, **content}
        fields: dict[str, Any] = {
            "correlation_id": f"c-{key}",
            "digest": digest_of(content),
            "list_id": list_id,
            "not_before": not_before,
        }
        return NewItem(accept(self.plan, key, content, self.now, **fields), content)

    def add(
        self, *keys: str, list_id: str | None = None, not_before: int | None = None, **content: Any
    ) -> list[KnownKey | Refused | None]:
        new_items = [
            self.new_item(key, list_id=list_id, not_before=not_before, **content) for key in keys
        ]
        return self.ledger.add(self.plan, new_items, self.now)

    # Through --------------------------------------------------------------------------------------
    def ask(
        self,
        stage: str = "weigh",
        want: int = 100,
        *,
        holder: str = "worker",
        lease: int = LEASE,
        **more: Any,
    ) -> ClaimRequest:
        return ClaimRequest(
            self.plan, stage, want, Lease(self.chance.token(), holder, self.now + lease), **more
        )

    def claim(self, stage: str = "weigh", want: int = 100, **more: Any) -> ClaimResult:
        return self.ledger.claim([self.ask(stage, want, **more)], self.now, 0.0)[0]

    def take(self, key: str, stage: str = "weigh", **more: Any) -> Item:
        """Claim, and expect exactly this item."""
        items = self.claim(stage, **more).items
        assert [item.key for item in items] == [key]
        return items[0]

    def settle(self, item: Item, outcome: Outcome) -> Conflict | Refused | None:
        answer = self.apply(decide(item, outcome, self.plan, self.now, 0.0))
        if answer is None:
            self.ledger.drop_tickets([item.ticket])
        return answer

    def apply(self, change: Change | Refusal | None, **more: Any) -> Conflict | Refused | None:
        assert isinstance(change, Change), f"there is no change to write: {change}"
        return self.ledger.apply([change], self.now, **more)[0]

    def confirm(
        self, key: str, stage: str, outcome: Outcome | None = None
    ) -> Conflict | Refused | None:
        outcome = Done(True) if outcome is None else outcome
        return self.apply(
            confirm(self.item(key), stage, outcome, self.plan, self.now, 0.0, by="partner")
        )

    def look(self, key: str) -> Change | None:
        """The change that the resender would write."""
        return look(self.item(key), self.plan, self.now, 0.0, None)

    def bring(self, *keys: str, to: str) -> None:
        """Add items and process them up to a stage, or to the end ("COMPLETED")."""
        self.add(*keys)
        for stage in self.plan.stages:
            if stage.name == to:
                return
            for key in keys:
                if stage.external:
                    assert self.confirm(key, stage.name) is None
            if not stage.external:
                for item in self.claim(stage.name).items:
                    assert self.settle(item, Done({"by": stage.name})) is None

    # What a claim answers -------------------------------------------------------------------------
    @property
    def called(self) -> bool:
        """Whether messages call workers here. Then other services handle items that need no worker,
        and a worker polls at a fixed interval."""
        return self.ledger.work_queues

    def moved_on(self, claimed: ClaimResult) -> None:
        """Nothing was claimed; one row was advanced, by this claim or by the service for such
        rows."""
        assert claimed.items == []
        assert self.called or claimed.moved == 1

    def asks_again(self, claimed: ClaimResult, at: int | None) -> None:
        """The next claim can succeed at `at` (None: only after a change), or, if messages call
        workers, no later than that."""
        if not self.called:
            assert claimed.next_at == at
        elif claimed.next_at is not None:
            assert self.now < claimed.next_at <= (self.now + 60_000 if at is None else at)

    # Out ------------------------------------------------------------------------------------------
    def item(self, key: str) -> Item:
        item = self.ledger.get([(self.plan.name, key)])[0]
        assert isinstance(item, Item), f"{key} has no row that can be read"
        return item

    def row(self, key: str) -> Row:
        return self.item(key).row

    def lines(self, key: str) -> list[Line]:
        return [written.line for written in self.ledger.history(self.plan.name, key)]

    def reasons(self, key: str) -> list[str]:
        return [line.reason.value for line in self.lines(key)]

    def count(self, stage: str | None = None) -> dict[str, int]:
        """Items by status, from the ledger's counters."""
        sums: dict[str, int] = {}
        for count in self.ledger.counts(self.plan.name):
            if count.n and (stage is None or count.stage == stage):
                sums[count.status.value] = sums.get(count.status.value, 0) + count.n
        return sums

    def audit(self) -> None:
        audit(self.ledger, self.plan.name, self.plan)

    # Control --------------------------------------------------------------------------------------
    def hold(self, name: str) -> None:
        assert self.ledger.write(HOLD, name, {"at": self.now, "by": "ops", "reason": "test"})

    def release(self, name: str) -> None:
        assert self.ledger.write(HOLD, name, None)

    def limit(self, name: str, **limits: Any) -> None:
        assert self.ledger.write(
            LIMIT, name, {"by": "ops", "reason": "test", "at": self.now, **limits}
        )

    def breaker(self, name: str) -> BreakerRecord | None:
        """The ledger's record of a lane's breaker."""
        held = self.ledger.read_one(BREAKER, name)
        return None if held is None else read_as(BreakerRecord, held.value)

    def set_version(self, version: int) -> None:
        """The ledger now has this version of the route."""
        plan = self.plan
        value = {
            "version": version,
            "digest": plan.digest,
            "shape": [list(pair) for pair in plan.shape],
            "at": self.now,
        }
        assert self.ledger.write(ROUTE, plan.name, value)


__all__ = ["LEASE", "Limits", "World", "sample_route"]
