"""The items of a route, by filter, and the search for one by its key."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote, urlencode

from msgspec import Struct
from msgspec.structs import fields
from starlette.responses import RedirectResponse

from milepost.core.status import Status
from milepost.engine.observe import stage_names
from milepost.http.calls import Answer, Call, Endpoints
from milepost.http.dashboard.rendering import KINDS, page, seen_routes
from milepost.http.desk import Desk
from milepost.http.finding import Wanted, find

ENDPOINTS = Endpoints(pages=True)
SHOWN = 100


class Sought(Struct, frozen=True):
    q: str = ""


@ENDPOINTS.add("GET", "/find", scope="read", query=Sought, summary="An item by its key, or by how its key begins")
def seek(desk: Desk, call: Call) -> Answer:
    """To the item with that key, if there is one on any route; else to the items of the first route whose keys begin so."""
    text = call.query.q.strip()
    routes = seen_routes(desk, call)
    for route in routes:
        if text and desk.ctx.ledger.peek(route, [text])[0] is not None:
            return Answer(RedirectResponse(f"/items/{quote(route, safe='')}/{quote(text, safe='')}", 303))
    for route in routes:
        if find(desk, _asked(call, route, Wanted(prefix=text, limit=1))).body.items:
            return Answer(RedirectResponse(f"/items/{quote(route, safe='')}?{urlencode({'prefix': text})}", 303))
    where = f"/items/{quote(routes[0], safe='')}?{urlencode({'prefix': text})}" if routes else "/"
    return Answer(RedirectResponse(where, 303))


def _asked(call: Call, route: str, wanted: Wanted) -> Call:
    return Call(call.caller, {**call.path, "route": route}, wanted, raw=call.raw)


@ENDPOINTS.add("GET", "/items/{route}", scope="read", query=Wanted, summary="The items of a route")
def items(desk: Desk, call: Call) -> Answer:
    plan, asked = desk.plan(call), _filled(call.query)
    answer = find(desk, _asked(call, plan.name, asked))
    chosen = {name: value for name, value in _plain(asked).items() if name not in ("after", "limit", "scan")}
    more = None if answer.body.next is None else f"?{urlencode({**chosen, 'after': answer.body.next}, doseq=True)}"
    return Answer(
        page(
            desk,
            call,
            "items.html",
            route=plan.name,
            stages=stage_names(desk.ctx, plan.name),
            statuses=["live", "failed", *(status.value for status in Status)],
            asked=asked,
            filtered=bool(chosen),
            filter_json=json.dumps(chosen),
            query=f"?{urlencode(chosen, doseq=True)}" if chosen else "",
            items=[{**row, "kind": KINDS[row["status"]], "says": _says(row)} for row in answer.body.items],
            more=more,
            first=f"?{urlencode(chosen, doseq=True)}" if asked.after else None,
        )
    )


def _filled(wanted: Wanted) -> Wanted:
    """A form sends the empty fields too."""
    return Wanted(
        status=[status for status in wanted.status if status],
        stage=[stage for stage in wanted.stage if stage],
        lane=wanted.lane or None,
        group=wanted.group or None,
        list_=wanted.list_ or None,
        prefix=wanted.prefix or None,
        older_than=wanted.older_than or None,
        overdue=wanted.overdue,
        nearest=wanted.nearest,
        scan=wanted.scan,
        limit=SHOWN,
        after=wanted.after or None,
    )


def _plain(wanted: Wanted) -> dict[str, Any]:
    return {field.encode_name: value for field in fields(wanted) if (value := getattr(wanted, field.name))}


def _says(row: dict[str, Any]) -> str:
    error = row.get("error")
    return str(row.get("why") or (f"{error['category']}: {error['message']}" if error else row.get("note") or ""))
