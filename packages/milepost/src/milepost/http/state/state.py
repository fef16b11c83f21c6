"""Server state that all endpoints share: the ledger with its routes, thread pools, waiting submits,
and what is measured."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from typing import Any, cast

from msgspec.structs import replace
from starlette.requests import Request

from milepost.application.declaration import ConfiguredApplication
from milepost.core.routes.plan import Plan
from milepost.core.routes.route import Stage
from milepost.engine.context import Context
from milepost.engine.health.doctor import Unready, unready
from milepost.engine.metrics import BothObservers, Collector, Gauges
from milepost.engine.views.caches import TtlCache, read_cached
from milepost.engine.work.remote import Remote
from milepost.http.auth.authenticator import Authenticator
from milepost.http.protocol.endpoint import Call, Caller, Endpoint
from milepost.http.protocol.problems import ProblemError, problem_error
from milepost.http.state.event_stream import Feed
from milepost.http.state.list_slots import ListSlots
from milepost.http.state.pace import Samples
from milepost.http.state.submit_batches import Submitting
from milepost.http.state.waiting_workers import Waiting
from milepost.ports.observer import NO_OBSERVER, Observer

PATIENCE_S = 1.0
"""Time limit for the ledger's answer to a readiness check."""
KEEP_S = 1.0
"""How long a readiness result is cached."""
THREADS = 8
LISTS = 4
"""Maximum lists that are accepted at the same time; each occupies a thread while it is being sent,
so they have threads of their own."""
LISTS_OF_ONE = 2
"""How many of them may be those of one key or person."""

ANY = "*"
"""The value of an attribute that binds a key to none of an application's items in particular."""

ACTS = 2
"""Maximum concurrent acts on items: an act on many items takes long, and others must not wait for
it."""


class ServerState:
    """One for each server. Every query of the ledger runs in its threads: the event loop never
    waits for a disk."""

    def __init__(
        self,
        ctx: Context,
        ticks: Callable[[], float] = time.monotonic,
        *,
        base: str = "",
        applications: Sequence[ConfiguredApplication[Any]] = (),
    ) -> None:
        self.ctx = ctx
        self.applications = applications
        self.menu = [
            (part.title, part.path)
            for one in applications
            for part in one.application.endpoints
            if part.page and part.title
        ]
        """(title, path) of the applications' pages in the menu."""
        self.base = base
        """Prefix of every URL, if a proxy serves Milepost below a path of its own: "/milepost";
        empty: none."""
        self.pool = ThreadPoolExecutor(THREADS, thread_name_prefix="http")
        self.authenticator = Authenticator(ctx, self.pool, ticks)
        self.endpoints: tuple[Endpoint, ...] = ()
        """The endpoints that the OpenAPI document describes; set when the application is made."""
        self.submitting = Submitting(ctx, self.pool)
        self.collector = _collector(ctx)
        """From its creation on, the metrics of this process are collected."""
        self.gauges = Gauges(ctx)
        self.feed = Feed(ctx, self.pool)
        self._readiness: asyncio.Future[list[Unready]] | None = None
        self._readiness_at = 0.0
        self.samples = Samples()
        self.ttl_cache = TtlCache(ticks)
        self.list_pool = ThreadPoolExecutor(LISTS, thread_name_prefix="http-list")
        self.list_slots = ListSlots(LISTS, LISTS_OF_ONE)
        self.act_pool = ThreadPoolExecutor(ACTS, thread_name_prefix="http-act")
        self.remote = Remote(ctx)
        self.waiting = Waiting(ctx, self.remote, self.pool)

    def for_one_page(self) -> ServerState:
        """The same with a read cache, for one page: each query of the ledger runs once. Pages only
        read."""
        state = copy(self)
        state.ctx = read_cached(self.ctx)
        return state

    async def unready(self) -> list[Unready]:
        """The parts that are not ready. At most one check runs at a time, however many callers
        there are and however slow the ledger is."""
        loop = asyncio.get_running_loop()
        if self._readiness is None or (
            self._readiness.done() and loop.time() - self._readiness_at >= KEEP_S
        ):
            self._readiness_at = loop.time()
            self._readiness = loop.run_in_executor(self.pool, unready, self.ctx)
        try:
            return await asyncio.wait_for(asyncio.shield(self._readiness), PATIENCE_S)
        except TimeoutError:
            return [Unready("ledger", f"it has not answered within {PATIENCE_S:g} s")]

    async def caller(self, request: Request, endpoint: Endpoint) -> Caller:
        """The caller as this endpoint sees it; raises a problem if the call is not allowed at all.
        At an endpoint of Milepost's own it does not see the routes of applications whose own
        endpoints bind its key to some of their items, or to none."""
        caller = await self.authenticator.recognise(request, endpoint)
        if endpoint.application:
            return caller
        hidden = {
            route.name
            for one in self.applications
            if one.application.bound_by is not None
            and is_bound(caller, one.application.bound_by, endpoint.scope)
            for route in one.routes
        }
        seen = frozenset(self.ctx.plans) if caller.routes is None else caller.routes
        return caller if seen.isdisjoint(hidden) else replace(caller, routes=seen - hidden)

    def plan(self, call: Call) -> Plan:
        """The route that a call's URL names; a route that the caller may not see is answered as
        unknown."""
        plan = self.ctx.plans.get(call.path["route"])
        if plan is None or not call.caller.sees(plan.name):
            raise self.no_route(call.caller, call.path["route"])
        return plan

    def no_route(self, caller: Caller, name: str) -> ProblemError:
        """The problem for a route that does not exist, or that the caller may not see."""
        seen = ", ".join(route for route in sorted(self.ctx.plans) if caller.sees(route))
        return problem_error(
            "unknown-route",
            f"there is no route {name!r}",
            field="route",
            expected=seen or "none is known",
        )

    def stage(self, call: Call) -> tuple[Plan, Stage]:
        """The stage that a call's URL names, with its route."""
        plan = self.plan(call)
        return plan, stage_of(plan, call.path["stage"])

    def close(self) -> None:
        self.act_pool.shutdown(wait=True, cancel_futures=True)
        self.list_pool.shutdown(wait=True, cancel_futures=True)
        self.pool.shutdown(wait=True, cancel_futures=True)


def is_bound(caller: Caller, attribute: str, scope: str | None) -> bool:
    """Is a caller of this scope's endpoints bound to some items of an application, whose keys are
    bound by this attribute? A program's key that submits and has no attribute is bound to no item
    at all; a key that cannot submit, such as a person's, is not bound by its absence."""
    value = caller.attributes.get(attribute)
    if value == ANY:
        return False
    if scope == "submit":
        return value is not None or not caller.may("admin")
    return not caller.may("operate") and (value is not None or caller.may("submit"))


def stage_of(plan: Plan, name: str) -> Stage:
    """The stage of this name; raises a problem if the route has none."""
    if name not in plan.by_name:
        raise problem_error(
            "unknown-stage",
            f"route {plan.name!r} has no stage {name!r}",
            field="stage",
            expected=", ".join(plan.by_name),
        )
    return plan.by_name[name]


def _collector(ctx: Context) -> Collector:
    if isinstance(ctx.observer, Collector):
        return ctx.observer
    collector = Collector({name: list(plan.by_name) for name, plan in ctx.plans.items()})
    ctx.observer = (
        collector
        if ctx.observer is NO_OBSERVER
        else cast(Observer, BothObservers(ctx.observer, collector))
    )
    return collector
