"""Health over HTTP: processes, the doctor's findings, and whether this server is alive and ready.

/healthz and /readyz are open to all, so they give away nothing that not every caller may know."""

from __future__ import annotations

from msgspec import Struct

from milepost.engine.health.doctor import Health, doctor, health_view
from milepost.engine.presence import Processes, processes_view
from milepost.engine.views.timestamps import instant
from milepost.http.auth.whole_ledger import check_sees_all
from milepost.http.protocol.endpoint import Answer, Call, Endpoints
from milepost.http.protocol.problems import problem_error
from milepost.http.state.state import ServerState

ENDPOINTS = Endpoints()


@ENDPOINTS.add("GET", "/api/v1/processes", scope="read", answers={200: Processes}, summary="Who is at work, and who was")
def processes(state: ServerState, call: Call) -> Answer:
    """Every process of the last week that runs workers, resender or subscribers, the latest heard of first; and for each role its last
    good run in any of them. Overrunning handlers and outdated routes are shown for the routes that the caller sees; how much a
    process has in hand, to those who see all."""
    return Answer(processes_view(state.ctx, call.caller.narrowed))


@ENDPOINTS.add("GET", "/api/v1/doctor", scope="read", answers={200: Health}, summary="Is everything well, and what to do if it is not")
def health(state: ServerState, call: Call) -> Answer:
    """As `milepost doctor --json`. It only reads. Each finding is `ok`, `warn` or `bad`, and `next` says what to do about it. Only for
    callers who see all routes."""
    check_sees_all(call)
    return Answer(health_view(doctor(state.ctx, instant)))


class Healthy(Struct, frozen=True):
    status: str


@ENDPOINTS.add("GET", "/healthz", scope=None, answers={200: Healthy}, summary="Is the server alive?")
async def alive(state: ServerState, call: Call) -> Answer:
    """Answers as long as the server takes calls, whatever the ledger does: who gets no answer may start it again."""
    return Answer(Healthy("alive"))


@ENDPOINTS.add("GET", "/readyz", scope=None, answers={200: Healthy}, problems=("not-ready",), summary="Is the server ready for work?")
async def ready(state: ServerState, call: Call) -> Answer:
    """Ready: the ledger can be reached and written to within a second, the routes are those in force, somebody is at work, and the
    resender has run lately. Otherwise 503, and `parts` names what is missing and what to do about it."""
    missing = await state.observability.unready()
    if missing:
        parts = [{"part": found.part, "why": found.why} for found in missing]
        raise problem_error("not-ready", "; ".join(f"{found.part}: {found.why}" for found in missing), parts=parts)
    return Answer(Healthy("ready"))
