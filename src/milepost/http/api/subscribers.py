"""Those who are told: how far each is, what it does not take, and what people do about that."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct, field

from milepost.core.errors import UsageError
from milepost.engine.events.cursors import SubscriberView, forget_subscriber, live_cursors
from milepost.engine.events.cursors import subscribers as all_told
from milepost.engine.events.parked_events import release as let_go
from milepost.engine.events.replay import Replay, moment_ms
from milepost.engine.events.replay import replay as tell_again
from milepost.engine.views.items import route_names
from milepost.http.api.operators.controls import Signed, Why
from milepost.http.auth.author import check_reason, named
from milepost.http.auth.whole_ledger import check_sees_all
from milepost.http.protocol.endpoint import Answer, Call, Endpoints
from milepost.http.protocol.problems import problem_error
from milepost.http.state.state import ServerState

ENDPOINTS = Endpoints()
SUBSCRIBERS = "/api/v1/subscribers"
ONE = f"{SUBSCRIBERS}/{{name}}"


class Subscribers(Struct, frozen=True):
    subscribers: list[SubscriberView]


class Releasing(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which parked items: all, a route's, or one (`route` and `key`); why, and for whom."""

    reason: Why
    route: str | None = None
    key: str | None = None
    for_: str | None = field(default=None, name="for")


class Released(Struct, frozen=True):
    """So many parked items are tried again."""

    subscriber: str
    released: int


class Replaying(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """From where on: `since`, how long ago (`2d`) or a time (ISO-8601), or `after`, a place in the feed (the id of an event there)."""

    reason: Annotated[str, Meta(max_length=1000)] = ""
    since: Annotated[str, Meta(max_length=100)] | None = None
    after: Annotated[int, Meta(ge=0)] | None = None
    dry_run: bool = False
    for_: str | None = field(default=None, name="for")


class Forgotten(Struct, frozen=True):
    subscriber: str
    forgotten: bool


@ENDPOINTS.add("GET", SUBSCRIBERS, scope="read", answers={200: Subscribers}, summary="Who is told, how far, and what they do not take")
def subscribers(state: ServerState, call: Call) -> Answer:
    """As `milepost subscribers --json`. Of parked items only those are shown whose route the caller sees; who sees only some routes is not
    shown what speaks of the items of all: how far a subscriber is, and its own `error`."""
    return Answer(Subscribers(all_told(state.ctx, call.caller.narrowed)))


@ENDPOINTS.add(
    "POST",
    f"{ONE}/release",
    scope="operate",
    body=Releasing,
    answers={200: Released},
    problems=("unknown-subscriber", "unknown-route"),
    summary="Have parked items tried again now",
)
def release(state: ServerState, call: Call) -> Answer:
    """Without `route` all of the subscriber's are, and one that takes nothing at all is tried again now, too: that is for callers who see
    all routes."""
    name, body = _known(state, call), call.body
    if body.route is None:
        if body.key is not None:
            raise problem_error("wrong-value", "a key belongs to a route", field="route", expected="the route of that item")
        check_sees_all(call)
    elif body.route not in route_names(state.ctx) or not call.caller.sees(body.route):
        raise state.no_route(call.caller, body.route)
    released = let_go(state.ctx, name, body.route, body.key, by=named(call, body.for_), reason=body.reason)
    return Answer(Released(name, released))


@ENDPOINTS.add(
    "POST",
    f"{ONE}/replay",
    scope="operate",
    body=Replaying,
    answers={200: Replay},
    problems=("unknown-subscriber",),
    summary="Tell a subscriber again what it was told before",
)
def replay(state: ServerState, call: Call) -> Answer:
    """Everything from there on is told again, each event with the id that it had and each item's in their order, so that a receiver can
    drop what it knows. `lines` says how many there are at most and `since` how far back they go: what has been pruned (`pruned`) cannot be
    told again. Nobody is ever set forward: a place that has not been told yet is refused. With `dry_run` nothing is changed, and no reason
    is needed. Only for callers who see all routes."""
    check_sees_all(call)
    name, body, ctx = _known(state, call), call.body, state.ctx
    check_reason(body.reason, body.dry_run)
    if (body.since is None) == (body.after is None):
        raise problem_error("wrong-value", "say from where on", field="since", expected="either since or after")
    by = named(call, body.for_)
    try:
        since = None if body.since is None else moment_ms(body.since, ctx.clock.now(), "since")
        return Answer(tell_again(ctx, name, since=since, after=body.after, by=by, reason=body.reason, dry_run=body.dry_run))
    except UsageError as error:
        raise problem_error("wrong-value", str(error), field="after" if body.since is None else "since") from None


@ENDPOINTS.add(
    "POST",
    f"{ONE}/forget",
    scope="admin",
    body=Signed,
    answers={200: Forgotten},
    problems=("unknown-subscriber",),
    summary="Tell a subscriber no more",
)
def forget(state: ServerState, call: Call) -> Answer:
    """Nothing is kept for it any more, so that pruning does not wait for it. If it is started again, it goes on from there. Only for
    callers who see all routes."""
    check_sees_all(call)
    name = _known(state, call)
    return Answer(Forgotten(name, forget_subscriber(state.ctx, name, by=named(call, call.body.for_), reason=call.body.reason)))


def _known(state: ServerState, call: Call) -> str:
    """The subscriber that the address names."""
    name, known = call.path["name"], live_cursors(state.ctx)
    if name not in known:
        raise problem_error(
            "unknown-subscriber", f"there is no subscriber {name!r}", field="name", expected=", ".join(sorted(known)) or "none is told"
        )
    return name
