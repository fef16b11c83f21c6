"""Reconciliation against the form before it, one function for dry and real runs: the same reports,
and the same ledger afterwards."""

from __future__ import annotations

import io
import json
from typing import Any
from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from milepost.blobs.memory import MemoryBlobs
from milepost.core.errors import UsageError
from milepost.core.item import Item, digest_of
from milepost.core.operators import cancel
from milepost.core.outcome import Done
from milepost.core.routes.plan import Plan
from milepost.core.routes.route import Route
from milepost.core.status import TERMINAL
from milepost.engine import intake
from milepost.engine.context import Context
from milepost.engine.intake import start_ms, take_in_batch
from milepost.engine.lists import reconcile
from milepost.engine.lists import source as list_source
from milepost.engine.lists.keys import SortedKeys, missing, pack
from milepost.engine.lists.reconcile import ChangedLine, ListReport, ReplaceChanged, take_in_list
from milepost.engine.lists.recording import NUMBER
from milepost.engine.lists.source import Source, parse_ahead
from milepost.engine.views.items import lists
from milepost.ledgers.memory import MemoryLedger
from milepost.ports.documents import LIST, ListRecord
from milepost.ports.retention import DeliveredLines, PruneCriteria
from milepost_testing.clock import SeededChance, VirtualClock

KEYS = ["a", "b", "c", "d", "e", "f"]


def in_one_function(
    ctx: Context, route: str, source: Source, title: str, **options: Any
) -> ListReport:
    """The form before, without progress and errors of the storage."""
    dry_run, shown = options.get("dry_run", False), reconcile.SHOWN
    replace_changed, reason = options.get("replace_changed", False), options.get("reason", "")
    plan, earlier, by = ctx.plan(route), lists(ctx, route), options.get("by") or ""
    starts_at = start_ms(ctx, options.get("not_before"))
    at = max(ctx.clock.now(), earlier[-1].at + 1 if earlier else 0)
    empty = {"replaced": 0} if replace_changed else {}
    full = options.get("full", False)
    record = ListRecord(ctx.chance.token(), route, title, "", at, full, empty, "", by)
    malformed: list[Any] = []
    changed: list[ChangedLine] = []
    notes: list[str] = []
    refused = conflicts = 0
    begun = dry_run
    replacing = None
    if replace_changed:
        rerun = options.get("rerun", False)
        replacing = ReplaceChanged(ctx, plan, record, by, reason, rerun, dry_run)
    parsed = parse_ahead(source, plan, None, False)
    with SortedKeys() as keys, SortedKeys(width=NUMBER + 16) as previewed, parsed as batches:
        for batch, inputs, _, _ in batches:
            if not begun and (batch.inputs or batch.bad):
                ctx.ledger.write(LIST, record.id, record)
                begun = True
            notes += [batch.note] if batch.note else []
            bad = batch.bad
            if batch.inputs:
                taken = take_in_batch(
                    ctx,
                    plan,
                    inputs,
                    by=options.get("by"),
                    list_id=record.id,
                    dry_run=dry_run,
                    not_before=starts_at,
                    failed_again=reason if options.get("failed_again") else None,
                )
                replaced = [] if replacing is None else replacing.batch(batch, taken)
                bad = reconcile._add_keys(batch, taken, keys)
                noted: dict[int, str] = {}
                if dry_run:
                    receipts = taken.others.items()
                    new_keys = {one.key for _, one in receipts if one.answer == "new"}
                    noted = {place: one.key for place, one in receipts if one.key in new_keys}
                    marks = [
                        f"{batch.numbers[place]:0{NUMBER}d}"
                        + digest_of(plan.route.read(batch.inputs[place]).content).hex()[:16]
                        for place in noted
                    ]
                    previewed.add(list(noted.values()), marks)
                others = [
                    ChangedLine(batch.numbers[place], receipt.key)
                    for place, receipt in taken.others.items()
                    if receipt.answer == "changed" and place not in noted
                ]
                conflicts += len(others)
                changed += (others if replacing is None else replaced)[: shown - len(changed)]
            refused += len(bad)
            malformed += bad[: shown - len(malformed)]
        if keys.total == refused == 0:
            raise UsageError("empty")
        if record.full and keys.total == 0:
            record = replace(record, full=False)
            notes.append(
                "vanished keys are not determined: no line of this list has a key that can be read"
            )
        record = replace(record, digest=source.digest)
        if replacing is not None:
            replacing.finish()
        if dry_run:
            others = []
            last = first = ""
            for key, mark in previewed.all():
                if key != last:
                    last, first = key, mark[NUMBER:]
                elif mark[NUMBER:] != first:
                    left = "" if replacing is None else reconcile._TWICE.text
                    others.append(ChangedLine(int(mark[:NUMBER]), key, left))
            conflicts += len(others)
            by_line = {line.line: line for line in [*others, *changed]}
            changed = sorted(by_line.values(), key=lambda line: line.line)[:shown]
        blocks = list(keys.distinct_blocks())
        tally = dict.fromkeys(reconcile._CATEGORIES, 0)
        for _, marks in blocks:
            for mark in tally:
                tally[mark] += marks.count(mark)
        if not dry_run:
            record = replace(record, keys_blob=f"lists/{record.id}")
            ctx.blobs.write(record.keys_blob, pack(iter([some for some, _ in blocks])))
        counts = {category: tally[mark] for mark, category in reconcile._CATEGORIES.items()}
        counts["changed"] = conflicts
        if not replace_changed:
            del counts["replaced"]
        counts |= {"repeated": keys.total - sum(counts.values()), "malformed": refused}
        lines, vanished = sum(counts.values()), list[str]()
        before = reconcile._last_full(earlier)
        if record.full:
            if before is not None:
                own = iter([some for some, _ in blocks])
                for gone in missing(reconcile._keys_of(ctx, before), own):
                    vanished += gone
            counts["vanished"] = len(vanished)
        if not dry_run:
            ctx.ledger.write(LIST, record.id, replace(record, counts=counts))
    return ListReport(
        id="" if dry_run else record.id,
        route=route,
        name=title,
        digest=record.digest,
        at=at,
        full=record.full,
        dry_run=dry_run,
        lines=lines,
        counts=counts,
        malformed=malformed,
        changed=changed,
        vanished=vanished[:shown],
        compared_with=before.id if before is not None and "vanished" in counts else "",
        notes=notes,
    )


