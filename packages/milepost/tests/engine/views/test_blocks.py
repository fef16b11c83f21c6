"""What keeps an item from being started: the rule, and that every list says the same as the view of
the single item."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import milepost as mp
from milepost.core.admission.breakers import BreakerRecord
from milepost.core.admission.controls import Hold, scope
from milepost.core.item import Item, Row
from milepost.core.status import Status
from milepost.engine.acts.controls import pause
from milepost.engine.breakers import BreakerView
from milepost.engine.views.blocks import UNBLOCKED, BlockedLanes, blocks_of
from milepost.engine.views.items import row_view, show
from milepost.engine.views.late_items import nearest
from milepost.engine.views.story import story
from milepost.ports.documents import BREAKER
from milepost.ports.items import Query

SIGNED = {"by": "ops", "reason": "the library is moved"}
LANE = "shop@host:443"


def orders() -> mp.Route:
    route = mp.Route("orders", key="id")
    retry = mp.Backoff(attempts=3, base=60, jitter=0)
    route.stage("ship", lane=lambda content: content["lane"], retry=retry, breaker=mp.Breaker())(
        lambda item: mp.Done()
    )
    route.stage("bill", lane=lambda content: content["lane"])(lambda item: mp.Done())
    return route


@pytest.fixture
def post(tmp_path: Path) -> Any:
    with mp.open(f"sqlite:///{tmp_path}/orders.db", [orders()]) as opened:
        opened.submit("orders", {"id": "a", "lane": LANE}, {"id": "b", "lane": "north"})
        yield opened


def row_of(post: mp.Milepost, key: str) -> Row:
    [item] = post.context.ledger.get([("orders", key)])
    assert isinstance(item, Item)
    return item.row


def open_breaker(post: mp.Milepost, lane: str) -> None:
    now = post.context.clock.now()
    record = BreakerRecord(opened_at=now, retry_at=now + 60_000, trips=1, error="HTTP 503: closed")
    post.context.ledger.write(BREAKER, scope("orders", "ship", lane), record)


# The rule -----------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "name", ["orders", "orders/ship", "orders/ship/host:443", f"orders/ship/{LANE}"]
)
def test_pauses_of_route_stage_wider_lane_and_lane_block(post: mp.Milepost, name: str) -> None:
    pauses = {
        name: Hold(1, "ops", "why"),
        "orders/bill": Hold(1, "ops", "x"),
        "orders/ship/other": Hold(1, "ops", "x"),
    }
    blocks = blocks_of(row_of(post, "a"), pauses, {})
    assert [found for found, _ in blocks.pauses] == [name]
    assert (blocks.word, blocks.text) == ("paused", f"{name} is paused by ops: why")


def test_the_widest_pause_comes_first(post: mp.Milepost) -> None:
    names = ["orders", "orders/ship", "orders/ship/host:443", f"orders/ship/{LANE}"]
    pauses = dict.fromkeys(reversed(names), Hold(1, "ops", "why"))
    assert [name for name, _ in blocks_of(row_of(post, "a"), pauses, {}).pauses] == names


def test_an_ended_item_is_never_blocked_and_a_claimed_one_by_no_breaker(post: mp.Milepost) -> None:
    row = row_of(post, "a")
    pauses = {"orders": Hold(1, "ops", "why")}
    breaker = BreakerView(
        f"orders/ship/{LANE}", "orders", "ship", LANE, "open", None, None, 1, [], "HTTP 503"
    )
    breakers = {breaker.scope: breaker}
    assert blocks_of(replace(row, status=Status.COMPLETED), pauses, breakers) is UNBLOCKED
    claimed = blocks_of(replace(row, status=Status.PROCESSING), pauses, breakers)
    assert ([name for name, _ in claimed.pauses], claimed.breaker) == (["orders"], None)
    assert blocks_of(row, {}, breakers).word == "breaker open"
    assert blocks_of(row, {}, {}) is UNBLOCKED


# Single views and lists ---------------------------------------------------------------------------
def all_views(post: mp.Milepost, key: str) -> list[dict[str, Any]]:
    """The item as each list and the single view show it."""
    ctx = post.context
    lanes = BlockedLanes(ctx, "orders")
    [item] = ctx.ledger.get([("orders", key)])
    assert isinstance(item, Item)
    single = show(ctx, "orders", key)
    assert single is not None
    found = [single, row_view(item, lanes.of(item.row))]
    found += [view for view in post.items("orders") if view["key"] == key]
    found += [view for view in post.item_page("orders").items if view["key"] == key]
    assert len(found) == 4
    return found


def test_every_list_names_the_pause_that_the_single_view_names(post: mp.Milepost) -> None:
    pause(post.context, "orders", "ship", "host:443", **SIGNED, until="2h")
    for view in all_views(post, "a"):
        assert view["blocked"] == "paused"
        assert (
            view["blocked_because"] == "orders/ship/host:443 is paused by ops: the library is moved"
        )
        [named] = view["pauses"]
        assert (named["scope"], named["by"], named["reason"]) == (
            "orders/ship/host:443",
            "ops",
            "the library is moved",
        )
        assert named["since"] < named["until"]
    for view in all_views(post, "b"):
        assert (view["blocked"], view["blocked_because"], view["pauses"], view["breaker"]) == (
            None,
            None,
            [],
            None,
        )
    late, _ = nearest(post.context, Query(route="orders"), 10)
    assert {one.item.key: one.why for one in late}[
        "a"
    ] == "orders/ship/host:443 is paused by ops: the library is moved"


def test_every_list_names_the_open_breaker_that_the_single_view_names(post: mp.Milepost) -> None:
    open_breaker(post, "north")
    told = story(post.context, "orders", "b")
    assert told is not None
    assert (
        "The breaker of orders/ship/north is open; the last failure: HTTP 503: closed." in told.why
    )
    for view in all_views(post, "b"):
        assert view["blocked"] == "breaker open"
        assert (
            view["blocked_because"]
            == "the breaker of orders/ship/north is open; the last failure: HTTP 503: closed"
        )
        assert (view["breaker"]["scope"], view["breaker"]["error"]) == (
            "orders/ship/north",
            "HTTP 503: closed",
        )
    for view in all_views(post, "a"):
        assert view["blocked"] is None


def test_a_list_reads_the_pauses_once(post: mp.Milepost, monkeypatch: pytest.MonkeyPatch) -> None:
    kinds: list[str] = []
    ledger = post.context.ledger
    read = ledger.read

    def counted(kind: str) -> Any:
        kinds.append(kind)
        return read(kind)

    monkeypatch.setattr(ledger, "read", counted)
    post.submit("orders", *({"id": f"c{n}", "lane": "north"} for n in range(50)))
    kinds.clear()
    assert len(post.items("orders")) == 52
    assert kinds.count("hold") == 1
    assert kinds.count("breaker") == 1
