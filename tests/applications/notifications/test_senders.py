"""Senders: a key speaks for its sender alone, and a sender has a limit."""

from __future__ import annotations

import pytest
from tests.applications.notifications.partners import message, service

from milepost.engine.auth.keys import make_key

SIGNED = {"by": "ops", "reason": "a test"}
TARGET = "https://crm.example/hook"


def test_without_keys_this_machine_may_send_as_anyone() -> None:
    with service() as at:
        assert [at.post(message(TARGET, senderId=name)).status for name in ("shop", "billing")] == [200, 200]


def test_a_key_speaks_for_its_sender_alone() -> None:
    with service() as at:
        shop = make_key(at.ctx, "shop", ["submit"], attributes={"sender": "shop"}, **SIGNED)[1]
        assert at.post(message(TARGET), key=shop).status == 200
        other = at.post(message(TARGET, senderId="billing"), key=shop)
        assert (other.status, other.body["error"]) == (403, "FORBIDDEN")
        assert "speaks for 'shop' alone" in other.body["message"]
        assert [one["key"].split("#")[1] for one in at.milepost.items("notifications")] == ["shop"]


@pytest.mark.parametrize(
    ("attributes", "scopes", "status"), [({}, ["submit"], 403), ({"sender": "*"}, ["submit"], 200), ({}, ["admin"], 200)]
)
def test_a_key_without_a_sender_sends_for_none_and_a_gateway_for_all(attributes: dict[str, str], scopes: list[str], status: int) -> None:
    with service() as at:
        key = make_key(at.ctx, "k", scopes, attributes=attributes, **SIGNED)[1]
        answer = at.post(message(TARGET), key=key)
        assert answer.status == status
        if status == 403:
            assert "--attribute sender=NAME" in answer.body["message"]


def test_a_sender_that_sends_too_often_is_told_when_to_come_again() -> None:
    with service(senders={"shop": {"rate": "1/h"}}) as at:
        answered = [at.post(message(TARGET, messageId=f"m-{n}")) for n in range(3)]
        assert [answer.status for answer in answered] == [200, 429, 429]
        assert answered[1].body["error"] == "RATE_LIMITED"
        assert 0 < int(answered[1].headers["retry-after"]) <= 3600
        assert at.post(message(TARGET, senderId="billing")).status == 200, "others are not limited"


def test_a_rate_that_is_none_is_a_mistake_of_the_configuration() -> None:
    with pytest.raises(Exception, match=r"senders.shop.rate"), service(senders={"shop": {"rate": "often"}}):
        pass
