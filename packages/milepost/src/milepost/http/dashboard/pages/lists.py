"""Pages of lists: submit one, the lists so far, and one list in full."""

from __future__ import annotations

from itertools import islice
from typing import Annotated

from msgspec import Meta, Struct

from milepost.core.errors import MilepostError
from milepost.engine.lists.reconcile import MEANING, vanished_keys
from milepost.engine.views.forecast import Scope, list_progress, route_forecast, sentence_views
from milepost.engine.views.items import list_view, lists
from milepost.http.api.lists import the_list
from milepost.http.dashboard.render import page, seen_routes
from milepost.http.protocol.endpoint import Answer, Call, endpoint
from milepost.http.state.state import ServerState

SHOWN = 100


class ListsPageQuery(Struct, frozen=True):
    """The page number, from 1."""

    page: Annotated[int, Meta(ge=1, le=1_000_000)] = 1


@endpoint("GET", "/lists", scope="read", page=True, query=ListsPageQuery, summary="Submitted lists")
def all_lists(state: ServerState, call: Call) -> Answer:
    routes = seen_routes(state, call)
    found = [record for record in reversed(lists(state.ctx)) if record.route in routes]
    first = (call.query.page - 1) * SHOWN
    return page(
        state,
        call,
        "lists.html",
        # Some routes take no lists: Milepost makes the daily heads itself.
        routes=[
            name
            for name in routes
            if name in state.ctx.plans and not state.ctx.plans[name].route.closed
        ],
        lists=[list_view(record) for record in found[first : first + SHOWN]],
        meaning=MEANING,
        total=len(found),
        first=first,
        number=call.query.page,
        more=len(found) > first + SHOWN,
    )


class ListPageData(Struct, frozen=True):
    vanished: bool = False
    """Vanished keys are found by comparing two whole lists, so they are shown only on request."""


@endpoint(
    "GET",
    "/lists/{id}",
    scope="read",
    page=True,
    query=ListPageData,
    summary="One list, with its counts",
)
def one_list(state: ServerState, call: Call) -> Answer:
    record = the_list(state, call)
    same = [
        one
        for one in reversed(lists(state.ctx, record.route))
        if record.digest and one.digest == record.digest and one.id != record.id
    ]
    gone: list[str] | None = None
    trouble = ""
    if call.query.vanished:
        try:
            gone = list(islice(vanished_keys(state.ctx, record.route, record.id), SHOWN))
        except MilepostError as error:
            trouble = str(error)
    return page(
        state,
        call,
        "list.html",
        one=list_view(record),
        known=record.route in state.ctx.plans,
        progress=list_progress(state.ctx, record.route, [record.id]),
        forecast=sentence_views(route_forecast(state.ctx, record.route, Scope(lists=(record.id,)))),
        meaning=MEANING,
        same=[list_view(one) for one in same[:SHOWN]],
        gone=gone,
        trouble=trouble,
    )
