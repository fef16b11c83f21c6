"""Dependencies of the engine: ledger, routes, clock, randomness, blob store and observer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from milepost.core.errors import UsageError
from milepost.core.routes.plan import Plan
from milepost.core.routes.route import Stage
from milepost.engine.time_share import Accepts
from milepost.ports.blobs import Blobs
from milepost.ports.clock import ClockState, check
from milepost.ports.ledger import Ledger
from milepost.ports.observer import NO_OBSERVER, Observer
from milepost.ports.runner import Chance, Clock

if TYPE_CHECKING:
    from milepost.engine.health.findings import Check
    from milepost.engine.views.lanes import PauseView


class Context:
    """Dependencies that are passed to every part of the engine; there are no globals."""

    def __init__(
        self, ledger: Ledger, plans: Mapping[str, Plan], clock: Clock, chance: Chance, blobs: Blobs
    ) -> None:
        self.ledger = ledger
        self.plans = dict(plans)
        self.clock = clock
        self.chance = chance
        self.blobs = blobs
        self.observer: Observer = NO_OBSERVER
        self.accepts = Accepts()
        self.checks: tuple[Check, ...] = ()
        """The health checks of applications."""
        self.before_resume: tuple[Callable[[PauseView, str], None], ...] = ()
        """Functions of applications that are called with a pause, and the operator's name, before
        an operator's resume ends it."""

    def check_clock(self) -> ClockState:
        """What this process knows about its clock, which corrects itself now if it can. Call it
        between two steps."""
        return check(self.clock)

    def plan(self, route: str) -> Plan:
        """The route's plan; UsageError that lists the known routes if there is none."""
        plan = self.plans.get(route)
        if plan is None:
            known = (
                ", ".join(sorted(self.plans))
                or "none; give --routes file.py, or set routes in milepost.toml"
            )
            raise UsageError(f"there is no route {route!r}; known routes: {known}")
        return plan

    def stage(self, route: str, stage: str) -> Stage:
        """The stage of a route; UsageError that lists its stages if there is none."""
        plan = self.plan(route)
        if stage not in plan.by_name:
            raise UsageError(plan.unknown_stage(stage))
        return plan.by_name[stage]

    def take(self, plan: Plan) -> Plan:
        """Use this plan for its route from now on, such as one with the version that the ledger
        holds."""
        self.plans[plan.name] = plan
        return plan
