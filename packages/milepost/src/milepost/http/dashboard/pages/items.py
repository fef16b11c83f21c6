"""The items of a route, by filter, as a page or as a file; and the search for one by its key on all
routes."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from typing import Any
from unicodedata import normalize
from urllib.parse import quote, urlencode

import msgspec
from msgspec import Struct
from msgspec.structs import fields, replace
from starlette.responses import RedirectResponse, StreamingResponse

from milepost.core.admission.controls import scope
from milepost.core.errors import UsageError
from milepost.core.routes.plan import Plan
from milepost.core.status import Status
from milepost.core.values.durations import short_span, span_ms
from milepost.engine.context import Context
from milepost.engine.known_keys import known_key
from milepost.engine.views.blocks import BlockedLanes
from milepost.engine.views.item_filter import query_of
from milepost.engine.views.items import counted, each, lists, own_route, row_view, stage_names
from milepost.engine.views.late_items import LOOK, each_overdue, late_item_view, nearest
from milepost.engine.views.queries import count_of_matches, key_fields
from milepost.http.api.find import ItemPage, ItemsQuery, afford, find
from milepost.http.dashboard.render import age, ms_since, page, seen_routes
from milepost.http.protocol.endpoint import Answer, Call, attachment, endpoint
from milepost.http.protocol.problems import ProblemError, problem_error
from milepost.http.state.state import ServerState
from milepost.ports.documents import HOLD
from milepost.ports.items import Query

SHOWN = 100
LISTS = 50
"""Maximum lists to choose from, the latest first."""
SPAN = "Write a span of time, such as 30m, 6h or 2d."
COLUMNS = (
    "key",
    "stage",
    "status",
    "attempts",
    "lane",
    "due_at",
    "created_at",
    "entered_at",
    "updated_at",
    "ended_at",
    "correlation_id",
)
FORMULA, BLANK = ("=", "+", "-", "@"), ("\t", "\r", "\n")
TYPES = {"csv": "text/csv; charset=utf-8", "json": "application/json"}


class FindQuery(Struct, frozen=True):
    q: str = ""


class FilterFault(Struct, frozen=True):
    """Why no items are shown. `age`: the fault is in the field for the age. `scan`: the URL that
    reads all rows nevertheless."""

    text: str
    age: bool = False
    scan: str | None = None


@endpoint(
    "GET",
    "/find",
    scope="read",
    page=True,
    query=FindQuery,
    summary="An item by its key, or by how its key begins",
)
def seek(state: ServerState, call: Call) -> Answer:
    """Redirects to the item with that key, if there is one on any route; otherwise to the items of
    the first route whose keys begin with it; otherwise shows a page that says where it was searched
    for."""
    text = call.query.q.strip()
    if not text:
        return _to(state, "/items")
    for route in seen_routes(state, call):
        key = known_key(state.ctx, route, text)
        if state.ctx.ledger.peek(route, [key])[0] is not None:
            return _to(state, f"/items/{quote(route, safe='')}/{quote(key, safe='')}")
    known, unread = _routes(state, call), {}
    for route in known:
        found, wrong, _ = _look(state, call, route, ItemsQuery(prefix=text, limit=1))
        if found.items:
            return _to(state, f"/items/{quote(route, safe='')}?{urlencode({'prefix': text})}")
        if wrong is not None or found.more:
            unread[route] = "" if wrong is None else wrong.text
    return page(
        state, call, "no_key.html", status=404, here="/items", q=text, routes=known, unread=unread
    )


@endpoint(
    "GET", "/items", scope="read", page=True, summary="Redirect to the items of the first route"
)
def first_route(state: ServerState, call: Call) -> Answer:
    """That page has links to the other routes."""
    routes = _routes(state, call)
    return _to(state, f"/items/{quote(routes[0], safe='')}" if routes else "/")


@endpoint(
    "GET",
    "/items/{route}",
    scope="read",
    page=True,
    query=ItemsQuery,
    summary="The items of a route",
)
def items(state: ServerState, call: Call) -> Answer:
    """An invalid filter is shown with a sentence that says what is wrong, beside the fields."""
    plan, asked = state.plan(call), filled(call.query)
    found, wrong, cost = _look(state, call, plan.name, asked)
    chosen = _chosen(asked)
    question = {
        name: chosen[name] for name in ("overdue", "nearest", "oldest_first") if name in chosen
    }
    narrowed = {name: value for name, value in chosen.items() if name not in question}
    # The conditions that mean the same on another route, and all of them in the other order.
    anywhere = {
        name: value for name, value in chosen.items() if name in ("status", "prefix", "older_than")
    }
    turned = {**chosen, "oldest_first": None if asked.oldest_first else "true"}
    now = state.ctx.clock.now()
    total = None if wrong is not None else _total(state.ctx, plan, asked, found)
    return page(
        state,
        call,
        "items.html",
        status=200 if wrong is None else 400,
        route=plan.name,
        routes=[
            (name, f"/items/{quote(name, safe='')}{_address(anywhere)}")
            for name in _routes(state, call)
        ],
        asked=asked,
        wrong=wrong,
        cost=cost,
        stages=stage_names(state.ctx, plan.name),
        choices=_choices(state.ctx, plan, asked),
        tabs=_tabs(plan, asked, narrowed),
        narrowed=bool(narrowed),
        total=total,
        count_text="" if wrong is not None else _count_text(total, found, bool(narrowed)),
        filter_json=json.dumps(narrowed),
        can_all=not (asked.overdue or asked.nearest),
        other_order=None if asked.overdue or asked.nearest else _address(turned) or "?",
        ordered=found.ordered,
        skips=plan.route.skips,
        query=_address({**chosen, **({"scan": "true"} if asked.scan else {})}),
        items=[_shown(row, now) for row in found.items],
        refused=found.refused,
        left=found.left,
        more_left=found.more_left,
        all_left_known=found.all_left_known,
        more=None if found.next is None else _address({**chosen, "after": found.next}),
        some=found.more and found.next is None,
        first=_address(chosen) or "?" if asked.after else None,
    )


def filled(wanted: ItemsQuery) -> ItemsQuery:
    """The query of a form: forms send empty fields too, and several values of one field with commas
    between them."""
    return replace(
        wanted,
        statuses=_several(wanted.statuses),
        stages=_several(wanted.stages),
        lane=wanted.lane or None,
        group=wanted.group or None,
        list_=wanted.list_ or None,
        prefix=wanted.prefix or None,
        parts=_several(wanted.parts),
        older_than=(wanted.older_than or "").strip() or None,
        nearest=wanted.nearest and not wanted.overdue,
        limit=SHOWN,
        after=wanted.after or None,
    )


def _to(state: ServerState, address: str) -> Answer:
    return Answer(RedirectResponse(state.base + address, 303))


def _routes(state: ServerState, call: Call) -> list[str]:
    """The routes whose items the caller may view; Milepost's own are last."""
    return sorted(
        (name for name in state.ctx.plans if call.caller.sees(name)),
        key=lambda name: own_route(state.ctx, name),
    )


