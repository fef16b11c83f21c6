"""Subscribers over HTTP: their progress and errors; release, replay and forget."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct, field

from milepost.core.errors import UsageError
from milepost.engine.events.cursors import (
    ParkedPage,
    SubscriberView,
    forget_subscriber,
    live_cursors,
    parked_page,
)
from milepost.engine.events.cursors import subscribers as all_subscribers
from milepost.engine.events.parked_events import release as release_event
from milepost.engine.events.replay import Replay, moment_ms
from milepost.engine.events.replay import replay as tell_again
from milepost.engine.views.items import route_names
from milepost.http.api.operators.controls import Signed, Why
from milepost.http.auth.author import check_reason, check_sees_all, named
from milepost.http.protocol.endpoint import Call, endpoint
from milepost.http.protocol.problems import problem_error
from milepost.http.state.state import ServerState

SUBSCRIBERS = "/api/v1/subscribers"
ONE = f"{SUBSCRIBERS}/{{name}}"


class Subscribers(Struct, frozen=True):
    subscribers: list[SubscriberView]


class ReleaseRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The parked items: all, those of a route, or one (`route` and `key`); the reason, and the
    person for whom the caller acts."""

    reason: Why
    route: str | None = None
    key: str | None = None
    for_: str | None = field(default=None, name="for")


class Released(Struct, frozen=True):
    """The number of parked items that are tried again."""

    subscriber: str
    released: int


class ReplayRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The start: `since`, a span back (`2d`) or a time (ISO-8601), or `after`, a place in the feed
    (the id of an event there)."""

    reason: Annotated[str, Meta(max_length=1000)] = ""
    since: Annotated[str, Meta(max_length=100)] | None = None
    after: Annotated[int, Meta(ge=0)] | None = None
    dry_run: bool = False
    for_: str | None = field(default=None, name="for")


class Forgotten(Struct, frozen=True):
    subscriber: str
    forgotten: bool


class ParkedQuery(Struct, frozen=True, kw_only=True):
    after: Annotated[str, Meta(max_length=2000)] | None = None
    limit: Annotated[int, Meta(ge=1, le=1000)] = 100


@endpoint("GET", SUBSCRIBERS, scope="read", summary="Subscribers, with their progress and errors")
def subscribers(state: ServerState, call: Call) -> Subscribers:
    """As `milepost subscribers --json`. Parked items are shown only for routes that the caller
    sees. A caller who sees only some routes does not see a subscriber's cursor and its own `error`,
    because these concern the items of all routes."""
    return Subscribers(all_subscribers(state.ctx, call.caller.narrowed))


@endpoint(
    "GET",
    f"{ONE}/parked",
    scope="read",
    query=ParkedQuery,
    problems=("unknown-subscriber",),
    summary="Parked items of a subscriber, by page",
)
def parked(state: ServerState, call: Call) -> ParkedPage:
    """By route and key, of the routes that the caller sees. `next` of one page is `after` of the
    next."""
    return parked_page(
        state.ctx, _known(state, call), call.query.after, call.query.limit, call.caller.narrowed
    )


@endpoint(
    "POST",
    f"{ONE}/release",
    scope="operate",
    body=ReleaseRequest,
    problems=("unknown-subscriber", "unknown-route"),
    summary="Try parked items again now",
)
def release(state: ServerState, call: Call) -> Released:
    """Without `route` all parked items of the subscriber are tried again, and so is a subscriber
    that fails for every event: this is for callers who see all routes."""
    name, body = _known(state, call), call.body
    if body.route is None:
        if body.key is not None:
            raise problem_error(
                "wrong-value",
                "a key belongs to a route",
                field="route",
                expected="the route of that item",
            )
        check_sees_all(call)
    elif body.route not in route_names(state.ctx) or not call.caller.sees(body.route):
        raise state.no_route(call.caller, body.route)
    released = release_event(
        state.ctx, name, body.route, body.key, by=named(call, body.for_), reason=body.reason
    )
    return Released(name, released)


@endpoint(
    "POST",
    f"{ONE}/replay",
    scope="operate",
    body=ReplayRequest,
    problems=("unknown-subscriber",),
    summary="Send past events to a subscriber again",
)
def replay(state: ServerState, call: Call) -> Replay:
    """Every event from there on is sent again with the same id, and in order for each item, so that
    a receiver can drop what it has already. `lines` is the maximum number of them, and `since` the
    time of the oldest: pruned lines (`pruned`) cannot be sent again. A cursor never moves forward:
    a place that the subscriber has not reached is refused. With `dry_run` nothing is changed, and
    no reason is needed. Only for callers who see all routes."""
    check_sees_all(call)
    name, body, ctx = _known(state, call), call.body, state.ctx
    check_reason(body.reason, body.dry_run)
    if (body.since is None) == (body.after is None):
        raise problem_error(
            "wrong-value", "the start is missing", field="since", expected="either since or after"
        )
    by = named(call, body.for_)
    try:
        since = None if body.since is None else moment_ms(body.since, ctx.clock.now(), "since")
        return tell_again(
            ctx,
            name,
            since=since,
            after=body.after,
            by=by,
            reason=body.reason,
            dry_run=body.dry_run,
        )
    except UsageError as error:
        raise problem_error(
            "wrong-value", str(error), field="after" if body.since is None else "since"
        ) from None


@endpoint(
    "POST",
    f"{ONE}/forget",
    scope="admin",
    body=Signed,
    problems=("unknown-subscriber",),
    summary="Remove a subscriber",
)
def forget(state: ServerState, call: Call) -> Forgotten:
    """Its cursor is deleted, so that pruning does not wait for it. If it is started again, it
    begins with new events. Only for callers who see all routes."""
    check_sees_all(call)
    name = _known(state, call)
    return Forgotten(
        name,
        forget_subscriber(state.ctx, name, by=named(call, call.body.for_), reason=call.body.reason),
    )


def _known(state: ServerState, call: Call) -> str:
    """The subscriber that the URL names."""
    name, known = call.path["name"], live_cursors(state.ctx)
    if name not in known:
        raise problem_error(
            "unknown-subscriber",
            f"there is no subscriber {name!r}",
            field="name",
            expected=", ".join(sorted(known)) or "there is none",
        )
    return name
