"""Intake: accept items in batches, once per key. One item and a million take the same path."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from hashlib import sha256
from itertools import compress, islice, repeat
from operator import is_not
from typing import Any, Literal, TypedDict, Unpack

from msgspec import Struct
from msgspec.structs import replace

from milepost.core.decide import Acceptance
from milepost.core.errors import LedgerError, MalformedInput, UsageError
from milepost.core.routes.one_field import KeyDigests, OneField
from milepost.core.routes.parsed_input import ParsedBatch
from milepost.core.routes.plan import Plan
from milepost.core.routes.route import PORTION
from milepost.core.status import FAILED, Status
from milepost.core.values.durations import Moment, iso, moment_ms
from milepost.core.values.json import SHALLOW, canonical_json, check_depth
from milepost.engine.act_log import signed
from milepost.engine.context import Context
from milepost.engine.evidence import earlier_names
from milepost.engine.known_keys import keys_of_new
from milepost.ports.items import KnownKey, NewItem, Refused, Same

BATCH = 1_000

Answer = Literal["new", "known", "changed", "replaced", "malformed"]

UNDONE = FAILED | {Status.CANCELLED}
"""Statuses after which a pruned key may be submitted again by an operator."""
OTHER_CONTENT = "this key was submitted before with other content; the first content is kept"
REPLACED_SINCE = "an operator has replaced this first content since; the present content is kept"


class Receipt(Struct, frozen=True, gc=False):
    """Result for one input: recorded, known, known with other content (nothing is overwritten), or
    malformed; then `field` names what is wrong, and `expected` says what would be right, if
    known."""

    key: str
    answer: Answer
    status: Status | None = None
    stage: str = ""
    error: str = ""
    field: str = ""
    expected: str = ""
    created_at: int | None = None
    """When a new item was recorded, in milliseconds since 1970."""
    first_content: bool = False
    """For `changed`: it is the content with which the key was first submitted, and which an
    operator has replaced since."""


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
    """Submit items; returns one receipt each, in order. An item that is answered "new" is durably
    recorded.

    With `not_before` no item starts earlier; a start time in an item's own content (see `Route`) is
    then ignored.

    `correlation_id` is one for all or a list with one for each. By default each item gets its own;
    an item that was submitted as a row with an id keeps that, or uses its key. A malformed input
    does not affect the others.
    """
    plan = ctx.plan(route)
    starts_at = start_ms(ctx, not_before)
    receipts: list[Receipt] = []
    rest = iter(inputs)
    while batch := list(islice(rest, BATCH)):
        done = len(receipts)
        ids = (
            correlation_id
            if correlation_id is None or isinstance(correlation_id, str)
            else correlation_id[done : done + BATCH]
        )
        try:
            receipts += take_in(
                ctx,
                plan,
                batch,
                correlation_id=ids,
                by=by,
                list_id=list_id,
                not_before=starts_at,
                failed_again=failed_again,
            )
        except LedgerError as error:
            if receipts:
                error.after(
                    f"The first {len(receipts):,} inputs are recorded; submit all of them again: recorded ones are recognised"
                )
            raise
    return receipts


def start_ms(ctx: Context, not_before: Moment | None) -> int | None:
    """Earliest start in milliseconds; a span counts from now."""
    return None if not_before is None else moment_ms(not_before, ctx.clock.now(), "not_before")


class TakenBatch(Struct, frozen=True):
    """Results for one batch, in order. Most lines of a list that is delivered again are known with
    the same content: they get no object of their own before a receipt is asked for."""

    keys: Sequence[str]
    answers: Sequence[KnownKey | Same | None]
    """The ledger's answer for each key."""
    others: dict[int, Receipt]
    """Receipts of all inputs but those for which the answer is Same, by place and in order."""

    def receipts(self) -> list[Receipt]:
        """One receipt for each input."""
        others = self.others
        return [
            others[place] if place in others else Receipt(key, "known", same.status, same.stage)  # type: ignore[union-attr]
            for place, (key, same) in enumerate(zip(self.keys, self.answers, strict=True))
        ]

    def counts(self) -> Counter[str]:
        """How many inputs got each answer."""
        found: Counter[str] = Counter(receipt.answer for receipt in self.others.values())
        if same := len(self.keys) - len(self.others):
            found["known"] += same
        return found


