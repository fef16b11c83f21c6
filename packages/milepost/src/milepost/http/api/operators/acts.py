"""Acts over HTTP: acts on one item or many, and the record of acts."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType, field, to_builtins
from msgspec.structs import replace

from milepost.core.errors import UsageError
from milepost.core.outcome import Outcome
from milepost.core.values.durations import rate_per_second
from milepost.engine.act_log import ActReport, act_view, acts_after, all_acts, select
from milepost.engine.acts.bulk import act, go_on
from milepost.engine.acts.outcome import outcome_of
from milepost.engine.acts.verbs import Verb, verb_of
from milepost.engine.views.item_filter import filter_as_given
from milepost.http.api.find import Chosen, afford, choice_of
from milepost.http.auth.author import check_outcome, check_reason, named
from milepost.http.protocol.endpoint import END, Call, endpoint
from milepost.http.protocol.problems import ProblemError, problem_error
from milepost.http.state.state import ServerState
from milepost.ports.documents import ACT, Act, read_versioned
from milepost.ports.items import Query

ACTS = "/api/v1/routes/{route}/acts"
OPTIONS = ("stage", "as_new", "outcome", "content", "here", "rerun", "not_before", "force")
"""Fields of a request that `verb_of` takes as they are."""
ActId = Annotated[str, Meta(min_length=1, max_length=64, pattern=rf"^[A-Za-z0-9._-]+{END}")]
PROBLEMS = ("route-changed", "costly", "busy", "conflict")


class ActRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The act, its items (`keys`, or a `filter`), and the reason. `stage`: the stage to which
    `retry` sends items back, that `confirm` confirms, or from which `rerun` starts (default: the
    first). `as_new`: a retry or rerun with a new `work_id`. `outcome`: the outcome that `confirm`
    reports, if it is not `true`. `force`: `confirm` even if the outcome does not cover what the
    stage was given; the item's history says so. `content`: the new content that `replace` gives to
    the one item of `keys`, whole, as it would be submitted; `here`: the item then starts again at
    its present stage, not at the first; `rerun`: also if it is COMPLETED. `not_before`: the time
    that `reschedule` sets, such as `2027-01-31T08:00:00Z`, or a span from now such as `2h`. `pace`:
    items a second (`50/s`) for a `rerun` by filter, which the resender then continues. `for`: the
    person for whom the caller acts. `id`: a name for an act on several items; the same call with
    this id continues an act that was cut off, or, if it has finished, gets the first answer again;
    another call with it is refused (`conflict`). `scan`: allow a scan if no index serves the filter
    and the table is large."""

    verb: Literal["retry", "skip", "cancel", "resend", "confirm", "rerun", "replace", "reschedule"]
    keys: Annotated[list[str], Meta(min_length=1, max_length=10_000)] | None = None
    filter: Chosen | None = None
    stage: str | None = None
    as_new: bool = False
    outcome: Outcome | None = None
    content: Any | UnsetType = UNSET
    here: bool = False
    rerun: bool = False
    not_before: str | None = None
    pace: str | None = None
    force: bool = False
    reason: Annotated[str, Meta(max_length=1000)] = ""
    for_: str | None = field(default=None, name="for")
    dry_run: bool = False
    id: ActId | None = None
    scan: bool = False

    def chosen_verb(self) -> Verb:
        """The verb with its options; UsageError if it does not take one that is given."""
        options = {name: getattr(self, name) for name in OPTIONS}
        pace = None if self.pace is None else rate_per_second(self.pace, "pace")
        return verb_of(self.verb, pace=pace, **options)


