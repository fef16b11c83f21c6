"""Forget over HTTP: remove the content of an item that has ended."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct, field

from milepost.engine.forget import ForgetReport, forget
from milepost.http.auth.author import check_reason, named
from milepost.http.protocol.endpoint import Call, endpoint
from milepost.http.state.state import ServerState


class ForgetItemRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The item's key and the reason, which is recorded and should not repeat the content. `for`:
    the person for whom the caller acts."""

    key: Annotated[str, Meta(min_length=1, max_length=10_000)]
    reason: Annotated[str, Meta(max_length=1000)] = ""
    for_: str | None = field(default=None, name="for")
    dry_run: bool = False


@endpoint(
    "POST",
    "/api/v1/routes/{route}/forget",
    scope="operate",
    body=ForgetItemRequest,
    problems=("route-changed", "refused", "not-found", "busy"),
    summary="Remove the content of an item that has ended",
    long=True,
)
def forget_item(state: ServerState, call: Call) -> ForgetReport:
    """As `milepost forget`. The key stays known by a keyed digest (`name`); `stays` names what
    remains elsewhere. An item that has not ended is refused. With `dry_run` nothing is written, and
    no reason is needed. If the call is cut off, the same call continues it."""
    plan, asked = state.plan(call), call.body
    check_reason(asked.reason, asked.dry_run)
    by = named(call, asked.for_)
    return forget(
        state.ctx, plan.name, asked.key, by=by, reason=asked.reason, dry_run=asked.dry_run
    )
