"""Health over HTTP: processes, the doctor's findings, and whether this server is alive and ready.

/healthz and /readyz need no key, so they show only what any caller may know."""

from __future__ import annotations

from msgspec import Struct

from milepost.engine.health.doctor import Health, doctor
from milepost.engine.presence import Processes, processes_view
from milepost.engine.views.timestamps import instant
from milepost.http.auth.author import check_sees_all
from milepost.http.protocol.endpoint import Call, endpoint
from milepost.http.protocol.problems import problem_error
from milepost.http.state.state import ServerState


@endpoint("GET", "/api/v1/processes", scope="read", summary="Processes of the last week")
def processes(state: ServerState, call: Call) -> Processes:
    """Every process of the last week that runs workers, resender or subscribers, the latest
    heartbeat first; and for each role its last successful run in any of them. Overrunning handlers
    and outdated routes are shown for the routes that the caller sees; the number of items that a
    process holds is shown to callers who see all routes."""
    return processes_view(state.ctx, call.caller.narrowed)


@endpoint(
    "GET",
    "/api/v1/doctor",
    scope="read",
    summary="Health checks, with the next step for each problem",
)
def health(state: ServerState, call: Call) -> Health:
    """As `milepost doctor --json`. It only reads. Each finding is `ok`, `warn` or `bad`, and `next`
    says what to do. Only for callers who see all routes."""
    check_sees_all(call)
    return doctor(state.ctx, instant)


class Healthy(Struct, frozen=True):
    status: str


@endpoint("GET", "/healthz", scope=None, summary="Is the server alive?")
async def alive(state: ServerState, call: Call) -> Healthy:
    """Answers as long as the server takes calls, whatever the state of the ledger: if there is no
    answer, restart the server."""
    return Healthy("alive")


@endpoint(
    "GET", "/readyz", scope=None, problems=("not-ready",), summary="Is the server ready for work?"
)
async def ready(state: ServerState, call: Call) -> Healthy:
    """Ready: the ledger can be read and written within a second, the routes are those in force, a
    worker is running, and the resender has run recently. Otherwise 503, and `parts` names each
    missing part and what to do."""
    missing = await state.unready()
    if missing:
        parts = [{"part": found.part, "why": found.why} for found in missing]
        raise problem_error(
            "not-ready", "; ".join(f"{found.part}: {found.why}" for found in missing), parts=parts
        )
    return Healthy("ready")
