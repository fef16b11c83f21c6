"""Isolation of senders: what one sender's URL answers stops no other sender, and no other URL."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.net.partner import Line
from tests.notifications.partners import (
    ROUTE,
    Partner,
    Service,
    VirtualClock,
    key_of,
    message,
    service,
)

import milepost as mp
import milepost.application as mpa
from milepost.core.due import Lease
from milepost.engine.acts.controls import limit
from milepost.engine.auth import make_key
from milepost.ports.items import ClaimRequest
from milepost_net.url import parse_url
from milepost_notifications.destinations import origin_lane, sender_lane, url_pause

SIGNED = {"by": "ops", "reason": "a test"}
STATUS = re.compile(rb"/s(\d{3})")
MINUTE = 60_000


def by_path(line: Line) -> None:
    """`/s410` is answered with 410, and so on; all else with 204."""
    while (request := line.read()) is not None:
        named = STATUS.match(request.target.encode())
        if not line.answer(int(named[1]) if named else 204):
            return


@pytest.fixture
def partner() -> Iterator[Partner]:
    with Partner(by_path) as opened:
        yield opened


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


def post(at: Service, url: str, sender: str, message_id: str) -> dict[str, Any]:
    sent = message(url, senderId=sender, messageId=message_id)
    assert at.post(sent).status == 200
    return sent


def statuses(at: Service, *sent: dict[str, Any]) -> set[str]:
    return {at.item(one)["status"] for one in sent}


def host(partner: Partner) -> str:
    return f"127.0.0.1:{partner.port}"


@pytest.mark.parametrize("registered", [False, True])
def test_a_410_pauses_that_url_of_that_sender_alone(
    partner: Partner, clock: VirtualClock, registered: bool
) -> None:
    destinations = {"crm": {"url": partner.url, "concurrency": 1}} if registered else {}
    gone = f"{partner.url}s410?bob"
    with service(clock=clock, destinations=destinations) as at:
        first = post(at, gone, "bob", "b1")
        at.work()
        waiting = post(at, gone, "bob", "b2")
        others = [post(at, f"{partner.url}ok", "alice", f"a{number}") for number in range(3)]
        others.append(post(at, f"{partner.url}ok", "bob", "b3"))
        at.work()
        assert (statuses(at, first), statuses(at, *others)) == ({"REJECTED"}, {"COMPLETED"})
        assert (at.item(waiting)["status"], at.item(waiting)["attempts"]) == ("WAITING", 0)
        [pause] = at.app.pauses(ROUTE)
        name = url_pause("crm" if registered else host(partner), "bob", gone)
        assert pause.scope == f"{ROUTE}/deliver/{name}"
        resume, give_up = (shlex.split(one) for one in re.findall("`(milepost .+?)`", pause.reason))
        assert resume[:4] == ["milepost", "notifications", "resume", name]
        assert (give_up[4], give_up[6]) == ("senderId=bob", f"targetUrl={mp.url_in_key(gone)}")
        assert f"{mp.url_in_key(gone)} answered 410 Gone to bob" in pause.reason
        # It answers again: an operator resumes it.
        partner.script = lambda line: by_path(line)
        clock.advance("31s")
        at.work()
        assert statuses(at, waiting) == {"WAITING"}
        assert (
            at.call(
                "POST", f"/api/v1/notifications/destinations/{name}/resume", {"reason": "back"}
            ).status
            == 200
        )
        requests = len(partner.requests)
        at.work()
        assert len(partner.requests) == requests + 1, "the message that waited is tried again"


@pytest.mark.parametrize("status", [408, 425, 429])
def test_an_answer_that_asks_to_wait_opens_no_breaker(
    partner: Partner, clock: VirtualClock, status: int
) -> None:
    with service(
        clock=clock, destinations={"crm": {"url": partner.url}}, retry={"attempts": 50}
    ) as at:
        asked = [
            post(at, f"{partner.url}s{status}?bob", "bob", f"b{number}") for number in range(12)
        ]
        at.work()
        healthy = [post(at, f"{partner.url}ok?alice", "alice", f"a{number}") for number in range(3)]
        at.work()
        assert (statuses(at, *asked), statuses(at, *healthy)) == (
            {"RETRY_SCHEDULED"},
            {"COMPLETED"},
        )
        [lane] = at.milepost.lanes(ROUTE, "deliver", ["crm"])
        assert lane.breaker is None


def test_one_senders_failures_open_no_breaker_for_another_sender_at_the_same_host(
    partner: Partner, clock: VirtualClock
) -> None:
    with service(clock=clock, retry={"attempts": 50, "delays": ["1h"]}) as at:
        failing = [post(at, f"{partner.url}s503?bob", "bob", f"b{number}") for number in range(9)]
        at.work()
        healthy = [post(at, f"{partner.url}ok?alice", "alice", f"a{number}") for number in range(3)]
        at.work()
        assert statuses(at, *healthy) == {"COMPLETED"}
        lanes = {one.lane: one for one in at.milepost.lanes(ROUTE, "deliver", [])}
        assert [name for name, one in lanes.items() if one.breaker is not None] == [
            f"bob@{host(partner)}"
        ]
        assert statuses(at, *failing) <= {"RETRY_SCHEDULED", "QUEUED"}


def test_a_probe_at_a_registered_destination_is_of_another_sender_than_the_last_failures(
    partner: Partner, clock: VirtualClock
) -> None:
    destinations = {"crm": {"url": partner.url, "concurrency": 1}}
    with service(
        clock=clock,
        destinations=destinations,
        retry={"attempts": 50, "delays": ["1s"], "jitter": 0},
    ) as at:
        failing = [post(at, f"{partner.url}s503?bob", "bob", f"b{number}") for number in range(100)]
        at.work()
        [lane] = at.milepost.lanes(ROUTE, "deliver", ["crm"])
        assert lane.breaker is not None
        healthy = [post(at, f"{partner.url}ok?alice", "alice", f"a{number}") for number in range(3)]
        clock.advance("31s")
        before = len(partner.requests)
        at.work()
        assert statuses(at, healthy[0]) == {"COMPLETED"}
        assert partner.requests[before].target == "/ok?alice", (
            "the first probe is not one of bob's hundred"
        )
        assert statuses(at, *failing) <= {"RETRY_SCHEDULED", "QUEUED"}


def test_lanes_of_unregistered_targets_are_by_sender_and_origin(clock: VirtualClock) -> None:
    with service(clock=clock, destinations={"crm": {"url": "https://crm.example"}}) as at:
        lane_of = at.state.destinations.lane_of
        assert lane_of("https://crm.example/a", "bob") == "crm"
        assert (
            lane_of("https://hooks.example/a", "bob")
            == lane_of("https://hooks.example/b", "bob")
            == "bob@hooks.example:443"
        )
        assert lane_of("https://hooks.example/a", "amy") == "amy@hooks.example:443"
        assert lane_of("https://hooks.example/a") == "hooks.example:443", (
            "a message that does not say its sender"
        )


def test_no_two_senders_share_a_lane_however_long_their_names_are() -> None:
    origin = origin_lane(parse_url(f"https://{'h' * 60}.{'i' * 60}.{'j' * 60}.example/a"))
    lanes = {sender_lane(f"{'s' * 250}{number}", origin) for number in range(10)}
    lanes |= {sender_lane(name, origin) for name in ("a/b", "a%2Fb", "a@b", "~", "a")}
    assert len(lanes) == 15
    assert all(len(lane) <= 200 and "/" not in lane for lane in lanes)


# Ledgers of earlier versions ----------------------------------------------------------------------
def old_lane(
    at: Service, sent: dict[str, Any], monkeypatch: pytest.MonkeyPatch, partner: Partner
) -> None:
    """Accept this message as earlier versions did, in the lane HOST:PORT."""
    with monkeypatch.context() as patch:
        patch.setattr(
            type(at.state.destinations), "lane_of", lambda self, target, sender="": host(partner)
        )
        assert at.post(sent).status == 200
    assert at.item(sent)["lane"] == host(partner)


def test_a_message_in_a_lane_host_port_of_an_earlier_version_is_delivered_and_a_replay_moves_it(
    partner: Partner, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    with service(clock=clock) as at:
        good, bad = message(f"{partner.url}ok"), message(f"{partner.url}s404", messageId="m-2")
        old_lane(at, good, monkeypatch, partner)
        old_lane(at, bad, monkeypatch, partner)
        at.work()
        assert (statuses(at, good), statuses(at, bad)) == ({"COMPLETED"}, {"REJECTED"})
        at.call("POST", "/api/v1/notifications/replay", {"key": key_of(bad), "reason": "again"})
        assert at.item(bad)["lane"] == f"shop@{host(partner)}"


def test_a_pause_of_host_port_holds_the_messages_of_all_senders_before_and_after_the_upgrade(
    partner: Partner, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    with service(clock=clock) as at:
        at.milepost.pause(ROUTE, "deliver", host(partner), **SIGNED)
        old = message(f"{partner.url}ok")
        old_lane(at, old, monkeypatch, partner)
        new = post(at, f"{partner.url}ok", "bob", "b1")
        at.work()
        assert (statuses(at, old, new), partner.requests) == ({"QUEUED"}, [])
        said = at.call("GET", f"/api/v1/notifications/destinations/bob@{host(partner)}").body
        assert (said["state"], said["paused"]["reason"]) == ("paused", "a test")
        assert (
            at.call(
                "POST",
                f"/api/v1/notifications/destinations/{host(partner)}/resume",
                {"reason": "back"},
            ).status
            == 200
        )
        at.work()
        assert statuses(at, old, new) == {"COMPLETED"}


def test_a_limit_of_host_port_holds_for_all_senders_together(
    partner: Partner, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    with service(clock=clock) as at:
        limit(at.ctx, ROUTE, "deliver", host(partner), rate="1/h", **SIGNED)
        old_lane(at, message(f"{partner.url}ok", messageId="m-1"), monkeypatch, partner)
        for number in range(2):
            post(at, f"{partner.url}ok", "bob", f"b{number}")
            post(at, f"{partner.url}ok", "shop", f"s{number}")
        lanes = {
            one.lane: one for one in at.milepost.lanes(ROUTE, "deliver", [f"bob@{host(partner)}"])
        }
        assert [one.rate for one in lanes.values()] == [pytest.approx(1 / 3600)] * 2
        assert (lanes[host(partner)].waiting, lanes[f"bob@{host(partner)}"].waiting) == (5, 2)
        request = ClaimRequest(
            at.ctx.plan(ROUTE), "deliver", 100, Lease("token", "host:1", clock.now() + 60_000)
        )
        assert len(at.ctx.ledger.claim([request], clock.now(), 0.0)[0].items) == 1, (
            "one call in an hour, for all senders"
        )
        assert [one for one in at.findings() if one.level == "warn"] == []


# What senders see ---------------------------------------------------------------------------------
def test_a_sender_sees_neither_the_lanes_nor_the_paused_urls_of_others(
    partner: Partner, clock: VirtualClock
) -> None:
    with service(clock=clock) as at:
        post(at, f"{partner.url}s410?secret-of-bob", "bob", "b1")
        post(at, f"{partner.url}ok", "shop", "s1")
        at.work()
        at.state.collector.turn(at.app)
        shop = make_key(
            at.ctx, "shop", ["submit", "read"], attributes={"sender": "shop"}, **SIGNED
        )[1]
        person = make_key(at.ctx, "person", ["read"], **SIGNED)[1]
        api = "/api/v1/notifications/destinations"
        for path in (api, "/notifications"):
            mine, everyones = (
                at.call("GET", path, key=shop).raw,
                at.call("GET", path, key=person).raw,
            )
            assert (b"shop@" in mine, b"bob" in mine) == (True, False)
            assert (b"shop@" in everyones, b"bob" in everyones) == (True, True)
        [name] = [
            one["name"]
            for one in at.call("GET", api, key=person).body["destinations"]
            if one["name"].startswith("bob@")
        ]
        assert [at.call("GET", f"{api}/{name}", key=one).status for one in (shop, person)] == [
            404,
            200,
        ]


def test_on_sqlite_a_pause_of_a_url_is_known_to_a_process_that_starts_later(
    partner: Partner, clock: VirtualClock, tmp_path: Path
) -> None:
    ledger = f"sqlite:///{tmp_path}/ledger.db"
    with service(ledger, clock=clock) as at:
        post(at, f"{partner.url}s410", "bob", "b1")
        at.work()
    with service(ledger, clock=clock) as at:
        waiting = post(at, f"{partner.url}s410", "bob", "b2")
        at.work()
        assert (statuses(at, waiting), len(partner.requests)) == ({"WAITING"}, 1)
        assert isinstance(at.app, mpa.AppContext)
