"""Intake: the one door by which items come in. One item and a million take the same path, a batch at a time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import sha256
from itertools import islice, repeat
from typing import Any, Literal

from msgspec import Struct

from milepost.core.decide import Acceptance
from milepost.core.errors import LedgerError, MalformedInput, UsageError
from milepost.core.item import canonical_json
from milepost.core.routes.plan import Plan
from milepost.core.status import FAILED, Status
from milepost.core.values.durations import Moment, iso, moment_ms
from milepost.core.values.json import SHALLOW, check_depth
from milepost.engine.act_log import signed
from milepost.engine.context import Context
from milepost.ports.ledger import KnownKey, NewItem, Refused, Same

BATCH = 1_000

Answer = Literal["new", "known", "changed", "replaced", "malformed"]

UNDONE = FAILED | {Status.CANCELLED}
"""How an item has ended whose key an operator may hand over again once its row was pruned."""
OTHER_CONTENT = "this key was handed over before with other content; what was recorded first stays"


class Receipt(Struct, frozen=True, gc=False):
    """What became of one input: recorded, known, known with other content (nothing is overwritten), or not taken in; then `field` names
    what is wrong in it and `expected` says what would be right, where that can be said."""

    key: str
    answer: Answer
    status: Status | None = None
    stage: str = ""
    error: str = ""
    field: str = ""
    expected: str = ""


def submit(
    ctx: Context,
    route: str,
    inputs: Iterable[Any],
    *,
    correlation_id: str | Sequence[str] | None = None,
    by: str | None = None,
    list_id: str | None = None,
    not_before: Moment | None = None,
    failed_again: str | None = None,
) -> list[Receipt]:
    """Hand over items; one receipt each, in the order given. What is answered "new" is durably recorded.

    With `not_before` none of them starts earlier; a time that an item's own content names (see `Route`) does not count then.

    `correlation_id` is for all of them, or a list of one for each. Without it each item gets one of its own; one that was handed
    over as a row that names it keeps that, or its key. An input that cannot be taken in never hinders the others.
    """
    plan = ctx.plan(route)
    starts_at = start_ms(ctx, not_before)
    receipts: list[Receipt] = []
    rest = iter(inputs)
    while batch := list(islice(rest, BATCH)):
        done = len(receipts)
        ids = correlation_id if correlation_id is None or isinstance(correlation_id, str) else correlation_id[done : done + BATCH]
        try:
            receipts += take_in(
                ctx, plan, batch, correlation_id=ids, by=by, list_id=list_id, not_before=starts_at, failed_again=failed_again
            )
        except LedgerError as error:
            if receipts:
                error.after(
                    f"The first {len(receipts):,} inputs had been taken in before; hand them all over again: what is there is known"
                )
            raise
    return receipts


def start_ms(ctx: Context, not_before: Moment | None) -> int | None:
    """The time before which items are not to start, in milliseconds; a span counts from now."""
    return None if not_before is None else moment_ms(not_before, ctx.clock.now(), "not_before")


def take_in(
    ctx: Context,
    plan: Plan,
    inputs: Sequence[Any],
    *,
    correlation_id: str | Sequence[str] | None = None,
    by: str | None = None,
    list_id: str | None = None,
    dry_run: bool = False,
    not_before: int | None = None,
    failed_again: str | None = None,
) -> list[Receipt]:
    """One batch: one look-up and one write for all of it. With `dry_run` the answers are the same and nothing is written.
    `not_before`, in milliseconds: what is new does not start earlier, whatever time its own content names.

    `failed_again`: keys that have failed or were cancelled, and whose rows were pruned, are taken in again as new items, for this
    reason and signed by `by`. (While the row is there, an operator retries it.)"""
    check_open(plan)
    if failed_again is not None and not dry_run:
        signed(by or "", failed_again)
    try:
        handed = plan.route.read_all(inputs)
        digests = content_digests([one.content for one in handed])
    except MalformedInput:
        return _without_the_malformed(ctx, plan, inputs, correlation_id, by, list_id, dry_run, not_before, failed_again)

    keys = [one.key for one in handed]
    asked = dict(zip(keys, digests, strict=True))
    distinct = list(asked)
    known: dict[str, KnownKey | Same | Refused | None] = dict(
        zip(distinct, ctx.ledger.recognise(plan.name, distinct, list(asked.values())), strict=True)
    )
    invalid_keys = ctx.ledger.invalid_keys(plan, distinct)
    now = ctx.clock.now()
    seals = {} if failed_again is None else {key: there for key, there in known.items() if isinstance(there, KnownKey) and _undone(there)}
    open_to = {*[key for key, there in known.items() if there is None], *seals} - invalid_keys.keys()
    arrivals: dict[str, NewItem] = {}
    if open_to:
        prefix, carries = ctx.chance.token(), plan.route.carries is not None
        alike: dict[int | None, Acceptance] = {}
        ids = repeat(correlation_id, len(handed)) if correlation_id is None or isinstance(correlation_id, str) else correlation_id
        for one, digest, given_id in zip(handed, digests, ids, strict=True):
            key = one.key
            if key not in open_to or key in arrivals:
                continue
            at = plan.route.start_of(one.content, now) if not_before is None else not_before
            seal = seals.get(key)
            if seal is not None:
                accept = Acceptance(plan, now, list_id=list_id, by=by, not_before=at, why=failed_again, note=_after(seal), anew=True)
            elif at in alike:
                accept = alike[at]
            else:
                accept = alike[at] = Acceptance(plan, now, list_id=list_id, by=by, not_before=at)
            own_id = one.correlation_id or given_id or (key if carries else f"{prefix}-{len(arrivals):x}")
            change = accept(key, one.content, correlation_id=own_id, digest=digest)
            arrivals[key] = NewItem(change, one.content, None if seal is None else seal.head)
    if dry_run:
        known |= dict.fromkeys(arrivals)
    elif arrivals:
        # What was unknown a moment ago may be there by now: then the other one was first, and the ledger says so.
        known.update(zip(arrivals, ctx.ledger.add(plan, list(arrivals.values()), now), strict=True))

    receipts: list[Receipt] = []
    for key, digest in zip(keys, digests, strict=True):
        there = known[key]
        if invalid_keys and key in invalid_keys:
            receipts.append(Receipt("", "malformed", error=invalid_keys[key]))
        elif there is None:
            row = arrivals[key].change.after
            receipts.append(Receipt(key, "new", row.status, row.stage))
            if len(keys) > len(distinct):  # it may come again in this batch
                known[key] = KnownKey(key, row.status, row.input_digest, row.stage)
        elif isinstance(there, Same) and digest == asked[key]:
            receipts.append(Receipt(key, "known", there.status, there.stage))
        elif isinstance(there, Refused):
            receipts.append(Receipt("", "malformed", error=f"the item {key[:100]!r} cannot be stored: {there.reason}"))
        elif isinstance(there, KnownKey) and there.current_digest == digest:
            receipts.append(Receipt(key, "known", there.status, there.stage))
        else:
            receipts.append(Receipt(key, "changed", there.status, there.stage, OTHER_CONTENT))
    if not dry_run:
        ctx.observer.submitted(plan.name, (receipt.answer for receipt in receipts))
    return receipts


def _undone(there: KnownKey) -> bool:
    """Has an item ended in a way, and left, so that an operator may hand over its key again?"""
    return there.sealed and there.status in UNDONE


def _after(seal: KnownKey) -> dict[str, Any]:
    """What the first line of an item says of the one before it that had its key: that one's lines may be gone."""
    return {"after": {"status": seal.status.value, "stage": seal.stage, "ended_at": iso(seal.ended_at), "head": seal.head.hex()}}