def take_in(
    ctx: Context, plan: Plan, inputs: Sequence[Any], **options: Unpack[IntakeOptions]
) -> list[Receipt]:
    """Take in one batch as `take_in_batch` does; returns one receipt for each input, in order."""
    return take_in_batch(ctx, plan, parse_inputs(plan, inputs), **options).receipts()


class IntakeOptions(TypedDict, total=False):
    """Options for a batch. `correlation_id`, `by` and `not_before` are one for all, or a list with
    one for each."""

    correlation_id: str | Sequence[str] | None
    by: str | Sequence[str] | None
    list_id: str | None
    dry_run: bool
    """The answers are the same, and nothing is written."""
    not_before: int | Sequence[int | None] | None
    """Earliest start of new items in milliseconds, whatever their content says."""
    failed_again: str | None
    """Reason, signed by `by`, to take in keys again that failed or were cancelled and whose rows
    were pruned. (While the row exists, an operator retries it instead.)"""


class InputBatch(Struct, frozen=True):
    """The inputs of one batch, parsed: the sound ones in order, and the receipts of the malformed
    ones."""

    parsed: ParsedBatch
    digests: Sequence[bytes]
    distinct: bool
    """No key comes more than once."""
    refused: dict[int, Receipt]
    """By the place in the batch."""


def parse_inputs(plan: Plan, inputs: Sequence[Any]) -> InputBatch:
    """Parse one batch: keys, recorded contents and their digests. It needs no ledger, so a list can
    be parsed ahead."""
    refused: dict[int, Receipt] = {}
    try:
        parsed = plan.route.read_all(inputs)
        digests = content_digests(parsed.contents)
    except MalformedInput:
        for start in range(0, len(inputs), PORTION):
            some = inputs[start : start + PORTION]
            try:
                content_digests(plan.route.read_all(some).contents)
            except MalformedInput:
                refused |= {
                    start + place: found
                    for place, content in enumerate(some)
                    if (found := _refusal(plan, content)) is not None
                }
        parsed = plan.route.read_all(
            [content for place, content in enumerate(inputs) if place not in refused]
        )
        digests = content_digests(parsed.contents)
    return InputBatch(parsed, digests, len(set(parsed.keys)) == len(parsed.keys), refused)


def take_in_batch(
    ctx: Context, plan: Plan, batch: InputBatch, **options: Unpack[IntakeOptions]
) -> TakenBatch:
    """Take in one batch with one look-up, and at most one write for each `BATCH` of its inputs."""
    check_open(plan)
    by, failed_again, dry_run = (
        options.get("by"),
        options.get("failed_again"),
        options.get("dry_run", False),
    )
    if failed_again is not None and not dry_run:
        signed(by if isinstance(by, str) else "", failed_again)
    if batch.refused:
        return _take_in_sound(ctx, plan, batch, options)
    batch = replace(
        batch, parsed=batch.parsed._replace(keys=keys_of_new(ctx, plan, batch.parsed.keys))
    )
    keys, digests = batch.parsed.keys, batch.digests
    answers, doubtful = _recognised(ctx, plan, batch)
    known: dict[str, KnownKey | Same | Refused | None] = {
        keys[place]: answers[place] for place in doubtful
    }
    invalid_keys = ctx.ledger.invalid_keys(plan, list(known))
    ctx.check_clock()
    seals: dict[str, KnownKey] = {}
    if failed_again is not None:
        seals = {
            key: one
            for key, one in known.items()
            if isinstance(one, KnownKey) and one.sealed and one.status in UNDONE
        }
    acceptable = {
        *[key for key, known_key in known.items() if known_key is None],
        *seals,
    } - invalid_keys.keys()
    others: dict[int, Receipt] = {}
    repeats = len(doubtful) > len(known)  # a key comes more than once in this batch
    # In portions, so that other processes write in between, and memory is soon used again.
    for start in range(0, len(doubtful), BATCH):
        portion = doubtful[start : start + BATCH]
        now = ctx.clock.now()
        arrivals = _arrivals(ctx, plan, batch, portion, acceptable, seals, now, options)
        acceptable -= arrivals.keys()
        if dry_run:
            known |= dict.fromkeys(arrivals)
        elif arrivals:
            # Another process may have recorded an item meanwhile: it was first, and the ledger says
            # so.
            try:
                known.update(
                    zip(arrivals, ctx.ledger.add(plan, list(arrivals.values()), now), strict=True)
                )
            except LedgerError as error:
                error.recorded = sum(receipt.answer == "new" for receipt in others.values())
                raise
        for place in portion:
            key = keys[place]
            known_key = known[key]
            if key in invalid_keys:
                others[place] = Receipt("", "malformed", error=invalid_keys[key])
            elif known_key is None:
                row = arrivals[key].change.after
                others[place] = Receipt(
                    key, "new", row.status, row.stage, created_at=row.created_at
                )
                if repeats:
                    known[key] = KnownKey(key, row.status, row.input_digest, row.stage)
            elif isinstance(known_key, Refused):
                others[place] = Receipt(
                    "",
                    "malformed",
                    error=f"the item {key[:100]!r} cannot be stored: {known_key.reason}",
                )
            elif isinstance(known_key, KnownKey) and (
                known_key.forgotten or known_key.current_digest == digests[place]
            ):
                # Of a forgotten item no digest is left: whether the content is another one is not
                # known.
                others[place] = Receipt(key, "known", known_key.status, known_key.stage)
            else:
                first = isinstance(known_key, KnownKey) and known_key.input_digest == digests[place]
                why = REPLACED_SINCE if first else OTHER_CONTENT
                others[place] = Receipt(
                    key, "changed", known_key.status, known_key.stage, why, first_content=first
                )
    taken = TakenBatch(keys, answers, others)
    if not dry_run:
        ctx.observer.submitted(plan.name, taken.counts())
    return taken


