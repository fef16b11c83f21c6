"""Intake in phases against the form before it, one function: the same receipts, and the same ledger
afterwards."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from milepost.blobs.memory import MemoryBlobs
from milepost.core.decide import Acceptance
from milepost.core.item import Item, digest_of
from milepost.core.operators import cancel
from milepost.core.outcome import Done
from milepost.core.routes.plan import Plan
from milepost.core.routes.route import Route
from milepost.core.status import TERMINAL
from milepost.engine import intake
from milepost.engine.context import Context
from milepost.engine.intake import InputBatch, Receipt, TakenBatch, parse_inputs, take_in_batch
from milepost.engine.known_keys import keys_of_new
from milepost.ledgers.memory import MemoryLedger
from milepost.ports.items import KnownKey, NewItem, Refused, Same
from milepost.ports.retention import DeliveredLines, PruneCriteria
from milepost_testing.clock import SeededChance, VirtualClock

KEYS = ["a", "b", "c", "d", "e", "invalid"]
LARGEST = 2_000
TakeIn = Callable[..., TakenBatch]


def in_one_function(ctx: Context, plan: Plan, batch: InputBatch, **options: Any) -> TakenBatch:
    """The form before, without malformed inputs."""
    failed_again, dry_run = options.get("failed_again"), options.get("dry_run", False)
    batch = replace(
        batch, parsed=batch.parsed._replace(keys=keys_of_new(ctx, plan, batch.parsed.keys))
    )
    keys, digests = batch.parsed.keys, batch.digests
    last = dict(zip(keys, digests, strict=True))
    recognised = ctx.ledger.recognise(plan.name, list(last), list(last.values()))
    by_key = dict(zip(last, recognised, strict=True))
    answers = [by_key[key] for key in keys]
    doubtful = [
        place
        for place, answer in enumerate(answers)
        if type(answer) is not Same or digests[place] != last[keys[place]]
    ]
    known: dict[str, KnownKey | Same | Refused | None] = {
        keys[place]: answers[place] for place in doubtful
    }
    invalid_keys = ctx.ledger.invalid_keys(plan, list(known))
    seals: dict[str, KnownKey] = {}
    if failed_again is not None:
        for key, answer in known.items():
            if isinstance(answer, KnownKey) and answer.sealed and answer.status in intake.UNDONE:
                seals[key] = answer
    acceptable = {*[key for key in known if known[key] is None], *seals} - invalid_keys.keys()
    others: dict[int, Receipt] = {}
    for start in range(0, len(doubtful), intake.BATCH):
        portion = doubtful[start : start + intake.BATCH]
        now = ctx.clock.now()
        arrivals = arrivals_of(ctx, plan, batch, portion, acceptable, seals, now, options)
        acceptable -= arrivals.keys()
        if dry_run:
            known |= dict.fromkeys(arrivals)
        elif arrivals:
            added = ctx.ledger.add(plan, list(arrivals.values()), now)
            known.update(zip(arrivals, added, strict=True))
        for place in portion:
            key = keys[place]
            answer = known[key]
            if key in invalid_keys:
                others[place] = Receipt("", "malformed", error=invalid_keys[key])
            elif answer is None:
                row = arrivals[key].change.after
                others[place] = Receipt(
                    key, "new", row.status, row.stage, created_at=row.created_at
                )
                known[key] = KnownKey(key, row.status, row.input_digest, row.stage)
            elif isinstance(answer, Refused):
                error = f"the item {key[:100]!r} cannot be stored: {answer.reason}"
                others[place] = Receipt("", "malformed", error=error)
            elif isinstance(answer, KnownKey) and (
                answer.forgotten or answer.current_digest == digests[place]
            ):
                others[place] = Receipt(key, "known", answer.status, answer.stage)
            else:
                first = isinstance(answer, KnownKey) and answer.input_digest == digests[place]
                why = intake.REPLACED_SINCE if first else intake.OTHER_CONTENT
                others[place] = Receipt(
                    key, "changed", answer.status, answer.stage, why, first_content=first
                )
    return TakenBatch(keys, answers, others)


def arrivals_of(
    ctx: Context,
    plan: Plan,
    batch: InputBatch,
    places: Sequence[int],
    acceptable: set[str],
    seals: dict[str, KnownKey],
    now: int,
    options: Any,
) -> dict[str, NewItem]:
    arrivals: dict[str, NewItem] = {}
    if not acceptable:
        return arrivals
    prefix = ctx.chance.token()
    for place in places:
        key, content = batch.parsed.keys[place], batch.parsed.contents[place]
        if key not in acceptable or key in arrivals:
            continue
        ids, start = options.get("correlation_id"), options.get("not_before")
        seal = seals.get(key)
        again: dict[str, Any] = {}
        if seal is not None:
            note = intake._after(ctx, plan, seal)
            again = {"why": options.get("failed_again"), "note": note, "anew": True}
        accept = Acceptance(
            plan,
            now,
            list_id=options.get("list_id"),
            by=options.get("by"),
            not_before=plan.route.start_of(content, now) if start is None else start,
            **again,
        )
        own_id = (ids and ids[place]) or f"{prefix}-{len(arrivals):x}"
        change = accept(key, content, correlation_id=own_id, digest=batch.digests[place])
        arrivals[key] = NewItem(change, content, None if seal is None else seal.head)
    return arrivals


class RacedLedger(MemoryLedger):
    """Another process records some items just before each write; keys may be invalid."""

    def __init__(self) -> None:
        super().__init__()
        self.ahead: list[NewItem] = []

    def invalid_keys(self, plan: Plan, keys: Sequence[str]) -> dict[str, str]:
        return {key: "it is not valid here" for key in keys if key == "invalid"}

    def add(
        self, plan: Plan, new_items: Sequence[NewItem], now: int
    ) -> list[KnownKey | Refused | None]:
        ahead, self.ahead = self.ahead, []
        if ahead:
            super().add(plan, ahead, now)
        return super().add(plan, new_items, now)


def contents() -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(
        {"id": st.sampled_from(KEYS), "grams": st.sampled_from([1, 2])},
        optional={
            "text": st.sampled_from(["", "x" * 2 * LARGEST]),
            "start": st.just("2040-01-01T00:00:00Z"),
        },
    )


def prepared(before: list[dict[str, Any]], ended: set[str], pruned: bool) -> Context:
    """A ledger with some items, of which some are cancelled, or have left after that."""
    ledger = RacedLedger()
    route = Route("parcels", key="id", not_before="start")
    route.stage("weigh")(lambda item: Done())
    plan = Plan(route, grace_ms=0, offer_life_ms=0)
    ctx = Context(ledger, {"parcels": plan}, VirtualClock(), SeededChance(), MemoryBlobs())
    intake.submit(ctx, "parcels", before)
    for item in ledger.get([("parcels", key) for key in sorted(ended)]):
        if isinstance(item, Item):
            change = cancel(item, plan, ctx.clock.now(), by="ops")
            ledger.apply([change], ctx.clock.now())  # type: ignore[list-item]
    if pruned:
        upto = ctx.clock.now() + 1
        ledger.prune(PruneCriteria("parcels", TERMINAL, upto, None, DeliveredLines(0), 100))
    ledger.refuse_above(LARGEST)
    return ctx


def state_of(ctx: Context) -> Any:
    refs = [("parcels", key) for key in KEYS]
    items = [(item.row, item.input) for item in ctx.ledger.get(refs) if isinstance(item, Item)]
    histories = [ctx.ledger.history(*ref, payloads=True) for ref in refs]
    return items, ctx.ledger.peek("parcels", KEYS), histories


def run(take_in: TakeIn, ctx: Context, inputs: list[Any], ahead: list[Any], options: Any) -> Any:
    plan, ledger = ctx.plan("parcels"), ctx.ledger
    assert isinstance(ledger, RacedLedger)
    accept = Acceptance(plan, ctx.clock.now())
    for content in ahead:
        key, digest = content["id"], digest_of(content)
        change = accept(key, content, correlation_id="other", digest=digest)
        ledger.ahead.append(NewItem(change, content))
    taken = take_in(ctx, plan, parse_inputs(plan, inputs), **options)
    return taken.receipts(), taken.counts(), list(taken.others), state_of(ctx)


@settings(max_examples=100, deadline=None)
@given(
    before=st.lists(contents(), max_size=6),
    ended=st.sets(st.sampled_from(KEYS)),
    pruned=st.booleans(),
    inputs=st.lists(contents(), min_size=1, max_size=12),
    ahead=st.lists(contents(), max_size=2),
    portion=st.sampled_from([1, 3, 1_000]),
    options=st.fixed_dictionaries(
        {},
        optional={
            "by": st.just("ada"),
            "list_id": st.just("list-1"),
            "dry_run": st.booleans(),
            "not_before": st.just(2_000_000_000_000),
            "failed_again": st.just("the partner is back"),
            "correlation_id": st.just([f"id-{n}" if n % 2 else None for n in range(12)]),
        },
    ),
)
def test_the_phases_give_the_receipts_and_the_ledger_of_the_form_before(
    before: list[dict[str, Any]],
    ended: set[str],
    pruned: bool,
    inputs: list[dict[str, Any]],
    ahead: list[dict[str, Any]],
    portion: int,
    options: dict[str, Any],
) -> None:
    if "failed_again" in options:
        options["by"] = "ada"
    with patch.object(intake, "BATCH", portion):
        old = run(in_one_function, prepared(before, ended, pruned), inputs, ahead, options)
        new = run(take_in_batch, prepared(before, ended, pruned), inputs, ahead, options)
    assert new == old
