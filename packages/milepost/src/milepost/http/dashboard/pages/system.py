"""System page: processes, alerts, pauses and limits, quarantine, the doctor's findings, and API
keys."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from msgspec import Struct

from milepost.core.admission.controls import Hold, Limit, scope
from milepost.core.routes.route import Limits
from milepost.engine.acts.foreign_rows import Quarantine, quarantine_view
from milepost.engine.alerts.watch import alert_views
from milepost.engine.auth import all_keys, key_view, last_uses
from milepost.engine.breakers import breaker_views
from milepost.engine.context import Context
from milepost.engine.health.clock_checks import count_future, future_text
from milepost.engine.health.doctor import Health, doctor
from milepost.engine.presence import ProcessView, processes_view
from milepost.engine.routes.versions import route_view
from milepost.engine.views.lanes import pause_view
from milepost.engine.views.timestamps import instant
from milepost.http.dashboard.charts import durations, spread, within
from milepost.http.dashboard.render import page, seen_routes
from milepost.http.protocol.endpoint import Answer, Call, endpoint
from milepost.http.state.state import ServerState
from milepost.ports.documents import HOLD, LIMIT, read_each
from milepost.ports.ledger import MISSING_CAPABILITIES

ASIDE = 100
"""Entries of the quarantine that are shown."""


class SystemQuery(Struct, frozen=True):
    doctor: bool = False


class SystemFacts(Struct, frozen=True):
    """The parts that are not updated live. Parts that concern the whole ledger are empty for
    callers who see only some routes."""

    routes: list[dict[str, Any]] = []
    future: list[tuple[str, str]] = []
    """Routes with items that are dated in the future, each with a sentence."""
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


@endpoint(
    "GET",
    "/system",
    scope="read",
    page=True,
    query=SystemQuery,
    summary="Processes, routes, controls and health",
)
def system(state: ServerState, call: Call) -> Answer:
    """Expensive parts are read only when the page is opened, not when its live parts are fetched
    again."""
    ctx, routes, now = state.ctx, seen_routes(state, call), state.ctx.clock.now()
    paused = [
        pause_view(name, hold) for name, hold in sorted(read_each(ctx.ledger, HOLD, Hold).items())
    ]
    seen = processes_view(ctx, call.caller.narrowed)
    return page(
        state,
        call,
        "system.html",
        everything=call.caller.routes is None,
        processes=[_process(one) for one in seen.processes],
        roles=[
            (role, role.at is None or role.late or bool(role.stands_still)) for role in seen.roles
        ],
        pauses=[pause for pause in paused if pause.scope.partition("/")[0] in routes],
        alerts=[one for one in alert_views(ctx) if call.caller.sees(one.route)],
        breakers=[one for one in breaker_views(ctx) if one.route in routes],
        limits=_limits(state, routes),
        in_words=limits_in_words,
        control_path=control_path,
        durations=durations(state.collector.figures(), routes),
        spread=spread,
        within=within,
        still=_still(state, call, routes, now)
        if call.headers.get("x-live") is None
        else SystemFacts(),
    )


def _still(state: ServerState, call: Call, routes: list[str], now: int) -> SystemFacts:
    ctx = state.ctx
    # A route's version does not record which stages are remote: only its file does.
    remote = {
        name: [stage.name for stage in plan.stages if stage.remote]
        for name, plan in ctx.plans.items()
    }
    views = [{**route_view(ctx, name), "remote": remote.get(name, [])} for name in routes]
    future = _future(ctx, routes, now)
    if call.caller.routes is not None:
        return SystemFacts(views, future)
    report = doctor(ctx, instant) if call.query.doctor else None
    keys = None
    if call.caller.may("admin"):
        used = last_uses(ctx)
        keys = [key_view(key, now, used.get(key.id)) for key in all_keys(ctx)]
    return SystemFacts(
        views,
        future,
        report,
        [] if report is None else _facts(report.ledger),
        quarantine_view(ctx, ASIDE),
        keys,
        ctx.ledger.last_seq(),
        [MISSING_CAPABILITIES[name] for name in sorted(ctx.ledger.missing_capabilities)],
    )


def _future(ctx: Context, routes: list[str], now: int) -> list[tuple[str, str]]:
    """Counted when the page is opened: an act on them reloads it. None on a ledger without an index
    by date, where `doctor` names none either."""
    counts = [(route, *count_future(ctx, route, now)) for route in routes]
    sentences = [(route, future_text(route, n, more)) for route, n, more in counts if n]
    return [(route, f"{text[0].upper()}{text[1:]}.") for route, text in sentences]


def _process(one: ProcessView) -> dict[str, Any]:
    """`state`: running; stopped, which is no alarm; or silent, if it has not said that it stops."""
    state = "alive" if one.alive else "stopped" if one.stopped else "silent"
    slow = [
        (
            " / ".join(str(of[name]) for name in ("route", "stage", "key") if name in of),
            of.get("seconds"),
        )
        for of in one.overrunning
    ]
    return {"view": one, "state": state, "slow": slow}


def _facts(facts: dict[str, Any]) -> list[tuple[str, str]]:
    """Facts about the ledger, in words, without those that the page shows elsewhere."""
    shown = {
        name: value
        for name, value in facts.items()
        if name not in ("path", "url", "problems", "lines", "routes", "lacks", "unwritable")
    }
    return [(name.replace("_", " "), _fact(value)) for name, value in shown.items()]


def _fact(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return {None: "not known", True: "yes", False: "no"}[value]
    return f"{value:,}" if isinstance(value, int) else str(value)


def control_path(scope: str, kind: str) -> str:
    """The path of a control of this scope, below /api/v1/routes."""
    route, *place = scope.split("/", 2)
    return "/".join(quote(part, safe="") for part in (route, kind, *place))


def _limits(state: ServerState, routes: list[str]) -> list[dict[str, Any]]:
    """Every stage with a handler, and every lane with limits of its own: the route file's values,
    and those set since."""
    limits = read_each(state.ctx.ledger, LIMIT, Limit)
    found = []
    for plan in (state.ctx.plans[name] for name in routes if name in state.ctx.plans):
        for stage in plan.stages:
            if stage.external:
                continue
            above = scope(plan.name, stage.name)
            own = {
                name.removeprefix(f"{above}/") for name in limits if name.startswith(f"{above}/")
            }
            filed = {above: Limits(rate=stage.rate, concurrency=stage.concurrency)}
            filed |= {
                f"{above}/{lane}": stage.lanes.get(lane, Limits())
                for lane in sorted({*stage.lanes, *own})
            }
            found += [
                {"scope": name, "remote": stage.remote, "filed": of, "now": limits.get(name)}
                for name, of in filed.items()
            ]
    return found


def limits_in_words(limits: Limits | Limit) -> str:
    """'16 at a time, 50/s'; a number is calls a second."""
    parts = [] if limits.concurrency is None else [f"{limits.concurrency:,} at a time"]
    if limits.rate is not None:
        parts.append(limits.rate if isinstance(limits.rate, str) else f"{limits.rate:g}/s")
    return ", ".join(parts) or "no limit"
