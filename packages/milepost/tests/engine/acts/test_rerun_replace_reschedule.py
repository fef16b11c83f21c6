"""Rerun, replace and reschedule: signed, previewed and recorded; and lists that replace changed
content."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.engine.routes.backfill_scene import finished, held, names
from tests.engine.world import ROUTE, Interrupted, World, dies

from milepost.core.errors import ActConflict, UsageError
from milepost.core.outcome import Done, Reject
from milepost.core.status import Reason, Status
from milepost.engine.act_log import all_acts, select
from milepost.engine.acts.bulk import act, confirm_outside, go_on
from milepost.engine.acts.verbs import ReplaceVerb, RerunVerb, RescheduleVerb, verb_of
from milepost.engine.intake import submit
from milepost.engine.lists.reconcile import ListReport, submit_list
from milepost.engine.resend import Resender
from milepost.engine.retention import prune
from milepost.engine.views.items import show
from milepost.engine.views.late_items import overdue
from milepost.engine.views.story import story
from milepost.engine.work.settle import settle
from milepost.ports.documents import BACK_FILL
from milepost.ports.items import Query
from milepost.ports.runner import JobResult

SIGNED: dict[str, Any] = {"by": "ops", "reason": "checked by hand"}
COMPLETED = Query(route=ROUTE, statuses=frozenset({Status.COMPLETED}))


# Run again ----------------------------------------------------------------------------------------
def test_one_finished_item_is_run_again_from_a_stage(world: World) -> None:
    finished(world, "a")
    report = act(world.ctx, select(world.ctx, ROUTE, keys=["a"]), RerunVerb("stamp"), **SIGNED)
    assert (report.done, report.refused) == (1, [])
    assert (world.row("a").stage, world.row("a").pass_no) == ("stamp", 2)
    line = world.ledger.history(ROUTE, "a")[-1].line
    assert (line.reason, line.by, line.why, line.to) == (
        Reason.RERUN,
        "ops",
        "checked by hand",
        "stamp",
    )


def test_a_rerun_by_filter_is_for_finished_items_and_does_each_once(world: World) -> None:
    finished(world, "a", "b")
    world.add("c")
    world.clock.advance("1m")
    every = Query(route=ROUTE)
    preview = act(
        world.ctx,
        select(world.ctx, ROUTE, query=every),
        RerunVerb(),
        dry_run=True,
        by="",
        reason="",
    )
    assert (preview.matched, preview.done) == (2, 2)
    report = act(world.ctx, select(world.ctx, ROUTE, query=every), RerunVerb(), **SIGNED)
    assert (report.matched, report.done) == (2, 2)
    world.work("weigh")
    world.work("stamp")
    for key in ("a", "b"):
        confirm_outside(world.ctx, ROUTE, key, "Delivered", Done(True), by="p")
    assert (
        act(
            world.ctx,
            select(world.ctx, ROUTE, query=every),
            RerunVerb(),
            act_id=report.id,
            **SIGNED,
        )
        == report
    )
    assert world.reasons("a").count(Reason.RERUN) == 1
    assert world.reasons("c") == [Reason.ACCEPTED, Reason.ADVANCED, Reason.ADVANCED]


def test_a_second_completion_is_told_as_one(world: World) -> None:
    finished(world, "a")
    act(world.ctx, select(world.ctx, ROUTE, keys=["a"]), RerunVerb("Delivered"), **SIGNED)
    confirm_outside(world.ctx, ROUTE, "a", "Delivered", Done(True), by="p")
    assert world.ledger.history(ROUTE, "a")[-1].line.note == {"completed": "again"}


def test_an_item_whose_row_has_left_is_refused_with_its_seal(world: World) -> None:
    finished(world, "a")
    world.clock.advance("2d")
    world.add("z")
    assert prune(world.ctx, ROUTE, 1, **SIGNED).items == 1
    report = act(world.ctx, select(world.ctx, ROUTE, keys=["a", "nobody"]), RerunVerb(), **SIGNED)
    assert report.done == 0
    told = dict(report.refused)
    assert told["a"].startswith("it has ended (COMPLETED on 20")
    assert "only its seal is left" in told["a"]
    assert told["nobody"] == "there is no item with this key"


def test_a_rerun_at_a_pace_is_gone_on_with_by_the_resender(world: World) -> None:
    keys = names(5)
    finished(world, *keys)
    report = act(
        world.ctx,
        select(world.ctx, ROUTE, query=Query(route=ROUTE)),
        RerunVerb("stamp", pace=2.0),
        **SIGNED,
    )
    assert (report.pace_per_s, report.done) == (2.0, 0)
    resender = Resender(world.ctx)
    assert resender.run_once().back_filled == 1, "the first one is free at once"
    world.clock.advance("1s")
    assert resender.run_once().back_filled == 2
    assert sum(world.row(key).stage == "stamp" for key in keys) == 3
    world.work("stamp")
    for key in keys:
        confirm_outside(world.ctx, ROUTE, key, "Delivered", Done(True), by="p")
    world.clock.advance("1m")
    while held(world).finished_at is None:
        resender.run_once()
        world.clock.advance("1s")
    assert [world.reasons(key).count(Reason.RERUN) for key in keys] == [1] * 5, (
        "what was through again meanwhile is not run a third time"
    )
    [recorded] = [one for one in all_acts(world.ctx) if one.verb == "rerun"]
    assert (recorded.id, recorded.done, recorded.finished_at is not None) == (report.id, 5, True)


def test_a_repeat_of_a_paced_rerun_gets_the_first_answer(world: World) -> None:
    finished(world, *names(3))
    completed = select(world.ctx, ROUTE, query=COMPLETED)
    paced = RerunVerb(pace=2.0)
    first = act(world.ctx, completed, paced, act_id="act-1", **SIGNED)
    assert (first.id, first.matched, first.pace_per_s) == ("act-1", 3, 2.0)
    others = select(world.ctx, ROUTE, query=replace(COMPLETED, prefix="k"))
    for selection, verb in (
        (completed, RerunVerb("stamp", pace=2.0)),
        (others, paced),
        (completed, RerunVerb(pace=3.0)),
    ):
        with pytest.raises(ActConflict):
            act(world.ctx, selection, verb, act_id="act-1", **SIGNED)
    resender = Resender(world.ctx)
    for _ in range(3):
        assert act(world.ctx, completed, paced, act_id="act-1", **SIGNED) == first
        resender.run_once()
        world.clock.advance("2s")
    assert held(world).finished_at is not None
    assert act(world.ctx, completed, paced, act_id="act-1", **SIGNED) == first
    assert [world.reasons(key).count(Reason.RERUN) for key in names(3)] == [1, 1, 1]


def test_a_paced_rerun_that_was_cut_off_before_it_began_is_begun_by_its_repeat(
    faulty: World,
) -> None:
    finished(faulty, *names(2))
    completed = select(faulty.ctx, ROUTE, query=COMPLETED)
    faulty.ledger.before("write", dies, lambda kind, *more, **options: kind == BACK_FILL)  # type: ignore[attr-defined]
    with pytest.raises(Interrupted):
        act(faulty.ctx, completed, RerunVerb(pace=2.0), act_id="act-1", **SIGNED)
    repeat = act(faulty.ctx, completed, RerunVerb(pace=2.0), act_id="act-1", **SIGNED)
    assert repeat.id == "act-1"
    assert held(faulty).act == "act-1"


def test_a_pace_is_for_filters_and_one_at_a_time(world: World) -> None:
    finished(world, *names(3))
    with pytest.raises(UsageError, match="needs a filter"):
        act(world.ctx, select(world.ctx, ROUTE, keys=["k000"]), RerunVerb(pace=1.0), **SIGNED)
    with pytest.raises(UsageError, match="pace needs rerun"):
        act(
            world.ctx,
            select(world.ctx, ROUTE, query=COMPLETED),
            verb_of("retry", pace=1.0),
            **SIGNED,
        )
    act(world.ctx, select(world.ctx, ROUTE, query=COMPLETED), RerunVerb(pace=1.0), **SIGNED)
    [begun] = [one for one in all_acts(world.ctx) if one.verb == "rerun"]
    with pytest.raises(UsageError, match="the resender continues it"):
        go_on(world.ctx, "rerun", ROUTE, begun.id, **SIGNED)
    with pytest.raises(UsageError, match="run again from 'weigh'"):
        act(world.ctx, select(world.ctx, ROUTE, query=COMPLETED), RerunVerb(pace=1.0), **SIGNED)


# Other content ------------------------------------------------------------------------------------
def test_replace_shows_the_difference_first_and_keeps_the_old_content(world: World) -> None:
    world.add("a", grams=340, colour="red", tags=["x"])
    new = {"id": "a", "grams": 500, "tags": ["x", "y"], "box": {"n": 1}}
    preview = act(
        world.ctx,
        select(world.ctx, ROUTE, keys=["a"]),
        ReplaceVerb(new),
        dry_run=True,
        by="",
        reason="",
    )
    assert [str(one) for one in preview.difference] == [
        '+ box: {"n":1}',
        '- colour: "red"',
        "~ grams: 340 → 500",
        '+ tags[1]: "y"',
    ]
    assert world.item("a").input["grams"] == 340
    assert (
        act(world.ctx, select(world.ctx, ROUTE, keys=["a"]), ReplaceVerb(new), **SIGNED).done == 1
    )
    view = show(world.ctx, ROUTE, "a")
    assert view is not None
    assert view["input"] == new
    [old] = view["replaced"]
    assert (old["content"]["colour"], old["by"], old["why"]) == ("red", "ops", "checked by hand")
    assert view["verified"]


def test_large_old_content_is_kept_in_a_blob(world: World) -> None:
    world.add("a", text="x" * 10_000)
    assert (
        act(
            world.ctx, select(world.ctx, ROUTE, keys=["a"]), ReplaceVerb({"id": "a"}), **SIGNED
        ).done
        == 1
    )
    line = world.ledger.history(ROUTE, "a")[-1].line
    assert "content" not in line.note["replaced"]
    view = show(world.ctx, ROUTE, "a")
    assert view is not None
    assert view["replaced"][0]["content"]["text"] == "x" * 10_000


def test_what_is_submitted_again_is_compared_with_the_present_content(world: World) -> None:
    world.add("a", n=1)
    act(world.ctx, select(world.ctx, ROUTE, keys=["a"]), ReplaceVerb({"id": "a", "n": 2}), **SIGNED)
    answers = [
        receipt.answer
        for receipt in submit(world.ctx, ROUTE, [{"id": "a", "n": 2}, {"id": "a", "n": 1}])
    ]
    assert answers == ["known", "changed"]


def test_a_worker_that_held_a_replaced_item_finds_its_outcome_refused(world: World) -> None:
    world.add("a")
    [item] = world.claim("weigh")
    act(world.ctx, select(world.ctx, ROUTE, keys=["a"]), ReplaceVerb({"id": "a", "n": 2}), **SIGNED)
    settled = settle(world.ctx, [JobResult(item, Done({"of": "the old one"}), 5)])
    assert (settled.written, settled.refused) == (0, 1)
    assert world.reasons("a")[-1] is Reason.LATE
    assert (world.row("a").stage, world.item("a").results) == ("weigh", {})


def test_replace_says_what_is_wrong(world: World) -> None:
    finished(world, "a")
    world.add("b")
    for content, why in (
        ({"id": "b", "n": 1}, "the key 'b'"),
        ({"id": "a"}, "has this content already"),
        ({"id": "a", "n": 1}, "add rerun"),
    ):
        [(_, told)] = act(
            world.ctx, select(world.ctx, ROUTE, keys=["a"]), ReplaceVerb(content), **SIGNED
        ).refused
        assert why in told
    with pytest.raises(UsageError, match="the field 'id' is missing"):
        act(world.ctx, select(world.ctx, ROUTE, keys=["a"]), ReplaceVerb({"n": 1}), **SIGNED)
    with pytest.raises(UsageError, match="one key"):
        act(
            world.ctx, select(world.ctx, ROUTE, keys=["a", "b"]), ReplaceVerb({"id": "a"}), **SIGNED
        )
    assert (
        act(
            world.ctx,
            select(world.ctx, ROUTE, keys=["a"]),
            ReplaceVerb({"id": "a", "n": 1}, rerun=True),
            **SIGNED,
        ).done
        == 1
    )
    assert world.row("a").stage == "weigh"


# Lists --------------------------------------------------------------------------------------------
def handed(world: World, folder: Path, *items: dict[str, Any], **how: Any) -> ListReport:
    path = folder / "list.jsonl"
    path.write_text("\n".join(map(json.dumps, items)))
    return submit_list(world.ctx, ROUTE, str(path), **how)


def test_a_list_replaces_what_has_changed(world: World, tmp_path: Path) -> None:
    world.add("a", "b", "c", n=1)
    world.settle([item for item in world.claim("weigh") if item.key == "b"], Reject("no"))
    world.clock.advance("1m")
    lines = [{"id": "a", "n": 2}, {"id": "b", "n": 2}, {"id": "c", "n": 1}, {"id": "d"}]
    preview = handed(world, tmp_path, *lines, replace_changed=True, dry_run=True)
    assert (preview.counts["replaced"], preview.counts["new"], preview.counts["changed"]) == (
        2,
        1,
        0,
    )
    assert [str(one.difference[0]) for one in preview.changed] == ["~ n: 1 → 2"] * 2
    assert world.item("a").input["n"] == 1
    with pytest.raises(UsageError, match="name and a reason"):
        handed(world, tmp_path, *lines, replace_changed=True)
    report = handed(world, tmp_path, *lines, replace_changed=True, **SIGNED)
    assert (
        report.counts["replaced"],
        report.counts["new"],
        report.counts["in_progress"],
        report.counts["changed"],
    ) == (2, 1, 1, 0)
    assert [world.item(key).input.get("n") for key in "abcd"] == [2, 2, 1, None]
    assert (world.row("b").status, world.row("b").error) == (Status.QUEUED, None)
    [recorded] = [one for one in all_acts(world.ctx) if one.verb == "replace"]
    assert (recorded.done, recorded.by, recorded.finished_at is not None) == (2, "ops", True)
    assert world.ledger.history(ROUTE, "a")[-1].line.act == recorded.id
    again = handed(world, tmp_path, *lines, replace_changed=True, **SIGNED)
    assert again.counts["replaced"] == 0


def test_a_list_leaves_alone_what_is_finished_and_what_it_has_twice(
    world: World, tmp_path: Path
) -> None:
    finished(world, "a")
    world.add("b", n=1)
    lines = [{"id": "a", "n": 2}, {"id": "b", "n": 2}, {"id": "b", "n": 3}]
    report = handed(world, tmp_path, *lines, replace_changed=True, **SIGNED)
    assert report.counts["replaced"] == 0
    assert [one.left.partition(";")[0] for one in report.changed] == [
        "it is COMPLETED",
        *["the list has this key more than once, with different content"] * 2,
    ]
    assert world.item("b").input["n"] == 1
    rerun = handed(world, tmp_path, lines[0], replace_changed=True, rerun=True, **SIGNED)
    assert rerun.counts["replaced"] == 1
    assert world.row("a").stage == "weigh"


@pytest.mark.parametrize("dry_run", [True, False])
def test_a_list_replaces_once_what_it_has_twice_with_the_same_content(
    world: World, tmp_path: Path, dry_run: bool
) -> None:
    world.add("a", "b", n=1)
    lines = [{"id": "a", "n": 2}, {"id": "b", "n": 1}, {"id": "a", "n": 2}, {"id": "b", "n": 3}]
    report = handed(world, tmp_path, *lines, replace_changed=True, dry_run=dry_run, **SIGNED)
    assert (report.counts["replaced"], report.counts["repeated"], report.counts["changed"]) == (
        1,
        1,
        1,
    )
    assert [(one.line, one.left) for one in report.changed] == [
        (1, ""),
        (4, "the list has this key more than once, with different content"),
    ]
    assert [world.item(key).input["n"] for key in "ab"] == [1 if dry_run else 2, 1]
    assert [one.done for one in all_acts(world.ctx) if one.verb == "replace"] == (
        [] if dry_run else [1]
    )


def test_a_preview_names_each_changed_line_once_as_the_list_itself_does(
    world: World, tmp_path: Path
) -> None:
    world.add("a", n=1)
    lines = [{"id": "new", "n": 1}, {"id": "a", "n": 2}, {"id": "new", "n": 2}]
    found = [
        handed(world, tmp_path, *lines, replace_changed=True, dry_run=dry_run, **SIGNED)
        for dry_run in (True, False)
    ]
    assert found[0].counts == found[1].counts
    for report in found:
        left = "the list has this key more than once, with different content"
        assert [(one.line, one.key, one.left) for one in report.changed] == [
            (2, "a", ""),
            (3, "new", left),
        ]


# For later ----------------------------------------------------------------------------------------
def test_an_item_for_later_starts_then(world: World) -> None:
    [receipt] = submit(world.ctx, ROUTE, [{"id": "a"}], not_before="2h")
    assert receipt.answer == "new"
    assert world.row("a").due_at == world.clock.now() + 7_200_000
    assert world.claim("weigh") == []
    told = story(world.ctx, ROUTE, "a")
    assert told is not None
    assert "starts in 2 h" in told.next[0]
    assert [command.split()[1] for command in told.can] == ["reschedule", "cancel", "replace"]
    world.clock.advance("2h")
    Resender(world.ctx).run_once()
    assert [item.key for item in world.claim("weigh")] == ["a"]


def test_lateness_is_counted_from_the_start(world: World) -> None:
    submit(world.ctx, ROUTE, [{"id": "a"}], not_before="10d")
    world.clock.advance("11d")
    Resender(world.ctx).run_once()
    assert overdue(world.ctx, Query(route=ROUTE), 10) == ([], False)
    assert Reason.OVERDUE not in world.reasons("a")
    world.clock.advance("1d")
    found, _ = overdue(world.ctx, Query(route=ROUTE), 10)
    assert [one.item.key for one in found] == ["a"]
    for _ in range(2):  # offered, then told
        Resender(world.ctx).run_once()
    assert Reason.OVERDUE in world.reasons("a")


def test_the_time_may_come_from_a_field_of_the_input(world: World) -> None:
    world.plan.route.not_before = "embargo"
    far = "2999-01-01T00:00:00Z"
    inputs = [
        {"id": "a", "embargo": far},
        {"id": "b"},
        {"id": "c", "embargo": ""},
        {"id": "d", "embargo": "soon"},
        {"id": "e", "embargo": "1999-01-01"},
    ]
    receipts = submit(world.ctx, ROUTE, inputs)
    assert [receipt.answer for receipt in receipts] == ["new", "new", "new", "malformed", "new"]
    assert (receipts[3].field, "not a time" in receipts[3].error) == ("embargo", True)
    assert world.row("a").not_before is not None
    assert sorted(item.key for item in world.claim("weigh")) == ["b", "c", "e"]
    act(
        world.ctx,
        select(world.ctx, ROUTE, keys=["a"]),
        ReplaceVerb({"id": "a", "embargo": ""}),
        **SIGNED,
    )
    act(
        world.ctx,
        select(world.ctx, ROUTE, keys=["b"]),
        ReplaceVerb({"id": "b", "embargo": far}),
        **SIGNED,
    )
    assert [item.key for item in world.claim("weigh")] == ["a"], "the time goes with the content"
    assert (world.row("b").status, world.row("b").not_before == world.row("b").due_at) == (
        Status.PENDING,
        True,
    )


def test_items_are_set_for_another_time_in_bulk(world: World) -> None:
    submit(world.ctx, ROUTE, [{"id": key} for key in "abc"], not_before="2h")
    world.clock.advance("1m")
    report = act(
        world.ctx,
        select(world.ctx, ROUTE, query=Query(route=ROUTE, statuses=frozenset({Status.PENDING}))),
        RescheduleVerb("1d"),
        **SIGNED,
    )
    assert report.done == 3
    assert {world.row(key).not_before for key in "abc"} == {world.clock.now() + 86_400_000}
    assert (
        act(world.ctx, select(world.ctx, ROUTE, keys=["a"]), RescheduleVerb("0s"), **SIGNED).done
        == 1
    )
    assert [item.key for item in world.claim("weigh")] == ["a"]
    with pytest.raises(UsageError, match="not_before"):
        act(world.ctx, select(world.ctx, ROUTE, keys=["a"]), verb_of("reschedule"), **SIGNED)
    with pytest.raises(UsageError, match="must be a time"):
        act(world.ctx, select(world.ctx, ROUTE, keys=["a"]), RescheduleVerb("tomorrow"), **SIGNED)


# Ids of acts --------------------------------------------------------------------------------------
def test_the_id_of_a_replacement_is_refused_with_another_option(world: World) -> None:
    finished(world, "a")
    selection = select(world.ctx, ROUTE, keys=["a"])
    content = {"id": "a", "weight": 9}
    again = ReplaceVerb(content, rerun=True)
    first = act(world.ctx, selection, ReplaceVerb(content), act_id="act-1", **SIGNED)
    assert first.refused == [
        ("a", "it is COMPLETED; to run it again with other content, add rerun")
    ]
    with pytest.raises(ActConflict, match="other items or options"):
        act(world.ctx, selection, again, act_id="act-1", **SIGNED)
    assert act(world.ctx, selection, again, act_id="act-2", **SIGNED).done == 1
    assert act(world.ctx, selection, again, act_id="act-2", **SIGNED).done == 1
    assert world.reasons("a").count(Reason.REPLACED) == 1


def test_a_span_in_the_repeat_of_a_reschedule_counts_from_the_first_call(world: World) -> None:
    world.add("a", "b")
    world.clock.advance("1m")
    both = select(world.ctx, ROUTE, keys=["a", "b"])
    first = act(world.ctx, both, RescheduleVerb("2h"), act_id="act-1", **SIGNED)
    assert first.done == 2
    world.clock.advance("1m")
    assert act(world.ctx, both, RescheduleVerb("2h"), act_id="act-1", **SIGNED) == first
    with pytest.raises(ActConflict, match="other items or options"):
        act(world.ctx, both, RescheduleVerb("3h"), act_id="act-1", **SIGNED)