def _recognised(
    ctx: Context, plan: Plan, batch: InputBatch
) -> tuple[Sequence[KnownKey | Same | None], Sequence[int]]:
    """The ledger's answer for each key, and the places where it is not Same. A key that comes more
    than once is looked up once, with its last content; where an earlier one differs from that, it
    is a doubtful place, too."""
    keys, digests = batch.parsed.keys, batch.digests
    if batch.distinct:
        answers: Sequence[KnownKey | Same | None] = ctx.ledger.recognise(plan.name, keys, digests)
        return answers, list(
            compress(range(len(keys)), map(is_not, map(type, answers), repeat(Same)))
        )
    distinct = list(dict.fromkeys(keys))
    if isinstance(digests, KeyDigests):
        asked: Sequence[bytes] = KeyDigests(digests.field, distinct)
        differing: set[int] = set()
    else:
        last = dict(zip(keys, digests, strict=True))
        asked = list(last.values())
        differing = {
            place
            for place, (key, digest) in enumerate(zip(keys, digests, strict=True))
            if digest != last[key]
        }
    found = dict(zip(distinct, ctx.ledger.recognise(plan.name, distinct, asked), strict=True))
    answers = [found[key] for key in keys]
    return answers, [
        place
        for place, kind in enumerate(map(type, answers))
        if kind is not Same or place in differing
    ]


def _arrivals(
    ctx: Context,
    plan: Plan,
    batch: InputBatch,
    places: Sequence[int],
    acceptable: Set[str],
    seals: Mapping[str, KnownKey],
    now: int,
    options: IntakeOptions,
) -> dict[str, NewItem]:
    """The new items at these places of a batch, by key. A key that comes more than once is accepted
    with its first content."""
    arrivals: dict[str, NewItem] = {}
    if not acceptable:
        return arrivals
    (keys, contents, own_ids), digests = batch.parsed, batch.digests
    prefix, carries = ctx.chance.token(), plan.route.carries is not None
    acceptances: dict[tuple[int | None, str | None], Acceptance] = {}
    list_id, failed_again = options.get("list_id"), options.get("failed_again")
    authors, starts, ids = (
        _each(options.get(name), places) for name in ("by", "not_before", "correlation_id")
    )
    for place, author, start, given_id in zip(
        places, authors, starts, ids, strict=False
    ):  # one for all has no end
        key = keys[place]
        if key not in acceptable or key in arrivals:
            continue
        content = contents[place]
        at = plan.route.start_of(content, now) if start is None else start
        seal = seals.get(key)
        if seal is not None:
            accept = Acceptance(
                plan,
                now,
                list_id=list_id,
                by=author,
                not_before=at,
                why=failed_again,
                note=_after(ctx, plan, seal),
                anew=True,
            )
        elif (at, author) in acceptances:
            accept = acceptances[at, author]
        else:
            accept = acceptances[at, author] = Acceptance(
                plan, now, list_id=list_id, by=author, not_before=at
            )
        own_id = (
            (own_ids and own_ids[place])
            or given_id
            or (key if carries else f"{prefix}-{len(arrivals):x}")
        )
        change = accept(key, content, correlation_id=own_id, digest=digests[place])
        arrivals[key] = NewItem(change, content, None if seal is None else seal.head)
    return arrivals


