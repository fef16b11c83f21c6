"""Who is at work, when each role last had a good run, and whether all is well."""

from __future__ import annotations

from milepost.engine.doctor import Health, doctor, health_view
from milepost.engine.heartbeat import Processes, processes_view
from milepost.engine.moments import instant
from milepost.http.calls import Answer, Call, Endpoints
from milepost.http.desk import Desk
from milepost.http.whole_ledger import check_sees_all

ENDPOINTS = Endpoints()


@ENDPOINTS.add("GET", "/api/v1/processes", scope="read", answers={200: Processes}, summary="Who is at work, and who was")
def processes(desk: Desk, call: Call) -> Answer:
    """Every process of the last week that runs workers, resender or subscribers, the latest heard of first; and for each role its last
    good run in any of them. Overrunning handlers and outdated routes are shown for the routes that the caller sees; how much a
    process has in hand, to those who see all."""
    return Answer(processes_view(desk.ctx, call.caller.narrowed))


@ENDPOINTS.add("GET", "/api/v1/doctor", scope="read", answers={200: Health}, summary="Is everything well, and what to do if it is not")
def health(desk: Desk, call: Call) -> Answer:
    """As `milepost doctor --json`. It only reads. Each finding is `ok`, `warn` or `bad`, and `next` says what to do about it. Only for
    callers who see all routes."""
    check_sees_all(call)
    return Answer(health_view(doctor(desk.ctx, instant)))
