"""Intake: accept items in batches, once per key. One item and a million take the same path."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import sha256
from itertools import islice, repeat
from typing import Any, Literal

from msgspec import Struct

from milepost.core.decide import Acceptance
from milepost.core.errors import LedgerError, MalformedInput, UsageError
from milepost.core.routes.plan import Plan
from milepost.core.status import FAILED, Status
from milepost.core.values.durations import Moment, iso, moment_ms
from milepost.core.values.json import SHALLOW, canonical_json, check_depth
from milepost.engine.act_log import signed
from milepost.engine.context import Context
from milepost.ports.items import KnownKey, NewItem, Refused, Same

BATCH = 1_000

Answer = Literal["new", "known", "changed", "replaced", "malformed"]

UNDONE = FAILED | {Status.CANCELLED}
"""Statuses after which a pruned key may be submitted again by an operator."""
OTHER_CONTENT = "this key was handed over before with other content; what was recorded first stays"


class Receipt(Struct, frozen=True, gc=False):
    """Result for one input: recorded, known, known with other content (nothing is overwritten), or malformed; then `field` names what
    is wrong, and `expected` says what would be right, if known."""

    key: str
    answer: Answer
    status: Status | None = None
    stage: str = ""
    error: str = ""
    field: str = ""
    expected: str = ""
    created_at: int | None = None
    """When a new item was recorded, in milliseconds since 1970."""


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
    """Submit items; returns one receipt each, in order. An item that is answered "new" is durably recorded.

    With `not_before` no item starts earlier; a start time in an item's own content (see `Route`) is then ignored.

    `correlation_id` is one for all or a list with one for each. By default each item gets its own; an item that was submitted as a row
    with an id keeps that, or uses its key. A malformed input does not affect the others.
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
                error.after(f"The first {len(receipts):,} inputs are recorded; submit all of them again: recorded ones are recognised")
            raise
    return receipts


def start_ms(ctx: Context, not_before: Moment | None) -> int | None:
    """Earliest start in milliseconds; a span counts from now."""
    return None if not_before is None else moment_ms(not_before, ctx.clock.now(), "not_before")


def take_in(
    ctx: Context,
    plan: Plan,
    inputs: Sequence[Any],
    *,
    correlation_id: str | Sequence[str] | None = None,
    by: str | Sequence[str] | None = None,
    list_id: str | None = None,
    dry_run: bool = False,
    not_before: int | Sequence[int | None] | None = None,
    failed_again: str | None = None,
) -> list[Receipt]:
    """Take in one batch with one look-up and one write. With `dry_run` the receipts are the same and nothing is written.
    `not_before`, in milliseconds: earliest start of new items, whatever their content says. `correlation_id`, `by` and `not_before` are
    one for all, or a list with one for each.

    `failed_again`: reason, signed by `by`, to take in keys again that failed or were cancelled and whose rows were pruned. (While the
    row exists, an operator retries it instead.)"""
    check_open(plan)
    if failed_again is not None and not dry_run:
        signed(by if isinstance(by, str) else "", failed_again)
    try:
        keys, contents, own_ids = plan.route.read_all(inputs)
        digests = content_digests(contents)
    except MalformedInput:
        return _without_the_malformed(ctx, plan, inputs, correlation_id, by, list_id, dry_run, not_before, failed_again)

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
        alike: dict[tuple[int | None, str | None], Acceptance] = {}
        own = own_ids or repeat(None, len(keys))
        ids, authors, starts = (_each(given, len(keys)) for given in (correlation_id, by, not_before))
        for key, content, one_id, digest, given_id, author, start in zip(keys, contents, own, digests, ids, authors, starts, strict=True):
            if key not in open_to or key in arrivals:
                continue
            at = plan.route.start_of(content, now) if start is None else start
            seal = seals.get(key)
            if seal is not None:
                accept = Acceptance(plan, now, list_id=list_id, by=author, not_before=at, why=failed_again, note=_after(seal), anew=True)
            elif (at, author) in alike:
                accept = alike[at, author]
            else:
                accept = alike[at, author] = Acceptance(plan, now, list_id=list_id, by=author, not_before=at)
            own_id = one_id or given_id or (key if carries else f"{prefix}-{len(arrivals):x}")
            change = accept(key, content, correlation_id=own_id, digest=digest)
            arrivals[key] = NewItem(change, content, None if seal is None else seal.head)
    if dry_run:
        known |= dict.fromkeys(arrivals)
    elif arrivals:
        # Another process may have recorded an item meanwhile: it was first, and the ledger says so.
        known.update(zip(arrivals, ctx.ledger.add(plan, list(arrivals.values()), now), strict=True))

    receipts: list[Receipt] = []
    repeats = len(keys) > len(distinct)  # a key comes more than once in this batch
    for key, digest in zip(keys, digests, strict=True):
        there = known[key]
        if type(there) is Same and (not repeats or digest == asked[key]):
            receipts.append(Receipt(key, "known", there.status, there.stage))
        elif key in invalid_keys:
            receipts.append(Receipt("", "malformed", error=invalid_keys[key]))
        elif there is None:
            row = arrivals[key].change.after
            receipts.append(Receipt(key, "new", row.status, row.stage, created_at=row.created_at))
            if repeats:
                known[key] = KnownKey(key, row.status, row.input_digest, row.stage)
        elif isinstance(there, Refused):
            receipts.append(Receipt("", "malformed", error=f"the item {key[:100]!r} cannot be stored: {there.reason}"))
        elif isinstance(there, KnownKey) and there.current_digest == digest:
            receipts.append(Receipt(key, "known", there.status, there.stage))
        else:
            receipts.append(Receipt(key, "changed", there.status, there.stage, OTHER_CONTENT))
    if not dry_run:
        ctx.observer.submitted(plan.name, (receipt.answer for receipt in receipts))
    return receipts


