"""System page: processes, alerts, pauses and limits, quarantine, the doctor's findings, and API keys."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from msgspec import Struct

from milepost.core.admission.controls import Hold, Limit
from milepost.core.routes.plan import Plan
from milepost.core.routes.route import Limits, Stage
from milepost.core.values.durations import iso
from milepost.engine.acts.foreign_rows import Quarantine, quarantine_view
from milepost.engine.alerts.watch import alert_views
from milepost.engine.auth import all_keys, key_view, last_uses
from milepost.engine.breakers import BreakerView, breaker_views
from milepost.engine.health.doctor import Health, doctor
from milepost.engine.presence import HEARD_MS, ProcessView, RoleView, processes_view
from milepost.engine.routes.versions import route_view
from milepost.engine.views.timestamps import instant
from milepost.http.dashboard.charts import durations
from milepost.http.dashboard.render import age, ms_since, page, seen_routes
from milepost.http.protocol.endpoint import Answer, Call, endpoint
from milepost.http.state.state import ServerState
from milepost.ports.documents import HOLD, LIMIT, read_all
from milepost.ports.ledger import MISSING_CAPABILITIES

ASIDE = 100
"""Entries of the quarantine that are shown."""


class SystemQuery(Struct, frozen=True):
    doctor: bool = False


class SystemFacts(Struct, frozen=True):
    """The parts that are not updated live. Parts that concern the whole ledger are empty for callers who see only some routes."""

    routes: list[dict[str, Any]] = []
    report: Health | None = None
    """The doctor's findings, if they were requested."""
    facts: list[tuple[str, str]] = []
    aside: Quarantine | None = None
    keys: list[dict[str, Any]] | None = None
    """For admins."""
    lines: int | None = None
    """Number of lines that have been written."""
    missing_capabilities: list[str] = []
    """Capabilities that the ledger lacks, in sentences."""


@endpoint("GET", "/system", scope="read", page=True, query=SystemQuery, summary="Processes, routes, controls and health")
def system(state: ServerState, call: Call) -> Answer:
    """Expensive parts are read only when the page is opened, not when its live parts are fetched again."""
    ctx, routes, now = state.ctx, seen_routes(state, call), state.ctx.clock.now()
    holds = [_hold(name, hold) for name, hold in sorted(read_all(ctx.ledger, HOLD, Hold).items())]
    seen = processes_view(ctx, call.caller.narrowed)
    return page(
        state,
        call,
        "system.html",
        everything=call.caller.routes is None,
        processes=[_process(one, now) for one in seen.processes],
        roles=[_role(one, now) for one in seen.roles],
        holds=[hold for hold in holds if hold["route"] in routes],
        alerts=[one for one in alert_views(ctx) if call.caller.sees(one.route)],
        breakers=[_breaker(one) for one in breaker_views(ctx) if one.route in routes],
        stages=_limits(state, routes),
        durations=durations(state.collector.figures(), routes),
        still=_still(state, call, routes, now) if call.headers.get("x-live") is None else SystemFacts(),
    )


def _still(state: ServerState, call: Call, routes: list[str], now: int) -> SystemFacts:
    ctx = state.ctx
    # A route's version does not record which stages are remote: only its file does.
    remote = {name: [stage.name for stage in plan.stages if stage.remote] for name, plan in ctx.plans.items()}
    views = [{**route_view(ctx, name), "remote": remote.get(name, [])} for name in routes]
    if call.caller.routes is not None:
        return SystemFacts(views)
    report = doctor(ctx, instant) if call.query.doctor else None
    keys = None
    if call.caller.may("admin"):
        used = last_uses(ctx)
        keys = [key_view(key, now, used.get(key.id)) for key in all_keys(ctx)]
    return SystemFacts(
        views,
        report,
        [] if report is None else _facts(report.ledger),
        quarantine_view(ctx, ASIDE),
        keys,
        ctx.ledger.last_seq(),
        [MISSING_CAPABILITIES[name] for name in sorted(ctx.ledger.missing_capabilities)],
    )


