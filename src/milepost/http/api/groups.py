"""Why items fail: errors that are alike, counted together."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from milepost.engine.views.items import groups
from milepost.http.protocol.endpoint import Answer, Call, Endpoints
from milepost.http.state.state import ServerState

ENDPOINTS = Endpoints()


class Groups(Struct, frozen=True):
    """The most frequent now first. `group` is what `GET …/items?group=` and the filter of an act take; `now`: so many items have it at
    present, `total`: so often it was met."""

    groups: list[dict[str, Any]]


@ENDPOINTS.add(
    "GET",
    "/api/v1/routes/{route}/groups",
    scope="read",
    answers={200: Groups},
    problems=("unknown-route",),
    summary="Failures by cause",
)
def causes(state: ServerState, call: Call) -> Answer:
    """As `milepost groups ROUTE --json`: from counters that the ledger keeps, so that asking costs little, however many items there are."""
    return Answer(Groups(groups(state.ctx, state.plan(call).name)))
