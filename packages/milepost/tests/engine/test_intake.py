"""Intake: each item is accepted once and answered correctly, and no input affects another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.blobs.memory import MemoryBlobs
from milepost.core.errors import UsageError
from milepost.core.outcome import Done
from milepost.core.routes.plan import Plan
from milepost.core.routes.route import Route
from milepost.core.status import Status
from milepost.engine import intake
from milepost.engine.act_log import select
from milepost.engine.acts.bulk import act
from milepost.engine.acts.verbs import ReplaceVerb
from milepost.engine.context import Context
from milepost.engine.intake import Receipt, submit, take_in
from milepost.ledgers.memory import MemoryLedger
from milepost.ledgers.sqlite import SqliteLedger
from milepost.ports.items import KnownKey, NewItem
from milepost.ports.ledger import Ledger
from milepost_testing.clock import SeededChance, VirtualClock


def context(ledger: Ledger, key: Any = "id") -> Context:
    route = Route("parcels", key=key)

    @route.stage("weigh")
    def weigh(item: object) -> Done:
        return Done()

    plan = Plan(route, grace_ms=ledger.timing.grace_ms, offer_life_ms=ledger.timing.offer_life_ms)
    return Context(ledger, {"parcels": plan}, VirtualClock(), SeededChance(), MemoryBlobs())


@pytest.fixture(params=["memory", "sqlite"])
def ctx(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Context]:
    ledger: Ledger = (
        MemoryLedger()
        if request.param == "memory"
        else SqliteLedger.open(str(tmp_path / "ledger.db"))
    )
    yield context(ledger)
    ledger.close()


def answers(receipts: list[Receipt]) -> list[str]:
    return [receipt.answer for receipt in receipts]


def test_new_known_and_changed(ctx: Context) -> None:
    assert submit(ctx, "parcels", [{"id": "a", "grams": 1}]) == [
        Receipt("a", "new", Status.QUEUED, "weigh", created_at=ctx.clock.now())
    ]
    assert submit(ctx, "parcels", [{"grams": 1, "id": "a"}]) == [
        Receipt("a", "known", Status.QUEUED, "weigh")
    ]
    changed = submit(ctx, "parcels", [{"id": "a", "grams": 2}])[0]
    assert (changed.answer, changed.status, changed.error) == (
        "changed",
        Status.QUEUED,
        intake.OTHER_CONTENT,
    )
    item = ctx.ledger.get([("parcels", "a")])[0]
    assert item is not None
    assert item.input == {"id": "a", "grams": 1}


def test_a_receipt_says_that_an_operator_has_replaced_what_is_submitted_again(ctx: Context) -> None:
    contents = [{"id": "a", "grams": grams} for grams in (1, 2, 3)]
    submit(ctx, "parcels", contents[:1])
    assert (
        act(
            ctx,
            select(ctx, "parcels", keys=["a"]),
            ReplaceVerb(contents[1]),
            by="ops",
            reason="a test",
        ).done
        == 1
    )
    first, present, other = [submit(ctx, "parcels", [one])[0] for one in contents]
    assert (first.answer, first.first_content, first.error) == (
        "changed",
        True,
        intake.REPLACED_SINCE,
    )
    assert (present.answer, present.first_content) == ("known", False)
    assert (other.answer, other.first_content, other.error) == (
        "changed",
        False,
        intake.OTHER_CONTENT,
    )


def test_repeats_within_one_batch(ctx: Context) -> None:
    inputs = [{"id": "a"}, {"id": "b"}, {"id": "a"}, {"id": "a", "x": 1}]
    assert answers(submit(ctx, "parcels", inputs)) == ["new", "new", "known", "changed"]
    assert len(ctx.ledger.history("parcels", "a")) == 1


def test_receipts_keep_the_order_across_batches(
    ctx: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intake, "BATCH", 3)
    receipts = submit(ctx, "parcels", ({"id": f"k{n % 7}"} for n in range(11)))
    assert [receipt.key for receipt in receipts] == [f"k{n % 7}" for n in range(11)]
    assert answers(receipts) == ["new"] * 7 + ["known"] * 4


def test_nothing_handed_over(ctx: Context) -> None:
    change_counter = ctx.ledger.last_seq()
    assert submit(ctx, "parcels", []) == []
    assert ctx.ledger.last_seq() == change_counter


def test_an_unknown_route_is_a_mistake_of_the_call(ctx: Context) -> None:
    with pytest.raises(UsageError, match="known routes: parcels"):
        submit(ctx, "letters", [{"id": "a"}])


def test_malformed_inputs_do_not_hinder_the_others(ctx: Context) -> None:
    endless: list[Any] = []
    endless.append(endless)
    malformed = [
        {},
        {"id": None},
        {"id": ""},
        {"id": "  "},
        {"id": True},
        {"id": 1.5},
        {"id": "two\nlines"},
        {"id": "k" * 1_025},
        {"id": "half \ud800"},
        "text",
        None,
        7,
        {"id": "x1", "of": object()},
        {"id": "x2", "of": "half \ud800"},
        {"id": "x3", 5: "not a name"},
        {"id": "x4", "of": endless},
    ]
    inputs: list[Any] = [{"id": "first"}, *malformed, {"id": "last"}]
    receipts = submit(ctx, "parcels", inputs)
    assert answers(receipts) == ["new", *["malformed"] * len(malformed), "new"]
    assert all(receipt.error for receipt in receipts[1:-1])
    assert "'id' is missing" in receipts[1].error
    assert receipts[-1].key == "last"
    assert answers(submit(ctx, "parcels", [{}])) == ["malformed"]


def test_keys_are_text_without_spaces_around(ctx: Context) -> None:
    receipts = submit(ctx, "parcels", [{"id": 7}, {"id": " seven "}, {"id": "é\u00a0🙂"}])
    assert [receipt.key for receipt in receipts] == ["7", "seven", "é\u00a0🙂"]
    assert answers(receipts) == ["new"] * 3


@pytest.mark.parametrize(
    ("key", "content", "expected"),
    [
        (["a", "b"], {"a": "x#y", "b": 2}, "x%23y#2"),
        (lambda content: content["url"].lower(), {"url": "HTTP://X"}, "http://x"),
    ],
)
def test_keys_of_several_fields_and_by_function(key: Any, content: Any, expected: str) -> None:
    assert submit(context(MemoryLedger(), key), "parcels", [content])[0].key == expected


def test_a_key_function_that_fails_makes_its_input_malformed() -> None:
    receipts = submit(
        context(MemoryLedger(), lambda content: content["url"]), "parcels", [{}, {"url": "x"}]
    )
    assert answers(receipts) == ["malformed", "new"]
    assert "KeyError" in receipts[0].error


def test_correlation_ids_are_given_or_made(ctx: Context) -> None:
    submit(ctx, "parcels", [{"id": "mine"}], correlation_id="order-7")
    submit(ctx, "parcels", [{"id": f"n{n}"} for n in range(1_500)])
    mine = ctx.ledger.get([("parcels", "mine")])[0]
    assert mine is not None
    assert mine.correlation_id == "order-7"
    made = [
        item.correlation_id
        for item in ctx.ledger.get([("parcels", f"n{n}") for n in range(1_500)])
        if item
    ]
    assert len(set(made)) == 1_500
    assert all(0 < len(each) <= 40 for each in made)


def test_the_item_knows_who_brought_it_and_by_which_list(ctx: Context) -> None:
    submit(ctx, "parcels", [{"id": "a"}], by="ada", list_id="list-1")
    item = ctx.ledger.get([("parcels", "a")])[0]
    assert item is not None
    assert item.row.list_id == "list-1"
    assert ctx.ledger.history("parcels", "a")[0].line.by == "ada"


def test_dry_run_answers_the_same_and_writes_nothing(ctx: Context) -> None:
    submit(ctx, "parcels", [{"id": "old"}])
    inputs: list[Any] = [
        {"id": "old"},
        {"id": "old", "x": 1},
        {"id": "new"},
        {"id": "new"},
        {},
        {"id": "new", "x": 1},
    ]
    plan = ctx.plan("parcels")
    before = (ctx.ledger.last_seq(), ctx.ledger.change_counter())
    planned = take_in(ctx, plan, inputs, dry_run=True)
    assert (ctx.ledger.last_seq(), ctx.ledger.change_counter()) == before
    assert planned == take_in(ctx, plan, inputs)
    assert answers(planned) == ["known", "changed", "new", "known", "malformed", "changed"]


def test_a_lost_race_is_answered_from_what_won() -> None:
    class Raced(MemoryLedger):
        """Somebody else records the same keys, with other content for one, just before our
        write."""

        def add(self, plan: Plan, new_items: Sequence[NewItem], now: int) -> list[KnownKey | None]:
            other = context(MemoryLedger())
            other.ledger.add = super().add  # type: ignore[method-assign]
            submit(other, "parcels", [{"id": "a"}, {"id": "b", "theirs": True}])
            return super().add(plan, new_items, now)

    receipts = submit(
        context(Raced()), "parcels", [{"id": "a"}, {"id": "b"}, {"id": "c"}, {"id": "a"}]
    )
    assert answers(receipts) == ["known", "changed", "new", "known"]


@given(st.lists(st.tuples(st.sampled_from("abcde"), st.integers(0, 1))), st.integers(1, 4))
def test_however_it_is_cut_the_first_content_of_each_key_stays(
    pairs: list[tuple[str, int]], size: int
) -> None:
    ctx = context(MemoryLedger())
    inputs = [{"id": key, "value": value} for key, value in pairs]
    receipts = [
        receipt
        for start in range(0, len(inputs), size)
        for receipt in submit(ctx, "parcels", inputs[start : start + size])
    ]
    first: dict[str, int] = {}
    for (key, value), receipt in zip(pairs, receipts, strict=True):
        expected = "new" if key not in first else "known" if first[key] == value else "changed"
        assert receipt.answer == expected
        first.setdefault(key, value)
