"""Circuit breakers at work: a partner's outage uses no attempts of items that wait, and operators
see it and can end it."""

from __future__ import annotations

from typing import Any

import pytest
from tests.engine.work.stepped_worker import SteppedWorker, add, context, reasons, row, together

from milepost.core.errors import UsageError
from milepost.core.item import Item
from milepost.core.outcome import Done, Outcome, Retry
from milepost.core.routes.backoff import Backoff
from milepost.core.routes.breaker import Breaker
from milepost.core.routes.route import Limits, Route
from milepost.core.status import Reason, Status
from milepost.engine.act_log import all_acts
from milepost.engine.acts.controls import close_breakers
from milepost.engine.breakers import BreakerView, breaker_views
from milepost.engine.context import Context
from milepost.engine.health.doctor import doctor
from milepost.engine.metrics import ledger_families
from milepost.engine.views.items import status
from milepost.engine.views.story import story
from milepost.ports.documents import BREAKER
from milepost.ports.ledger import Ledger
from milepost_testing.audit import audit
from milepost_testing.clock import VirtualClock

SIGNED = {"by": "ops", "reason": "the partner is back"}


@pytest.mark.parametrize(
    ("trips", "said"),
    [(1, "is open; the last"), (2, "is open, and has opened 2 times in a row; the last")],
)
def test_a_breaker_says_how_often_it_has_opened(trips: int, said: str) -> None:
    view = BreakerView("r/s/a", "r", "s", "a", "open", None, None, trips, [], "connection refused")
    assert view.text == f"the breaker of r/s/a {said} failure: connection refused"


class Partners:
    """Partners that a stage calls, one for each lane; those in `down` fail."""

    def __init__(self, *down: str, down_after: int | None = None) -> None:
        self.down = set(down)
        self.down_after = down_after
        self.calls: list[tuple[str, str]] = []

    def call(self, item: Item) -> Outcome:
        self.calls.append((item.lane, item.key))
        if self.down_after is not None and len(self.calls) > self.down_after:
            self.down.add(item.lane)
        return Retry("connection refused") if item.lane in self.down else Done()


def route(partners: Partners, **options: Any) -> Route:
    made = Route("calls")
    settings: dict[str, Any] = {
        "breaker": Breaker(failures=3, cooldown="30s"),
        "retry": Backoff(attempts=4, base=1, jitter=0),
    }
    made.stage("deliver", lane=lambda content: content.get("to", ""), **(settings | options))(
        partners.call
    )
    return made


def opened(
    ledger: Ledger, clock: VirtualClock, partners: Partners, n: int = 20
) -> tuple[Context, SteppedWorker]:
    """A ledger where the partner `b` has been down for some seconds, with so many items for it."""
    ctx = context(ledger, clock, route(partners))
    add(ctx, "calls", *(f"b{number:02}" for number in range(n)), to="b")
    stepped = SteppedWorker(ctx, clock)
    stepped.work(5_000)
    return ctx, stepped


def test_an_outage_uses_few_attempts_and_ends_by_itself(
    ledger: Ledger, clock: VirtualClock
) -> None:
    partners = Partners("b")
    ctx, stepped = opened(ledger, clock, partners, 40)
    tried = len(partners.calls)
    add(ctx, "calls", *(f"a{number}" for number in range(20)), to="a")
    stepped.work(600_000)
    assert {row(ctx, "calls", f"a{number}").status for number in range(20)} == {Status.COMPLETED}, (
        "the other lane goes on"
    )
    again = [key for lane, key in partners.calls[tried:] if lane == "b"]
    assert len(again) <= 600 // 30 + 1, "one probe for each cooldown"
    waiting = [row(ctx, "calls", f"b{number:02}") for number in range(40)]
    assert sum(one.attempts for one in waiting) == len(again) + tried
    partners.down.clear()
    stepped.work(120_000)
    left = [
        one
        for one in (row(ctx, "calls", f"b{number:02}") for number in range(40))
        if not one.terminal
    ]
    assert left == []
    assert ledger.read(BREAKER) == {}
    audit(ledger, "calls", ctx.plan("calls"))


def test_items_in_hand_that_have_not_begun_are_given_back_when_it_opens(
    ledger: Ledger, clock: VirtualClock
) -> None:
    partners = Partners(down_after=300)
    ctx = context(
        ledger, clock, route(partners, concurrency=2, retry=Backoff(attempts=4, base="1h"))
    )
    names = [f"b{number:04}" for number in range(2_000)]
    add(ctx, "calls", *names, to="b")
    stepped = SteppedWorker(ctx, clock, deliver=5)
    stepped.work(5_000)
    given_back = [key for key in names if Reason.GIVEN_BACK in reasons(ctx, "calls", key)]
    assert given_back
    assert all(row(ctx, "calls", key).attempts == 0 for key in given_back)
    assert stepped.in_hand() == []
    assert len(partners.calls) < 320, (
        "of those in hand when it opened, only calls under way were still made"
    )


