"""The feed of events: pages, and streams that lose nothing and repeat nothing, however often they break off."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from tests.http.event_listener import EVENTS, Listener
from tests.http.guarded_server import guarded
from tests.http.live_server import Visitor, visiting
from tests.polling import wait_until

import milepost as mp
from milepost.core.errors import LedgerBusy
from milepost.http.api import events as events_module
from milepost.http.state import event_stream as feed_module


def ids(events: list[Any]) -> list[str]:
    return [event["id"] for event in events]


def everything(door: Visitor, query: str = "") -> list[dict[str, Any]]:
    answer = door.call("GET", f"{EVENTS}?limit=1000{query}")
    assert answer.status == 200, answer
    return answer.body["events"]


def through_weigh(door: Visitor, *keys: str, route: str = "parcels") -> None:
    """Three events each: accepted; advanced and offered, of one line."""
    door.milepost.submit(route, *({"id": key} for key in keys))
    door.work()


def test_a_page_has_the_events_in_order_with_their_places(door: Visitor) -> None:
    through_weigh(door, "a")
    body = door.call("GET", EVENTS).body
    assert [(event["seq"], event["type"]) for event in body["events"]] == [
        (1, "milepost.item.accepted"),
        (2, "milepost.item.advanced"),
        (2, "milepost.item.offered"),
    ]
    assert (body["next"], body["more"]) == ("2", False)
    assert body["events"][2]["data"]["payload"] == {"grams": 340}


@pytest.mark.parametrize("limit", [1, 2, 4])
def test_pages_of_any_size_make_up_the_whole(door: Visitor, limit: int) -> None:
    through_weigh(door, "a", "b", "c")
    after, found = "0", []
    while True:
        body = door.call("GET", f"{EVENTS}?limit={limit}&after={after}").body
        assert len(body["events"]) <= limit
        found += body["events"]
        after = body["next"]
        if not body["more"]:
            break
    assert ids(found) == ids(everything(door))
    assert len(found) == 9
    assert door.call("GET", f"{EVENTS}?after={after}").body["events"] == []


def test_a_page_of_what_is_wanted_goes_on_behind_what_is_not(door: Visitor) -> None:
    through_weigh(door, "a")
    through_weigh(door, "b", route="letters")
    body = door.call("GET", f"{EVENTS}?route=letters&kind=accepted&kind=offered").body
    assert [(event["subject"], event["data"]["reason"]) for event in body["events"]] == [("b", "accepted"), ("b", "offered")]
    assert door.call("GET", f"{EVENTS}?kind=completed").body == {"events": [], "next": "4", "more": False}


@pytest.mark.parametrize(
    ("query", "status", "code", "field"),
    [
        ("after=x", 400, "wrong-value", "after"),
        ("after=3", 400, "wrong-value", "after"),
        ("after=3.1", 400, "wrong-value", "after"),
        ("limit=0", 400, "wrong-value", "limit"),
        ("kind=born", 400, "wrong-value", "kind"),
        ("kind=claimed", 400, "wrong-value", "kind"),
        ("route=nowhere", 404, "unknown-route", "route"),
        ("since=1", 400, "wrong-value", "since"),
    ],
)
def test_a_wrong_question_is_told_what_is_wrong(shared_door: Visitor, query: str, status: int, code: str, field: str) -> None:
    for accept in ("application/json", "text/event-stream"):
        answer = shared_door.call("GET", f"{EVENTS}?{query}", headers={"Accept": accept})
        assert (answer.status, answer.body["code"], answer.body["field"]) == (status, code, field)


def test_a_listener_hears_what_happens_from_now_on(door: Visitor) -> None:
    through_weigh(door, "before")
    listener = Listener(door)
    assert listener.headers["content-type"].startswith("text/event-stream")
    assert listener.place == "2"
    through_weigh(door, "a")
    heard = listener.take(3)
    listener.close()
    assert [(one.id, one.kind) for one in heard] == [("3", "accepted"), ("4.1", "advanced"), ("4", "offered")]
    assert [one.data for one in heard] == everything(door)[3:]


def test_a_listener_goes_on_from_any_place_without_loss_and_without_repeat(door: Visitor) -> None:
    through_weigh(door, "a", "b", "c")
    whole = ids(everything(door))
    first = Listener(door, "?after=0")
    places = [one.id for one in first.take(len(whole))]
    first.close()
    for told, place in enumerate(places, 1):
        # The address is the one that it began with, as a browser's is.
        again = Listener(door, "?after=0", last=place)
        assert again.place == place
        rest = [one.data["id"] for one in again.take(len(whole) - told)]
        again.close()
        assert whole[:told] + rest == whole


def test_a_long_past_is_followed_by_what_is_new(door: Visitor) -> None:
    door.milepost.submit("parcels", *({"id": f"old-{number}"} for number in range(1_100)))
    listener = Listener(door, "?after=0")
    assert [one.data["subject"] for one in listener.take(1_100)] == [f"old-{number}" for number in range(1_100)]
    door.milepost.submit("parcels", {"id": "new"})
    assert listener.next().data["subject"] == "new"
    listener.close()


def test_what_is_written_while_the_past_is_read_is_not_lost(door: Visitor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed_module, "KEPT", 2)
    door.milepost.submit("parcels", {"id": "k0"}, {"id": "k1"})
    ledger = Slow(door.ctx.ledger)
    monkeypatch.setattr(door.ctx, "ledger", ledger)
    live, late = Listener(door), Listener(door, "?after=0")
    assert ledger.has_read.wait(60)
    door.milepost.submit("parcels", *({"id": f"k{number}"} for number in range(2, 12)))
    wait_until(lambda: door.door.state.observability.feed._start > 5)
    ledger.go_on.set()
    assert [one.data["subject"] for one in late.take(12)] == [f"k{number}" for number in range(12)]
    live.close()
    late.close()


class Slow:
    """A ledger that reads the past, and then keeps whoever asked for it waiting."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.has_read, self.go_on = threading.Event(), threading.Event()

    def feed(self, after: int, limit: int) -> Any:
        lines = self._inner.feed(after, limit)
        if limit == feed_module.STEP:
            self.has_read.set()
            self.go_on.wait(60)
        return lines

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def test_a_ledger_that_cannot_be_read_for_a_while_costs_no_event(door: Visitor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed_module, "TROUBLE_S", 0.01)
    listener = Listener(door)
    real, failed = door.ctx.ledger.feed, threading.Event()

    def feed(after: int, limit: int) -> Any:
        if not failed.is_set():
            failed.set()
            raise LedgerBusy("not now")
        return real(after, limit)

    monkeypatch.setattr(door.ctx.ledger, "feed", feed)
    assert failed.wait(60)
    door.milepost.submit("parcels", {"id": "a"})
    assert listener.next().data["subject"] == "a"
    listener.close()


