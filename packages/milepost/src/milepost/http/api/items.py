"""Items over HTTP: submit items and lists, and read one item with its history."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from milepost.core.values.durations import iso
from milepost.engine.intake import Receipt
from milepost.engine.views.items import show, without_secrets
from milepost.engine.views.story import story
from milepost.engine.views.timestamps import instant
from milepost.http.api.lists import FORMS, ListAnswer, take_in_stream
from milepost.http.auth.author import check_may_operate, check_reason
from milepost.http.protocol.endpoint import Answer, Call, endpoint, media_type
from milepost.http.protocol.problems import ProblemError, problem_error
from milepost.http.state.state import ServerState

MANY = 10_000


class SubmitAnswer(Struct, frozen=True, omit_defaults=True):
    """The answer for one item: `new`, `known`, `changed` (known with other content; nothing is
    overwritten), or `malformed`: then `field` names the wrong field, and `expected` a correct value
    if there is one."""

    key: str
    answer: str
    status: str | None = None
    stage: str = ""
    error: str = ""
    field: str = ""
    expected: str = ""


class SubmitAnswers(Struct, frozen=True):
    """One answer for each item, in the order given."""

    receipts: list[SubmitAnswer]


class SubmitQuery(Struct, frozen=True, kw_only=True):
    """`not_before`: new items do not start earlier. `failed_again`: accept failed keys again whose
    rows were pruned, for this `reason`. The other parameters are for a list: its name; whether it
    is the whole master list (`full`); whether a CSV has no header; whether to change nothing
    (`dry_run`); whether to replace known items whose content differs, why, and also COMPLETED ones
    (`rerun`)."""

    name: str = ""
    full: bool = False
    no_header: bool = False
    dry_run: bool = False
    not_before: str | None = None
    replace_changed: bool = False
    rerun: bool = False
    failed_again: bool = False
    reason: str = ""


@endpoint(
    "POST",
    "/api/v1/routes/{route}/items",
    scope="submit",
    query=SubmitQuery,
    body=dict[str, Any] | list[dict[str, Any]],
    answers={201: SubmitAnswer, 200: SubmitAnswer | SubmitAnswers | ListAnswer},
    problems=("conflict", "malformed-item", "too-slow"),
    summary="Submit an item, several, or a list of any length",
    types=("application/json", *FORMS),
)
async def submit(state: ServerState, call: Call) -> Answer:
    """One object is one item: 201 if it is new, 200 if it is known already, 409 if its key is known
    with other content. An array of at most 10,000 is answered with one receipt each, in the same
    order. An item answered `new` is on disk.

    A list of any length is sent as NDJSON (an object a line), CSV or plain text (a key a line), and
    is answered with the report that `milepost submit --json` gives. It is accepted while it is
    being sent; a list that was cut off can be sent again. `name` names it, `full=true` says that it
    is the whole master list (the report then lists vanished keys), `dry_run=true` changes nothing.
    A CSV has a header with the key's columns; with `no_header=true` its first line is an item.
    `replace_changed=true` replaces the content of known items that differ from the list; it needs
    the scope `operate` and a `reason`. So does `failed_again=true`: keys that have failed or were
    cancelled, and whose rows were pruned, are then accepted again.

    With `not_before`, a time such as `2027-01-31T08:00:00Z` or a span from now such as `2h`, new
    items do not start earlier."""
    plan = state.plan(call)
    kind = media_type(call.headers)
    if kind in FORMS:
        return await take_in_stream(state, call, kind)
    asked = call.query
    start = asked.not_before
    if asked != SubmitQuery(
        not_before=start, failed_again=asked.failed_again, reason=asked.reason
    ) or (asked.reason and not asked.failed_again):
        raise problem_error(
            "wrong-value",
            "of these parameters, only not_before and failed_again apply to items",
            field="Content-Type",
            expected=" or ".join(FORMS),
        )
    again = asked.reason if asked.failed_again else None
    if again is not None:
        check_may_operate(call, "accept failed keys again")
        check_reason(again, False)
    if isinstance(call.body, list):
        if len(call.body) > MANY:
            raise problem_error(
                "wrong-value",
                f"{len(call.body):,} items are too many for one call",
                expected=f"at most {MANY:,}, or a list as NDJSON",
            )
        receipts = await state.submitting.submit_many(
            plan.name, call.body, call.caller.name, start, again
        )
        return Answer(SubmitAnswers([_taken(receipt) for receipt in receipts]))
    if start is None and again is None:
        receipt = await state.submitting.submit(plan.name, call.body, call.caller.name)
    else:
        [receipt] = await state.submitting.submit_many(
            plan.name, [call.body], call.caller.name, start, again
        )
    if receipt.answer == "malformed":
        raise problem_error(
            "malformed-item",
            receipt.error,
            field=receipt.field or None,
            expected=receipt.expected or None,
        )
    if receipt.answer == "changed":
        raise problem_error(
            "conflict",
            receipt.error,
            key=receipt.key,
            item_status=str(receipt.status),
            stage=receipt.stage,
        )
    return Answer(_taken(receipt), 201 if receipt.answer == "new" else 200)


def _taken(receipt: Receipt) -> SubmitAnswer:
    status = None if receipt.status is None else receipt.status.value
    return SubmitAnswer(
        receipt.key,
        receipt.answer,
        status,
        receipt.stage,
        receipt.error,
        receipt.field,
        receipt.expected,
    )


@endpoint(
    "GET",
    "/api/v1/routes/{route}/items/{key:path}",
    scope="read",
    summary="One item, with its history",
)
def get(state: ServerState, call: Call) -> dict[str, Any]:
    """Everything about one item: status, stage, content and history; apparent secrets in it are
    replaced by `…`. If its row has left, the answer comes from its seal."""
    return _seen(state, call)


def _seen(state: ServerState, call: Call) -> dict[str, Any]:
    found = show(state.ctx, state.plan(call).name, call.path["key"])
    if found is None:
        raise _unknown(call)
    return without_secrets(found)


def _unknown(call: Call) -> ProblemError:
    return problem_error(
        "unknown-item", f"{call.path['route']} has no item {call.path['key']!r}", field="key"
    )


class History(Struct, frozen=True):
    """History of an item, the oldest line first. `chain` says whether the lines are unchanged since
    they were written; after the row has left, there are no lines and `sealed` is true."""

    route: str
    key: str
    sealed: bool
    chain: dict[str, Any]
    history: list[dict[str, Any]]


@endpoint(
    "GET", "/api/v1/routes/{route}/history/{key:path}", scope="read", summary="History of an item"
)
def history(state: ServerState, call: Call) -> History:
    """Every history line: what changed, when, by whom and why."""
    found = _seen(state, call)
    return History(found["route"], found["key"], found["sealed"], found["chain"], found["history"])


class StoryMoment(Struct, frozen=True):
    at: str | None
    text: str


class ItemStory(Struct, frozen=True):
    """Sentences, in reading order. `can`: commands that are possible now."""

    route: str
    key: str
    where: str
    why: list[str]
    next: list[str]
    happened: list[StoryMoment]
    can: list[str]
    warnings: list[str]


@endpoint(
    "GET",
    "/api/v1/routes/{route}/story/{key:path}",
    scope="read",
    summary="The story of an item, in sentences",
)
def show_story(state: ServerState, call: Call) -> ItemStory:
    """Status and stage, why it waits, what happens next, what has happened, and what an operator
    can do: as `milepost show` prints it."""
    found = story(state.ctx, state.plan(call).name, call.path["key"], instant)
    if found is None:
        raise _unknown(call)
    happened = [StoryMoment(iso(one.at), one.text) for one in found.happened]
    return ItemStory(
        found.route,
        found.key,
        found.where,
        found.why,
        found.next,
        happened,
        found.can,
        found.warnings,
    )