def _total(ctx: Context, plan: Plan, asked: ItemsQuery, found: ItemPage) -> int | None:
    """Number of matching items, if it is known without reading them: all are on this page, or the
    ledger has counted them."""
    if not found.more and asked.after is None:
        return len(found.items)
    total = (
        None
        if asked.overdue or asked.nearest
        else count_of_matches(ctx, query_of(ctx, plan.name, asked.item_filter()))
    )
    # Some ledgers update their counters with a delay.
    return total if total is not None and total >= len(found.items) else None


def _count_text(total: int | None, found: ItemPage, narrowed: bool) -> str:
    """How many items match, and how many of them are shown."""
    shown = f"{len(found.items):,} shown"
    if total is None:
        return f"{shown}, more follow" if found.more else f"{shown}, the last of them"
    whole = counted(total, "item") + ((" matches" if total == 1 else " match") if narrowed else "")
    return whole if total == len(found.items) else f"{whole}, {shown}"


def _several(values: list[str]) -> list[str]:
    return [one for value in values for one in value.split(",") if one]


def _look(
    state: ServerState, call: Call, route: str, asked: ItemsQuery
) -> tuple[ItemPage, FilterFault | None, str]:
    """The answer of the API, or the fault in the query; and the cost, if no index serves the query
    and there are many rows."""
    nothing = ItemPage([], None, False)
    try:
        if asked.older_than is not None:
            span_ms(asked.older_than, "older_than")
    except UsageError:
        return nothing, FilterFault(SPAN, age=True), ""
    try:
        answer = find(state, Call(call.caller, {**call.path, "route": route}, asked, raw=call.raw))
    except UsageError as error:
        return nothing, FilterFault(_sentence(str(error))), ""
    except ProblemError as trouble:
        if trouble.problem.status != 400:
            raise
        again = (
            _address({**_chosen(asked), "scan": "true"})
            if trouble.problem.code == "costly"
            else None
        )
        return nothing, FilterFault(_sentence(trouble.problem.detail), scan=again), ""
    cost = answer.headers.get("Milepost-Cost")
    return answer.body, None, _sentence(cost) if cost else ""


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:].rstrip('.')}."


