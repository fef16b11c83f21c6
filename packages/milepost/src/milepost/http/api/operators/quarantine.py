"""Quarantine over HTTP: list its entries, try them again, or discard them."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct, field

from milepost.engine.acts.foreign_rows import (
    ALL,
    Quarantine,
    all_ids,
    drop,
    quarantine_view,
    replay,
)
from milepost.http.api.operators.controls import Why
from milepost.http.auth.author import check_sees_all, named
from milepost.http.protocol.endpoint import Call, endpoint
from milepost.http.protocol.problems import problem_error
from milepost.http.state.state import ServerState
from milepost.ports.foreign_rows import Adopted

QUARANTINE = "/api/v1/quarantine"


class QuarantineQuery(Struct, frozen=True, kw_only=True):
    limit: Annotated[int, Meta(ge=1, le=1000)] = 100


class QuarantineSelection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Entries of the quarantine: these, or all of them."""

    reason: Why
    ids: Annotated[list[str], Meta(min_length=1, max_length=ALL)] | None = None
    all: bool = False
    for_: str | None = field(default=None, name="for")


class Replayed(Struct, frozen=True):
    """One result for each entry: `done` if it was processed and has left the quarantine; otherwise
    `why`. `key` is the entry's id."""

    replayed: list[Adopted]


class Dropped(Struct, frozen=True):
    """The ids of the discarded entries."""

    dropped: list[str]


@endpoint(
    "GET", QUARANTINE, scope="read", query=QuarantineQuery, summary="Entries of the quarantine"
)
def list_entries(state: ServerState, call: Call) -> Quarantine:
    """As `milepost quarantine list --json`: foreign rows, changes that could not be decided,
    messages that could not be read. Only for callers who see all routes."""
    check_sees_all(call)
    return quarantine_view(state.ctx, call.query.limit)


@endpoint(
    "POST",
    f"{QUARANTINE}/replay",
    scope="operate",
    body=QuarantineSelection,
    summary="Try entries of the quarantine again",
    long=True,
)
def replay_entries(state: ServerState, call: Call) -> Replayed:
    """A row, or a change of one, is processed as the row is now; a message goes back to its queue.
    An entry that fails again stays, with the reason. Only for callers who see all routes."""
    by, body = _checked(call), call.body
    return Replayed(replay(state.ctx, _ids(state, body), by=by, reason=body.reason))


@endpoint(
    "POST",
    f"{QUARANTINE}/drop",
    scope="operate",
    body=QuarantineSelection,
    summary="Discard entries of the quarantine",
    long=True,
)
def drop_entries(state: ServerState, call: Call) -> Dropped:
    """The content is deleted; who discarded it, and why, stays on record. Only for callers who see
    all routes."""
    by, body = _checked(call), call.body
    return Dropped(drop(state.ctx, _ids(state, body), by=by, reason=body.reason))


def _checked(call: Call) -> str:
    """The author of the act; raises a problem if this ledger has no quarantine or the call is
    incomplete."""
    check_sees_all(call)
    if (call.body.ids is not None) == call.body.all:
        raise problem_error(
            "wrong-value",
            "the entries are missing",
            field="ids",
            expected="either ids or all: true",
        )
    return named(call, call.body.for_)


def _ids(state: ServerState, body: QuarantineSelection) -> list[str]:
    return all_ids(state.ctx) if body.ids is None else list(dict.fromkeys(body.ids))
