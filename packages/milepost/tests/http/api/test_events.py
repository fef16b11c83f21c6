"""The feed of events: pages, and streams that lose nothing and repeat nothing, however often they
break off."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from tests.http.event_listener import EVENTS, Listener
from tests.http.guarded_server import guarded_server
from tests.http.live_server import LiveServer, running_server
from tests.polling import wait_until

import milepost as mp
from milepost.core.errors import LedgerBusy
from milepost.http.api import events as events_module
from milepost.http.state import event_stream as feed_module
from milepost.subscribers import CallSubscriber


def ids(events: list[Any]) -> list[str]:
    return [event["id"] for event in events]


def everything(live_server: LiveServer, query: str = "") -> list[dict[str, Any]]:
    answer = live_server.call("GET", f"{EVENTS}?limit=1000{query}")
    assert answer.status == 200, answer
    return answer.body["events"]


def through_weigh(live_server: LiveServer, *keys: str, route: str = "parcels") -> None:
    """Three events each: accepted; advanced and offered, of one line."""
    live_server.milepost.submit(route, *({"id": key} for key in keys))
    live_server.work()


def test_a_page_has_the_events_in_order_with_their_places(live_server: LiveServer) -> None:
    through_weigh(live_server, "a")
    body = live_server.call("GET", EVENTS).body
    assert [(event["seq"], event["type"]) for event in body["events"]] == [
        (1, "milepost.item.accepted"),
        (2, "milepost.item.advanced"),
        (2, "milepost.item.offered"),
    ]
    assert (body["next"], body["more"]) == ("2", False)
    assert body["events"][2]["data"]["payload"] == {"grams": 340}


@pytest.mark.parametrize("limit", [1, 2, 4])
def test_pages_of_any_size_make_up_the_whole(live_server: LiveServer, limit: int) -> None:
    through_weigh(live_server, "a", "b", "c")
    after, found = "0", []
    while True:
        body = live_server.call("GET", f"{EVENTS}?limit={limit}&after={after}").body
        assert len(body["events"]) <= limit
        found += body["events"]
        after = body["next"]
        if not body["more"]:
            break
    assert ids(found) == ids(everything(live_server))
    assert len(found) == 9
    assert live_server.call("GET", f"{EVENTS}?after={after}").body["events"] == []


def test_a_page_of_what_is_wanted_goes_on_behind_what_is_not(live_server: LiveServer) -> None:
    through_weigh(live_server, "a")
    through_weigh(live_server, "b", route="letters")
    body = live_server.call("GET", f"{EVENTS}?route=letters&kind=accepted&kind=offered").body
    assert [(event["subject"], event["data"]["reason"]) for event in body["events"]] == [
        ("b", "accepted"),
        ("b", "offered"),
    ]
    assert live_server.call("GET", f"{EVENTS}?kind=completed").body == {
        "events": [],
        "next": "4",
        "more": False,
    }


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
def test_a_wrong_question_is_told_what_is_wrong(
    shared_server: LiveServer, query: str, status: int, code: str, field: str
) -> None:
    for accept in ("application/json", "text/event-stream"):
        answer = shared_server.call("GET", f"{EVENTS}?{query}", headers={"Accept": accept})
        assert (answer.status, answer.body["code"], answer.body["field"]) == (status, code, field)


def test_a_listener_hears_what_happens_from_now_on(live_server: LiveServer) -> None:
    through_weigh(live_server, "before")
    listener = Listener(live_server)
    assert listener.headers["content-type"].startswith("text/event-stream")
    assert listener.place == "2"
    through_weigh(live_server, "a")
    heard = listener.take(3)
    listener.close()
    assert [(one.id, one.kind) for one in heard] == [
        ("3", "accepted"),
        ("4.1", "advanced"),
        ("4", "offered"),
    ]
    assert [one.data for one in heard] == everything(live_server)[3:]


def test_a_listener_goes_on_from_any_place_without_loss_and_without_repeat(
    live_server: LiveServer,
) -> None:
    through_weigh(live_server, "a", "b", "c")
    whole = ids(everything(live_server))
    first = Listener(live_server, "?after=0")
    places = [one.id for one in first.take(len(whole))]
    first.close()
    for told, place in enumerate(places, 1):
        # The address is the one that it began with, as a browser's is.
        again = Listener(live_server, "?after=0", last=place)
        assert again.place == place
        rest = [one.data["id"] for one in again.take(len(whole) - told)]
        again.close()
        assert whole[:told] + rest == whole


def test_a_long_past_is_followed_by_what_is_new(live_server: LiveServer) -> None:
    live_server.milepost.submit("parcels", *({"id": f"old-{number}"} for number in range(1_100)))
    listener = Listener(live_server, "?after=0")
    assert [one.data["subject"] for one in listener.take(1_100)] == [
        f"old-{number}" for number in range(1_100)
    ]
    live_server.milepost.submit("parcels", {"id": "new"})
    assert listener.next().data["subject"] == "new"
    listener.close()


def test_what_is_written_while_the_past_is_read_is_not_lost(
    live_server: LiveServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed_module, "KEPT", 2)
    live_server.milepost.submit("parcels", {"id": "k0"}, {"id": "k1"})
    ledger = Slow(live_server.ctx.ledger)
    monkeypatch.setattr(live_server.ctx, "ledger", ledger)
    live, late = Listener(live_server), Listener(live_server, "?after=0")
    assert ledger.has_read.wait(60)
    live_server.milepost.submit("parcels", *({"id": f"k{number}"} for number in range(2, 12)))
    wait_until(lambda: live_server.opened.state.feed._start > 5)
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


def test_a_ledger_that_cannot_be_read_for_a_while_costs_no_event(
    live_server: LiveServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed_module, "TROUBLE_S", 0.01)
    listener = Listener(live_server)
    real, failed = live_server.ctx.ledger.feed, threading.Event()

    def feed(after: int, limit: int) -> Any:
        if not failed.is_set():
            failed.set()
            raise LedgerBusy("not now")
        return real(after, limit)

    monkeypatch.setattr(live_server.ctx.ledger, "feed", feed)
    assert failed.wait(60)
    live_server.milepost.submit("parcels", {"id": "a"})
    assert listener.next().data["subject"] == "a"
    listener.close()


def test_fifty_listeners_share_one_reader(
    live_server: LiveServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = Counting(live_server.ctx.ledger)
    monkeypatch.setattr(live_server.ctx, "ledger", reads)
    listeners = [Listener(live_server) for _ in range(50)]
    for number in range(20):
        live_server.milepost.submit("parcels", {"id": f"item-{number}"})
    for listener in listeners:
        assert [one.data["subject"] for one in listener.take(20)] == [
            f"item-{number}" for number in range(20)
        ]
    # All that was read was read by the one reader.
    assert reads.feeds <= live_server.opened.state.feed.reads
    for listener in listeners:
        listener.close()
    wait_until(lambda: live_server.opened.state.feed.listeners == 0)


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


def test_a_listener_that_has_gone_is_noticed_and_nobody_reads_for_nobody(
    live_server: LiveServer,
) -> None:
    feed = live_server.opened.state.feed
    listener = Listener(live_server)
    assert feed.listeners == 1
    listener.close()
    wait_until(lambda: feed.listeners == 0 and feed._reader is not None and feed._reader.done())
    again = Listener(live_server)
    live_server.milepost.submit("parcels", {"id": "a"})
    assert again.next().data["subject"] == "a"
    again.close()


def test_a_listener_that_takes_nothing_holds_up_nobody_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed_module, "KEPT", 20)
    route = mp.Route("crates", key="id")
    route.external("deliver")
    keys = [f"crate-{number}" for number in range(200)]
    with running_server(tmp_path, route) as live_server:
        lazy, eager = Listener(live_server), Listener(live_server, "?kind=accepted")
        for start in range(0, 200, 10):
            # More than the connection's own buffers take.
            live_server.milepost.submit(
                "crates",
                *({"id": key, "ballast": "x" * 50_000} for key in keys[start : start + 10]),
            )
        assert [one.data["subject"] for one in eager.take(200)] == keys
        feed = live_server.opened.state.feed
        assert len(feed._kept) <= 20 < feed._start
        heard = lazy.take(400)
        assert [one.data["subject"] for one in heard] == [key for key in keys for _ in range(2)]
        assert [one.kind for one in heard] == ["accepted", "offered"] * 200
        lazy.close()
        eager.close()


def test_a_listener_that_takes_nothing_for_long_is_let_go_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events_module, "STALLED_S", 0.1)
    route = mp.Route("crates", key="id")
    route.external("deliver")
    with running_server(tmp_path, route) as live_server:
        lazy = Listener(live_server)
        for start in range(0, 200, 10):
            live_server.milepost.submit(
                "crates",
                *({"id": f"crate-{start + n}", "ballast": "x" * 50_000} for n in range(10)),
            )
        wait_until(lambda: live_server.opened.state.feed.listeners == 0)
        lazy.close()


def test_asking_for_the_head_of_a_stream_ends(live_server: LiveServer) -> None:
    assert live_server.call("HEAD", EVENTS, headers={"Accept": "text/event-stream"}).status == 200
    assert live_server.opened.state.feed.listeners == 0


def test_a_heartbeat_moves_the_place_on_though_nothing_was_wanted(live_server: LiveServer) -> None:
    live_server.opened.state.feed.heartbeat_s = 0.02
    listener = Listener(live_server, "?kind=completed")
    assert listener.place == "0"
    through_weigh(live_server, "a")
    while (block := listener.block())["id"] != "2":
        assert block == {"": "here", "id": "0"} or block == {"": "here", "id": "1"}
    assert block == {"": "here", "id": "2"}
    listener.close()


def test_a_stream_ends_when_the_server_stops(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("milepost.http.server.listener.GRACE_S", 30)
    with running_server(tmp_path) as live_server:
        listener = Listener(live_server)
    assert listener.block() == {}
    listener.close()
    # Nothing had to be cut off.
    assert [
        record.message
        for record in caplog.records
        if record.name.startswith("uvicorn") and record.levelname == "ERROR"
    ] == []


def test_too_many_listeners_are_refused(
    live_server: LiveServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("milepost.http.api.events.MOST", 1)
    listener = Listener(live_server)
    answer = live_server.call("GET", EVENTS, headers={"Accept": "text/event-stream"})
    assert (answer.status, answer.body["code"]) == (429, "too-many")
    assert live_server.call("GET", EVENTS).status == 200
    listener.close()


def test_a_key_for_one_route_hears_of_that_route_only(tmp_path: Path) -> None:
    with guarded_server(f"sqlite:///{tmp_path}/ledger.db") as live_server:
        key = live_server.key("read", routes=["letters"])
        listener = Listener(live_server, key=key)
        for number in range(3):
            live_server.milepost.submit("parcels", {"id": f"p-{number}"})
            live_server.milepost.submit("letters", {"id": f"l-{number}"})
        assert [one.data["subject"] for one in listener.take(3)] == ["l-0", "l-1", "l-2"]
        listener.close()
        page = live_server.call("GET", EVENTS, key=key).body
        assert [event["subject"] for event in page["events"]] == ["l-0", "l-1", "l-2"]
        assert live_server.call("GET", f"{EVENTS}?route=parcels", key=key).status == 404
        assert live_server.call("GET", EVENTS).status == 401


def test_a_listener_whose_key_is_revoked_hears_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events_module, "CHECK_S", 0.0)
    with guarded_server(f"sqlite:///{tmp_path}/ledger.db") as live_server:
        live_server.key("read", name="other")
        listener = Listener(live_server, key=live_server.key("read"))
        live_server.milepost.submit("parcels", {"id": "a"})
        assert listener.next().data["subject"] == "a"
        live_server.revoke()
        live_server.ticks.now += 10
        live_server.milepost.submit("parcels", {"id": "b"})
        assert listener.block() == {}
        listener.close()


def test_the_feed_of_a_ledger_on_aws(aws_server: LiveServer) -> None:
    aws_server.milepost.submit("parcels", {"id": "a"})
    aws_server.work()
    wait_until(lambda: len(everything(aws_server)) >= 3)
    listener = Listener(aws_server, "?after=0")
    assert [one.data["id"] for one in listener.take(3)] == ids(everything(aws_server))[:3]
    listener.close()


def test_readers_of_the_feed_see_no_secret_of_a_payload_and_subscribers_get_it(
    tmp_path: Path,
) -> None:
    route = mp.Route("parcels", key="id")
    route.external("deliver")
    received: list[Any] = []
    with mp.open(
        f"sqlite:///{tmp_path / 'm.db'}",
        routes=[route],
        subscribers=[CallSubscriber(received.append)],
    ) as milepost:
        milepost.submit("parcels", {"id": "a", "token": "SENDERSECRET"})
        milepost.run(until_idle=0)
    assert "SENDERSECRET" in str(received)
    with running_server(tmp_path, route, ledger=f"sqlite:///{tmp_path / 'm.db'}") as at:
        [offered] = [event for event in everything(at) if event["type"] == "milepost.item.offered"]
        assert offered["data"]["payload"] == {"id": "a", "token": "…"}
        listener = Listener(at, "?after=0")
        assert "SENDERSECRET" not in str(listener.take(2))
        listener.close()