def _chosen(asked: ItemsQuery) -> dict[str, Any]:
    """The conditions, as query parameters."""
    plain = {
        field.encode_name: value for field in fields(asked) if (value := getattr(asked, field.name))
    }
    chosen = {
        name: value for name, value in plain.items() if name not in ("after", "limit", "scan")
    }
    return {name: "true" if value is True else value for name, value in chosen.items()}


def _address(chosen: dict[str, Any]) -> str:
    flat = {
        name: ",".join(value) if isinstance(value, list) else value
        for name, value in chosen.items()
        if value is not None
    }
    return f"?{urlencode(flat)}" if flat else ""


def _tabs(plan: Plan, asked: ItemsQuery, narrowed: dict[str, Any]) -> list[tuple[str, str, bool]]:
    """The tabs of the page: name, URL, and whether it is selected."""
    tabs = [("All", _address(narrowed) or "?", not (asked.overdue or asked.nearest))]
    if asked.overdue or any(stage.overdue_ms is not None for stage in plan.stages):
        tabs.append(("Overdue", _address({**narrowed, "overdue": "true"}), asked.overdue))
    return [
        *tabs,
        ("Closest to completion", _address({**narrowed, "nearest": "true"}), asked.nearest),
    ]


def _choices(ctx: Context, plan: Plan, asked: ItemsQuery) -> dict[str, Any]:
    """The values to choose from; the selected ones are always included."""
    names = list(dict.fromkeys(record.name for record in reversed(lists(ctx, plan.name))))
    groups = sorted(ctx.ledger.groups(plan.name), key=lambda group: (-group.now, group.group))
    causes = {
        group.group: f"{group.category} at {group.stage}: {group.sample}"
        for group in reversed(groups)
        if group.now
    }
    if asked.group is not None:
        causes.setdefault(asked.group, asked.group)
    return {
        "stages": _options({name: name for name in stage_names(ctx, plan.name)}, asked.stages),
        "statuses": _options(
            {word: word.lower().replace("_", " ") for word in ("live", "failed", *Status)},
            asked.statuses,
        ),
        "lists": names[:LISTS],
        "causes": [
            (name, label if len(label) <= 80 else f"{label[:79]}…")
            for name, label in reversed(causes.items())
        ],
        "lanes": _lanes(ctx, plan),
        "key_fields": key_fields(ctx, plan.name),
        "laned": asked.lane is not None or any(stage.lane is not None for stage in plan.stages),
    }


def _options(known: dict[str, str], asked: list[str]) -> list[tuple[str, str]]:
    """Each as (value, word); several values that were selected together are one option."""
    together = ",".join(asked)
    offered = (
        known
        if not together or together in known
        else {**known, together: ", ".join(known.get(one, one) for one in asked)}
    )
    return list(offered.items())