def test_two_processes_share_it(ledger: Ledger, clock: VirtualClock) -> None:
    partners = Partners("b")
    ctx = context(ledger, clock, route(partners))
    add(ctx, "calls", *(f"b{number:02}" for number in range(40)), to="b")
    one, two = SteppedWorker(ctx, clock, "host-1"), SteppedWorker(ctx, clock, "host-2", seed=1)
    together(clock, one, two, ms=5_000)
    tried = len(partners.calls)
    together(clock, one, two, ms=300_000)
    assert len(partners.calls) - tried <= 300 // 30 + 1


def test_a_lane_has_its_own_breaker_and_retries(ledger: Ledger, clock: VirtualClock) -> None:
    partners = Partners("b", "c")
    lanes = {
        "b": Limits(
            breaker=Breaker(failures=1, cooldown="1h"),
            retry=Backoff(attempts=2, base="10s", jitter=0),
        )
    }
    ctx = context(ledger, clock, route(partners, lanes=lanes, breaker=None))
    add(ctx, "calls", "b1", "b2", to="b")
    add(ctx, "calls", "c1", to="c")
    SteppedWorker(ctx, clock).work(60_000)
    assert [one.scope for one in breaker_views(ctx)] == ["calls/deliver/b"]
    assert row(ctx, "calls", "c1").status is Status.MAX_RETRIES_EXCEEDED, "no breaker: four tries"
    assert row(ctx, "calls", "b1").attempts + row(ctx, "calls", "b2").attempts <= 2


def test_operators_see_it_everywhere(ledger: Ledger, clock: VirtualClock) -> None:
    ctx, _ = opened(ledger, clock, Partners("b"))
    [view] = breaker_views(ctx)
    assert (view.scope, view.state, view.trips, view.lane) == ("calls/deliver/b", "open", 1, "b")
    assert "connection refused" in view.error
    told = story(ctx, "calls", "b19")
    assert told is not None
    assert any(
        "breaker of calls/deliver/b is open" in text and "connection refused" in text
        for text in told.why
    )
    assert any(
        "uses no attempts" in text and "lets the first item through again" in text
        for text in told.next
    )
    [finding] = [one for one in doctor(ctx).findings if one.about == "breaker"]
    assert finding.next.startswith("milepost breakers close calls deliver --lane b")
    assert [one["state"] for one in status(ctx)["routes"]["calls"]["open_breakers"]] == ["open"]
    [family] = [one for one in ledger_families(ctx) if one.name == "milepost_breaker_open"]
    assert family.samples == {("calls", "deliver", "b"): 1.0}
    clock.advance(60)
    assert [one.state for one in breaker_views(ctx)] == ["half-open"]
    told = story(ctx, "calls", "b19")
    assert told is not None
    assert any("the next item that is due is let through" in text for text in told.next)


def test_an_operator_closes_it_with_name_and_reason(ledger: Ledger, clock: VirtualClock) -> None:
    partners = Partners("b")
    ctx, stepped = opened(ledger, clock, partners)
    partners.down.clear()
    with pytest.raises(UsageError, match="name and a reason"):
        close_breakers(ctx, "calls", "deliver", "b", by="", reason="")
    with pytest.raises(UsageError, match="no stage 'nope'"):
        close_breakers(ctx, "calls", "nope", **SIGNED)
    assert close_breakers(ctx, "calls", "deliver", "a", **SIGNED) == []
    assert close_breakers(ctx, "calls", "deliver", **SIGNED) == ["calls/deliver/b"]
    assert close_breakers(ctx, "calls", "deliver", **SIGNED) == []
    [act] = all_acts(ctx, "calls", "close-breaker")
    assert (act.by, act.reason, act.filter) == (
        "ops",
        "the partner is back",
        {"scope": "calls/deliver/b"},
    )
    stepped.work(5_000)
    assert {row(ctx, "calls", f"b{number:02}").status for number in range(20)} == {Status.COMPLETED}


def test_a_breaker_is_closed_although_a_worker_writes_it_at_the_same_moment(
    ledger: Ledger, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    ctx, _ = opened(ledger, clock, Partners("b"))
    write, counted = ctx.ledger.write, list[str]()

    def count_first(kind: str, name: str, value: object, **more: object) -> bool:
        if kind == BREAKER and not counted:
            counted.append(name)
            write(BREAKER, name, ctx.ledger.read(BREAKER)[name].value)
        return write(kind, name, value, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(ctx.ledger, "write", count_first)
    assert close_breakers(ctx, "calls", "deliver", **SIGNED) == counted == ["calls/deliver/b"]
    assert breaker_views(ctx) == []


def test_a_record_of_a_breaker_that_the_route_no_longer_has_holds_up_nothing(
    ledger: Ledger, clock: VirtualClock
) -> None:
    partners = Partners("b")
    ctx, _ = opened(ledger, clock, partners)
    partners.down.clear()
    without = context(ledger, clock, route(partners, breaker=None))
    assert breaker_views(without) == []
    SteppedWorker(without, clock, "host-9").work(60_000)
    assert {row(ctx, "calls", f"b{number:02}").status for number in range(20)} == {Status.COMPLETED}
