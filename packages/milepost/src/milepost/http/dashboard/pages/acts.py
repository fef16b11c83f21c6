"""Pages of acts: who did what, to which items, why, and with which result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote, urlencode

from msgspec import Struct

from milepost.core.operators import VERBS
from milepost.core.status import FAILED, LIVE
from milepost.core.values.key_text import unescape_part
from milepost.engine.act_log import act_view, all_acts, control_in_words
from milepost.engine.acts.outcome import DEEDS, deed_words, outcome_of
from milepost.engine.acts.redate import VERB as REDATE
from milepost.engine.views.items import counted, lists
from milepost.engine.views.queries import key_fields
from milepost.http.dashboard.render import page, seen_routes
from milepost.http.protocol.endpoint import Answer, Call, endpoint
from milepost.http.protocol.problems import problem_error
from milepost.http.state.state import ServerState
from milepost.ports.documents import ACT, Act, read_versioned
from milepost.ports.feed import Group

SHOWN = 100
SAMPLE = 60
MOVES_MS = 60_000
"""An act without progress for longer than this was cut off."""
FILTER = ("key", "keys", "digest", "query")
"""Parts of an act that say which items it was for; the rest are its options."""
WHOLE_ROUTE = {REDATE: "items dated in the future"}
"""What an act without a selection was for."""


class ActNames(Struct, frozen=True):
    """Names of lists and causes by their ids, and the fields of each route's key. An unknown one is
    shown by its id."""

    lists: Mapping[str, str] = {}
    causes: Mapping[str, str] = {}
    key_fields: Mapping[str, Sequence[str]] = {}


class ActsQuery(Struct, frozen=True):
    """`before`: the id of the act before which the page begins. Empty: any."""

    route: str = ""
    verb: str = ""
    by: str = ""
    before: str = ""


@endpoint("GET", "/acts", scope="read", page=True, query=ActsQuery, summary="Acts")
def acts(state: ServerState, call: Call) -> Answer:
    asked: ActsQuery = call.query
    chosen = {name: value for name in ("route", "verb", "by") if (value := getattr(asked, name))}
    seen = [act for act in all_acts(state.ctx) if call.caller.sees(act.route)]
    found = (
        [act for act in all_acts(state.ctx, **chosen) if call.caller.sees(act.route)]
        if chosen
        else seen
    )
    start = next((place for place, act in enumerate(found, 1) if act.id == asked.before), 0)
    shown, rest = found[start : start + SHOWN], len(found) - start - SHOWN
    names = _names(state, shown)
    return page(
        state,
        call,
        "acts.html",
        asked=asked,
        filtered=bool(chosen),
        routes=seen_routes(state, call),
        verbs=sorted({act.verb for act in seen}),
        people=sorted({act.by for act in seen}),
        acts=[_row(act, names, state.ctx.clock.now()) for act in shown],
        more=f"?{urlencode({**chosen, 'before': shown[-1].id})}" if rest > 0 else None,
        first=f"?{urlencode(chosen)}" if start else None,
    )


@endpoint("GET", "/acts/{id}", scope="read", page=True, summary="One act in full")
def one(state: ServerState, call: Call) -> Answer:
    found, _ = read_versioned(state.ctx.ledger, ACT, call.path["id"], Act)
    if found is None or not call.caller.sees(found.route):
        raise problem_error(
            "unknown-act",
            f"there is no act {call.path['id']!r}",
            field="id",
            expected="an id from /acts",
        )
    names = _names(state, [found])
    row = _row(found, names, state.ctx.clock.now())
    query = found.filter.get("query")
    became = outcome_of(state.ctx, found)
    return page(
        state,
        call,
        "act.html",
        act=row,
        items=None if query is None else _items_now(found, query, names, state.ctx.clock.now()),
        options=[
            (name.replace("_", " "), _plain(value))
            for name, value in row["about"].items()
            if name not in FILTER
        ],
        on_items=found.verb in VERBS,
        single=found.filter.get("key") if found.verb in VERBS else None,
        outcome=None
        if became is None
        else f"{deed_words(found.verb, found.done)}: {became.words(found.verb)}",
        count_all=None
        if became is None or became.next is None
        else f"milepost acts --id {found.id} --all",
    )


def _row(act: Act, names: ActNames, now: int) -> dict[str, Any]:
    """An act for a page: the view that programs get, with its target in words, and its progress."""
    view = act_view(act)
    finished = act.finished_at is not None
    under_way = not finished and now - (act.moved_at or act.started_at) <= MOVES_MS
    expected = None if finished else view.get("expected")
    return {
        **view,
        "to": in_words(view["about"], names) or WHOLE_ROUTE.get(act.verb, ""),
        "done_to": _outcome(act),
        "finished": finished,
        "under_way": under_way,
        "expected": max(expected, act.done + act.refused) if expected else None,
        "can_go_on": not finished and not under_way and _by_id_alone(act),
    }


def _by_id_alone(act: Act) -> bool:
    """Whether an act can be continued by its id alone: it is on record for which items it was."""
    if act.verb == REDATE:
        return True
    return act.verb in VERBS and "query" in act.filter and "pace" not in act.filter


def _outcome(act: Act) -> str:
    """The result, in a few words."""
    if act.verb not in DEEDS and act.done <= 1 and not act.refused:
        return "done" if act.finished_at is not None else ""
    return deed_words(act.verb, act.done) + (f", {act.refused:,} refused" if act.refused else "")


def in_words(about: Mapping[str, Any], names: ActNames) -> str:
    """The target of an act: its scope, its subscriber, or its items."""
    if about.get("scope"):
        return control_in_words(about, _minute)
    if about.get("subscriber"):
        return (
            f"{about['subscriber']}: {about['key']}"
            if about.get("key")
            else str(about["subscriber"])
        )
    if "key" in about and not about.get("subscriber"):
        return str(about["key"])
    if "query" in about:
        return items_in_words(about["query"], names)
    if isinstance(about.get("keys"), int):
        return counted(about["keys"], "item") + " by key"
    if "keys" in about:
        return f"{about['keys']} rows"
    if "ids" in about:
        return f"{len(about['ids']):,} entries of the quarantine"
    return ""


def items_in_words(query: Mapping[str, Any], names: ActNames) -> str:
    """The items of a recorded query, in words."""
    parts = []
    statuses = set(query.get("statuses") or ())
    if statuses == {status.value for status in FAILED}:
        parts.append("that failed")
    elif statuses == {status.value for status in LIVE}:
        parts.append("in progress")
    elif statuses:
        parts.append(" or ".join(sorted(status.lower().replace("_", " ") for status in statuses)))
    if query.get("stages"):
        parts.append(f"at {' or '.join(query['stages'])}")
    if query.get("lane") is not None:
        parts.append(f"in the lane {query['lane']}")
    if query.get("group") is not None:
        parts.append(f"with the cause {names.causes.get(query['group'], query['group'])}")
    if query.get("lists"):
        parts.append(f"from the list {names.lists.get(query['lists'][0], query['lists'][0])}")
    if query.get("prefix"):
        parts.append(f"with keys that begin with {query['prefix']}")
    for part in query.get("parts") or []:
        parts.append(f"with {unescape_part(part[1])} in their key")
    if query.get("entered_before"):
        parts.append(f"at their stage since before {_minute(query['entered_before'])}")
    if query.get("changed_before"):
        parts.append(f"not changed since {_minute(query['changed_before'])}")
    return f"items {', '.join(parts)}" if parts else "all items"


def _items_now(act: Act, query: Mapping[str, Any], names: ActNames, now: int) -> str:
    """The URL, below the base path, of the items that match the act's query today."""
    brought = query.get("lists") or []
    before = query.get("entered_before")
    asked = {
        "status": query.get("statuses"),
        "stage": query.get("stages"),
        "lane": query.get("lane"),
        "group": query.get("group"),
        # Several lists are selected by the name that they share.
        "list": names.lists.get(brought[0], brought[0])
        if len(brought) > 1
        else brought[0]
        if brought
        else None,
        "prefix": query.get("prefix"),
        "part": [
            f"{names.key_fields[act.route][at]}={unescape_part(text)}"
            for at, text in query.get("parts") or []
            if act.route in names.key_fields
        ],
        "older_than": None if before is None else f"{max(0, now - before) // 1000}s",
    }
    return f"/items/{quote(act.route, safe='')}?" + urlencode(
        {name: value for name, value in asked.items() if value}, doseq=True
    )


def _minute(moment: str) -> str:
    """A time in a sentence: '2026-03-01 12:00 UTC'."""
    return f"{moment[:10]} {moment[11:16]} UTC"


def _names(state: ServerState, shown: Sequence[Act]) -> ActNames:
    caused = {
        act.route for act in shown if (act.filter.get("query") or {}).get("group") is not None
    }
    causes = {
        one.group: _cause(one)
        for route in caused & state.ctx.plans.keys()
        for one in state.ctx.ledger.groups(route)
    }
    fields = {route: key_fields(state.ctx, route) for route in state.ctx.plans}
    return ActNames({record.id: record.name for record in lists(state.ctx)}, causes, fields)


def _cause(group: Group) -> str:
    """'HTTP (the repository answered 503)'."""
    sample = group.sample if len(group.sample) <= SAMPLE else f"{group.sample[: SAMPLE - 1]}…"
    return f"{group.category} ({sample})" if sample else group.category


def _plain(value: Any) -> str:
    if value is True:
        return "yes"
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, value))
    if isinstance(value, dict):
        return ", ".join(f"{name}: {_plain(of)}" for name, of in value.items())
    return str(value)
