"""Destinations over the API: add, remove, pause, outage, and the state that they show."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from tests.http.live_server import HttpAnswer
from tests.notifications.partners import (
    Partner,
    Service,
    VirtualClock,
    answers,
    key_of,
    message,
    service,
    wait_for,
)

import milepost_net as net
from milepost.core.values.durations import iso
from milepost.engine.auth import make_key
from milepost.engine.health.doctor import doctor
from milepost_notifications.operate.registry import refresh

API = "/api/v1/notifications"
SIGNED = {"by": "ops", "reason": "a test"}
BREAKER = {"failures": 2, "cooldown": "1h"}


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def partner() -> Iterator[Partner]:
    with Partner(answers(200)) as running:
        yield running


@pytest.fixture
def at(clock: VirtualClock, partner: Partner) -> Iterator[Service]:
    with service(
        clock=clock,
        destinations={"crm": {"url": partner.url}},
        retry={"attempts": 9},
        breaker=BREAKER,
    ) as running:
        yield running


def destination(at: Service, name: str = "crm") -> dict[str, Any]:
    body: dict[str, Any] = at.call("GET", f"{API}/destinations/{name}").body
    return body


def status(at: Service, sent: dict[str, Any]) -> tuple[str, int]:
    found = at.item(sent)
    return found["status"], found["total_attempts"]


def findings(at: Service) -> list[str]:
    return [one.what for one in doctor(at.ctx).findings if one.about == "notifications"]


def test_a_destination_is_added_replaced_and_removed(at: Service, partner: Partner) -> None:
    given = {
        "url": f"{partner.url}orders/",
        "headers": {"X-Team": "sales"},
        "rate": "5/s",
        "concurrency": 3,
    }
    put = at.call("PUT", f"{API}/destinations/orders", given)
    assert (
        put.status,
        put.body["registered"],
        put.body["rate_per_second"],
        put.body["concurrency"],
    ) == (200, "ledger", 5.0, 3)
    leaked = at.call(
        "PUT", f"{API}/destinations/orders", {**given, "headers": {"X-Api-Key": "k-1"}}
    )
    assert (
        leaked.status,
        '"env": {"X-Api-Key": "VARIABLE"}' in leaked.body["detail"],
        "k-1" in str(leaked.body),
    ) == (400, True, False)
    sent = message(f"{partner.url}orders/1")
    at.post(sent)
    at.milepost.run(until_idle=0)
    assert at.item(sent)["lane"] == "orders"
    assert partner.requests[0].headers["x-team"] == "sales"
    listed = at.call("GET", f"{API}/destinations").body["destinations"]
    assert [(one["name"], one["registered"]) for one in listed] == [
        ("crm", "configuration"),
        ("orders", "ledger"),
    ]
    wrong = at.call("PUT", f"{API}/destinations/orders", {"url": "ftp://x/"})
    assert (wrong.status, "destinations.orders.url" in wrong.body["detail"]) == (400, True)
    unknown = at.call("PUT", f"{API}/destinations/orders", {"url": partner.url, "colour": "red"})
    assert (unknown.status, "colour" in unknown.body["detail"]) == (400, True)
    assert at.call("DELETE", f"{API}/destinations/orders").status == 204
    assert at.call("GET", f"{API}/destinations/orders").status == 404
    fixed = at.call("DELETE", f"{API}/destinations/crm")
    assert (fixed.status, "[notifications.destinations.crm]" in fixed.body["detail"]) == (400, True)


def test_another_process_knows_an_added_destination(tmp_path: Any, partner: Partner) -> None:
    url = f"sqlite:///{tmp_path / 'milepost.db'}"
    with service(url) as first, service(url) as second:
        first.call("PUT", f"{API}/destinations/crm", {"url": partner.url})
        second.milepost.run(until_idle=0)
        assert second.state.destinations.lane_of(partner.url) == "crm"
        first.call("DELETE", f"{API}/destinations/crm")
        second.call("GET", f"{API}/destinations")
        assert second.state.destinations.lane_of(partner.url) != "crm"


def test_only_an_admin_changes_destinations_and_only_an_operator_pauses(at: Service) -> None:
    reader = make_key(at.ctx, "reader", ["read"], **SIGNED)[1]
    operator = make_key(at.ctx, "operator", ["operate"], **SIGNED)[1]
    assert at.call("PUT", f"{API}/destinations/x", {"url": "http://x/"}, key=operator).status == 403
    assert (
        at.call("POST", f"{API}/destinations/crm/pause", {"reason": "x"}, key=reader).status == 403
    )
    assert (
        at.call("POST", f"{API}/destinations/crm/pause", {"reason": "x"}, key=operator).status
        == 200
    )
    assert (
        at.call("GET", f"{API}/destinations", key=reader).body["destinations"][0]["paused"]["by"]
        == "operator"
    )


def test_an_outage_ends_at_a_time_of_day_in_the_zone_that_is_given(
    at: Service, clock: VirtualClock
) -> None:
    def begin(**body: str) -> HttpAnswer:
        return at.call(
            "POST", f"{API}/destinations/crm/outage", {"reason": "crm is being moved", **body}
        )

    until = datetime.fromisoformat(
        begin(until="18:00", zone="America/New_York").body["paused"]["until"]
    )
    local = until.astimezone(ZoneInfo("America/New_York"))
    assert (local.hour, local.minute, until > at.milepost.now()) == (18, 0, True)
    assert until - at.milepost.now() <= timedelta(days=1, hours=1)
    assert (
        begin(until="2199-01-31T18:00+02:00").body["paused"]["until"] == "2199-01-31T16:00:00.000Z"
    )
    assert (
        begin(until="2199-01-31 18:00", zone="+01:00").body["paused"]["until"]
        == "2199-01-31T17:00:00.000Z"
    )
    for body, text in (
        ({"until": "25:00"}, "until is '25:00'; it must be a time such as"),
        ({"until": "2001-01-31"}, "past; give a later time"),
        ({"until": "18:00", "zone": "Nowhere"}, "zone is 'Nowhere'"),
    ):
        wrong = begin(**body)
        assert (wrong.status, text in wrong.body["detail"]) == (400, True), wrong
    assert destination(at)["ended_outage"] is None
    at.call("POST", f"{API}/destinations/crm/resume", {"reason": "they are done"})
    ended = destination(at)["ended_outage"]
    assert (ended["reason"], ended["ended_at"], bool(ended["ended_by"])) == (
        "crm is being moved",
        iso(clock.now()),
        True,
    )
    begin(until="1h")
    clock.advance("90m")
    at.milepost.run(until_idle=0)
    ended = destination(at)["ended_outage"]
    assert (ended["ended_at"], ended["ended_by"]) == (ended["until"], None), (
        "it has ended by itself"
    )
    assert b"The outage ended by itself at" in at.call("GET", "/notifications").raw
    assert b"The outage ended by itself at" in at.call("GET", "/notifications/destinations/crm").raw
    clock.advance("1d")
    assert destination(at)["ended_outage"] is None


def test_a_pause_takes_over_from_an_outage_and_stays(at: Service) -> None:
    above = f"{API}/destinations/crm"
    page = "/notifications/destinations/crm"
    at.call("POST", f"{above}/outage", {"until": "2h", "reason": "crm is being moved"})
    assert b"Change the outage" in at.call("GET", page).raw
    begun = at.call("POST", f"{above}/pause", {"reason": "it takes longer"})
    assert (begun.status, begun.body["changed"], begun.body["paused"]["until"]) == (200, True, None)
    again = at.call("POST", f"{above}/pause", {"reason": "by another"})
    assert (again.status, again.body["changed"], again.body["paused"]["reason"]) == (
        200,
        False,
        "it takes longer",
    )
    refused = at.call("POST", f"{above}/outage", {"until": "30s", "reason": "it is over soon"})
    assert (refused.status, "it takes longer" in refused.body["detail"]) == (409, True)
    assert b"the outage</button>" not in at.call("GET", page).raw
    assert destination(at)["paused"] == begun.body["paused"]


def test_a_form_without_a_reason_says_what_is_missing(at: Service) -> None:
    form = {"Content-Type": "application/x-www-form-urlencoded", "Origin": at.url}
    refused = at.call("POST", "/notifications/destinations/crm/pause", b"reason=+", headers=form)
    assert (refused.status, b"a name and a reason: your name, and why" in refused.raw) == (
        400,
        True,
    ), refused
    assert destination(at)["paused"] is None


def test_an_outage_holds_the_backlog_uncounted_and_ends_by_itself(
    at: Service, clock: VirtualClock, partner: Partner
) -> None:
    begun = at.call(
        "POST",
        f"{API}/destinations/crm/outage",
        {"until": "2h", "reason": "crm is being moved", "drain": "1/s"},
    )
    assert (begun.status, begun.body["state"]) == (200, "outage")
    first, second, other = (
        message(partner.url),
        message(partner.url, messageId="m-2"),
        message("http://127.0.0.1:9/", messageId="m-3"),
    )
    for one in (first, second, other):
        at.post(one)
    clock.advance("1h")
    at.milepost.run(until_idle=0)
    assert (status(at, first), status(at, second)) == (("QUEUED", 0), ("QUEUED", 0))
    assert status(at, other)[1] == 1, "others are tried"
    found = destination(at)
    assert (found["waiting"], found["paused"]["reason"], found["paused"]["by"]) == (
        2,
        "crm is being moved",
        "local",
    )
    assert any("crm is being moved" in one.what for one in doctor(at.ctx).findings)
    assert (
        "crm is being moved"
        in at.call(
            "GET", f"/items/notifications/{key_of(first).replace('#', '%23').replace('/', '%2F')}"
        ).raw.decode()
    )
    clock.advance("1h")
    at.milepost.start()
    wait_for(lambda: len(partner.requests) >= 1)
    assert len(partner.requests) == 1, "the backlog is sent at the pace of the outage"
    clock.advance("1s")
    wait_for(lambda: len(partner.requests) >= 2)
    at.milepost.stop()
    assert destination(at)["paused"] is None
    assert (status(at, first), status(at, second)) == (("COMPLETED", 0), ("COMPLETED", 0))


def test_s26_an_open_breaker_is_shown_and_its_messages_wait_uncounted(clock: VirtualClock) -> None:
    with (
        Partner(answers(503, 503, 200)) as partner,
        service(clock=clock, destinations={"crm": {"url": partner.url}}, breaker=BREAKER) as at,
    ):
        sent = [message(partner.url, messageId=f"m-{number}") for number in range(6)]
        for one in sent[:2]:
            at.post(one)
        at.milepost.run(until_idle=0)
        for one in sent[2:]:
            at.post(one)
        clock.advance("10m")
        at.milepost.run(until_idle=0)
        assert len(partner.requests) == 2
        found = destination(at)
        assert (found["state"], found["breaker"]["trips"], found["waiting"]) == ("open", 1, 6)
        assert [status(at, one) for one in sent[2:]] == [("QUEUED", 0)] * 4, "no attempt is used up"
        named = [
            one.what for one in doctor(at.ctx).findings if one.level != "ok" and "crm" in one.what
        ]
        assert len(named) == 1, "the breaker explains the backlog, and is named once"
        assert named[0].startswith(
            "the breaker of notifications/deliver/crm is open; the last failure: "
        )
        clock.advance("1h")
        at.milepost.run(until_idle=0)
        assert {status(at, one)[0] for one in sent} == {"COMPLETED"}
        assert destination(at)["breaker"] is None
        assert len(partner.requests) == 8


def test_an_operator_closes_a_breaker(clock: VirtualClock) -> None:
    with (
        Partner(answers(503, 503, 200)) as partner,
        service(clock=clock, destinations={"crm": {"url": partner.url}}, breaker=BREAKER) as at,
    ):
        for number in range(2):
            at.post(message(partner.url, messageId=f"m-{number}"))
        at.milepost.run(until_idle=0)
        assert destination(at)["state"] == "open"
        resumed = at.call("POST", f"{API}/destinations/crm/resume", {"reason": "it is up"})
        assert (resumed.status, resumed.body["breaker"]) == (200, None)


def test_an_unregistered_target_is_a_destination_by_its_sender_and_address(at: Service) -> None:
    with Partner(answers(404)) as other:
        at.post(message(other.url))
        at.milepost.run(until_idle=0)
        at.state.collector.turn(at.app)
        name = f"shop@127.0.0.1:{other.port}"
        found = at.call("GET", f"{API}/destinations").body["destinations"]
        [one] = [view for view in found if view["name"] == name]
        assert (one["registered"], one["state"], one["tries"]["failed"]) == (None, "failing", 1)
        assert (
            at.call("POST", f"{API}/destinations/{name}/pause", {"reason": "x"}).body["state"]
            == "paused"
        )
        assert at.call("POST", f"{API}/destinations/nobody/pause", {"reason": "x"}).status == 404


def test_a_missing_secret_and_an_old_backlog_are_findings_of_the_doctor(
    clock: VirtualClock,
) -> None:
    settings = {"url": "http://127.0.0.1:9/", "signing_secret_env": "CRM_SECRET_THAT_IS_NOT_SET"}
    with service(clock=clock, destinations={"crm": settings}) as at:
        at.post(message("http://127.0.0.1:9/"))
        clock.advance("10m")
        said = findings(at)
        assert any(
            "messages to crm wait" in what and "CRM_SECRET_THAT_IS_NOT_SET" in what for what in said
        )
        assert any("has been due for 10 min" in what for what in said)
        assert destination(at)["state"] == "misconfigured"


def test_a_new_process_knows_the_ledgers_destinations_before_its_first_delivery(
    tmp_path: Path, partner: Partner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CRM_SECRET", net.new_secret())
    ledger, sent = f"sqlite:///{tmp_path}/n.db", message(f"{partner.url}1")
    with service(ledger) as first:
        assert (
            first.call(
                "PUT",
                f"{API}/destinations/crm",
                {"url": partner.url, "signing_secret_env": "CRM_SECRET"},
            ).status
            == 200
        )
    with service(ledger) as second:  # such as a Lambda function, which runs no services
        monkeypatch.setattr(second.configured.application, "services", [])
        second.post(sent)
        assert second.item(sent)["lane"] == "crm"
        second.milepost.run(until_idle=0)
    with service(ledger, unregistered="refuse") as strict:
        assert strict.post(message(f"{partner.url}2")).status == 200
    assert "webhook-signature" in partner.requests[0].headers


def test_a_destination_that_this_process_cannot_read_hides_no_other(
    at: Service, partner: Partner
) -> None:
    app = at.app
    for name, value in (
        ("a", {"url": "no url"}),
        ("b", {"url": partner.url, "of_a_newer_version": 1}),
        ("c", {"url": f"{partner.url}c/"}),
    ):
        app.documents.put(f"destination/{name}", value)
    shown = at.call("GET", f"{API}/destinations")
    assert shown.status == 200
    assert {"crm", "c"} == {one["name"] for one in shown.body["destinations"]}


def test_a_destination_that_an_earlier_version_accepted_keeps_its_credentials(
    at: Service, partner: Partner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CRM_SECRET", net.new_secret())
    at.app.documents.put(
        "destination/crm",
        {"url": partner.url, "signing_secret_env": "CRM_SECRET", "concurrency": 0},
    )
    refresh(at.app)
    at.post(message(partner.url))
    at.work()
    assert "webhook-signature" in partner.requests[0].headers


def test_a_destination_whose_tries_would_be_cut_off_is_refused(
    at: Service, partner: Partner
) -> None:
    slow = {"url": f"{partner.url}slow/", "timeouts": {"read": "55s", "total": "55s"}}
    assert at.call("PUT", f"{API}/destinations/slow", slow).status == 200
    too_slow = at.call("PUT", f"{API}/destinations/slow", {**slow, "timeouts": {"total": "56s"}})
    assert (too_slow.status, "timeouts.total" in too_slow.body["detail"]) == (400, True)
    auth = {
        "kind": "oauth2",
        "token_url": partner.url,
        "client_id": "shop",
        "client_secret_env": "HOME",
    }
    assert at.call("PUT", f"{API}/destinations/slow", {**slow, "auth": auth}).status == 400, (
        "a token may be fetched twice"
    )