class ActContinuation(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    reason: Annotated[str, Meta(max_length=1000)] = ""
    for_: str | None = field(default=None, name="for")
    dry_run: bool = False


class ActHistoryQuery(Struct, frozen=True, kw_only=True):
    route: str | None = None
    verb: str | None = None
    by: str | None = None
    limit: Annotated[int, Meta(ge=1, le=1000)] = 100
    after: str | None = None


class ActQuery(Struct, frozen=True, kw_only=True):
    after: str | None = None


class Acts(Struct, frozen=True):
    """The latest first, each as `milepost acts --json` shows it. `more`: there are earlier ones;
    give `next` as `after` to get them."""

    acts: list[dict[str, Any]]
    more: bool
    next: str | None = None


@endpoint(
    "POST",
    ACTS,
    scope="operate",
    body=ActRequest,
    problems=PROBLEMS,
    summary="Retry, skip, cancel, resend, confirm, rerun, replace or reschedule items",
    long=True,
)
def perform(state: ServerState, call: Call) -> ActReport:
    """Each item is done or refused by itself; `refused` names the first hundred, with the reason.
    An act by filter, or on several keys, has an id: it skips items that change after its start,
    every line that it writes carries its id, and it can be continued if it is cut off. A repeat of
    the call with the same `id` gets the answer of the first, with its `finished_at`; a call with
    that id and other items or options is refused with 409, `conflict`: a filter is compared as it
    was given. With `dry_run` nothing is written, and no reason is needed: the answer says what
    would be done, and for `replace` the `difference` between the old content and the new, if the
    key may `read`."""
    plan, wanted = state.plan(call), call.body
    if (wanted.keys is None) == (wanted.filter is None):
        raise problem_error(
            "wrong-value", "the items are missing", field="keys", expected="either keys or a filter"
        )
    check_reason(wanted.reason, wanted.dry_run)
    by = named(call, wanted.for_)
    if wanted.id is not None:
        check_free(state, call, wanted.id)
    if wanted.outcome is not None:
        check_outcome(wanted.outcome)
    if wanted.filter is None:
        selection = select(state.ctx, plan.name, keys=wanted.keys)
    else:
        query = _query(state, plan.name, wanted.filter, wanted.scan)
        asked = filter_as_given(state.ctx, plan.name, wanted.filter.item_filter())
        selection = select(state.ctx, plan.name, query=query, asked=asked)
    report = act(
        state.ctx,
        selection,
        wanted.chosen_verb(),
        by=by,
        reason=wanted.reason,
        dry_run=wanted.dry_run,
        act_id=wanted.id,
    )
    return report if call.caller.may("read") else replace(report, difference=[])


@endpoint(
    "POST",
    f"{ACTS}/{{id}}/go-on",
    scope="operate",
    body=ActContinuation,
    problems=(*PROBLEMS, "unknown-act"),
    summary="Continue an act that was cut off",
    long=True,
)
def continue_act(state: ServerState, call: Call) -> ActReport:
    """With its original arguments: items that it has already handled are skipped. An act that was
    started for keys needs them again: repeat the first call, with its `id`."""
    plan, body = state.plan(call), call.body
    check_reason(body.reason, body.dry_run)
    by = named(call, body.for_)
    begun, _ = read_versioned(state.ctx.ledger, ACT, call.path["id"], Act)
    if begun is None or begun.route != plan.name:
        raise _unknown_act(f"route {plan.name!r} has no act {call.path['id']!r}")
    return go_on(
        state.ctx, begun.verb, plan.name, begun.id, by=by, reason=body.reason, dry_run=body.dry_run
    )


@endpoint("GET", "/api/v1/acts", scope="read", query=ActHistoryQuery, summary="Acts of operators")
def history(state: ServerState, call: Call) -> Acts:
    """Acts on items, pauses, limits, changed routes, pruning: by whom, why, when, and with which
    result. `go_on` is the command that continues an act that was cut off, or that is still running.
    `by` is a name as it is on record; if one person acted for another, either of the two."""
    asked = call.query
    seen = [
        one
        for one in all_acts(state.ctx, asked.route, asked.verb, asked.by)
        if call.caller.sees(one.route)
    ]
    try:
        found = acts_after(seen, asked.after)
    except UsageError as error:
        raise problem_error(
            "wrong-value", str(error), field="after", expected="the `next` of a page"
        ) from None
    shown = found[: asked.limit]
    more = len(found) > len(shown)
    return Acts([act_view(one) for one in shown], more, shown[-1].id if more else None)


@endpoint(
    "GET",
    "/api/v1/acts/{id}",
    scope="read",
    query=ActQuery,
    problems=("unknown-act",),
    summary="One act, with its progress",
)
def one_act(state: ServerState, call: Call) -> dict[str, Any]:
    """As in `GET /api/v1/acts`. While an act on many items is running, `done` and `refused` are
    updated after every thousand items; `expected` is the approximate total, null if it is not
    known, and `finished` is true at the end. Give an act an `id` of your own to read its progress
    while the call that runs it is still waiting. `outcome` says what became of the items that it
    changed, as they are now: `completed`, `failed`, `cancelled`, `in_progress`, and `unknown` where
    no line of theirs is found any more; null for acts that change no items. One call counts the
    items with a line among the first ten thousand since the act began: `counted` of `total`. Give
    `next` as `after` to count the following ones alone; it is null where no more can be found. Each
    line that a bulk act wrote in an item's history carries its id."""
    found, _ = read_versioned(state.ctx.ledger, ACT, call.path["id"], Act)
    if found is None or not call.caller.sees(found.route):
        raise _unknown_act(f"there is no act {call.path['id']!r}")
    try:
        outcome = outcome_of(state.ctx, found, call.query.after)
    except UsageError as error:
        raise problem_error(
            "wrong-value", str(error), field="after", expected="the `next` of an outcome"
        ) from None
    return {**act_view(found), "outcome": None if outcome is None else to_builtins(outcome)}


def check_free(state: ServerState, call: Call, wanted: str) -> None:
    """Raise a problem if an act of a route that the caller does not see already has this id. The
    problem says nothing about that act."""
    found, _ = read_versioned(state.ctx.ledger, ACT, wanted, Act)
    if found is not None and not call.caller.sees(found.route):
        raise problem_error(
            "wrong-value",
            f"the id {wanted!r} cannot be used",
            field="id",
            expected="another id, or none",
        )


def _unknown_act(detail: str) -> ProblemError:
    return problem_error("unknown-act", detail, field="id", expected="an id from GET /api/v1/acts")


def _query(state: ServerState, route: str, chosen: Chosen, scan: bool) -> Query:
    if chosen == Chosen():
        raise problem_error(
            "wrong-value",
            "the filter is empty",
            field="filter",
            expected="a condition, such as status: [failed]",
        )
    query = choice_of(state.ctx, route, chosen, "filter.")
    afford(state.ctx, query, scan, way="scan: true")
    return query
