"""Page of events: subscribers with their progress and errors; and the feed of events, from the
newest back to any point."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated
from urllib.parse import urlencode

from msgspec import Meta, Struct

from milepost.core.events import KINDS, Event
from milepost.core.values.durations import iso
from milepost.engine.context import Context
from milepost.engine.events.cursors import subscribers
from milepost.engine.events.feed import EventsBefore, FeedEvent, page_back
from milepost.http.dashboard.render import page, seen_routes
from milepost.http.protocol.endpoint import END, Answer, Call, endpoint
from milepost.http.protocol.problems import problem_error
from milepost.http.state.state import ServerState

SHOWN = 60
STEP = 1_000
"""Lines that are read at a time, if only some events are wanted."""
FAR, FAR_REMOTE = 5_000, 1_000
"""Maximum lines that are read for one page; fewer if every hundred of them is a request."""
LOOKS = dict.fromkeys(("advanced", "completed", "confirmed", "back-fill"), "done")
LOOKS |= dict.fromkeys(("retry", "exhausted", "rejected", "lost", "overdue"), "fail")
"""Class of the style sheet for a kind of event."""


class EventsPageQuery(Struct, frozen=True):
    """A filter of events; `before` is the line before which the page ends. An empty field means
    any."""

    route: str = ""
    kind: str = ""
    before: Annotated[str, Meta(pattern=rf"^[0-9]{{0,18}}{END}")] = ""


@endpoint(
    "GET",
    "/events",
    scope="read",
    page=True,
    query=EventsPageQuery,
    summary="Subscribers and events",
)
def events(state: ServerState, call: Call) -> Answer:
    asked: EventsPageQuery = call.query
    routes = seen_routes(state, call)
    if asked.route and asked.route not in routes:
        raise state.no_route(call.caller, asked.route)
    if asked.kind and asked.kind not in KINDS:
        raise problem_error(
            "wrong-value",
            f"there is no event of the kind {asked.kind!r}",
            field="kind",
            expected=", ".join(sorted(KINDS)),
        )
    chosen = {name: value for name in ("route", "kind") if (value := getattr(asked, name))}
    part = bool(chosen) or call.caller.routes is not None
    # How far back the events that the caller may see have been read.
    since: int | None = None

    def wants(event: Event) -> bool:
        nonlocal since
        if not call.caller.sees(event.route):
            return False
        since = event.at  # the newest come first
        return asked.route in ("", event.route) and asked.kind in ("", event.kind)

    found = _back(
        state.ctx, int(asked.before) if asked.before else None, wants, STEP if part else SHOWN
    )
    oldest = found.events[-1].seq - 1 if found.events else max(0, found.next - 1)
    return page(
        state,
        call,
        "events.html",
        asked=asked,
        filtered=bool(chosen),
        routes=routes,
        kinds=sorted(KINDS),
        subscribers=subscribers(state.ctx, call.caller.narrowed),
        sees_all=call.caller.routes is None,
        events=found.events,
        looks=LOOKS,
        since=iso(since) if found.next and len(found.events) < SHOWN else None,
        earlier=f"?{urlencode({**chosen, 'before': found.next})}" if found.next else None,
        latest=f"?{urlencode(chosen)}" if asked.before else None,
        raw=f"/api/v1/events?{urlencode({**chosen, 'after': oldest})}",
    )


def _back(
    ctx: Context, before: int | None, wants: Callable[[Event], bool], look: int
) -> EventsBefore:
    """A page of wanted events, from as far back as needed, within limits: some lines are read at
    first, and then more."""
    found: list[FeedEvent] = []
    left = FAR_REMOTE if "change counter" in ctx.ledger.missing_capabilities else FAR
    while True:
        part = page_back(ctx, before, SHOWN - len(found), wants, look)
        found += part.events
        left -= look
        if not part.next or len(found) >= SHOWN or left <= 0:
            return EventsBefore(found, part.next)
        before, look = part.next, STEP
