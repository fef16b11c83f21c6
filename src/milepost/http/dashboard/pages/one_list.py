"""Page of a list: submitter and time, counts by kind of line, and links to its items."""

from __future__ import annotations

from itertools import islice

from msgspec import Struct

from milepost.core.errors import MilepostError
from milepost.engine.lists.reconcile import MEANING, vanished_keys
from milepost.engine.views.items import list_view, lists
from milepost.http.api.lists import the_list
from milepost.http.dashboard.render import page
from milepost.http.protocol.endpoint import Answer, Call, Endpoints
from milepost.http.state.state import ServerState

ENDPOINTS = Endpoints(pages=True)
SHOWN = 100


class ListPageData(Struct, frozen=True):
    vanished: bool = False
    """Vanished keys are found by comparing two whole lists, so they are shown only on request."""


@ENDPOINTS.add("GET", "/lists/{id}", scope="read", query=ListPageData, summary="One list, with its counts")
def one_list(state: ServerState, call: Call) -> Answer:
    record = the_list(state, call)
    same = [
        one for one in reversed(lists(state.ctx, record.route)) if record.digest and one.digest == record.digest and one.id != record.id
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
        here="/lists",
        one=list_view(record),
        known=record.route in state.ctx.plans,
        meaning=MEANING,
        same=[list_view(one) for one in same[:SHOWN]],
        gone=gone,
        trouble=trouble,
    )
