"""Failures by cause: groups of similar errors, with counts."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from milepost.engine.views.items import groups
from milepost.http.protocol.endpoint import Call, endpoint
from milepost.http.state.state import ServerState


class Groups(Struct, frozen=True):
    """The most frequent now first. Give `group` to `GET …/items?group=` or to the filter of an act.
    `now`: items that have this error at present; `total`: how often it has occurred."""

    groups: list[dict[str, Any]]


@endpoint("GET", "/api/v1/routes/{route}/groups", scope="read", summary="Failures by cause")
def list_groups(state: ServerState, call: Call) -> Groups:
    """As `milepost groups ROUTE --json`: from counters of the ledger, so the call is cheap for any
    number of items."""
    return Groups(groups(state.ctx, state.plan(call).name))
