"""Renders templates to pages. Every value from outside is escaped; no page has an inline script or
style."""

from __future__ import annotations

import re
from datetime import UTC, datetime, tzinfo
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import jinja2
from markupsafe import Markup, escape
from starlette.requests import Request
from starlette.responses import HTMLResponse

from milepost.core.errors import UsageError
from milepost.core.values.durations import iso, short_span, zone_of
from milepost.engine.auth import csrf_token
from milepost.engine.views.items import route_names
from milepost.http.auth.authenticator import COOKIE, LOCAL
from milepost.http.dashboard.static_files import VERSION
from milepost.http.protocol.endpoint import Answer, Call, Caller
from milepost.http.state.state import ServerState

ZONE_COOKIE = "milepost-zone"
KINDS = {
    "PENDING": "todo",
    "QUEUED": "todo",
    "PROCESSING": "work",
    "WAITING": "wait",
    "RETRY_SCHEDULED": "retry",
    "COMPLETED": "done",
    "MAX_RETRIES_EXCEEDED": "fail",
    "REJECTED": "fail",
    "CANCELLED": "wait",
}
"""Class of the style sheet for a status."""


@cache
def _environment(folder: Path | None = None) -> jinja2.Environment:
    """Our templates, and those in an application's folder, which extend ours."""
    own = jinja2.PackageLoader(__package__, "templates")
    made = jinja2.Environment(
        loader=own
        if folder is None
        else jinja2.ChoiceLoader([jinja2.FileSystemLoader(folder), own]),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    made.filters["n"] = lambda number: f"{number:,}"
    made.filters["path"] = made.filters["url"] = lambda text: quote(str(text), safe="")
    made.filters["moments"] = moments
    made.filters["coded"] = coded
    made.filters["iso"] = iso
    made.filters["span"] = short_span
    made.filters["age"] = age
    made.filters["kind"] = KINDS.__getitem__
    return made


def moments(sentence: str) -> Markup:
    """A sentence for a page: times in it are shown in the reader's time zone, and commands between
    backticks as code."""
    return Markup(_INSTANT.sub(r'<time datetime="\g<0>">\g<0></time>', str(coded(sentence))))


def coded(text: str) -> Markup:
    """A text for a page: commands between backticks are shown as code."""
    return Markup(_COMMAND.sub(r"<code>\g<1></code>", str(escape(text))))


_COMMAND = re.compile(r"`([^`\n]+)`")

_INSTANT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


def viewer_zone(call: Call) -> tzinfo:
    """The time zone of the browser, which the script of every page puts into a cookie; UTC if it is
    missing or unknown."""
    name = call.raw.cookies.get(ZONE_COOKIE)
    try:
        return UTC if name is None else zone_of(unquote(name), "the time zone")
    except UsageError:
        return UTC


def page(state: ServerState, call: Call, template: str, **values: Any) -> Answer:
    """A page for the caller: acts that the caller may not do are not offered. The menu marks the
    entry that its path begins with, if `here` names no other."""
    if "here" not in values:
        values["here"] = "/" + call.raw.scope["path"].split("/")[1]
    return Answer(page_for(state, call.raw, call.caller, template, **values))


def page_for(
    state: ServerState,
    request: Request,
    me: Caller,
    template: str,
    *,
    status: int = 200,
    templates: Path | None = None,
    **values: Any,
) -> HTMLResponse:
    """A template with the values that every page needs. `templates`: the folder of an application's
    own templates."""
    token, now = request.cookies.get(COOKIE), state.ctx.clock.now()
    shared = {
        "base": state.base,
        "static": f"{state.base}/static/{VERSION}",
        "me": me,
        "here": "",
        "menu": state.menu,
        "q": None,
        "csrf": csrf_token(token) if token else "",
        "person": me.name if token and me.scopes and me is not LOCAL else None,
        "now": iso(now),
        "now_ms": now,
        # The URL of the ledger is for callers who may read.
        "ledger": state.ctx.ledger.url if me.scopes else "",
    }
    return HTMLResponse(
        _environment(templates).get_template(template).render({**shared, **values}), status
    )


def seen_routes(state: ServerState, call: Call) -> list[str]:
    """The routes that the caller may see, in order."""
    return [name for name in route_names(state.ctx) if call.caller.sees(name)]


def ms_since(moment: str, now: int) -> float:
    """Milliseconds from a time, as views give it (ISO-8601), to now."""
    return now - datetime.fromisoformat(moment).timestamp() * 1000


def age(moment: str | None, now: int) -> str:
    """'3 s', '5 min', '14 d'; empty if there is no time."""
    return "" if moment is None else short_span(max(0.0, ms_since(moment, now)))
