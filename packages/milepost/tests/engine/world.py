"""A route, a frozen clock and a worker's calls on any ledger, for tests of the engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from milepost.blobs.memory import MemoryBlobs
from milepost.core.decide import accept, decide
from milepost.core.due import Lease
from milepost.core.item import Item, Row, digest_of
from milepost.core.outcome import Done, Outcome
from milepost.core.routes.backoff import Backoff, Checks
from milepost.core.routes.plan import Plan
from milepost.core.routes.route import Route
from milepost.core.status import Reason
from milepost.engine.context import Context
from milepost.engine.routes.versions import register
from milepost.ports.items import ClaimRequest, NewItem
from milepost.ports.ledger import Ledger
from milepost_testing.clock import SeededChance, VirtualClock

ROUTE = "parcels"


def parcels(*stages: str) -> Route:
    """A route of these stages; one that begins with a capital is external. Each kind has plain,
    known timings."""
    route = Route(ROUTE, key="id")
    for name in stages or ("weigh", "stamp", "Delivered"):
        if name[0].isupper():
            route.external(name, resend_after="14d", overdue="30d")
        else:
            route.stage(
                name,
                retry=Backoff(attempts=3, base=60, jitter=0),
                checks=Checks(every="10m", overdue="2d"),
            )(lambda item: Done())
    return route


class World:
    """One process's view of a ledger; `beside()` is another process on the same one."""

    def __init__(self, ledger: Ledger, clock: VirtualClock, route: Route, seed: int = 0) -> None:
        self.ledger = ledger
        self.clock = clock
        plan = Plan(
            route, grace_ms=ledger.timing.grace_ms, offer_life_ms=ledger.timing.offer_life_ms
        )
        self.ctx = Context(ledger, {ROUTE: plan}, clock, SeededChance(seed), MemoryBlobs())

    @property
    def plan(self) -> Plan:
        return self.ctx.plan(ROUTE)

    def registered(self) -> World:
        self.ctx.take(register(self.ledger, self.plan, self.clock.now(), "test"))
        return self

    def beside(self, *stages: str, seed: int = 99) -> World:
        """Another process, with the same route or one of other stages; it has not registered
        yet."""
        return World(self.ledger, self.clock, parcels(*stages) if stages else self.plan.route, seed)

    def add(self, *keys: str, **content: Any) -> None:
        new_items = []
        for key in keys:
            given = {"id": key, **content}
            change = accept(
                self.plan,
                key,
                given,
                self.clock.now(),
                correlation_id=f"c-{key}",
                digest=digest_of(given),
            )
            new_items.append(NewItem(change, given))
        assert self.ledger.add(self.plan, new_items, self.clock.now()) == [None] * len(keys)

    def claim(
        self, stage: str, want: int = 100, holder: str = "host:1", *, fragile: bool = False
    ) -> list[Item]:
        now = self.clock.now()
        lease = Lease(self.ctx.chance.token(), holder, now + 30_000)
        return self.ledger.claim(
            [ClaimRequest(self.plan, stage, want, lease, fragile=fragile)], now, 0.0
        )[0].items

    def settle(self, items: Sequence[Item], outcome: Outcome) -> None:
        now = self.clock.now()
        changes = [decide(item, outcome, self.plan, now, 0.0) for item in items]
        assert self.ledger.apply(changes, now) == [None] * len(items)

    def work(self, stage: str, outcome: Outcome | None = None, want: int = 100) -> None:
        """Claim what is due at a stage and give all of it one outcome."""
        self.settle(self.claim(stage, want), outcome or Done())

    def item(self, key: str) -> Item:
        item = self.ledger.get([(ROUTE, key)])[0]
        assert item is not None
        return item

    def row(self, key: str) -> Row:
        return self.item(key).row

    def reasons(self, key: str) -> list[Reason]:
        return [written.line.reason for written in self.ledger.history(ROUTE, key)]


class Interrupted(Exception):
    """The process died here."""


class Faulty:
    """A ledger that does something else, once, just before or just after one of its verbs."""

    def __init__(self, inner: Ledger) -> None:
        self._inner = inner
        self._plans: list[tuple[str, str, Callable[[], None], Callable[..., bool]]] = []

    def before(
        self,
        verb: str,
        do: Callable[[], None],
        when: Callable[..., bool] = lambda *args, **options: True,
    ) -> None:
        self._plans.append(("before", verb, do, when))

    def after(
        self,
        verb: str,
        do: Callable[[], None],
        when: Callable[..., bool] = lambda *args, **options: True,
    ) -> None:
        self._plans.append(("after", verb, do, when))

    def __getattr__(self, verb: str) -> Any:
        real = getattr(self._inner, verb)
        if not callable(real):
            return real

        def call(*args: Any, **options: Any) -> Any:
            self._fire("before", verb, args, options)
            answer = real(*args, **options)
            self._fire("after", verb, args, options)
            return answer

        return call

    def _fire(self, moment: str, verb: str, args: Any, options: Any) -> None:
        for plan in list(self._plans):
            if plan[:2] == (moment, verb) and plan in self._plans and plan[3](*args, **options):
                self._plans.remove(plan)
                plan[2]()


def dies() -> None:
    raise Interrupted
