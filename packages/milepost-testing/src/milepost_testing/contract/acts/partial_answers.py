"""Partial answers: noted once, shown on the row, the stage offered again after a short pause; and
confirmed by force."""

from __future__ import annotations

from typing import Any

import pytest

from milepost.core.change import Change
from milepost.core.confirmations import confirm, refused, was_refused
from milepost.core.outcome import Done, NotYet
from milepost.core.routes.route import Route
from milepost.core.status import Status
from milepost.core.values.refusal import Refusal, RefusalKind
from milepost.ports.ledger import Ledger
from milepost_testing.contract.base import Promises
from milepost_testing.contract.world import World

ASKED = ["a", "b", "c", "d"]
PART = {"a": ["V1"], "b": ["V1"]}
WHOLE = {name: ["V1"] for name in ASKED}


def _covers(value: Any, payload: Any) -> bool:
    missing = [
        name
        for name in (payload or {}).get("files", [])
        if not (isinstance(value, dict) and value.get(name))
    ]
    if missing:
        raise ValueError(f"it lacks {', '.join(missing)}")
    return bool(value)


def tape_route() -> Route:
    """One external stage that is given files, then one whose payload is made from the first one's
    answer."""
    route = Route("tapes")
    route.external(
        "tape",
        resend_after="14d",
        accepts=_covers,
        next_payload=lambda output: {"files": len(output)},
    )
    route.external("shelf", resend_after="14d")
    return route


