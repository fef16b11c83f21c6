"""Signed deliveries, verified with the standardwebhooks package."""

from __future__ import annotations

import time
from itertools import count
from pathlib import Path

import pytest
from standardwebhooks import Webhook, WebhookVerificationError
from tests.net.partner import Received
from tests.notifications.partners import Partner, VirtualClock, answers, message, service

import milepost_net as net

NEW, OLD = net.new_secret(), net.new_secret()


@pytest.fixture(autouse=True)
def _secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CRM_SECRET", NEW)
    monkeypatch.setenv("CRM_SECRET_OLD", OLD)


def verified(request: Received, secret: str) -> bool:
    try:
        Webhook(secret).verify(request.body, dict(request.headers))
    except WebhookVerificationError:
        return False
    return True


def test_s31_the_known_answer_of_the_specification() -> None:
    headers = net.webhook_headers(
        "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        "msg_p5jXN8AQM9LWM0D4loKWxJek",
        b'{"test": 2432232314}',
        at=1614265330,
    )
    assert headers["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_s31_each_try_has_the_same_id_a_fresh_time_and_a_valid_signature() -> None:
    clock, body = VirtualClock(), '{"b":  1, "ä": "€"}'
    with Partner(answers(500, 500, 200)) as partner:
        destinations = {"crm": {"url": partner.url, "signing_secret_env": "CRM_SECRET"}}
        with service(clock=clock, destinations=destinations) as at:
            began, passed = time.time(), count(0, 7)
            at.state.deliverer.clock = lambda: began + next(passed) // 2
            sent = message(partner.url, body=body)
            at.post(sent)
            at.see_through(clock, sent)
        assert [verified(one, NEW) for one in partner.requests] == [True] * 3
        assert {one.body for one in partner.requests} == {body.encode()}
        assert len({one.headers["webhook-id"] for one in partner.requests}) == 1
        assert len({one.headers["webhook-timestamp"] for one in partner.requests}) == 3
        assert not verified(partner.requests[0], OLD)
        assert len(partner.requests[0].headers["webhook-signature"].split(" ")) == 1


def test_s31_during_a_rotation_both_secrets_sign() -> None:
    with Partner(answers(200)) as partner:
        own = {
            "url": partner.url,
            "signing_secret_env": "CRM_SECRET",
            "previous_signing_secret_env": "CRM_SECRET_OLD",
        }
        with service(destinations={"crm": own}) as at:
            at.post(message(partner.url))
            at.work()
        [request] = partner.requests
        assert (verified(request, NEW), verified(request, OLD)) == (True, True)
        assert len(request.headers["webhook-signature"].split(" ")) == 2


def test_a_message_without_a_body_is_signed_too() -> None:
    with Partner(answers(200)) as partner:
        with service(
            destinations={"crm": {"url": partner.url, "signing_secret_env": "CRM_SECRET"}}
        ) as at:
            at.post(message(partner.url, method="GET", body=None))
            at.work()
        [request] = partner.requests
        # (The package reads the body as JSON; ours does not.)
        assert net.verify(NEW, request.headers, b"") == request.headers["webhook-id"]


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("CRM_SECRET", "", "CRM_SECRET is not set"),
        (
            "CRM_SECRET",
            "whsec_!",
            "destinations.crm.signing_secret_env: the variable CRM_SECRET: a webhook secret is whsec_ and base64",
        ),
    ],
)
def test_without_its_secret_a_destination_waits_uncounted_and_others_do_not(
    variable: str,
    value: str,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = VirtualClock()
    with Partner(answers(200)) as signed, Partner(answers(200)) as plain:
        with service(
            clock=clock,
            destinations={"crm": {"url": signed.url, "signing_secret_env": "CRM_SECRET"}},
        ) as at:
            waiting, other = message(signed.url), message(plain.url)
            monkeypatch.setenv(variable, value)
            at.post(waiting)
            at.post(other)
            at.work()
            item = at.item(waiting)
            assert (item["status"], item["attempts"], at.item(other)["status"]) == (
                "WAITING",
                0,
                "COMPLETED",
            )
            assert said in item["note"]
            [warning] = [
                text for text in caplog.messages if text.startswith("messages to crm wait")
            ]
            assert said in warning
            [finding] = [one for one in at.findings() if one.level == "bad"]
            assert said in finding.what
            monkeypatch.setenv(variable, NEW)
            at.see_through(clock, waiting)
            assert at.item(waiting)["status"] == "COMPLETED"
            assert verified_at(signed.requests[0], clock)


def verified_at(request: Received, clock: VirtualClock) -> bool:
    return (
        net.verify(NEW, request.headers, request.body, now=clock.now() / 1000)
        == request.headers["webhook-id"]
    )


def test_a_secret_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text(f"{NEW}\n")
    with Partner(answers(200)) as partner:
        with service(
            destinations={"crm": {"url": partner.url, "signing_secret_file": str(file)}}
        ) as at:
            at.post(message(partner.url))
            at.work()
        assert verified(partner.requests[0], NEW)
