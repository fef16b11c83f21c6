"""Claims of remote workers: claim items of a remote stage, extend their leases, settle them, give
them back."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct
from starlette.requests import Request

from milepost.core.item import Item
from milepost.core.outcome import Outcome
from milepost.core.routes.plan import Plan
from milepost.core.routes.route import Stage
from milepost.core.values.durations import iso, span_ms
from milepost.engine.work.remote import RemoteClaimRequest, ShownLease
from milepost.http.auth.author import check_outcome
from milepost.http.protocol.endpoint import END, Call, endpoint
from milepost.http.protocol.problems import problem_error
from milepost.http.state.state import ServerState

MOST = 100
LONGEST_WAIT_S = 20
SHORTEST_LEASE_MS, LONGEST_LEASE_MS = 1_000, 12 * 3_600_000
SETTLED_BYTES = 16 << 20
CLAIMS = "/api/v1/routes/{route}/stages/{stage}/claims"

Name = Annotated[str, Meta(min_length=1, max_length=100, pattern=rf"^[^\x00-\x1f]*{END}")]
Count = Annotated[int, Meta(ge=1, le=MOST)]
Shows = Annotated[list[ShownLease], Meta(min_length=1, max_length=1000)]


class ClaimCall(Struct, frozen=True, forbid_unknown_fields=True):
    """`want`: maximum number of items. `wait`: seconds to wait for the first one. `lease`: length
    of the leases. `worker`: the worker's own name; limits apply to it, and the history of an item
    shows it."""

    worker: Name
    want: Count = 1
    wait: Annotated[float, Meta(ge=0, le=LONGEST_WAIT_S)] = 0
    lease: str = "60s"


class WorkItem(Struct, frozen=True):
    """One item to work on. `work_id` is the same on every try: pass it to the system that does the
    work, so that it recognises a repeat. `unknown`: an earlier try may have done the work, so check
    first. `alone`: do not mix it with others in one call."""

    key: str
    lease: str
    lease_until: str
    payload: Any
    input: Any
    results: dict[str, Any]
    work_id: str
    attempt: int
    correlation_id: str
    lane: str = ""
    unknown: bool = False
    alone: bool = False


class ClaimedItems(Struct, frozen=True):
    items: list[WorkItem]


class Extend(Struct, frozen=True, forbid_unknown_fields=True):
    leases: Shows
    lease: str = "60s"


class Extended(Struct, frozen=True):
    """`lease_until` is null if the lease has expired: stop that work, its outcome would be
    refused."""

    key: str
    lease_until: str | None


class Extensions(Struct, frozen=True):
    leases: list[Extended]


class ItemOutcome(Struct, frozen=True, forbid_unknown_fields=True):
    """The outcome of one item: an object with `type` `done`, `not-yet`, `checked`, `handed-over`,
    `retry` or `reject`."""

    key: str
    lease: str
    outcome: Outcome


class Settle(Struct, frozen=True, forbid_unknown_fields=True):
    outcomes: Annotated[list[ItemOutcome], Meta(min_length=1, max_length=1000)]


class SettleAnswer(Struct, frozen=True):
    key: str
    answer: Literal["written", "refused"]


class Settlement(Struct, frozen=True):
    outcomes: list[SettleAnswer]


class GiveBack(Struct, frozen=True, forbid_unknown_fields=True):
    """`unknown`: the work may have been done all the same; the next worker of the item gets this
    information."""

    leases: Shows
    reason: Annotated[str, Meta(max_length=1000)] = "the worker gave it back"
    unknown: bool = False


class GivenBack(Struct, frozen=True):
    given_back: int


@endpoint(
    "POST",
    CLAIMS,
    scope="work",
    body=ClaimCall,
    problems=("refused", "route-changed", "too-many"),
    summary="Claim items of a remote stage",
)
async def claim(state: ServerState, call: Call) -> ClaimedItems:
    """Up to `want` items (at most 100), each under a lease. If there are none, the call waits for
    up to `wait` seconds (at most 20) and answers as soon as there are some; an empty list is no
    error. Pauses, rates, lanes and limits apply as for Milepost's own workers; a worker holds at
    most the stage's `concurrency` times `batch` items at a time. A lease that expires is a loss:
    another worker may claim the item, and an outcome under the old lease is refused."""
    plan, stage = _remote(state, call)
    asked: ClaimCall = call.body
    wish = RemoteClaimRequest(
        plan, stage, f"{asked.worker} ({call.caller.name})", asked.want, _lease_ms(asked.lease)
    )
    request: Request = call.raw

    async def gone() -> None:
        # The body has been read: the only message that can follow is that the caller has
        # disconnected.
        while (await request.receive())["type"] != "http.disconnect":
            pass

    given = await state.waiting.claim(wish, asked.wait, gone)
    return ClaimedItems([_work(item, given.until) for item in given.items])


@endpoint(
    "POST",
    f"{CLAIMS}/extend",
    scope="work",
    body=Extend,
    problems=("refused",),
    summary="Extend leases",
)
def extend(state: ServerState, call: Call) -> Extensions:
    """Each valid lease is extended by `lease` from now on. Do this well before it expires, for
    example after a third of its length."""
    plan, stage = _remote(state, call)
    body: Extend = call.body
    until = state.remote.extend(plan, stage, body.leases, _lease_ms(body.lease))
    return Extensions(
        [Extended(shown.key, iso(at)) for shown, at in zip(body.leases, until, strict=True)]
    )


@endpoint(
    "POST",
    f"{CLAIMS}/settle",
    scope="work",
    body=Settle,
    problems=("refused",),
    summary="Settle items: report their outcomes",
    largest=SETTLED_BYTES,
)
def settle(state: ServerState, call: Call) -> Settlement:
    """One answer for each outcome, in the same order: `written`, or `refused` because the lease is
    not valid any more (another worker has claimed the item, or an operator has ended it; the
    outcome is noted). The same outcome sent again gets the same answer, so a call whose answer was
    lost can be repeated."""
    plan, stage = _remote(state, call)
    body: Settle = call.body
    for place, one in enumerate(body.outcomes):
        check_outcome(one.outcome, f"outcomes[{place}].outcome")
    written = state.remote.settle(
        plan, stage, [(ShownLease(one.key, one.lease), one.outcome) for one in body.outcomes]
    )
    answers = [
        SettleAnswer(one.key, "written" if ok else "refused")
        for one, ok in zip(body.outcomes, written, strict=True)
    ]
    return Settlement(answers)


@endpoint(
    "POST",
    f"{CLAIMS}/give-back",
    scope="work",
    body=GiveBack,
    problems=("refused",),
    summary="Give items back unfinished",
)
def give_back(state: ServerState, call: Call) -> GivenBack:
    """No attempt is counted, and another worker may claim the items at once. The answer says how
    many were still leased."""
    plan, stage = _remote(state, call)
    body: GiveBack = call.body
    return GivenBack(
        state.remote.give_back(plan, stage, body.leases, body.reason, unknown=body.unknown)
    )


_REMOTE = "a stage declared with remote=True"


def _remote(state: ServerState, call: Call) -> tuple[Plan, Stage]:
    plan, stage = state.stage(call)
    if not stage.remote:
        kind = (
            "is external: a partner does it and confirms it"
            if stage.external
            else "is run by workers of Milepost's own"
        )
        raise problem_error(
            "refused",
            f"stage {stage.name!r} of route {plan.name!r} {kind}",
            field="stage",
            expected=_REMOTE,
        )
    return plan, stage


def _lease_ms(text: str) -> int:
    ms = span_ms(text, "lease")
    if not SHORTEST_LEASE_MS <= ms <= LONGEST_LEASE_MS:
        raise problem_error(
            "wrong-value", f"lease is {text!r}", field="lease", expected="from 1s to 12h"
        )
    return ms


def _work(item: Item, until: int) -> WorkItem:
    row = item.row
    return WorkItem(
        key=item.key,
        lease=row.lease or "",
        lease_until=iso(until) or "",
        payload=item.payload,
        input=item.input,
        results=item.results,
        work_id=item.work_id,
        attempt=item.attempt,
        correlation_id=item.correlation_id,
        lane=item.lane,
        unknown=row.unknown,
        alone=row.alone or row.losses > 0,
    )