def _each(given: Any, count: int) -> Iterable[Any]:
    """One value for all items of a batch, or the list with one for each."""
    return repeat(given, count) if given is None or isinstance(given, (str, int)) else given


def _undone(there: KnownKey) -> bool:
    """May an operator submit this key again: has its item failed or been cancelled, and its row been pruned?"""
    return there.sealed and there.status in UNDONE


def _after(seal: KnownKey) -> dict[str, Any]:
    """Note in the first history line about the earlier item with this key, whose own lines may be gone."""
    return {"after": {"status": seal.status.value, "stage": seal.stage, "ended_at": iso(seal.ended_at), "head": seal.head.hex()}}


def check_open(plan: Plan) -> None:
    """Raise UsageError if the route accepts no submitted items."""
    if plan.route.closed is not None:
        raise UsageError(f"route {plan.name!r} accepts no items: {plan.route.closed}")


def _without_the_malformed(
    ctx: Context,
    plan: Plan,
    inputs: Sequence[Any],
    correlation_id: str | Sequence[str] | None,
    by: str | Sequence[str] | None,
    list_id: str | None,
    dry_run: bool,
    not_before: int | Sequence[int | None] | None,
    failed_again: str | None,
) -> list[Receipt]:
    """Take in a batch with malformed inputs: sort these out, and take in the rest."""
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
    ids, authors, starts = (
        [own for place, own in enumerate(_each(given, len(inputs))) if place not in refused] for given in (correlation_id, by, not_before)
    )
    more: dict[str, Any] = {"dry_run": dry_run, "failed_again": failed_again, "by": by if failed_again is not None else authors}
    receipts = iter(take_in(ctx, plan, sound, correlation_id=ids, list_id=list_id, not_before=starts, **more) if sound else ())
    return [refused[place] if place in refused else next(receipts) for place in range(len(inputs))]


def content_digest(content: Any) -> bytes:
    """Digest that identifies content; raises MalformedInput if the content is not valid JSON."""
    return content_digests([content])[0]


def content_digests(contents: Iterable[Any]) -> list[bytes]:
    """Digest of each content; raises MalformedInput if one is not valid JSON."""
    try:
        texts = list(map(canonical_json, contents))
        if max(map(len, texts), default=0) > SHALLOW:
            for text in texts:
                check_depth(text)
        return [sha256(text).digest() for text in texts]
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise MalformedInput(f"the input cannot be stored as JSON: {error}") from None
