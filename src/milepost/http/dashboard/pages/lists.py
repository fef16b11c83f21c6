"""Page of lists: submit one, and the lists so far."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from milepost.engine.lists.reconcile import MEANING
from milepost.engine.views.items import list_view, lists
from milepost.http.dashboard.render import page, seen_routes
from milepost.http.protocol.endpoint import Answer, Call, Endpoints
from milepost.http.state.state import ServerState

ENDPOINTS = Endpoints(pages=True)
SHOWN = 100


class ListsPageQuery(Struct, frozen=True):
    """The page number, from 1."""

    page: Annotated[int, Meta(ge=1, le=1_000_000)] = 1


@ENDPOINTS.add("GET", "/lists", scope="read", query=ListsPageQuery, summary="Submitted lists")
def all_lists(state: ServerState, call: Call) -> Answer:
    routes = seen_routes(state, call)
    found = [record for record in reversed(lists(state.ctx)) if record.route in routes]
    first = (call.query.page - 1) * SHOWN
    return page(
        state,
        call,
        "lists.html",
        here="/lists",
        # Some routes take no lists: Milepost makes the daily heads itself.
        routes=[name for name in routes if name in state.ctx.plans and not state.ctx.plans[name].route.closed],
        lists=[list_view(record) for record in found[first : first + SHOWN]],
        meaning=MEANING,
        total=len(found),
        first=first,
        number=call.query.page,
        more=len(found) > first + SHOWN,
    )