class PartialAnswersContract(Promises):
    @pytest.fixture
    def tapes(self, ledger: Ledger) -> World:
        world = World(ledger, tape_route())
        world.add("t1", files=ASKED)
        offered = world.look("t1")
        if world.row("t1").status is Status.PENDING:
            world.clock.advance("1h")
            offered = world.look("t1")
        if offered is not None:
            world.apply(offered)
        assert world.row("t1").status is Status.QUEUED
        return world

    def test_a_partial_answer_is_refused_noted_and_makes_the_stage_due_soon(
        self, tapes: World
    ) -> None:
        world, before = tapes, tapes.row("t1")
        said = confirm(
            world.item("t1"), "tape", Done(PART), world.plan, world.now, 0.0, by="confirmer"
        )
        assert said == Refusal(RefusalKind.CONFIRMS_NOTHING, "it lacks c, d")
        change = refused(world.item("t1"), PART, world.plan, world.now, 0.0, by="confirmer")
        assert isinstance(change, Change)
        assert world.apply(change) is None
        row = world.row("t1")
        assert row == change.after
        assert (row.stage, row.status, row.look_at) == ("tape", Status.WAITING, world.now + 60_000)
        assert was_refused(row)
        assert row.note == "its answer was refused: it lacks c, d"
        [*_, line] = world.lines("t1")
        assert (line.reason.value, line.by) == ("not-yet", "confirmer")
        assert line.note == {"for": "tape", "confirms nothing": PART, "because": "it lacks c, d"}
        assert before.attempts == row.attempts == 0
        world.audit()

    def test_the_stage_is_offered_again_after_the_pause_with_the_same_work_id(
        self, tapes: World
    ) -> None:
        world, work = tapes, tapes.item("t1").work_id
        world.apply(refused(world.item("t1"), PART, world.plan, world.now, 0.0, by="confirmer"))
        assert world.look("t1") is None
        world.clock.advance("1m")
        again = world.look("t1")
        assert again is not None
        assert again.line is not None
        assert (again.line.reason.value, again.line.offered) == ("resent", work)
        assert world.apply(again) is None
        assert world.row("t1").status is Status.QUEUED
        world.audit()

    def test_the_same_refusal_makes_one_line_and_ever_longer_pauses(self, tapes: World) -> None:
        world, pauses = tapes, []
        for _ in range(9):
            world.apply(refused(world.item("t1"), PART, world.plan, world.now, 0.0, by="confirmer"))
            row = world.row("t1")
            assert (
                refused(world.item("t1"), PART, world.plan, world.now, 0.0, by="confirmer") is None
            ), "said twice before the next offer"
            pauses.append((row.look_at or 0) - world.now)
            world.clock.advance_to(row.look_at or 0)
            world.apply(world.look("t1"))
        assert pauses == [minutes * 60_000 for minutes in (1, 2, 4, 8, 16, 32, 60, 60, 60)]
        assert world.reasons("t1").count("not-yet") == 1
        world.apply(
            refused(world.item("t1"), {"a": ["V1"]}, world.plan, world.now, 0.0, by="confirmer")
        )
        assert world.reasons("t1").count("not-yet") == 2
        world.audit()

    def test_ever_other_refusals_do_not_make_the_history_grow_for_ever(self, tapes: World) -> None:
        world = tapes
        for number in range(60):
            change = refused(
                world.item("t1"), {f"other-{number}": 1}, world.plan, world.now, 0.0, by="confirmer"
            )
            if change is not None:
                world.apply(change)
            world.clock.advance_to(world.row("t1").look_at or 0)
            world.apply(world.look("t1"))
        assert world.reasons("t1").count("not-yet") <= 50

    def test_a_large_refused_answer_is_cut_in_the_history(self, tapes: World) -> None:
        world = tapes
        large = {"a": ["V" * 100_000]}
        world.apply(refused(world.item("t1"), large, world.plan, world.now, 0.0, by="confirmer"))
        kept = world.lines("t1")[-1].note["confirms nothing"]
        assert kept["bytes"] > 100_000
        assert len(kept["cut"]) == 2_000
        world.audit()

    def test_the_whole_answer_confirms_afterwards_and_makes_the_next_payload(
        self, tapes: World
    ) -> None:
        world = tapes
        world.apply(refused(world.item("t1"), PART, world.plan, world.now, 0.0, by="confirmer"))
        assert world.confirm("t1", "tape", Done(WHOLE)) is None
        item = world.item("t1")
        assert (item.stage, item.results, item.row.note, item.row.looks) == (
            "shelf",
            {"tape": WHOLE},
            None,
            0,
        )
        assert item.payload == {"files": 4}
        world.audit()

    def test_an_operator_confirms_with_force_and_the_line_says_so(self, tapes: World) -> None:
        world = tapes
        item = world.item("t1")
        plain = confirm(
            item,
            "tape",
            Done(True),
            world.plan,
            world.now,
            0.0,
            by="ops",
            why="seen",
            operator=True,
        )
        assert isinstance(plain, Refusal)
        assert plain.kind is RefusalKind.CONFIRMS_NOTHING
        alone = confirm(
            item, "tape", Done(True), world.plan, world.now, 0.0, by="partner", force=True
        )
        assert isinstance(alone, Refusal)
        assert alone.kind is RefusalKind.CONFIRMS_NOTHING, "only an operator can force"
        forced = confirm(
            item,
            "tape",
            Done(True),
            world.plan,
            world.now,
            0.0,
            by="ops",
            why="seen",
            operator=True,
            force=True,
        )
        assert world.apply(forced) is None
        [line] = [line for line in world.lines("t1") if line.reason.value == "confirmed"]
        assert (line.by, line.why, line.note) == ("ops", "seen", {"forced": "it lacks a, b, c, d"})
        assert world.row("t1").stage == "shelf"
        world.audit()

    def test_force_reaches_no_later_stage(self, tapes: World) -> None:
        world = tapes
        said = confirm(
            world.item("t1"),
            "shelf",
            Done(""),
            world.plan,
            world.now,
            0.0,
            by="ops",
            operator=True,
            force=True,
        )
        assert isinstance(said, Refusal)
        assert said.text.startswith(
            "the item is at 'tape': force confirms only the item's present stage"
        )

    def test_an_answer_that_is_refused_elsewhere_is_only_noted(self, world: World) -> None:
        world.bring("p1", to="stamp")
        before = world.row("p1")
        world.apply(refused(world.item("p1"), False, world.plan, world.now, 0.0, by="partner"))
        row = world.row("p1")
        assert (row.status, row.look_at, row.note) == (before.status, before.look_at, None)
        assert world.lines("p1")[-1].reason.value == "noted"
        world.audit()

    def test_looks_of_items_taken_in_together_are_spread(self, world: World) -> None:
        from milepost.core.decide import decide

        world.add(*(f"p{number}" for number in range(20)))
        looks = set()
        for number, item in enumerate(world.claim("weigh").items):
            change = decide(item, NotYet(note="no"), world.plan, world.now, number / 10 - 1)
            assert world.apply(change) is None
            looks.add((world.row(item.key).look_at or 0) - world.now)
        assert len(looks) == 20
        assert (min(looks), max(looks)) == (7_500, 12_250)
        world.audit()
