"""Senders: a key speaks for its sender alone, and a sender has a limit."""

from __future__ import annotations

from urllib.parse import quote

import pytest
from tests.notifications.partners import Partner, answers, key_of, message, service

from milepost.core.admission.breakers import BreakerRecord
from milepost.engine.auth import make_key
from milepost.ports.documents import BREAKER
from milepost_notifications.operate.collector import figures_of

SIGNED = {"by": "ops", "reason": "a test"}
TARGET = "https://crm.example/hook"


def test_without_keys_this_machine_may_send_as_anyone() -> None:
    with service() as at:
        assert [at.post(message(TARGET, senderId=name)).status for name in ("shop", "billing")] == [
            200,
            200,
        ]


def test_a_key_speaks_for_its_sender_alone() -> None:
    with service() as at:
        shop = make_key(at.ctx, "shop", ["submit"], attributes={"sender": "shop"}, **SIGNED)[1]
        assert at.post(message(TARGET), key=shop).status == 200
        other = at.post(message(TARGET, senderId="billing"), key=shop)
        assert (other.status, other.body["error"]) == (403, "FORBIDDEN")
        assert "speaks for 'shop' alone" in other.body["message"]
        assert [one["key"].split("#")[1] for one in at.milepost.items("notifications")] == ["shop"]


@pytest.mark.parametrize(
    ("attributes", "scopes", "status"),
    [({}, ["submit"], 403), ({"sender": "*"}, ["submit"], 200), ({}, ["admin"], 200)],
)
def test_a_key_without_a_sender_sends_for_none_and_a_gateway_for_all(
    attributes: dict[str, str], scopes: list[str], status: int
) -> None:
    with service() as at:
        key = make_key(at.ctx, "k", scopes, attributes=attributes, **SIGNED)[1]
        answer = at.post(message(TARGET), key=key)
        assert answer.status == status
        if status == 403:
            assert "--attribute sender=NAME" in answer.body["message"]


def test_a_malformed_request_counts_for_its_sender_and_a_gateway_has_those_of_all() -> None:
    with service() as at:
        shop = make_key(at.ctx, "shop", ["submit"], attributes={"sender": "shop"}, **SIGNED)[1]
        gateway = make_key(at.ctx, "gateway", ["submit"], attributes={"sender": "*"}, **SIGNED)[1]
        for key, name in (
            (shop, "billing"),
            (gateway, "billing"),
            (gateway, "shop"),
            (gateway, None),
        ):
            given = {"messageId": "m-1"} if name is None else {"messageId": "m-1", "senderId": name}
            assert at.post(given, key=key).status == 400
        at.state.collector.turn(at.app)
        counted = {name: one.malformed for name, one in figures_of(at.app).senders.items()}
        assert counted == {"shop": 2, "billing": 1, "(unknown)": 1}


def test_a_sender_that_sends_too_often_is_told_when_to_come_again() -> None:
    with service(senders={"shop": {"rate": "1/h"}}) as at:
        answered = [at.post(message(TARGET, messageId=f"m-{n}")) for n in range(3)]
        assert [answer.status for answer in answered] == [200, 429, 429]
        assert answered[1].body["error"] == "RATE_LIMITED"
        assert 0 < int(answered[1].headers["retry-after"]) <= 3600
        assert at.post(message(TARGET, senderId="billing")).status == 200, "others are not limited"


def test_a_rate_that_is_none_is_a_mistake_of_the_configuration() -> None:
    with (
        pytest.raises(Exception, match=r"senders.shop.rate"),
        service(senders={"shop": {"rate": "often"}}),
    ):
        pass


@pytest.mark.parametrize(
    ("attributes", "scopes", "status"),
    [
        ({"sender": "shop"}, ["submit"], 404),
        ({"sender": "shop"}, ["submit", "operate"], 404),
        ({}, ["submit"], 404),
        ({"sender": "*"}, ["submit"], 201),
        ({}, ["admin"], 201),
    ],
)
def test_the_general_api_is_no_way_around_a_keys_sender(
    attributes: dict[str, str], scopes: list[str], status: int
) -> None:
    with service() as at:
        key = make_key(at.ctx, "k", scopes, attributes=attributes, **SIGNED)[1]
        forged = message(TARGET, senderId="billing")
        assert (
            at.call("POST", "/api/v1/routes/notifications/items", forged, key=key).status == status
        )


