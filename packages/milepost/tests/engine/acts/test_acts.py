"""Acts on items and stages: signed, previewed, recorded and repeatable."""

from __future__ import annotations

from typing import Any

import pytest
from tests.engine.world import ROUTE, Interrupted, World, dies

from milepost.cli.keep.adopt import adopt
from milepost.core.admission.controls import Limit
from milepost.core.errors import ActConflict, UsageError
from milepost.core.outcome import Done, Reject
from milepost.core.status import TERMINAL, Reason, Status
from milepost.engine import act_log
from milepost.engine.act_log import Selection, act_view, all_acts, control_in_words, select
from milepost.engine.acts.bulk import act, confirm_outside, go_on
from milepost.engine.acts.controls import end_pauses, limit, pause, resume
from milepost.engine.acts.verbs import (
    CancelVerb,
    ConfirmVerb,
    ResendVerb,
    RetryVerb,
    SkipVerb,
    verb_of,
)
from milepost.engine.intake import submit
from milepost.ports.documents import ACT, HOLD, LIMIT, Act, read_as
from milepost.ports.items import Query
from milepost.ports.retention import DeliveredLines, PruneCriteria

SIGNED: dict[str, Any] = {"by": "ops", "reason": "checked by hand"}
FAILED = Query(route=ROUTE, statuses=frozenset({Status.REJECTED}))


def rejected(world: World, n: int) -> list[str]:
    """So many rejected items, some time ago."""
    keys = [f"k{i}" for i in range(n)]
    world.add(*keys)
    world.work("weigh", Reject("no such parcel"), want=n)
    world.clock.advance("1m")
    return keys


def the_act(world: World) -> Act:
    [document] = world.ledger.read(ACT).values()
    return read_as(Act, document.value)


# One item -----------------------------------------------------------------------------------------
def test_retry_one_item(world: World) -> None:
    rejected(world, 2)
    report = act(world.ctx, select(world.ctx, ROUTE, keys=["k0"]), RetryVerb(), **SIGNED)
    assert (report.matched, report.done, report.refused) == (1, 1, [])
    assert (world.row("k0").status, world.row("k1").status) == (Status.QUEUED, Status.REJECTED)
    line = world.ledger.history(ROUTE, "k0")[-1].line
    assert (line.reason, line.by, line.why, line.act) == (
        Reason.OPERATOR_RETRY,
        "ops",
        "checked by hand",
        None,
    )
    recorded = the_act(world)
    assert (recorded.verb, recorded.by, recorded.reason, recorded.done) == (
        "retry",
        "ops",
        "checked by hand",
        1,
    )
    assert recorded.filter["key"] == "k0"
    assert act_view(recorded)["about"] == {"key": "k0"}


def test_one_item_may_be_acted_on_in_the_millisecond_it_changed(world: World) -> None:
    world.add("a")
    assert act(world.ctx, select(world.ctx, ROUTE, keys=["a"]), CancelVerb(), **SIGNED).done == 1
    assert act(world.ctx, select(world.ctx, ROUTE, keys=["a"]), RetryVerb(), **SIGNED).done == 1


@pytest.mark.parametrize("verb", ["skip", "cancel", "confirm"])
def test_each_verb_does_its_own(world: World, verb: str) -> None:
    world.add("a")
    assert act(world.ctx, select(world.ctx, ROUTE, keys=["a"]), verb_of(verb), **SIGNED).done == 1
    assert (
        world.reasons("a")[-1]
        is {"skip": Reason.SKIPPED, "cancel": Reason.CANCELLED, "confirm": Reason.CONFIRMED}[verb]
    )
    assert world.row("a").stage == ("weigh" if verb == "cancel" else "stamp")


def test_a_plain_yes_lets_the_payload_travel_on(world: World) -> None:
    world.add("a")
    world.work("weigh", Done({"grams": 5}))
    act(world.ctx, select(world.ctx, ROUTE, keys=["a"]), ConfirmVerb(), **SIGNED)
    assert world.item("a").payload == {"grams": 5}
    assert world.item("a").results["stamp"] is True