def _process(one: ProcessView, now: int) -> dict[str, Any]:
    """`state`: running; stopped, which is no alarm; or silent, if it has not said that it stops."""
    state = "alive" if one.alive else "stopped" if one.stopped else "silent"
    slow = [
        {"place": " / ".join(str(of[name]) for name in ("route", "stage", "key") if name in of), "seconds": of.get("seconds")}
        for of in one.overrunning
    ]  # fmt: skip
    return {"view": one, "state": state, "seen": age(one.seen_at, now), "slow": slow}


def _role(one: RoleView, now: int) -> dict[str, Any]:
    late = one.at is None or ms_since(one.at, now) > HEARD_MS
    return {"name": one.role, "at": one.at, "ago": age(one.at, now), "by": one.holder, "late": late}


def _facts(facts: dict[str, Any]) -> list[tuple[str, str]]:
    """Facts about the ledger, in words, without those that the page shows elsewhere."""
    shown = {name: value for name, value in facts.items() if name not in ("path", "url", "problems", "lines", "routes", "lacks")}
    return [(name.replace("_", " "), _fact(value)) for name, value in shown.items()]


def _fact(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return {None: "not known", True: "yes", False: "no"}[value]
    return f"{value:,}" if isinstance(value, int) else str(value)


def _hold(name: str, hold: Hold) -> dict[str, Any]:
    route, *rest = name.split("/", 2)
    path = "/".join(quote(part, safe="") for part in (route, "holds", *rest))
    return {"scope": name, "route": route, "path": path, "by": hold.by, "reason": hold.reason, "at": iso(hold.at), "until": iso(hold.until)}


def _breaker(one: BreakerView) -> dict[str, Any]:
    path = "/".join(quote(part, safe="") for part in (one.route, "breakers", one.stage, *([one.lane] if one.lane else [])))
    return {"view": one, "path": path}


def _limits(state: ServerState, routes: list[str]) -> list[dict[str, Any]]:
    """Every stage with a handler, and every lane with limits of its own: the route file's values, and those set since."""
    limits = read_all(state.ctx.ledger, LIMIT, Limit)
    found = []
    for plan in (state.ctx.plans[name] for name in routes if name in state.ctx.plans):
        for stage in plan.stages:
            if stage.external:
                continue
            found.append(_limit(plan, stage, None, Limits(rate=stage.rate, concurrency=stage.concurrency), limits))
            own = {name.split("/", 2)[2] for name in limits if name.startswith(f"{plan.name}/{stage.name}/")}
            found += [_limit(plan, stage, lane, stage.lanes.get(lane, Limits()), limits) for lane in sorted({*stage.lanes, *own})]
    return found


def _limit(plan: Plan, stage: Stage, lane: str | None, filed: Limits, limits: dict[str, Limit]) -> dict[str, Any]:
    parts = (plan.name, stage.name) if lane is None else (plan.name, stage.name, lane)
    now = limits.get("/".join(parts))
    return {
        "scope": "/".join(parts),
        "path": "/".join(quote(part, safe="") for part in (plan.name, "limits", *parts[1:])),
        "remote": stage.remote,
        "filed": limits_in_words(filed.rate, filed.concurrency),
        "now": None if now is None else limits_in_words(now.rate, now.concurrency),
        "rate": "" if now is None or now.rate is None else now.rate,
        "concurrency": "" if now is None or now.concurrency is None else now.concurrency,
        "by": "" if now is None else now.by,
        "reason": "" if now is None else now.reason,
        "at": None if now is None else iso(now.at),
    }


def limits_in_words(rate: str | float | None, concurrency: int | None) -> str:
    """'16 at a time, 50/s'; a number is calls a second."""
    parts = [] if concurrency is None else [f"{concurrency:,} at a time"]
    if rate is not None:
        parts.append(rate if isinstance(rate, str) else f"{rate:g}/s")
    return ", ".join(parts) or "no limit"
