"""Intake: accept items in batches, once per key. One item and a million take the same path."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from itertools import compress, islice, repeat
from operator import is_not
from typing import Any, Literal, TypedDict, Unpack, cast

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
        same = cast("Sequence[Same]", self.answers)  # each that is looked at
        return [
            others[place] if place in others else Receipt(key, "known", answer.status, answer.stage)
            for place, (key, answer) in enumerate(zip(self.keys, same, strict=True))
        ]

    def counts(self) -> Counter[str]:
        """How many inputs got each answer."""
        counts: Counter[str] = Counter(receipt.answer for receipt in self.others.values())
        same = len(self.keys) - len(self.others)
        if same:
            counts["known"] += same
        return counts


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
    dry_run = options.get("dry_run", False)
    if not dry_run:
        _check_signature(options)
    if batch.refused:
        return _take_in_sound(ctx, plan, batch, options)
    keys = keys_of_new(ctx, plan, batch.parsed.keys)
    batch = replace(batch, parsed=batch.parsed._replace(keys=keys))
    lookup = look_up(ctx, plan, batch)
    ctx.check_clock()
    maker = NewItemMaker(ctx, plan, batch, lookup, options)
    receipts = BatchReceipts(batch, lookup)
    # In portions, so that other processes write in between, and memory is soon used again.
    for start in range(0, len(lookup.doubtful), BATCH):
        portion = lookup.doubtful[start : start + BATCH]
        now = ctx.clock.now()
        new_items = maker.make(portion, now)
        try:
            answers = write_new(ctx, plan, new_items, now, dry_run=dry_run)
        except LedgerError as error:
            error.recorded = receipts.count_new()
            raise
        receipts.add(portion, new_items, answers)
    taken = TakenBatch(keys, lookup.answers, receipts.others)
    if not dry_run:
        ctx.observer.submitted(plan.name, taken.counts())
    return taken


def _check_signature(options: IntakeOptions) -> None:
    """Raise UsageError if keys are to be taken in again and nobody has signed it."""
    by, failed_again = options.get("by"), options.get("failed_again")
    if failed_again is not None:
        signed(by if isinstance(by, str) else "", failed_again)


class Lookup(Struct, frozen=True):
    """What the ledger knows of the keys of a batch."""

    answers: Sequence[KnownKey | Same | None]
    """The answer for each input."""
    doubtful: Sequence[int]
    """The places of all inputs but those that are known with the same content."""
    known: dict[str, KnownKey | Same | None]
    """The answers for the keys of the doubtful inputs."""
    invalid_keys: dict[str, str]
    """Those of these keys that the ledger cannot take, with the reason."""

    @property
    def repeats(self) -> bool:
        """Whether a doubtful key comes more than once."""
        return len(self.doubtful) > len(self.known)

    def seals_of_undone(self) -> dict[str, KnownKey]:
        """The keys that an operator may have taken in again: their rows were pruned after they had
        failed or were cancelled."""
        return {
            key: known
            for key, known in self.known.items()
            if isinstance(known, KnownKey) and known.sealed and known.status in UNDONE
        }


def look_up(ctx: Context, plan: Plan, batch: InputBatch) -> Lookup:
    """Ask the ledger for all keys of the batch."""
    if batch.distinct:
        answers: Sequence[KnownKey | Same | None] = ctx.ledger.recognise(
            plan.name, batch.parsed.keys, batch.digests
        )
        differs = map(is_not, map(type, answers), repeat(Same))
        doubtful = list(compress(range(len(answers)), differs))
    else:
        answers, doubtful = _look_up_repeated(ctx, plan, batch)
    known = {batch.parsed.keys[place]: answers[place] for place in doubtful}
    return Lookup(answers, doubtful, known, ctx.ledger.invalid_keys(plan, list(known)))


def _look_up_repeated(
    ctx: Context, plan: Plan, batch: InputBatch
) -> tuple[Sequence[KnownKey | Same | None], list[int]]:
    """The answers and the doubtful places of a batch in which a key comes more than once. It is
    looked up once, with its last content; where an earlier one differs from that, it is a doubtful
    place, too."""
    keys, digests = batch.parsed.keys, batch.digests
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
    recognised = ctx.ledger.recognise(plan.name, distinct, asked)
    by_key = dict(zip(distinct, recognised, strict=True))
    answers = [by_key[key] for key in keys]
    doubtful = [
        place
        for place, answer in enumerate(answers)
        if type(answer) is not Same or place in differing
    ]
    return answers, doubtful


class NewItemMaker:
    """Makes the new items of a batch: for keys that are not known, and for those that an operator
    has taken in again. A key that comes more than once is accepted with its first content."""

    def __init__(
        self, ctx: Context, plan: Plan, batch: InputBatch, lookup: Lookup, options: IntakeOptions
    ) -> None:
        self._ctx, self._plan, self._batch, self._options = ctx, plan, batch, options
        self._seals: dict[str, KnownKey] = {}
        if options.get("failed_again") is not None:
            self._seals = lookup.seals_of_undone()
        unknown = [key for key, known in lookup.known.items() if known is None]
        self._wanted = {*unknown, *self._seals} - lookup.invalid_keys.keys()

    def make(self, places: Sequence[int], now: int) -> dict[str, NewItem]:
        """The new items at these places, by key."""
        new_items: dict[str, NewItem] = {}
        if not self._wanted:
            return new_items
        keys, contents, own_ids = self._batch.parsed
        prefix = self._ctx.chance.token()
        acceptances: dict[tuple[int | None, str | None], Acceptance] = {}
        authors, starts, given_ids = (
            _each(self._options.get(name), places)
            for name in ("by", "not_before", "correlation_id")
        )
        for place, author, start, given_id in zip(
            places, authors, starts, given_ids, strict=False
        ):  # one for all has no end
            key = keys[place]
            if key not in self._wanted or key in new_items:
                continue
            content = contents[place]
            if start is None:
                start = self._plan.route.start_of(content, now)
            seal = self._seals.get(key)
            if seal is not None:
                accept = self._acceptance_after(seal, now, start, author)
            elif (start, author) in acceptances:
                accept = acceptances[start, author]
            else:
                accept = self._acceptance(now, start, author)
                acceptances[start, author] = accept
            own_id = own_ids[place] if own_ids else None
            correlation_id = own_id or given_id
            if not correlation_id and self._plan.route.carries is not None:
                correlation_id = key
            elif not correlation_id:
                correlation_id = f"{prefix}-{len(new_items):x}"
            digest = self._batch.digests[place]
            change = accept(key, content, correlation_id=correlation_id, digest=digest)
            new_items[key] = NewItem(change, content, None if seal is None else seal.head)
        self._wanted -= new_items.keys()
        return new_items

    def _acceptance(self, now: int, start: int | None, author: str | None) -> Acceptance:
        list_id = self._options.get("list_id")
        return Acceptance(self._plan, now, list_id=list_id, by=author, not_before=start)

    def _acceptance_after(
        self, seal: KnownKey, now: int, start: int | None, author: str | None
    ) -> Acceptance:
        """For a key that is taken in again."""
        return Acceptance(
            self._plan,
            now,
            list_id=self._options.get("list_id"),
            by=author,
            not_before=start,
            why=self._options.get("failed_again"),
            note=_after(self._ctx, self._plan, seal),
            anew=True,
        )


def write_new(
    ctx: Context, plan: Plan, new_items: dict[str, NewItem], now: int, *, dry_run: bool
) -> dict[str, KnownKey | Refused | None]:
    """Write new items; returns the ledger's answer for each key. Another process may have recorded
    an item meanwhile: it was first, and the ledger says so."""
    if dry_run or not new_items:
        return dict.fromkeys(new_items)
    answers = ctx.ledger.add(plan, list(new_items.values()), now)
    return dict(zip(new_items, answers, strict=True))


class BatchReceipts:
    """Makes the receipts of a batch's doubtful inputs, by place and in order."""

    def __init__(self, batch: InputBatch, lookup: Lookup) -> None:
        self.others: dict[int, Receipt] = {}
        self._keys, self._digests = batch.parsed.keys, batch.digests
        self._invalid_keys, self._repeats = lookup.invalid_keys, lookup.repeats
        self._known: dict[str, KnownKey | Same | Refused | None] = {**lookup.known}

    def add(
        self,
        places: Sequence[int],
        new_items: Mapping[str, NewItem],
        answers: Mapping[str, KnownKey | Refused | None],
    ) -> None:
        """Add the receipts for these places; `answers` are those for its new items."""
        self._known.update(answers)
        for place in places:
            key = self._keys[place]
            known = self._known[key]
            if key in self._invalid_keys:
                receipt = Receipt("", "malformed", error=self._invalid_keys[key])
            elif known is None:
                row = new_items[key].change.after
                receipt = Receipt(key, "new", row.status, row.stage, created_at=row.created_at)
                if self._repeats:
                    self._known[key] = KnownKey(key, row.status, row.input_digest, row.stage)
            elif isinstance(known, Refused):
                why = f"the item {key[:100]!r} cannot be stored: {known.reason}"
                receipt = Receipt("", "malformed", error=why)
            else:
                receipt = _receipt_of_known(key, known, self._digests[place])
            self.others[place] = receipt

    def count_new(self) -> int:
        return sum(receipt.answer == "new" for receipt in self.others.values())


def _receipt_of_known(key: str, known: KnownKey | Same, digest: bytes) -> Receipt:
    """The receipt of an input whose key is known, or comes earlier in its batch."""
    first_content = False
    if isinstance(known, KnownKey):
        # Of a forgotten item no digest is left: whether the content is another one is not known.
        if known.forgotten or known.current_digest == digest:
            return Receipt(key, "known", known.status, known.stage)
        first_content = known.input_digest == digest
    why = REPLACED_SINCE if first_content else OTHER_CONTENT
    return Receipt(key, "changed", known.status, known.stage, why, first_content=first_content)


def _each(given: Any, places: Sequence[int]) -> Iterable[Any]:
    """The value for each of these items of a batch."""
    values = _at_places(given, places)
    return values if isinstance(values, list) else repeat(values)


def _at_places(given: Any, places: Sequence[int]) -> Any:
    """The values for these items of a batch: one for all, or a list with one for each."""
    if given is None or isinstance(given, (str, int)):
        return given
    return [given[place] for place in places]


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