def test_fifty_listeners_share_one_reader(door: Visitor, monkeypatch: pytest.MonkeyPatch) -> None:
    reads = Counting(door.ctx.ledger)
    monkeypatch.setattr(door.ctx, "ledger", reads)
    listeners = [Listener(door) for _ in range(50)]
    for number in range(20):
        door.milepost.submit("parcels", {"id": f"item-{number}"})
    for listener in listeners:
        assert [one.data["subject"] for one in listener.take(20)] == [f"item-{number}" for number in range(20)]
    # All that was read was read by the one reader.
    assert reads.feeds <= door.door.state.observability.feed.reads
    for listener in listeners:
        listener.close()
    wait_until(lambda: door.door.state.observability.feed.listeners == 0)


class Counting:
    """A ledger that counts how often it is asked for lines."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.feeds = 0

    def feed(self, after: int, limit: int) -> Any:
        self.feeds += 1
        return self._inner.feed(after, limit)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def test_a_listener_that_has_gone_is_noticed_and_nobody_reads_for_nobody(door: Visitor) -> None:
    feed = door.door.state.observability.feed
    listener = Listener(door)
    assert feed.listeners == 1
    listener.close()
    wait_until(lambda: feed.listeners == 0 and feed._reader is not None and feed._reader.done())
    again = Listener(door)
    door.milepost.submit("parcels", {"id": "a"})
    assert again.next().data["subject"] == "a"
    again.close()


def test_a_listener_that_takes_nothing_holds_up_nobody_and_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed_module, "KEPT", 20)
    route = mp.Route("crates", key="id")
    route.external("deliver")
    keys = [f"crate-{number}" for number in range(200)]
    with visiting(tmp_path, route) as door:
        lazy, eager = Listener(door), Listener(door, "?kind=accepted")
        for start in range(0, 200, 10):
            # More than the connection's own buffers take.
            door.milepost.submit("crates", *({"id": key, "ballast": "x" * 50_000} for key in keys[start : start + 10]))
        assert [one.data["subject"] for one in eager.take(200)] == keys
        feed = door.door.state.observability.feed
        assert len(feed._kept) <= 20 < feed._start
        heard = lazy.take(400)
        assert [one.data["subject"] for one in heard] == [key for key in keys for _ in range(2)]
        assert [one.kind for one in heard] == ["accepted", "offered"] * 200
        lazy.close()
        eager.close()


def test_a_listener_that_takes_nothing_for_long_is_let_go_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events_module, "STALLED_S", 0.1)
    route = mp.Route("crates", key="id")
    route.external("deliver")
    with visiting(tmp_path, route) as door:
        lazy = Listener(door)
        for start in range(0, 200, 10):
            door.milepost.submit("crates", *({"id": f"crate-{start + n}", "ballast": "x" * 50_000} for n in range(10)))
        wait_until(lambda: door.door.state.observability.feed.listeners == 0)
        lazy.close()


def test_asking_for_the_head_of_a_stream_ends(door: Visitor) -> None:
    assert door.call("HEAD", EVENTS, headers={"Accept": "text/event-stream"}).status == 200
    assert door.door.state.observability.feed.listeners == 0


def test_a_heartbeat_moves_the_place_on_though_nothing_was_wanted(door: Visitor) -> None:
    door.door.state.observability.feed.heartbeat_s = 0.02
    listener = Listener(door, "?kind=completed")
    assert listener.place == "0"
    through_weigh(door, "a")
    while (block := listener.block())["id"] != "2":
        assert block == {"": "here", "id": "0"} or block == {"": "here", "id": "1"}
    assert block == {"": "here", "id": "2"}
    listener.close()


def test_a_stream_ends_when_the_server_stops(tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("milepost.http.server.listener.GRACE_S", 30)
    with visiting(tmp_path) as door:
        listener = Listener(door)
    assert listener.block() == {}
    listener.close()
    # Nothing had to be cut off.
    assert [record.message for record in caplog.records if record.name.startswith("uvicorn") and record.levelname == "ERROR"] == []


def test_too_many_listeners_are_refused(door: Visitor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("milepost.http.api.events.MOST", 1)
    listener = Listener(door)
    answer = door.call("GET", EVENTS, headers={"Accept": "text/event-stream"})
    assert (answer.status, answer.body["code"]) == (429, "too-many")
    assert door.call("GET", EVENTS).status == 200
    listener.close()


def test_a_key_for_one_route_hears_of_that_route_only(tmp_path: Path) -> None:
    with guarded(f"sqlite:///{tmp_path}/ledger.db") as door:
        key = door.key("read", routes=["letters"])
        listener = Listener(door, key=key)
        for number in range(3):
            door.milepost.submit("parcels", {"id": f"p-{number}"})
            door.milepost.submit("letters", {"id": f"l-{number}"})
        assert [one.data["subject"] for one in listener.take(3)] == ["l-0", "l-1", "l-2"]
        listener.close()
        page = door.call("GET", EVENTS, key=key).body
        assert [event["subject"] for event in page["events"]] == ["l-0", "l-1", "l-2"]
        assert door.call("GET", f"{EVENTS}?route=parcels", key=key).status == 404
        assert door.call("GET", EVENTS).status == 401


def test_a_listener_whose_key_is_revoked_hears_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events_module, "CHECK_S", 0.0)
    with guarded(f"sqlite:///{tmp_path}/ledger.db") as door:
        door.key("read", name="other")
        listener = Listener(door, key=door.key("read"))
        door.milepost.submit("parcels", {"id": "a"})
        assert listener.next().data["subject"] == "a"
        door.revoke()
        door.ticks.now += 10
        door.milepost.submit("parcels", {"id": "b"})
        assert listener.block() == {}
        listener.close()


def test_the_feed_of_a_ledger_on_aws(aws_door: Visitor) -> None:
    aws_door.milepost.submit("parcels", {"id": "a"})
    aws_door.work()
    wait_until(lambda: len(everything(aws_door)) >= 3)
    listener = Listener(aws_door, "?after=0")
    assert [one.data["id"] for one in listener.take(3)] == ids(everything(aws_door))[:3]
    listener.close()
