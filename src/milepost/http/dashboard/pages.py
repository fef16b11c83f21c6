"""The pages: overview, items, one item, lists, events. Each is a plain answer to GET; what they do is done by the API."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote, urlencode

from msgspec import Struct
from msgspec.structs import fields
from starlette.responses import RedirectResponse

from milepost.core.durations import iso
from milepost.core.status import FAILED, LIVE, Status
from milepost.engine.observe import list_view, lists, route_names, show, stage_names
from milepost.engine.story import Story, story
from milepost.http.calls import Answer, Call, Endpoints
from milepost.http.dashboard import seeing
from milepost.http.dashboard.rendering import KINDS, page, static
from milepost.http.desk import Desk
from milepost.http.finding import Wanted, find
from milepost.http.problems import trouble

ENDPOINTS = Endpoints(pages=True)
SHOWN = 100
LATEST = 60


def _routes(desk: Desk, call: Call) -> list[str]:
    return [name for name in route_names(desk.ctx) if call.caller.sees(name)]


@ENDPOINTS.add("GET", "/", scope="read", summary="The overview")
def overview(desk: Desk, call: Call) -> Answer:
    routes = seeing.home(desk.ctx, _routes(desk, call))
    return Answer(page(desk, call.raw, "home.html", here="/", routes=routes, health=seeing.health(desk.ctx)))


@ENDPOINTS.add("GET", "/static/{name}", scope=None, summary="What the pages are made of")
def file(desk: Desk, call: Call) -> Answer:
    found = static(call.path["name"])
    if found is None:
        raise trouble("unknown-path", f"there is no file {call.path['name']!r}")
    return Answer(found)


class Sought(Struct, frozen=True):
    q: str = ""


@ENDPOINTS.add("GET", "/find", scope="read", query=Sought, summary="An item by its key, or by how its key begins")
def seek(desk: Desk, call: Call) -> Answer:
    """To the item with that key, if there is one on any route; else to the items of the first route whose keys begin so."""
    text = call.query.q.strip()
    routes = _routes(desk, call)
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
            call.raw,
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


@ENDPOINTS.add("GET", "/items/{route}/{key:path}", scope="read", summary="One item's story")
def item(desk: Desk, call: Call) -> Answer:
    plan, key = desk.plan(call), call.path["key"]
    view, told = show(desk.ctx, plan.name, key), story(desk.ctx, plan.name, key)
    if view is None or told is None:
        raise trouble("unknown-item", f"{plan.name} has no item {key!r}", field="key")
    facts = [
        (name.replace("_", " "), view[name]) for name in ("correlation_id", "work_id", "lane", "list_name", "version") if view.get(name)
    ]
    facts.append(("chain", {True: "whole", False: "BROKEN", None: view["chain"]["head"][:16]}[view["chain"]["verified"]]))
    values = [("Input", view.get("input")), *((f"Result of {stage}", value) for stage, value in (view.get("results") or {}).items())]
    return Answer(
        page(
            desk,
            call.raw,
            "item.html",
            route=plan.name,
            key=key,
            view=view,
            kind=KINDS[view["status"]],
            story=told,
            stages=_way(desk, plan.name, view),
            verbs=_verbs(told),
            happened=_happened(told, view["history"]),
            values=[(name, json.dumps(value, indent=2, ensure_ascii=False)) for name, value in values if value is not None],
            facts=facts,
        )
    )


def _way(desk: Desk, route: str, view: dict[str, Any]) -> list[dict[str, str]]:
    """The route's stages, and how far the item has come."""
    names, status = stage_names(desk.ctx, route), Status(view["status"])
    if view["stage"] not in names:
        return []
    at = names.index(view["stage"])
    here = "past" if status is Status.COMPLETED else "stuck" if status in FAILED else "at" if status in LIVE else "ahead"
    return [{"name": name, "state": "past" if place < at else here if place == at else "ahead"} for place, name in enumerate(names)]


def _verbs(told: Story) -> list[str]:
    """What the command line would offer, as buttons."""
    return [command.split()[1] for command in told.can if command.startswith("milepost ")]


_OF_EVERY_LINE = frozenset({"version", "at", "reason", "stage", "status", "to", "by", "why", "act", "output", "offered", "note"})


def _happened(told: Story, history: list[dict[str, Any]]) -> list[dict[str, Any]]:
    happened = []
    for place, one in enumerate(told.happened):
        line = history[place] if place < len(history) else {}
        attempt = {name: value for name, value in line.items() if name not in _OF_EVERY_LINE} if "attempt_number" in line else {}
        reason = line.get("reason", "")
        kind = "fail" if attempt else "done" if reason in ("advanced", "completed", "confirmed") else ""
        details = json.dumps(attempt, indent=2, ensure_ascii=False) if attempt else ""
        happened.append({"at": iso(one.at), "text": one.text, "kind": kind, "details": details})
    return happened


@ENDPOINTS.add("GET", "/lists", scope="read", summary="Lists that were handed over")
def all_lists(desk: Desk, call: Call) -> Answer:
    routes = _routes(desk, call)
    found = [list_view(record) for record in reversed(lists(desk.ctx)) if record.route in routes]
    return Answer(
        page(
            desk, call.raw, "lists.html", here="/lists", routes=[route for route in routes if route in desk.ctx.plans], lists=found[:SHOWN]
        )
    )


@ENDPOINTS.add("GET", "/events", scope="read", summary="What happened last, and who has been told")
def events(desk: Desk, call: Call) -> Answer:
    routes = set(_routes(desk, call))
    latest = desk.ctx.ledger.feed(max(0, desk.ctx.ledger.last_seq() - LATEST), LATEST)
    shown = [
        {"at": iso(one.line.at), "route": one.route, "key": one.key, "kind": one.line.reason.value, "stage": one.line.stage}
        for one in reversed(latest)
        if one.route in routes
    ]
    return Answer(page(desk, call.raw, "events.html", here="/events", subscribers=seeing.health(desk.ctx)["subscribers"], events=shown))
