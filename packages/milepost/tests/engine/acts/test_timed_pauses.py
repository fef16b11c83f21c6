"""Pauses that end by themselves, and backlogs that are drained at a pace, on every ledger."""

from __future__ import annotations

import pytest
from tests.engine.world import ROUTE, World

from milepost.core.errors import UsageError
from milepost.core.outcome import Done
from milepost.core.routes.route import Route
from milepost.engine.act_log import all_acts
from milepost.engine.acts.controls import limit, pause, resume
from milepost.engine.resend import Resender
from milepost.ports.documents import HOLD, LIMIT
from milepost.ports.ledger import Ledger
from milepost_testing.clock import VirtualClock

OPS = {"by": "ops", "reason": "crm is down"}


@pytest.fixture
def lanes(ledger: Ledger, clock: VirtualClock) -> World:
    route = Route(ROUTE, key="id")
    route.stage("send", lane=lambda given: given["to"])(lambda item: Done())
    return World(ledger, clock, route).registered()


def worked(world: World) -> list[str]:
    """The keys of the items that a worker may take now; it completes them."""
    items = world.claim("send")
    world.settle(items, Done())
    return [item.key for item in items]


def test_a_pause_ends_by_itself_and_uses_no_attempt(lanes: World) -> None:
    hold = pause(lanes.ctx, ROUTE, "send", "crm", until="2h", **OPS)
    assert hold.until == lanes.clock.now() + 7_200_000
    lanes.add("a", to="crm")
    lanes.add("b", to="shop")
    resender = Resender(lanes.ctx)
    lanes.clock.advance("1h")
    resender.run_once()
    assert worked(lanes) == ["b"]
    lanes.clock.advance("1h")
    resender.run_once()
    assert lanes.ledger.read(HOLD) == {}
    [claimed] = lanes.claim("send")
    assert (claimed.key, claimed.attempt) == ("a", 1)
    ended = all_acts(lanes.ctx, verb="resume")
    assert [(act.by, act.filter["scope"]) for act in ended] == [
        ("resender for ops", f"{ROUTE}/send/crm")
    ]
    assert "crm is down" in ended[0].reason


def test_a_later_pause_takes_the_place_of_one_only_if_it_says_until_when(lanes: World) -> None:
    first = pause(lanes.ctx, ROUTE, "send", "crm", **OPS)
    assert pause(lanes.ctx, ROUTE, "send", "crm", by="other", reason="why") == first
    longer = pause(lanes.ctx, ROUTE, "send", "crm", by="other", reason="until six", until="6h")
    assert (longer.by, longer.reason) == ("other", "until six")
    Resender(lanes.ctx).run_once()
    assert lanes.ledger.read(HOLD)[f"{ROUTE}/send/crm"].value["until"] == longer.until


def test_a_pause_without_an_end_takes_the_place_of_one_that_ends_by_itself(lanes: World) -> None:
    """Otherwise the work would go on although its operator has stopped it."""
    pause(
        lanes.ctx, ROUTE, "send", "crm", by="program", reason="slow down", until="15s", drain="1/s"
    )
    stopped = pause(lanes.ctx, ROUTE, "send", "crm", by="ann", reason="wrong address")
    assert (stopped.by, stopped.until, stopped.drain) == ("ann", None, "1/s")
    lanes.add("a", to="crm")
    lanes.clock.advance("1h")
    Resender(lanes.ctx).run_once()
    assert worked(lanes) == []


def test_a_program_changes_no_pause_of_another_operator(lanes: World) -> None:
    held = pause(lanes.ctx, ROUTE, "send", "crm", by="ann", reason="wrong address")
    program = {"by": "program", "reason": "slow down", "own": True}
    assert pause(lanes.ctx, ROUTE, "send", "crm", until="15s", **program) == held
    assert pause(lanes.ctx, ROUTE, "send", "crm", **program) == held
    assert not resume(lanes.ctx, ROUTE, "send", "crm", **program)
    assert set(lanes.ledger.read(HOLD)) == {f"{ROUTE}/send/crm"}
    resume(lanes.ctx, ROUTE, "send", "crm", by="ann", reason="it is right")
    pause(lanes.ctx, ROUTE, "send", "crm", until="15s", **program)
    assert (
        pause(lanes.ctx, ROUTE, "send", "crm", until="30s", **program).until
        == lanes.clock.now() + 30_000
    )
    assert resume(lanes.ctx, ROUTE, "send", "crm", **program)