def test_the_general_api_shows_a_sender_no_message_of_another() -> None:
    with service() as at:
        at.post(message(TARGET, senderId="billing"))
        shop = make_key(
            at.ctx, "shop", ["submit", "read"], attributes={"sender": "shop"}, **SIGNED
        )[1]
        person = make_key(at.ctx, "person", ["read"], **SIGNED)[1]
        item = f"/api/v1/routes/notifications/items/{quote(key_of(message(TARGET, senderId='billing')), safe='')}"
        paths = (item, "/api/v1/routes/notifications/items", "/api/v1/routes/notifications/groups")
        assert [at.call("GET", path, key=person).status for path in paths] == [200, 200, 200]
        assert [at.call("GET", path, key=shop).status for path in paths] == [404, 404, 404]
        assert "notifications" in at.call("GET", "/api/v1/status", key=person).body["routes"]
        assert "notifications" not in at.call("GET", "/api/v1/status", key=shop).body["routes"]


def test_no_page_and_no_answer_shows_a_sender_what_a_partner_said_about_another() -> None:
    with (
        Partner(answers((404, b'{"message": "no such person: jane"}'))) as partner,
        service(destinations={"crm": {"url": partner.url}}) as at,
    ):
        at.post(message(f"{partner.url}jane", senderId="billing", messageId="of-billing"))
        at.work()
        at.state.collector.turn(at.app)
        shop = make_key(
            at.ctx, "shop", ["submit", "read"], attributes={"sender": "shop"}, **SIGNED
        )[1]
        person = make_key(at.ctx, "person", ["read"], **SIGNED)[1]
        api = "/api/v1/notifications"
        paths = [
            f"{api}/destinations",
            f"{api}/destinations/crm",
            f"{api}/dead-letters",
            f"{api}/senders",
            f"{api}/messages",
        ]
        paths += [
            "/notifications",
            "/notifications/destinations/crm",
            "/notifications/dead-letters",
            "/notifications/messages",
        ]
        seen = {path: at.call("GET", path, key=shop) for path in paths}
        assert {answer.status for answer in seen.values()} == {200}
        for path, answer in seen.items():
            assert b"jane" not in answer.raw, path
            assert b"of-billing" not in answer.raw, path
        assert b"jane" in at.call("GET", f"{api}/destinations/crm", key=person).raw
        assert b"of-billing" in at.call("GET", "/notifications/destinations/crm", key=person).raw


def test_what_blocks_a_message_quotes_no_answer_to_another_senders() -> None:
    """Neither the message's page, nor the list, nor the record: the breaker's last failure may be
    about another sender's message."""
    settings = {"crm": {"url": TARGET}}
    with service(destinations=settings) as at:
        shop = make_key(
            at.ctx, "shop", ["submit", "read"], attributes={"sender": "shop"}, **SIGNED
        )[1]
        person = make_key(at.ctx, "person", ["read"], **SIGNED)[1]
        sent = message(TARGET)
        assert at.post(sent, key=shop).status == 200
        now = at.ctx.clock.now()
        record = BreakerRecord(
            opened_at=now, retry_at=now + 60_000, trips=1, error="HTTP 503: the order of billing"
        )
        at.ctx.ledger.write(BREAKER, "notifications/deliver/crm", record)
        key = quote(key_of(sent), safe="")
        for path in (f"/notifications/messages/{key}", "/notifications/messages"):
            assert "the order of billing" not in at.call("GET", path, key=shop).raw.decode()
            assert "breaker" in at.call("GET", path, key=shop).raw.decode()
            assert "the order of billing" in at.call("GET", path, key=person).raw.decode()
        [listed] = at.call("GET", "/api/v1/notifications/messages", key=shop).body["messages"]
        shown = at.call("GET", f"/api/v1/notifications/messages/{key}", key=shop).body
        for view in (listed, shown):
            assert (view["blocked"], view["breaker"]["state"]) == ("breaker open", "open")
            assert "error" not in view["breaker"]
