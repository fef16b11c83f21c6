"""Alerts of notifications: one for each cause and destination, and one when it is over, through the
subscribers that the settings name."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
from standardwebhooks.webhooks import Webhook
from tests.notifications.partners import Partner, Service, answers, message, service
from tests.subscribers.mail_server import MailServer

import milepost.application as mpa
import milepost_net as net
from milepost.application.installation import services
from milepost.engine.alerts.watch import AlertWatch
from milepost_notifications import application
from milepost_notifications.application import pointer
from milepost_notifications.destinations import url_pause
from milepost_testing import VirtualClock

ALERTS = {"dashboard": "https://milepost.example/ops/"}


def watch(at: Service, **settings: Any) -> AlertWatch:
    """The watch of one more process with the same settings."""
    configured = application.configured(
        {"allow_cidrs": ["127.0.0.0/8"], **settings}, environment={}
    )
    [found] = [
        one for one in services(at.milepost.context, [configured]) if isinstance(one, AlertWatch)
    ]
    return found


@pytest.fixture
def mailbox() -> Iterator[MailServer]:
    with MailServer() as server:
        yield server


def address(mailbox: MailServer) -> str:
    return f"email:smtp://127.0.0.1:{mailbox.port}?from=milepost@example.org&to=ops@example.org"


def titles(mailbox: MailServer) -> list[str]:
    return [str(mail.message["Subject"]) for mail in mailbox.mails]


def send(at: Service, clock: VirtualClock, url: str, first: int, count: int) -> None:
    for number in range(first, first + count):
        assert at.post(message(url, messageId=f"m-{number}")).status == 200
    for _ in range(3):  # as many tries as a message has
        at.milepost.run(until_idle=0)
        clock.advance("10s")


def test_s18_dead_letters_are_one_alert_for_each_cause_and_destination_and_one_when_it_is_over(
    mailbox: MailServer,
) -> None:
    clock = VirtualClock()
    with (
        Partner(answers(500)) as failing,
        Partner(answers(404)) as refusing,
        Partner(answers(200)) as healthy,
    ):
        settings = {
            "breaker": {"failures": 1000},
            "alerts": {"to": [address(mailbox)]},
            "destinations": {
                "crm": {"url": failing.url},
                "shop": {"url": refusing.url},
                "bank": {"url": healthy.url},
            },
        }
        with service(clock=clock, **settings) as at:
            watches = [watch(at, **settings) for _ in range(3)]
            for place, partner in enumerate((failing, refusing, healthy)):
                send(at, clock, partner.url, 10 * place, 5)
            assert len(failing.requests) == 15
            for one in watches * 2:
                one.run_once()
            assert sorted(titles(mailbox)) == [
                "notifications: messages at 'deliver' for crm fail: SERVER_ERROR",
                "notifications: messages at 'deliver' for shop fail: CLIENT_ERROR",
            ]
            clock.advance("16m")
            for one in watches * 2:
                one.run_once()
            assert sorted(titles(mailbox))[:2] == [
                "Over: notifications: messages at 'deliver' for crm no longer fail: SERVER_ERROR",
                "Over: notifications: messages at 'deliver' for shop no longer fail: CLIENT_ERROR",
            ]
            assert len(mailbox.mails) == 4


def test_s19_a_url_that_answers_410_is_one_alert(mailbox: MailServer) -> None:
    clock = VirtualClock()
    with Partner(answers(410)) as gone:
        settings = {
            "alerts": ALERTS | {"to": [address(mailbox)]},
            "destinations": {"crm": {"url": gone.url}},
        }
        with service(clock=clock, **settings) as at:
            one = watch(at, **settings)
            send(at, clock, gone.url, 0, 1)
            send(at, clock, gone.url, 1, 3)
            one.run_once()
            one.run_once()
            name = url_pause("crm", "shop", gone.url)
            assert f"notifications/deliver/{name} is paused" in titles(mailbox)
            [paused] = [
                mail.message
                for mail in mailbox.mails
                if "is paused" in str(mail.message["Subject"])
            ]
            text = paused.get_body(("plain",)).get_content().replace("\r\n", "\n")
            assert (
                f"  https://milepost.example/ops/notifications/destinations/{quote(name)}\n  milepost notifications destinations {name}\n"
                in text
            )
            assert len(titles(mailbox)) == 2, "the pause, and the message that met it"
            at.milepost.resume("notifications", "deliver", name, by="ops", reason="it is back")
            clock.advance("2m")
            one.run_once()
            assert (
                titles(mailbox)[-1]
                == f"Over: the pause of notifications/deliver/{name} was resumed"
            )


def test_an_alert_may_be_a_signed_webhook(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, secret = VirtualClock(), net.new_secret()
    monkeypatch.setenv("ALERTS_SECRET", secret)
    with Partner(answers(404)) as refusing, Partner(answers(204)) as office:
        settings = {
            "alerts": ALERTS | {"to": [f"{office.url}alerts#secret_env=ALERTS_SECRET"]},
            "destinations": {"crm": {"url": refusing.url}},
        }
        with service(clock=clock, **settings) as at:
            one = watch(at, **settings)
            send(at, clock, refusing.url, 0, 3)
            one.run_once()
        [request] = office.requests
        assert Webhook(secret).verify(request.body, request.headers) == json.loads(request.body)
        told = json.loads(request.body)
        data = told["data"]
        assert (told["type"], data["lane"], data["cause"]) == (
            "milepost.alert.raised",
            "crm",
            "CLIENT_ERROR",
        )
        assert (
            data["command"]
            == f"milepost notifications list --status failed --destination crm --cause {data['group']}"
        )
        assert (
            data["page"]
            == f"/notifications/messages?status=failed&destination=crm&cause={data['group']}"
        )
        assert data["link"] == f"https://milepost.example/ops{data['page']}"


@pytest.mark.parametrize(
    ("lane", "group", "kind", "command", "page"),
    [
        (
            "a b",
            "g-1",
            "failures",
            "list --status failed --destination 'a b' --cause g-1",
            "/messages?status=failed&destination=a+b&cause=g-1",
        ),
        ("", "", "failures", "list --status failed", "/messages?status=failed"),
        (
            "127.0.0.1:80",
            "",
            "breaker",
            "destinations 127.0.0.1:80",
            "/destinations/127.0.0.1%3A80",
        ),
        ("", "", "breaker", "destinations", ""),
        ("crm", "", "pause", "destinations crm", "/destinations/crm"),
    ],
)
def test_an_alert_points_to_the_command_and_the_page_of_notifications(
    lane: str, group: str, kind: str, command: str, page: str
) -> None:
    found = pointer(mpa.AlertSubject(kind, "notifications", "deliver", lane, group))
    assert (found.command, found.page) == (
        f"milepost notifications {command}",
        f"/notifications{page}",
    )
