"""Page of an item: status and stage, history, content, evidence, and the acts that are possible."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from milepost.core.history import NO_NEXT_TRY, Line
from milepost.core.item import digest_of
from milepost.core.routes.plan import Plan
from milepost.core.status import FAILED, LIVE, Reason, Status
from milepost.core.values.json import canonical_json
from milepost.core.values.redaction import redacted
from milepost.engine.context import Context
from milepost.engine.views.blocks import BlockedLanes
from milepost.engine.views.items import row_view, show, stage_names, without_secrets
from milepost.engine.views.story import StoryLine, story
from milepost.engine.views.timestamps import instant
from milepost.http.dashboard.render import page, seen_routes
from milepost.http.dashboard.stage_times import way
from milepost.http.protocol.endpoint import Answer, Call, endpoint
from milepost.http.state.state import ServerState
from milepost.ports.items import Query

GOOD = frozenset({Reason.ADVANCED, Reason.COMPLETED, Reason.CONFIRMED})
ALIKE, LOOKS = 10, 6
"""Maximum keys shown that begin like an unknown one, and maximum queries for them."""


@endpoint("GET", "/items/{route}/{key:path}", scope="read", page=True, summary="One item's story")
def item(state: ServerState, call: Call) -> Answer:
    plan, key = state.plan(call), call.path["key"]
    view, found_story = show(state.ctx, plan.name, key), story(state.ctx, plan.name, key, instant)
    if view is None or found_story is None:
        return _unknown(state, call, plan, key)
    stages, now = stage_names(state.ctx, plan.name), state.ctx.clock.now()
    held_since = view.get("held_since")
    claimed_at = (
        None if held_since is None else round(datetime.fromisoformat(held_since).timestamp() * 1000)
    )
    picture = way([one.line for one in found_story.happened], stages, now, claimed_at)
    key_part = plan.route.key
    happened = [_entry(one, view["results"] or {}) for one in found_story.happened]
    another, view = _another(plan, view), without_secrets(view)
    return page(
        state,
        call,
        "item.html",
        route=plan.name,
        key=view["key"],
        view=view,
        story=found_story,
        stages=_path(stages, view),
        # The acts that the command line would offer, as buttons.
        verbs=[
            command.split()[1] for command in found_story.can if command.startswith("milepost ")
        ],
        back=_back(stages, view),
        stage_names=stages,
        content=None if view["input"] is None else written(view["input"]),
        happened=happened,
        way=picture,
        values=_values(view),
        another=another,
        key_fields=""
        if callable(key_part)
        else key_part
        if isinstance(key_part, str)
        else " and ".join(key_part),
    )


def _path(names: list[str], view: dict[str, Any]) -> list[dict[str, str]]:
    """The route's stages, and the item's progress."""
    status = Status(view["status"])
    if view["stage"] not in names:
        return []
    at = names.index(view["stage"])
    here = (
        "past"
        if status is Status.COMPLETED
        else "stuck"
        if status in FAILED
        else "at"
        if status in LIVE
        else "ahead"
    )
    return [
        {"name": name, "state": "past" if place < at else here if place == at else "ahead"}
        for place, name in enumerate(names)
    ]


def _back(names: list[str], view: dict[str, Any]) -> list[str]:
    """The earlier stages that the item could be sent back to."""
    if (
        view["sealed"]
        or view["stage"] not in names
        or view["status"] in (Status.COMPLETED, Status.PROCESSING)
    ):
        return []
    return names[: names.index(view["stage"])]


def _values(view: dict[str, Any]) -> list[tuple[str, str]]:
    """Content of the item: the input, the result of each stage, and the payload of its stage if
    that is different."""
    found = [("Input", view["input"])]
    # Earlier inputs that were replaced, the latest first.
    found += [
        (f"Input until {one['until']}, replaced by {one['by']}", one.get("content"))
        for one in reversed(view.get("replaced") or [])
    ]
    found += [(f"Result of {stage}", value) for stage, value in (view["results"] or {}).items()]
    known = {canonical_json(value) for _, value in found}
    payload = view.get("payload")
    if payload is not None and canonical_json(payload) not in known:
        found.insert(1, (f"What {view['stage']} works on", payload))
    return [(name, written(value)) for name, value in found if value is not None]


def _another(plan: Plan, view: dict[str, Any]) -> str | None:
    """Input for a new item like this one; None if it cannot be derived, or holds a secret, which is
    not shown."""
    if (
        view["input"] is None
        or plan.route.closed
        or plan.route.carries is not None
        or redacted(view["input"]) != view["input"]
    ):
        return None
    return written(view["input"])


def _unknown(state: ServerState, call: Call, plan: Plan, key: str) -> Answer:
    """The page for an unknown key: it may be on another route, or be misspelt."""
    elsewhere = [
        route
        for route in seen_routes(state, call)
        if route != plan.name and state.ctx.ledger.peek(route, [key])[0] is not None
    ]
    begins, alike = _alike(state.ctx, plan.name, key)
    return page(
        state,
        call,
        "no_item.html",
        status=404,
        route=plan.name,
        key=key,
        q=key,
        elsewhere=elsewhere,
        begins=begins,
        alike=alike,
    )


def _alike(ctx: Context, route: str, key: str) -> tuple[str, list[dict[str, Any]]]:
    """Items whose keys begin like this one: with all of it, then with less and less, if an index
    serves that."""
    begins = key
    for _ in range(LOOKS):
        query = Query(route=route, prefix=begins, limit=ALIKE)
        if not begins or ctx.ledger.cost_of(query) is not None:
            break
        if found := ctx.ledger.find(query).items:
            lanes = BlockedLanes(ctx, route)
            return begins, [row_view(item, lanes.of(item.row)) for item in found]
        begins = begins[: len(begins) * 2 // 3]
    return "", []


def written(value: Any) -> str:
    """JSON for people. It is formatted here and not in the browser, which would lose the last
    digits of large numbers."""
    return json.dumps(value, indent=2, ensure_ascii=False)


def _entry(one: StoryLine, results: dict[str, Any]) -> dict[str, Any]:
    """A line of the timeline: the line itself, a sentence about it, and the values below it by
    their titles."""
    line, attempt = one.line, one.line.attempt
    shown: dict[str, Any] = {
        "line": line,
        "kind": "done" if line.reason in GOOD else "",
        "text": one.short,
        "values": {"answer": _said(line, results)},
    }
    if attempt is None:
        return shown
    end = NO_NEXT_TRY.get(line.reason, "")
    details = None if attempt.details is None else written(attempt.details)
    return {
        **shown,
        "kind": "fail",
        "text": f"attempt {attempt.number} at '{line.stage}' failed{end}",
        "values": {**shown["values"], "details": details, "traceback": attempt.traceback},
        "took_ms": attempt.response_ms or (0 if line.since is None else line.at - line.since),
    }


def _said(line: Line, results: dict[str, Any]) -> str:
    """The value of a confirmation, if it still is the stage's result, and notes about the item;
    without secrets."""
    if line.version and line.note is not None and not isinstance(line.note, str):
        return written(redacted(line.note))
    given = results.get(line.stage)
    if (
        line.reason is Reason.CONFIRMED
        and line.output is not None
        and given is not None
        and digest_of(given).hex() == line.output
    ):
        return written(redacted(given))
    return ""