def test_retry_sends_back_and_resend_offers_again(world: World) -> None:
    world.add("a")
    world.work("weigh")
    world.work("stamp")
    first = world.item("a").work_id
    assert act(world.ctx, select(world.ctx, ROUTE, keys=["a"]), ResendVerb(), **SIGNED).done == 1
    assert world.ledger.history(ROUTE, "a")[-1].line.offered == first
    assert (
        act(world.ctx, select(world.ctx, ROUTE, keys=["a"]), RetryVerb("weigh"), **SIGNED).done == 1
    )
    assert (world.row("a").stage, world.row("a").pass_no) == ("weigh", 2)


def test_what_cannot_be_done_is_refused_with_the_reason(world: World) -> None:
    world.add("a", "b")
    world.claim("weigh", want=1)
    report = act(world.ctx, select(world.ctx, ROUTE, keys=["a", "nobody"]), RetryVerb(), **SIGNED)
    assert (report.matched, report.done, report.refused_count) == (2, 0, 2)
    assert dict(report.refused) == {
        "nobody": "there is no item with this key",
        "a": "a worker has claimed it; wait for its outcome, or cancel it first",
    }


def test_a_pruned_item_is_named_as_such(world: World) -> None:
    rejected(world, 1)
    world.add("newer")
    world.ledger.prune(
        PruneCriteria(
            ROUTE, TERMINAL, world.clock.now(), None, DeliveredLines(world.ledger.last_seq()), 10
        )
    )
    report = act(world.ctx, select(world.ctx, ROUTE, keys=["k0"]), RetryVerb(), **SIGNED)
    [(key, why)] = report.refused
    assert key == "k0"
    assert why.startswith("it has ended (REJECTED on 20")
    again = """milepost submit parcels --item '{"id":"k0","…":"…"}' --failed-again --by YOU --reason '…'"""
    assert why.endswith(
        f"and its row was pruned; only its seal is left; to start it again, submit it again: {again}"
    )
    assert "only its seal is left" in str(
        confirm_outside(world.ctx, ROUTE, "k0", "weigh", Done(True), by="p")
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"verb": ("mend", {})}, "there is no act 'mend'"),
        ({"author": {"by": " ", "reason": "r"}}, "needs a name and a reason"),
        ({"author": {"by": "ops", "reason": ""}}, "needs a name and a reason"),
        ({"items": {}}, "either keys or a filter"),
        ({"items": {"keys": ["k0"], "query": FAILED}}, "either keys or a filter"),
        ({"items": {"query": Query(route="letters")}}, "the filter is for route 'letters'"),
        (
            {"verb": ("confirm", {"stage": "nowhere"})},
            "no stage 'nowhere'; its stages are weigh, stamp, Delivered",
        ),
        ({"verb": ("skip", {"stage": "weigh"})}, "only retry, confirm and rerun do"),
        ({"verb": ("cancel", {"as_new": True})}, "only retry and rerun do"),
        ({"verb": ("cancel", {"outcome": Done(1)})}, "takes no outcome; only confirm does"),
        ({"route": "letters"}, "there is no route 'letters'; known routes: parcels"),
    ],
)
def test_wrong_calls_change_nothing(world: World, options: dict[str, Any], message: str) -> None:
    rejected(world, 1)
    before = world.ledger.change_counter()
    route = options.get("route", ROUTE)
    verb, verb_options = options.get("verb", ("retry", {}))
    with pytest.raises(UsageError, match=message):
        selection = select(world.ctx, route, **options.get("items", {"keys": ["k0"]}))
        act(world.ctx, selection, verb_of(verb, **verb_options), **options.get("author", SIGNED))
    assert world.ledger.change_counter() == before


