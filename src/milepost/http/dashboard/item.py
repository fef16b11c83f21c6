"""One item: where it is and why, what happened, what it carries, and what a person can do."""

from __future__ import annotations

import json
from typing import Any

from milepost.core.durations import iso
from milepost.core.status import FAILED, LIVE, Status
from milepost.engine.observe import show, stage_names
from milepost.engine.story import Story, story
from milepost.http.calls import Answer, Call, Endpoints
from milepost.http.dashboard.rendering import KINDS, page
from milepost.http.desk import Desk
from milepost.http.problems import trouble

ENDPOINTS = Endpoints(pages=True)


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
            call,
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