def _each(given: Any, places: Sequence[int]) -> Iterable[Any]:
    """The value for each of these items of a batch."""
    found = _at_places(given, places)
    return found if isinstance(found, list) else repeat(found)


def _at_places(given: Any, places: Sequence[int]) -> Any:
    """The values for these items of a batch: one for all, or a list with one for each."""
    return (
        given
        if given is None or isinstance(given, (str, int))
        else [given[place] for place in places]
    )


def _after(ctx: Context, plan: Plan, seal: KnownKey) -> dict[str, Any]:
    """Note in the first history line about the earlier item with this key, whose own lines may be
    gone. It also names the lives before that one, so that a lost record hides none of them."""
    ended: dict[str, Any] = {
        "status": seal.status.value,
        "stage": seal.stage,
        "ended_at": iso(seal.ended_at),
        "head": seal.head.hex(),
    }
    names = earlier_names(ctx, plan.name, seal)
    if names:
        ended["before"] = [list(name) for name in names]
    return {"after": {**ended, "life": seal.life}}


def check_open(plan: Plan) -> None:
    """Raise UsageError if the route accepts no submitted items."""
    if plan.route.closed is not None:
        raise UsageError(f"route {plan.name!r} accepts no items: {plan.route.closed}")


def _take_in_sound(
    ctx: Context, plan: Plan, batch: InputBatch, options: IntakeOptions
) -> TakenBatch:
    """Take in a batch that has malformed inputs: refuse these, and take in the others."""
    refused, total = batch.refused, len(batch.refused) + len(batch.parsed.keys)
    if not options.get("dry_run"):
        ctx.observer.submitted(plan.name, {"malformed": len(refused)})
    sound = [place for place in range(total) if place not in refused]
    own = options.copy()
    own["correlation_id"] = _at_places(options.get("correlation_id"), sound)
    own["by"] = _at_places(options.get("by"), sound)
    own["not_before"] = _at_places(options.get("not_before"), sound)
    taken = (
        take_in_batch(ctx, plan, replace(batch, refused={}), **own)
        if sound
        else TakenBatch([], [], {})
    )
    keys = [""] * total
    answers: list[KnownKey | Same | None] = [None] * total
    for place, key, answer in zip(sound, taken.keys, taken.answers, strict=True):
        keys[place], answers[place] = key, answer
    others = refused | {sound[place]: receipt for place, receipt in taken.others.items()}
    return TakenBatch(keys, answers, dict(sorted(others.items())))


def _refusal(plan: Plan, content: Any) -> Receipt | None:
    """The receipt of a malformed input; None if it is sound."""
    try:
        content_digest(plan.route.read(content).content)
    except MalformedInput as error:
        return Receipt(
            "", "malformed", error=str(error), field=error.field, expected=error.expected
        )
    return None


def content_digest(content: Any) -> bytes:
    """Digest that identifies content; raises MalformedInput if the content is not valid JSON."""
    return content_digests([content])[0]


def content_digests(contents: Sequence[Any]) -> Sequence[bytes]:
    """Digest of each content; raises MalformedInput if one is not valid JSON. Keys alone are always
    valid."""
    if isinstance(contents, OneField):
        return KeyDigests(contents.field, contents.texts)
    try:
        texts = list(map(canonical_json, contents))
        if max(map(len, texts), default=0) > SHALLOW:
            for text in texts:
                check_depth(text)
        return [sha256(text).digest() for text in texts]
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise MalformedInput(f"the input cannot be stored as JSON: {error}") from None
