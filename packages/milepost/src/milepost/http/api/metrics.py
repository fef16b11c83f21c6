"""Metrics over HTTP, in the text format of Prometheus."""

from __future__ import annotations

from msgspec.structs import replace
from starlette.responses import Response

from milepost.application.installation import families as application_families
from milepost.engine.metrics import (
    OPEN,
    PLAIN,
    Family,
    counted_families,
    exposition,
    process_families,
)
from milepost.http.protocol.endpoint import Answer, Call, Caller, endpoint
from milepost.http.state.state import ServerState


@endpoint(
    "GET",
    "/metrics",
    scope="read",
    answers={200: str},
    summary="Metrics in the text format of Prometheus, or OpenMetrics",
)
def metrics(state: ServerState, call: Call) -> Answer:
    """Items by route, stage and status, ages, lags and heartbeats come from the ledger's counters
    and cover all processes; they are at most a second old (on AWS 15 s). Counters (names with
    `_total`) cover this process, since it started. A key that is limited to routes gets the metrics
    of these routes only."""
    from milepost import __version__

    families = [
        *state.gauges.read(),
        *counted_families(state.collector.figures()),
        *process_families(__version__),
    ]
    families += application_families(state.ctx, state.applications)
    openmetrics = "application/openmetrics-text" in call.headers.get("accept", "")
    text = exposition(_seen_by(call.caller, families), openmetrics=openmetrics)
    return Answer(Response(text, media_type=OPEN if openmetrics else PLAIN))


def _seen_by(caller: Caller, families: list[Family]) -> list[Family]:
    """The families that the caller may see. Samples without a route are for callers who see all
    routes."""
    if caller.routes is None:
        return families
    return [
        replace(
            family,
            samples={
                labels: value for labels, value in family.samples.items() if caller.sees(labels[0])
            },
        )
        for family in families
        if family.labels[:1] == ("route",)
    ]
