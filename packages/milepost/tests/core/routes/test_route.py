"""Routes: mistakes raise at import and name the cause and the cure; keys; plans."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.core.errors import LedgerError, MalformedInput, RouteMistake, UsageError
from milepost.core.item import Item
from milepost.core.outcome import Done, Outcome
from milepost.core.routes.backoff import Backoff, Checks
from milepost.core.routes.plan import EXTERNAL_RESEND, Plan, shape_digest
from milepost.core.routes.route import Limits, Route
from milepost.core.status import Status


def good(item: Item) -> Outcome:
    return Done()


def two_arguments(item: Item, other: object) -> Outcome:
    return Done()


def no_argument() -> Outcome:
    return Done()


def generator(item: Item) -> Any:
    yield Done()


def route() -> Route:
    return Route("parcels")


def test_two_stages_of_one_name() -> None:
    parcels = route()
    parcels.stage("weigh")(good)
    with pytest.raises(
        RouteMistake, match="'parcels' has two stages called 'weigh'; give one of them another name"
    ):
        parcels.stage("weigh")
    with pytest.raises(RouteMistake, match="two stages called 'weigh'"):
        parcels.external("weigh")


def test_two_stages_of_one_name_are_found_even_if_declared_before_either_is_decorated() -> None:
    parcels = route()
    first, second = parcels.stage("weigh"), parcels.stage("weigh")
    first(good)
    with pytest.raises(RouteMistake, match="two stages called 'weigh'"):
        second(good)


def test_no_stages() -> None:
    with pytest.raises(RouteMistake, match=r"'parcels' has no stages; add one with @parcels.stage"):
        Plan(route())


@pytest.mark.parametrize(
    ("handler", "said"),
    [
        (
            two_arguments,
            r"its handler is two_arguments\(.*it must take one argument: def two_arguments\(item\)",
        ),
        (no_argument, r"must take one argument: def no_argument\(item\)"),
        (generator, "uses 'yield'; return one outcome"),
        ("weigh", "is 'weigh'; give a function of one argument"),
    ],
)
def test_a_handler_of_the_wrong_shape(handler: Any, said: str) -> None:
    with pytest.raises(RouteMistake, match=said) as caught:
        route().stage("weigh")(handler)
    assert "stage 'weigh' of route 'parcels'" in str(caught.value)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"rate": "fast"},
            r"stage 'weigh' of route 'parcels': rate is 'fast'; write calls per time, such as '50/s'",
        ),
        ({"rate": "0/s"}, "rate"),
        ({"timeout": "soon"}, r"stage 'weigh' of route 'parcels': timeout is 'soon'"),
        (
            {"concurrency": 0},
            r"stage 'weigh' of route 'parcels': concurrency is 0; give a whole number from 1 up",
        ),
        ({"batch": 0}, "batch is 0"),
        ({"batch": True}, "batch is True"),
        ({"retry": 3}, r"retry is 3; write retry=mp.Backoff"),
        ({"checks": "10m"}, r"checks is '10m'; write checks=mp.Checks"),
        ({"lane": "north"}, r"lane is 'north'; give a function"),
        ({"verify": two_arguments}, r"verify is two_arguments"),
        ({"accepts": no_argument}, r"accepts is no_argument"),
    ],
)
def test_a_wrong_option_names_the_stage_and_the_cure(options: dict[str, Any], said: str) -> None:
    with pytest.raises(RouteMistake, match=said):
        route().stage("weigh", **options)


@pytest.mark.parametrize("name", ["", "two words", "a/b", "x" * 65, None, 3, "a\n"])
def test_a_name_that_cannot_be_one(name: Any) -> None:
    with pytest.raises(RouteMistake, match="letters, digits"):
        Route(name)
    with pytest.raises(RouteMistake, match="route 'parcels'"):
        route().stage(name)
    with pytest.raises(RouteMistake, match="route 'parcels'"):
        route().external(name)


@pytest.mark.parametrize("wrong", [{"resend_after": "soon"}, {"overdue": -1}])
def test_a_wrong_option_of_an_external_stage(wrong: dict[str, Any]) -> None:
    with pytest.raises(RouteMistake, match="stage 'delivered' of route 'parcels'"):
        route().external("delivered", **wrong)


@pytest.mark.parametrize("key", ["", [], [""], [1], None, 5])
def test_a_wrong_key(key: Any) -> None:
    with pytest.raises(RouteMistake, match="key is"):
        Route("parcels", key=key)


def test_limits_are_checked() -> None:
    with pytest.raises(UsageError, match="rate"):
        Limits(rate="fast")
    with pytest.raises(UsageError, match="concurrency"):
        Limits(concurrency=0)


def test_every_mistake_is_a_usage_error() -> None:
    assert issubclass(RouteMistake, UsageError)


def test_the_handler_stays_what_it_was() -> None:
    assert route().stage("weigh")(good) is good


@pytest.mark.parametrize(
    ("key", "content", "expected"),
    [
        ("id", {"id": "a"}, "a"),
        ("id", {"id": 7}, "7"),
        (["a", "b"], {"a": "x#y", "b": "50%"}, "x%23y#50%25"),
        (lambda content: content["deep"]["id"], {"deep": {"id": 3}}, "3"),
    ],
)
def test_keys(key: Any, content: Any, expected: str) -> None:
    assert Route("parcels", key=key).key_of(content) == expected


@pytest.mark.parametrize(
    ("content", "said"),
    [({}, "'id' is missing"), ({"id": None}, "missing"), ({"id": "  "}, "empty"), ({"id": ""}, "empty"), ({"id": 1.5}, "float"),
     ({"id": True}, "bool"), ({"id": ["a"]}, "list"), ("text", "not an object"), (None, "not an object"), ({"id": "x" * 1025}, "1,024"),
     ({"id": "a\nb"}, "control characters")],
)  # fmt: skip
def test_an_input_without_a_key_is_malformed_and_the_field_is_named(
    content: Any, said: str
) -> None:
    with pytest.raises(MalformedInput, match=said):
        Route("parcels").key_of(content)


def test_a_key_function_that_fails_is_malformed_input() -> None:
    with pytest.raises(MalformedInput, match="KeyError"):
        Route("parcels", key=lambda content: content["id"]).key_of({})


@given(st.text(min_size=1), st.text(min_size=1), st.text(min_size=1), st.text(min_size=1))
def test_keys_of_several_fields_never_meet(a: str, b: str, c: str, d: str) -> None:
    both = Route("parcels", key=["x", "y"])
    try:
        one, other = both.key_of({"x": a, "y": b}), both.key_of({"x": c, "y": d})
    except MalformedInput:
        return
    assert (one == other) == ((a.strip(), b.strip()) == (c.strip(), d.strip()))


@given(st.text(min_size=1, max_size=1100))
def test_one_field_gives_the_same_key_whether_quick_or_careful(text: str) -> None:
    """A key is never empty, blank at its ends, longer than 1,024, or with control characters."""
    try:
        key = Route("parcels").key_of({"id": text})
    except MalformedInput:
        return
    assert key == key.strip()
    assert key
    assert len(key) <= 1024
    assert not any(ord(c) < 32 for c in key)


def test_a_plan_fills_in_what_the_ledger_says() -> None:
    parcels = route()
    parcels.stage("weigh")(good)
    parcels.external("quick", resend_after="1h")
    parcels.external("slow")
    plan = Plan(parcels, grace_ms=5, offer_life_ms=7)
    assert [(stage.grace_ms, stage.offer_life_ms) for stage in plan.stages] == [
        (5, 7),
        (5, 3_600_000),
        (5, 7),
    ]
    assert Plan(parcels).by_name["slow"].offer_life_ms == EXTERNAL_RESEND
    assert [stage and stage.name for stage in plan.following.values()] == ["quick", "slow", None]
    assert plan.shape == (("weigh", "handler"), ("quick", "external"), ("slow", "external"))


def test_a_plan_never_changes() -> None:
    parcels = route()
    parcels.stage("weigh")(good)
    parcels.external("quick", resend_after="1h")
    parcels.external("slow")
    plan = Plan(parcels)
    newer, told = plan.at_version(2), plan.with_offer_lives({"quick": 5, "slow": 5})
    assert (plan.version, newer.version, told.version) == (1, 2, 1)
    assert newer.stages is plan.stages
    assert newer.at_version(2) is newer
    assert [stage.offer_life_ms for stage in told.stages] == [0, 3_600_000, 5]
    assert told.by_name["slow"] is told.following["quick"] is told.stages[2]
    assert plan.by_name["slow"].offer_life_ms == EXTERNAL_RESEND
    assert (told.digest, told.position, told.name) == (plan.digest, plan.position, plan.name)
    with pytest.raises(AttributeError, match="a plan never changes"):
        plan.version = 3


def test_the_digest_follows_names_kinds_and_order_alone() -> None:
    def made(*declare: Callable[[Route], object]) -> str:
        parcels = route()
        for one in declare:
            one(parcels)
        return Plan(parcels).digest

    a = lambda r: r.stage("a")(good)  # noqa: E731
    options = {"rate": "1/s", "retry": Backoff(attempts=9), "checks": Checks(every="1h")}
    tuned = lambda r: r.stage("a", **options)(good)  # noqa: E731
    b = lambda r: r.stage("b")(good)  # noqa: E731
    outside = lambda r: r.external("b")  # noqa: E731
    assert made(a, b) == made(tuned, b)
    assert len({made(a, b), made(b, a), made(a, outside), made(a)}) == 4
    assert shape_digest([["a", "handler"]]) != shape_digest([["a"], ["handler"]])


def test_a_lane_function_that_fails_means_the_default_lane() -> None:
    parcels = route()
    parcels.stage("weigh", lane=lambda content: content["nowhere"])(good)
    assert parcels.stages[0].lane_of({}) == ""
    parcels.stage("stamp", lane=lambda content: content["n"])(good)
    assert parcels.stages[1].lane_of({"n": 5}) == "5"


def test_a_lane_that_is_unknown_because_the_ledger_does_not_answer_is_no_default_lane() -> None:
    def unanswered(content: Any) -> str:
        raise LedgerError("the ledger does not answer")

    parcels = route()
    parcels.stage("weigh", lane=unanswered)(good)
    with pytest.raises(LedgerError):
        parcels.stages[0].lane_of({})


def test_one_time_to_keep_rows_is_that_of_completed_items() -> None:
    assert Route("parcels", keep="2h").keep == {Status.COMPLETED: 7_200_000}
    assert Route("parcels").keep == {}


def test_a_status_that_keep_names_by_itself_has_its_own_time() -> None:
    keep = Route("parcels", keep={"rejected": "1h", "failed": "2h", "cancelled": 0}).keep
    assert keep == {
        Status.REJECTED: 3_600_000,
        Status.MAX_RETRIES_EXCEEDED: 7_200_000,
        Status.CANCELLED: 0,
    }


@pytest.mark.parametrize(
    ("keep", "message"),
    [
        (
            {"waiting": "1h"},
            "keep has the status 'waiting'; use failed, cancelled, completed, max_retries_exceeded, rejected",
        ),
        ({}, "keep names no status"),
        ({"rejected": "soon"}, "keep\\['rejected'\\]"),
        ("soon", "keep"),
    ],
)
def test_a_wrong_keep_is_refused(keep: object, message: str) -> None:
    with pytest.raises(RouteMistake, match=message):
        Route("parcels", keep=keep)  # type: ignore[arg-type]