def test_an_operator_resumes_a_pause_that_a_program_extends_at_the_same_moment(
    lanes: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = {"by": "program", "reason": "slow down", "own": True}
    pause(lanes.ctx, ROUTE, "send", "crm", until="15s", **program)
    write, extended = lanes.ledger.write, list[bool]()

    def extend_first(kind: str, name: str, value: object, **more: object) -> bool:
        if kind == HOLD and value is None and not extended:
            extended.append(True)
            pause(lanes.ctx, ROUTE, "send", "crm", until="30s", **program)
        return write(kind, name, value, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(lanes.ledger, "write", extend_first)
    assert resume(lanes.ctx, ROUTE, "send", "crm", by="ops", reason="up again")
    assert lanes.ledger.read(HOLD) == {}


def test_the_backlog_of_a_pause_is_drained_at_its_pace_and_then_as_before(lanes: World) -> None:
    pause(lanes.ctx, ROUTE, "send", "crm", until="1h", drain="1/s", **OPS)
    lanes.add("a", "b", "c", to="crm")
    lanes.clock.advance("1h")
    resender = Resender(lanes.ctx)
    resender.run_once()
    for key in ("a", "b", "c"):
        assert worked(lanes) == [key]
        assert worked(lanes) == []
        lanes.clock.advance("1s")
        resender.run_once()
    assert lanes.ledger.read(LIMIT) == {}, "the pace ends with the backlog"
    lanes.add("d", "e", to="crm")
    assert worked(lanes) == ["d", "e"]


@pytest.mark.parametrize("ends", ["by itself", "by an operator"])
def test_a_worker_that_claims_right_after_a_pause_finds_its_pace(
    lanes: World, ends: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pause(lanes.ctx, ROUTE, "send", "crm", until="1h", drain="1/s", **OPS)
    lanes.add("a", "b", "c", to="crm")
    lanes.clock.advance("1h")
    write, at_once = lanes.ledger.write, []

    def write_and_claim(kind: str, name: str, value: object, **more: object) -> bool:
        written = write(kind, name, value, **more)  # type: ignore[arg-type]
        if kind == HOLD and value is None:
            at_once.extend(worked(lanes))
        return written

    monkeypatch.setattr(lanes.ledger, "write", write_and_claim)
    if ends == "by itself":
        Resender(lanes.ctx).run_once()
    else:
        assert resume(lanes.ctx, ROUTE, "send", "crm", by="ops", reason="up again")
    assert at_once == ["a"]


def test_draining_keeps_a_lower_limit_and_gives_back_a_higher_one(lanes: World) -> None:
    name = f"{ROUTE}/send/crm"
    for usual, while_draining in (("1/m", "1/m"), ("50/s", "2/s")):
        limit(lanes.ctx, ROUTE, "send", "crm", rate=usual, concurrency=3, **OPS)
        pause(lanes.ctx, ROUTE, "send", "crm", **OPS)
        lanes.add(usual, to="crm")
        lanes.clock.advance("1s")
        assert resume(lanes.ctx, ROUTE, "send", "crm", by="ops", reason="up again", drain="2/s")
        Resender(lanes.ctx).run_once()
        assert lanes.ledger.read(LIMIT)[name].value["rate"] == while_draining
        assert worked(lanes) == [usual]
        Resender(lanes.ctx).run_once()
        found = lanes.ledger.read(LIMIT)[name].value
        assert (found["rate"], found["concurrency"], found.get("drains")) == (usual, 3, None)
        lanes.clock.advance("2m")


def test_a_concurrency_that_is_set_while_a_backlog_drains_leaves_the_pace_temporary(
    lanes: World,
) -> None:
    name = f"{ROUTE}/send/crm"
    limit(lanes.ctx, ROUTE, "send", "crm", rate="50/s", **OPS)
    pause(lanes.ctx, ROUTE, "send", "crm", **OPS)
    lanes.add("a", to="crm")
    lanes.clock.advance("1s")
    assert resume(lanes.ctx, ROUTE, "send", "crm", by="ops", reason="up again", drain="2/s")
    limit(lanes.ctx, ROUTE, "send", "crm", concurrency=3, **OPS)
    assert lanes.ledger.read(LIMIT)[name].value["rate"] == "2/s"
    assert worked(lanes) == ["a"]
    Resender(lanes.ctx).run_once()
    found = lanes.ledger.read(LIMIT)[name].value
    assert (found["rate"], found["concurrency"], found.get("drains")) == ("50/s", 3, None)


def test_a_rate_that_is_set_while_a_backlog_drains_takes_the_place_of_its_pace(
    lanes: World,
) -> None:
    pause(lanes.ctx, ROUTE, "send", "crm", **OPS)
    lanes.add("a", to="crm")
    lanes.clock.advance("1s")
    assert resume(lanes.ctx, ROUTE, "send", "crm", by="ops", reason="up again", drain="2/s")
    limit(lanes.ctx, ROUTE, "send", "crm", rate="5/s", **OPS)
    assert worked(lanes) == ["a"]
    Resender(lanes.ctx).run_once()
    found = lanes.ledger.read(LIMIT)[f"{ROUTE}/send/crm"].value
    assert (found["rate"], found.get("drains")) == ("5/s", None)


def test_mistakes_name_the_field(lanes: World) -> None:
    with pytest.raises(UsageError, match=r"until is .* which is past"):
        pause(lanes.ctx, ROUTE, "send", "crm", until="2001-01-01", **OPS)
    with pytest.raises(UsageError, match="drain is 'slow'"):
        pause(lanes.ctx, ROUTE, "send", "crm", drain="slow", **OPS)
    with pytest.raises(UsageError, match="name a stage"):
        pause(lanes.ctx, ROUTE, drain="1/s", **OPS)
    assert lanes.ledger.read(HOLD) == {}


@pytest.mark.parametrize("ends", ["by itself", "by an operator"])
def test_the_backlog_of_a_pause_of_a_wider_lane_is_drained_at_its_pace_for_all_lanes_within_it(
    lanes: World, ends: str
) -> None:
    pause(
        lanes.ctx,
        ROUTE,
        "send",
        "crm:443",
        until="1h" if ends == "by itself" else None,
        drain="1/s",
        **OPS,
    )
    lanes.add("a", "b", to="desk@crm:443")
    lanes.add("c", "d", to="shop@crm:443")
    lanes.add("x", "y", to="shop@shop:443")
    assert sorted(worked(lanes)) == ["x", "y"]
    lanes.clock.advance("1h")
    resender = Resender(lanes.ctx)
    if ends == "by an operator":
        assert resume(lanes.ctx, ROUTE, "send", "crm:443", by="ops", reason="it is back")
    resender.run_once()
    drained = list[str]()
    for _ in range(4):
        drained += worked(lanes)
        assert worked(lanes) == []
        lanes.add(f"new-{len(drained)}", to="shop@shop:443")
        assert worked(lanes) == [f"new-{len(drained)}"], "other lanes are not slowed down"
        lanes.clock.advance("1s")
        resender.run_once()
    assert sorted(drained) == ["a", "b", "c", "d"]
    assert lanes.ledger.read(LIMIT) == {}, "the pace ends with the backlog"
    lanes.add("e", "f", to="desk@crm:443")
    assert sorted(worked(lanes)) == ["e", "f"]


def test_a_drain_of_a_wider_lane_speeds_up_no_lane_that_has_a_lower_limit(lanes: World) -> None:
    limit(lanes.ctx, ROUTE, "send", "crm:443", rate="1/s", by="ops", reason="go easy")
    pause(lanes.ctx, ROUTE, "send", "crm:443", drain="5/s", **OPS)
    lanes.add("a", "b", to="desk@crm:443")
    lanes.add("c", to="crm:443")
    resume(lanes.ctx, ROUTE, "send", "crm:443", by="ops", reason="it is back")
    assert len(worked(lanes)) == 1
    lanes.clock.advance("500ms")
    assert worked(lanes) == []