def check_open(plan: Plan) -> None:
    """Raise UsageError if nobody can hand over items of the route."""
    if plan.route.closed is not None:
        raise UsageError(f"nothing can be handed over to the route {plan.name!r}: {plan.route.closed}")


def _without_the_malformed(
    ctx: Context,
    plan: Plan,
    inputs: Sequence[Any],
    correlation_id: str | Sequence[str] | None,
    by: str | None,
    list_id: str | None,
    dry_run: bool,
    not_before: int | None,
    failed_again: str | None,
) -> list[Receipt]:
    """Some of the batch cannot be taken in: find out which, and take in the others."""
    refused: dict[int, Receipt] = {}
    sound = []
    for place, content in enumerate(inputs):
        try:
            content_digest(plan.route.read(content).content)
        except MalformedInput as error:
            refused[place] = Receipt("", "malformed", error=str(error), field=error.field, expected=error.expected)
        else:
            sound.append(content)
    if not dry_run:
        ctx.observer.submitted(plan.name, (receipt.answer for receipt in refused.values()))
    ids = correlation_id
    if ids is not None and not isinstance(ids, str):
        ids = [own for place, own in enumerate(ids) if place not in refused]
    more: dict[str, Any] = {"dry_run": dry_run, "not_before": not_before, "failed_again": failed_again}
    receipts = iter(take_in(ctx, plan, sound, correlation_id=ids, by=by, list_id=list_id, **more) if sound else ())
    return [refused[place] if place in refused else next(receipts) for place in range(len(inputs))]


def content_digest(content: Any) -> bytes:
    """The digest by which content is recognised; raises MalformedInput if it cannot be kept as JSON."""
    return content_digests([content])[0]


def content_digests(contents: Iterable[Any]) -> list[bytes]:
    """The digest of each; raises MalformedInput if one of them cannot be kept as JSON."""
    try:
        texts = list(map(canonical_json, contents))
        for text in texts:
            if len(text) > SHALLOW:
                check_depth(text)
        return [sha256(text).digest() for text in texts]
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise MalformedInput(f"the input cannot be kept as JSON: {error}") from None
