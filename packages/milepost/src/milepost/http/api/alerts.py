"""Alerts over HTTP: those that are raised now."""

from __future__ import annotations

from msgspec import Struct

from milepost.engine.alerts.watch import AlertView, alert_views
from milepost.http.protocol.endpoint import Call, endpoint
from milepost.http.state.state import ServerState


class RaisedAlerts(Struct, frozen=True):
    """The oldest first. `kind`: `failures` of a cause, an open `breaker`, or a `pause` that a
    program made."""

    alerts: list[AlertView]


@endpoint("GET", "/api/v1/alerts", scope="read", summary="Alerts that are raised")
def alerts(state: ServerState, call: Call) -> RaisedAlerts:
    """As `milepost alerts --json`: one for each cause and lane, of the routes that the key may
    see."""
    return RaisedAlerts([one for one in alert_views(state.ctx) if call.caller.sees(one.route)])