# Many items ---------------------------------------------------------------------------------------
def test_a_bulk_act_is_on_record_and_in_every_line(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(act_log, "BATCH", 2)
    keys = rejected(world, 5)
    seen: list[tuple[int, int | None]] = []
    report = act(
        world.ctx,
        select(world.ctx, ROUTE, query=FAILED),
        RetryVerb(),
        **SIGNED,
        on_progress=lambda n, total: seen.append((n, total)),
    )
    assert (report.matched, report.done, report.refused_count) == (5, 5, 0)
    assert seen == [(2, 5), (4, 5), (5, 5)]
    assert {world.ledger.history(ROUTE, key)[-1].line.act for key in keys} == {report.id}
    recorded = the_act(world)
    assert (recorded.verb, recorded.by, recorded.done, recorded.finished_at) == (
        "retry",
        "ops",
        5,
        world.clock.now(),
    )
    assert recorded.filter["query"]["statuses"] == ["REJECTED"]


def test_only_what_certain_lists_brought(world: World) -> None:
    for name in ("one", "two", "three"):
        submit(world.ctx, ROUTE, [{"id": f"{name}-{n}"} for n in range(2)], list_id=name)
    world.clock.advance("1m")
    query = Query(route=ROUTE, lists=frozenset({"one", "three", "gone"}))
    selection = select(world.ctx, ROUTE, query=query)
    assert act(world.ctx, selection, CancelVerb(), **SIGNED, dry_run=True).matched == 4
    report = act(world.ctx, selection, CancelVerb(), **SIGNED)
    assert report.done == 4
    assert [world.row(f"{name}-0").status for name in ("one", "two", "three")] == [
        Status.CANCELLED,
        Status.QUEUED,
        Status.CANCELLED,
    ]
    assert the_act(world).filter["query"]["lists"] == ["gone", "one", "three"]


def test_an_act_that_was_cut_off_goes_on_by_its_id_alone(
    faulty: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(act_log, "BATCH", 2)
    faulty.add(*(f"k{n}" for n in range(5)))
    faulty.clock.advance("1m")
    applied: list[int] = []
    faulty.ledger.after("apply", dies, lambda *more: applied.append(1) or len(applied) == 2)  # type: ignore[attr-defined,func-returns-value]
    here = Query(route=ROUTE, stages=frozenset({"weigh"}))
    with pytest.raises(Interrupted):
        act(
            faulty.ctx,
            select(faulty.ctx, ROUTE, query=here),
            ConfirmVerb("weigh", outcome=Reject("wet")),
            **SIGNED,
        )
    [begun] = all_acts(faulty.ctx)
    assert (
        act_view(begun)["go_on"]
        == f"milepost confirm parcels --act {begun.id} --by YOU --reason '…'"
    )
    report = go_on(faulty.ctx, "confirm", ROUTE, begun.id, **SIGNED)
    assert report.done + report.skipped == 5
    assert {faulty.row(f"k{n}").status for n in range(5)} == {Status.REJECTED}
    assert act_view(all_acts(faulty.ctx)[0])["go_on"] is None
    with pytest.raises(UsageError, match="there is no act 'odd' on record"):
        go_on(faulty.ctx, "confirm", ROUTE, "odd", **SIGNED)
    with pytest.raises(UsageError, match="on record with the verb 'confirm', not 'skip'"):
        go_on(faulty.ctx, "skip", ROUTE, begun.id, **SIGNED)


@pytest.mark.parametrize(("keys", "named"), [("all", "--all"), (3, "THE SAME KEYS")])
def test_an_adoption_that_was_cut_off_says_how_to_go_on(
    world: World, keys: object, named: str
) -> None:
    begun = act_log.enter(world.ctx, "adopt", ROUTE, "ops", "a test", {"keys": keys})
    words = act_view(begun)["go_on"]
    assert words == f"milepost adopt parcels {named} --by YOU --reason '…'"
    taken = {option for parameter in adopt.params for option in parameter.opts}
    assert {word for word in words.split() if word.startswith("--")} <= taken


def test_an_act_on_keys_needs_them_again(world: World) -> None:
    keys = rejected(world, 3)
    act_log.begin(
        world.ctx,
        Act(
            "cut-off",
            "retry",
            ROUTE,
            "ops",
            "fixed",
            world.clock.now(),
            Selection(ROUTE, tuple(keys)).to_record(),
        ),
    )
    with pytest.raises(
        UsageError, match="was begun for 3 keys; to continue it give the same keys again"
    ):
        go_on(world.ctx, "retry", ROUTE, "cut-off", **SIGNED)
    report = act(
        world.ctx, select(world.ctx, ROUTE, keys=keys), RetryVerb(), act_id="cut-off", **SIGNED
    )
    assert report.done == 3
    assert go_on(world.ctx, "retry", ROUTE, "cut-off", **SIGNED) == report


def test_pauses_and_limits_are_on_record(world: World) -> None:
    pause(world.ctx, ROUTE, "weigh", **SIGNED)
    world.clock.advance("1s")
    resume(world.ctx, ROUTE, "weigh", **SIGNED)
    world.clock.advance("1s")
    limit(world.ctx, ROUTE, "weigh", rate="5/s", **SIGNED)
    views = [act_view(act) for act in all_acts(world.ctx, ROUTE)]
    assert [view["verb"] for view in views] == ["limit", "resume", "pause"]
    assert views[0]["about"] == {"scope": "parcels/weigh", "rate": "5/s", "clear": False}
    assert all(view["finished_at"] for view in views)
    assert all_acts(world.ctx, "letters") == []


def test_an_act_on_a_control_says_what_was_set(world: World) -> None:
    def said(about: dict[str, object]) -> str:
        return control_in_words({"scope": "parcels/weigh", **about}, lambda at: at[11:16])

    assert said({}) == "parcels/weigh"
    assert (
        said({"until": "2027-01-31T18:00:00.000Z", "drain": "10/s"})
        == "parcels/weigh until 18:00, then 10/s"
    )
    assert said({"drain": "10/s"}) == "parcels/weigh at 10/s"
    assert said({"rate": "5/s", "drain": True}) == "parcels/weigh 5/s"
    assert (
        said({"rate": "5/s", "concurrency": 2, "clear": False}) == "parcels/weigh 5/s, 2 at a time"
    )
    assert said({"clear": True}) == "parcels/weigh as the route says"


def test_a_pause_that_ends_by_itself_is_not_credited_to_a_person(world: World) -> None:
    pause(world.ctx, ROUTE, "weigh", until="1h", drain="10/s", **SIGNED)
    world.clock.advance("2h")
    end_pauses(world.ctx)
    ended, begun = [act_view(act) for act in all_acts(world.ctx, ROUTE)]
    assert (begun["verb"], begun["about"]["drain"], "until" in begun["about"]) == (
        "pause",
        "10/s",
        True,
    )
    assert (ended["verb"], ended["by"]) == ("resume", f"resender for {SIGNED['by']}")
    assert ended["reason"].startswith("the pause has ended by itself, as set: ")


def test_a_preview_changes_nothing_and_need_not_be_signed(world: World) -> None:
    rejected(world, 3)
    world.add("busy")
    world.claim("weigh")
    before = world.ledger.change_counter()
    report = act(
        world.ctx,
        select(world.ctx, ROUTE, query=Query(route=ROUTE)),
        RetryVerb(),
        by="",
        reason="",
        dry_run=True,
    )
    assert (report.matched, report.done, report.refused_count, report.dry_run) == (4, 3, 1, True)
    assert world.ledger.change_counter() == before


def test_cut_off_and_run_again_does_the_rest(
    faulty: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(act_log, "BATCH", 2)
    keys = rejected(faulty, 5)
    applied: list[int] = []
    faulty.ledger.after(
        "apply", dies, lambda changes, *more: applied.append(len(changes)) or len(applied) == 2
    )  # type: ignore[attr-defined,func-returns-value]
    with pytest.raises(Interrupted):
        act(
            faulty.ctx,
            select(faulty.ctx, ROUTE, query=FAILED),
            RetryVerb(),
            act_id="act-1",
            **SIGNED,
        )
    assert sum(faulty.row(key).status is Status.QUEUED for key in keys) == 4
    assert the_act(faulty).finished_at is None
    # The worker has been at them meanwhile: what failed again after the act began is not retried by
    # it again.
    faulty.clock.advance("1m")
    faulty.work("weigh", Reject("still no such parcel"), want=1)
    report = act(
        faulty.ctx, select(faulty.ctx, ROUTE, query=FAILED), RetryVerb(), act_id="act-1", **SIGNED
    )
    assert (report.matched, report.done) == (1, 1)
    assert all(faulty.reasons(key).count(Reason.OPERATOR_RETRY) == 1 for key in keys)
    assert (the_act(faulty).done, the_act(faulty).finished_at) == (3, faulty.clock.now()), (
        "the batch cut off was not counted"
    )


@pytest.mark.parametrize("pause_between", [0, 60])
def test_a_repeat_of_an_act_gets_the_first_answer(world: World, pause_between: int) -> None:
    """Even if the clock has not moved on a millisecond."""
    world.add("a", "b", "c")
    keys = ["a", "b", "gone"]
    first = act(
        world.ctx, select(world.ctx, ROUTE, keys=keys), CancelVerb(), act_id="act-1", **SIGNED
    )
    assert (first.matched, first.done, first.refused) == (
        3,
        2,
        [("gone", "there is no item with this key")],
    )
    world.clock.advance(pause_between)
    before = world.ledger.change_counter()
    assert (
        act(world.ctx, select(world.ctx, ROUTE, keys=keys), CancelVerb(), act_id="act-1", **SIGNED)
        == first
    )
    assert world.ledger.change_counter() == before
    assert world.reasons("a").count(Reason.CANCELLED) == 1
    preview = act(
        world.ctx,
        select(world.ctx, ROUTE, keys=keys),
        CancelVerb(),
        act_id="act-1",
        by="",
        reason="",
        dry_run=True,
    )
    assert (preview.done, preview.skipped, preview.finished_at) == (0, 2, None), (
        "a preview says that a repeat changes nothing"
    )


def test_a_repeat_of_an_act_by_filter_gets_the_first_answer_even_if_other_items_match_by_now(
    world: World,
) -> None:
    rejected(world, 2)
    first = act(
        world.ctx, select(world.ctx, ROUTE, query=FAILED), RetryVerb(), act_id="act-1", **SIGNED
    )
    world.work("weigh", Reject("no such parcel"))
    world.clock.advance("1h")
    assert (
        act(
            world.ctx, select(world.ctx, ROUTE, query=FAILED), RetryVerb(), act_id="act-1", **SIGNED
        )
        == first
    )
    assert go_on(world.ctx, "retry", ROUTE, "act-1", **SIGNED) == first
    assert (first.matched, first.done, world.row("k0").status) == (2, 2, Status.REJECTED)


def test_an_act_id_is_for_one_act(world: World) -> None:
    rejected(world, 3)
    act(
        world.ctx,
        select(world.ctx, ROUTE, keys=["k0", "k1"]),
        RetryVerb(),
        act_id="act-1",
        **SIGNED,
    )
    with pytest.raises(ActConflict, match="on record with the verb 'retry', not 'cancel'"):
        act(
            world.ctx,
            select(world.ctx, ROUTE, keys=["k0", "k1"]),
            CancelVerb(),
            act_id="act-1",
            **SIGNED,
        )
    with pytest.raises(ActConflict, match="other items or options"):
        act(
            world.ctx,
            select(world.ctx, ROUTE, keys=["k0", "k2"]),
            RetryVerb(),
            act_id="act-1",
            **SIGNED,
        )
    with pytest.raises(ActConflict, match="other items or options"):
        act(
            world.ctx, select(world.ctx, ROUTE, query=FAILED), RetryVerb(), act_id="act-1", **SIGNED
        )


def test_an_act_id_with_another_filter_is_refused(world: World) -> None:
    rejected(world, 3)
    first = act(
        world.ctx,
        select(world.ctx, ROUTE, query=Query(route=ROUTE, prefix="k0")),
        RetryVerb(),
        act_id="act-1",
        **SIGNED,
    )
    with pytest.raises(ActConflict, match="act 'act-1' is on record with other items or options"):
        act(
            world.ctx,
            select(world.ctx, ROUTE, query=Query(route=ROUTE, prefix="k1")),
            RetryVerb(),
            act_id="act-1",
            **SIGNED,
        )
    with pytest.raises(ActConflict):
        act(
            world.ctx,
            select(world.ctx, ROUTE, query=Query(route=ROUTE, prefix="k0")),
            RetryVerb("weigh"),
            act_id="act-1",
            **SIGNED,
        )
    with pytest.raises(ActConflict):
        act(
            world.ctx,
            select(world.ctx, ROUTE, query=Query(route=ROUTE, prefix="k1")),
            RetryVerb(),
            act_id="act-1",
            by="",
            reason="",
            dry_run=True,
        )
    assert (first.done, world.row("k1").status) == (1, Status.REJECTED)


def test_a_filter_is_compared_as_it_was_asked(world: World) -> None:
    """What an age or the name of a list means changes from call to call."""
    rejected(world, 1)

    def entered(before: int, older_than: str) -> Selection:
        query = Query(route=ROUTE, entered_before=before)
        return select(world.ctx, ROUTE, query=query, asked={"older_than": older_than})

    minute_ago = entered(world.clock.now() - 60_000, "1m")
    first = act(world.ctx, minute_ago, RetryVerb(), act_id="act-1", **SIGNED)
    world.clock.advance("1h")
    minute_ago = entered(world.clock.now() - 60_000, "1m")
    assert act(world.ctx, minute_ago, RetryVerb(), act_id="act-1", **SIGNED) == first
    hour_ago = entered(world.clock.now(), "1h")
    with pytest.raises(ActConflict):
        act(world.ctx, hour_ago, RetryVerb(), act_id="act-1", **SIGNED)


@pytest.mark.parametrize("finished", [True, False])
def test_an_act_of_an_earlier_version_is_compared_by_its_query(
    world: World, finished: bool
) -> None:
    rejected(world, 2)
    query = {"route": ROUTE, "prefix": "k0", "entered_before": 1}
    ended = {"done": 7, "refused": 1, "finished_at": world.clock.now()} if finished else {}
    act_log.begin(
        world.ctx,
        Act("act-1", "retry", ROUTE, "ops", "fixed", world.clock.now(), {"query": query}, **ended),
    )
    with pytest.raises(ActConflict):
        act(
            world.ctx,
            select(world.ctx, ROUTE, query=Query(route=ROUTE, prefix="k1")),
            RetryVerb(),
            act_id="act-1",
            **SIGNED,
        )
    report = act(
        world.ctx,
        select(world.ctx, ROUTE, query=Query(route=ROUTE, prefix="k0")),
        RetryVerb(),
        act_id="act-1",
        **SIGNED,
    )
    assert (report.matched, report.done, report.refused_count) == (
        (8, 7, 1) if finished else (0, 0, 0)
    )


def test_what_changes_during_the_act_is_left_alone(faulty: World) -> None:
    keys = rejected(faulty, 3)

    def meanwhile() -> None:
        faulty.clock.advance(1)
        act(
            faulty.ctx,
            select(faulty.ctx, ROUTE, keys=["k1"]),
            SkipVerb(),
            by="slots",
            reason="quicker",
        )

    faulty.ledger.before("apply", meanwhile)  # type: ignore[attr-defined]
    report = act(faulty.ctx, select(faulty.ctx, ROUTE, query=FAILED), RetryVerb(), **SIGNED)
    assert (report.done, report.retried) == (2, 1)
    assert report.refused == [("k1", "changed since the act began; check it again")]
    assert [faulty.reasons(key)[-1] for key in keys] == [
        Reason.OPERATOR_RETRY,
        Reason.SKIPPED,
        Reason.OPERATOR_RETRY,
    ]


def test_a_claim_during_the_act_is_no_change_and_it_is_decided_again(faulty: World) -> None:
    faulty.add("a", "b")
    faulty.clock.advance(1)
    faulty.ledger.before("apply", lambda: faulty.claim("weigh") and None)  # type: ignore[attr-defined]
    report = act(
        faulty.ctx, select(faulty.ctx, ROUTE, query=Query(route=ROUTE)), CancelVerb(), **SIGNED
    )
    assert (report.done, report.retried, report.refused_count) == (2, 2, 0)
    assert faulty.row("a").status is Status.CANCELLED


def test_an_item_that_is_claimed_during_the_act_is_left_alone_if_the_query_is_for_other_statuses(
    faulty: World,
) -> None:
    faulty.add("a", "b")
    faulty.clock.advance(1)
    faulty.ledger.before("apply", lambda: faulty.claim("weigh") and None)  # type: ignore[attr-defined]
    report = act(
        faulty.ctx,
        select(faulty.ctx, ROUTE, query=Query(route=ROUTE, statuses=frozenset({Status.QUEUED}))),
        CancelVerb(),
        **SIGNED,
    )
    assert (report.done, report.refused_count) == (0, 2)
    assert faulty.row("a").status is Status.PROCESSING


def test_the_same_act_twice_at_once_does_everything_once(faulty: World) -> None:
    keys = rejected(faulty, 4)

    def the_other() -> None:
        assert (
            act(
                faulty.ctx,
                select(faulty.ctx, ROUTE, query=FAILED),
                RetryVerb(),
                act_id="act-1",
                **SIGNED,
            ).done
            == 4
        )

    faulty.ledger.before("apply", the_other)  # type: ignore[attr-defined]
    report = act(
        faulty.ctx, select(faulty.ctx, ROUTE, query=FAILED), RetryVerb(), act_id="act-1", **SIGNED
    )
    assert (report.matched, report.done, the_act(faulty).done) == (4, 4, 4), (
        "the answer of the call that finished first"
    )
    assert all(faulty.reasons(key).count(Reason.OPERATOR_RETRY) == 1 for key in keys)


def test_only_the_first_refusals_are_listed(world: World) -> None:
    world.add(*(f"k{n}" for n in range(150)))
    world.clock.advance(1)
    report = act(
        world.ctx, select(world.ctx, ROUTE, query=Query(route=ROUTE)), ResendVerb(), **SIGNED
    )
    assert (len(report.refused), report.refused_count) == (100, 150)


@pytest.mark.slow
@pytest.mark.parametrize("world", ["sqlite"], indirect=True)
def test_a_hundred_thousand(world: World) -> None:
    for start in range(0, 100_000, 5_000):
        world.add(*(f"k{n}" for n in range(start, start + 5_000)))
    world.clock.advance(1)
    assert (
        act(
            world.ctx, select(world.ctx, ROUTE, query=Query(route=ROUTE)), CancelVerb(), **SIGNED
        ).done
        == 100_000
    )


# Pauses and limits --------------------------------------------------------------------------------
def test_pause_and_resume(world: World) -> None:
    world.add("a")
    first = pause(world.ctx, ROUTE, "weigh", by="ops", reason="repairs")
    assert pause(world.ctx, ROUTE, "weigh", by="slots", reason="me too") == first
    assert world.claim("weigh") == []
    assert not resume(world.ctx, ROUTE, "stamp", by="slots", reason="?")
    assert resume(world.ctx, ROUTE, "weigh", by="slots", reason="repaired")
    assert world.ledger.read(HOLD) == {}
    assert len(world.claim("weigh")) == 1
    recorded = [read_as(Act, document.value) for document in world.ledger.read(ACT).values()]
    assert {(one.verb, one.by, one.filter["scope"]) for one in recorded} == {
        ("pause", "ops", "parcels/weigh"),
        ("resume", "slots", "parcels/weigh"),
    }


def test_limits_are_set_apart_and_cleared_together(world: World) -> None:
    limit(world.ctx, ROUTE, "weigh", rate="5/s", **SIGNED)
    limit(world.ctx, ROUTE, "weigh", concurrency=2, **SIGNED)
    limit(world.ctx, ROUTE, "weigh", "north", concurrency=1, **SIGNED)
    held = {
        name: read_as(Limit, document.value) for name, document in world.ledger.read(LIMIT).items()
    }
    assert {name: (one.rate, one.concurrency) for name, one in held.items()} == {
        "parcels/weigh": ("5/s", 2),
        "parcels/weigh/north": (None, 1),
    }
    assert limit(world.ctx, ROUTE, "weigh", clear=True, **SIGNED) is None
    assert set(world.ledger.read(LIMIT)) == {"parcels/weigh/north"}


def test_wrong_pauses_and_limits(world: World) -> None:
    for wrong, message in (
        (lambda: pause(world.ctx, ROUTE, "nowhere", **SIGNED), "no stage 'nowhere'"),
        (
            lambda: pause(world.ctx, ROUTE, None, "north", **SIGNED),
            "needs a stage: name the stage too",
        ),
        (lambda: pause(world.ctx, ROUTE, by="", reason="r"), "a name and a reason"),
        (lambda: resume(world.ctx, "letters", **SIGNED), "no route 'letters'"),
        (lambda: limit(world.ctx, ROUTE, "Delivered", rate="1/s", **SIGNED), "is external"),
        (lambda: limit(world.ctx, ROUTE, "weigh", **SIGNED), "give a rate, a concurrency or both"),
        (
            lambda: limit(world.ctx, ROUTE, "weigh", rate="1/s", clear=True, **SIGNED),
            "give a rate, a concurrency or both",
        ),
        (lambda: limit(world.ctx, ROUTE, "weigh", rate="fast", **SIGNED), "write calls per time"),
        (
            lambda: limit(world.ctx, ROUTE, "weigh", concurrency=0, **SIGNED),
            "a whole number from 1 up",
        ),
    ):
        with pytest.raises(UsageError, match=message):
            wrong()
    assert world.ledger.read(HOLD) == world.ledger.read(LIMIT) == world.ledger.read(ACT) == {}