def _lanes(ctx: Context, plan: Plan) -> list[str]:
    """The lanes that the route file limits, or that are paused; others can be typed in."""
    named, holds = {lane for stage in plan.stages for lane in stage.lanes}, ctx.ledger.read(HOLD)
    for stage in plan.stages:
        above = f"{scope(plan.name, stage.name)}/"
        named |= {name.removeprefix(above) for name in holds if name.startswith(above)}
    return sorted(named)


def _shown(row: dict[str, Any], now: int) -> dict[str, Any]:
    """A row of the table: times with their distance from now. `since`: when the item reached its
    stage, or became overdue there. A `blocked` item is not due, unless a worker has `claimed` it
    already."""
    due = None if row["due_at"] is None else -ms_since(row["due_at"], now)
    since = row.get("overdue_at") or row["entered_at"]
    error = row.get("error")
    ahead = "dated in the future" if row["not_before"] is None else "scheduled"
    fault = f"{error['category']}: {error['message']}" if error else row.get("note")
    return {
        **row,
        "claimed": row["status"] == Status.PROCESSING,
        "since": since,
        "age": age(since, now) if ms_since(since, now) >= -1000 else ahead,
        "due": "" if due is None else f"in {short_span(due)}" if due > 0 else "due",
        "says": str(row.get("why") or "; ".join(filter(None, (row["blocked_because"], fault)))),
    }


@endpoint(
    "GET",
    "/export/{route}.{form}",
    scope="read",
    page=True,
    query=ItemsQuery,
    summary="The items of a page as CSV or JSON",
)
def export(state: ServerState, call: Call) -> Answer:
    """All items that match, not only those of the page; with `nearest`, the first ten thousand. The
    file is written row by row, so memory use does not grow with their number."""
    plan, wanted, form = state.plan(call), filled(call.query), call.path["form"]
    if form not in TYPES:
        raise problem_error(
            "unknown-path", f"there is no form {form!r}", field="form", expected="csv or json"
        )
    query = query_of(state.ctx, plan.name, wanted.item_filter())
    afford(state.ctx, query, wanted.scan)
    rows = _rows(state.ctx, query, wanted)
    content = _csv(rows) if form == "csv" else _json(rows)
    return Answer(
        StreamingResponse(
            content, media_type=TYPES[form], headers=attachment(f"{plan.name}.{form}")
        )
    )


def _rows(ctx: Context, query: Query, wanted: ItemsQuery) -> Iterator[dict[str, Any]]:
    """In the order of the page; overdue items stage by stage, because there may be too many to
    sort."""
    now = ctx.clock.now()
    if wanted.overdue:
        yield from (late_item_view(asked, now) for asked in each_overdue(ctx, query))
    elif wanted.nearest:
        yield from (late_item_view(asked, now) for asked in nearest(ctx, query, LOOK)[0])
    else:
        lanes = BlockedLanes(ctx, query.route)
        yield from (row_view(item, lanes.of(item.row)) for item in each(ctx, query))


def _csv(rows: Iterator[dict[str, Any]]) -> Iterator[str]:
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow([*COLUMNS, "error", "why", "blocked_because"])
    for row in rows:
        error = row["error"]
        said = (
            f"{error['category']}: {error['message']}" if error else "",
            row.get("why", ""),
            row["blocked_because"] or "",
        )
        writer.writerow([cell(value) for value in (*(row[name] for name in COLUMNS), *said)])
        yield out.getvalue()
        out.seek(0)
        out.truncate()
    yield out.getvalue()


def cell(value: Any) -> Any:
    """Keeps text that a spreadsheet would read as a formula as text. Spreadsheets ignore blanks
    before a formula, and some treat full-width characters of East Asian scripts like ASCII."""
    if not isinstance(value, str):
        return value
    begins = normalize("NFKC", value.lstrip()[:1])
    return f"'{value}" if value[:1] in BLANK or begins[:1] in FORMULA else value


def _json(rows: Iterator[dict[str, Any]]) -> Iterator[bytes]:
    start = b"["
    for row in rows:
        yield start + msgspec.json.encode(row)
        start = b",\n"
    yield b"]" if start != b"[" else b"[]"