def lines() -> st.SearchStrategy[bytes]:
    """A list: JSON lines, some of them malformed or empty."""
    sound = st.builds(
        lambda key, grams: json.dumps({"id": key, "grams": grams}),
        st.sampled_from(KEYS),
        st.sampled_from([1, 2]),
    )
    line = st.one_of(sound, sound, sound, st.sampled_from(["", "{", '{"grams": 1}']))
    return st.lists(line, max_size=10).map(
        lambda some: "".join(f"{one}\n" for one in some).encode()
    )


def state_of(ctx: Context) -> Any:
    refs = [("parcels", key) for key in KEYS]
    items = [(item.row, item.input) for item in ctx.ledger.get(refs) if isinstance(item, Item)]
    histories = [ctx.ledger.history(*ref, payloads=True) for ref in refs]
    assert isinstance(ctx.blobs, MemoryBlobs)
    return items, histories, ctx.ledger.read(LIST), dict(ctx.blobs.held)


def run(
    take_in: Any, lists_before: list[bytes], ended: set[str], content: bytes, options: Any
) -> Any:
    """The report of a list, after others were taken in and some items have ended."""
    ledger = MemoryLedger()
    route = Route("parcels", key="id")
    route.stage("weigh")(lambda item: Done())
    plan = Plan(route, grace_ms=0, offer_life_ms=0)
    ctx = Context(ledger, {"parcels": plan}, VirtualClock(), SeededChance(), MemoryBlobs())
    for number, earlier in enumerate(lists_before):
        attempt(take_in_list, ctx, earlier, {"full": number == 0})
    for number, key in enumerate(sorted(ended)):
        [item] = ledger.get([("parcels", key)])
        if isinstance(item, Item):
            ledger.apply([cancel(item, plan, ctx.clock.now(), by="ops")], ctx.clock.now())  # type: ignore[list-item]
        if number == 0:
            upto = ctx.clock.now() + 1
            ledger.prune(PruneCriteria("parcels", TERMINAL, upto, None, DeliveredLines(0), 100))
    return attempt(take_in, ctx, content, options), state_of(ctx)


def attempt(take_in: Any, ctx: Context, content: bytes, options: Any) -> Any:
    try:
        return take_in(ctx, "parcels", Source(io.BytesIO(content), "l.jsonl"), "l.jsonl", **options)
    except UsageError:
        return "no list"


@settings(max_examples=100, deadline=None)
@given(
    lists_before=st.lists(lines(), max_size=2),
    ended=st.sets(st.sampled_from(KEYS), max_size=3),
    content=lines(),
    batch=st.sampled_from([2, 1_000]),
    shown=st.sampled_from([1, 1_000]),
    options=st.fixed_dictionaries(
        {"by": st.just("ada"), "reason": st.just("a correction")},
        optional={
            "dry_run": st.booleans(),
            "full": st.booleans(),
            "failed_again": st.booleans(),
            "replace_changed": st.booleans(),
            "not_before": st.just("1h"),
        },
    ),
)
def test_any_list_has_the_report_and_leaves_the_ledger_of_the_form_before(
    lists_before: list[bytes],
    ended: set[str],
    content: bytes,
    batch: int,
    shown: int,
    options: dict[str, Any],
) -> None:
    with (
        patch.object(list_source, "BATCH", batch),
        patch.object(list_source, "HEAD_START_S", 0),
        patch.object(intake, "BATCH", batch),
        patch.object(reconcile, "SHOWN", shown),
    ):
        old = run(in_one_function, lists_before, ended, content, options)
        new = run(take_in_list, lists_before, ended, content, options)
    assert new == old
