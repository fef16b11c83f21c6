"""Events as mails: what a real SMTP server receives, and what its refusals mean for the event."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.subscribers.mail_server import MailServer, Received

import milepost as mp
from milepost.cli.config import CliSettings
from milepost.engine.events.parked_events import release
from milepost.subscribers import EmailSubscriber, open_subscriber
from milepost.subscribers.email import mail_transport
from milepost_testing import VirtualClock, drain

CLOCK = VirtualClock()
TO = ["Ops <ops@example.org>", "ann@example.org"]


@pytest.fixture
def server() -> Iterator[MailServer]:
    with MailServer() as server:
        yield server


def subscriber(server: MailServer, **options: object) -> EmailSubscriber:
    transport = mail_transport(f"smtp://127.0.0.1:{server.port}", timeout=60)
    return EmailSubscriber(transport, sender="Milepost <milepost@example.org>", to=TO, **options)  # type: ignore[arg-type]


def route(form: object = None) -> mp.Route:
    parcels = mp.Route("parcels", key="id", form=form)  # type: ignore[arg-type]

    @parcels.stage("weigh", retry=mp.Backoff(attempts=2, base="1s"))
    def weigh(item: mp.Item) -> mp.Outcome:
        if item.key.startswith("good"):
            return mp.Done()
        if item.key.startswith("bad"):
            return mp.Retry("the scale says <1 & \r\nis broken", category="BROKEN")
        return mp.Reject("no weight", category="NO_WEIGHT")

    return parcels


def text_of(mail: Received) -> str:
    body = mail.message.get_body(("plain",))
    assert body is not None
    return str(body.get_content()).replace("\r\n", "\n")


def run(subscriber: EmailSubscriber, *keys: str, form: object = None) -> mp.Milepost:
    post = mp.open("memory:", routes=[route(form)], clock=CLOCK, subscribers=[subscriber])
    post.submit("parcels", *({"id": key} for key in keys))
    drain(post, CLOCK)
    return post


def test_only_events_that_need_a_person_are_mailed_in_plain_words(server: MailServer) -> None:
    with run(subscriber(server), "good-1", "bad-2", "odd 3"):
        pass
    by_subject = {str(mail.message["Subject"]): mail for mail in server.mails}
    assert set(by_subject) == {
        "parcels: failed, no attempts left: bad-2",
        "parcels: failed for good: odd 3",
    }
    mail = by_subject["parcels: failed, no attempts left: bad-2"]
    assert mail.recipients == ["ops@example.org", "ann@example.org"]
    text = text_of(mail)
    assert "Attempt 2 at 'weigh' failed" in text
    assert "BROKEN: the scale says <1 & \nis broken; no attempts left." in text
    assert "MAX_RETRIES_EXCEEDED, failed after too many attempts" in text
    assert "milepost show parcels bad-2" in text
    assert "milepost show parcels 'odd 3'" in text_of(by_subject["parcels: failed for good: odd 3"])
    html = mail.message.get_body(("html",))
    assert html is not None
    assert "the scale says &lt;1 &amp; " in html.get_content()


def test_other_kinds_can_be_chosen(server: MailServer) -> None:
    with run(subscriber(server, kinds=["completed"]), "good-1", "bad-2"):
        pass
    assert [str(mail.message["Subject"]) for mail in server.mails] == ["parcels: completed: good-1"]


def test_a_form_of_the_routes_own_is_in_the_mail(server: MailServer) -> None:
    with run(
        subscriber(server, kinds=["completed"]),
        "good-1",
        form=lambda envelope: {"parcelId": envelope["subject"]},
    ):
        pass
    assert '"parcelId": "good-1"' in text_of(server.mails[0])


def test_a_refusal_for_good_parks_the_event_until_it_is_released_and_a_repeat_has_the_same_id(
    server: MailServer,
) -> None:
    server.replies["DATA"] = ["554 that is spam"]
    told = subscriber(server)
    with run(told, "bad-1", "bad-2") as post:
        assert len(server.mails) == 1
        release(post.context, told.name, by="ops", reason="the filter was corrected")
        drain(post, CLOCK)
    first, second = server.mails
    assert {str(one.message["Subject"]).split()[-1] for one in server.mails} == {"bad-1", "bad-2"}
    assert first.message["Message-ID"] != second.message["Message-ID"]


def test_not_now_is_tried_again_by_itself(server: MailServer) -> None:
    server.replies["MAIL"] = ["451 later"] * 3
    with run(subscriber(server), "bad-1"):
        pass
    assert len(server.mails) == 1


def test_only_a_recipient_who_was_refused_for_now_gets_the_repeat(server: MailServer) -> None:
    server.replies["ann@example.org"] = ["450 greylisted", "450 greylisted"]
    with run(subscriber(server), "bad-1"):
        pass
    assert [mail.recipients for mail in server.mails] == [["ops@example.org"], ["ann@example.org"]]
    assert len({mail.message["Message-ID"] for mail in server.mails}) == 1


def test_a_recipient_who_is_refused_for_good_does_not_hold_up_the_others(
    server: MailServer, caplog: pytest.LogCaptureFixture
) -> None:
    server.replies["ann@example.org"] = ["550 no such user"]
    with run(subscriber(server), "bad-1"):
        pass
    assert [mail.recipients for mail in server.mails] == [["ops@example.org"]]
    assert "refused for good for ann@example.org: 550 no such user" in caplog.text


def test_an_address_names_server_sender_and_recipients(
    server: MailServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = f"email:smtp://127.0.0.1:{server.port}?tls=if-offered&from=m@example.org&to=a@example.org&to=b@example.org&kinds=completed,exhausted&name=mails"
    monkeypatch.chdir(tmp_path)
    (tmp_path / "milepost.toml").write_text(f'subscribers = ["{address}"]\n')
    [told] = CliSettings().subscribers()
    assert told.name == "mails"
    assert isinstance(told, EmailSubscriber)
    with run(told, "good-1"):
        pass
    assert [(mail.sender, mail.recipients) for mail in server.mails] == [
        ("m@example.org", ["a@example.org", "b@example.org"])
    ]


def test_the_name_of_the_cursor_is_that_of_the_recipients() -> None:
    one, other = (
        open_subscriber(f"email:smtp://127.0.0.1:{port}?from=m@example.org&to=a@example.org")
        for port in (25, 587)
    )
    third = open_subscriber("email:smtp://127.0.0.1?from=m@example.org&to=b@example.org")
    assert one is not None
    assert other is not None
    assert third is not None
    assert one.name == other.name != third.name


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("email:smtp://127.0.0.1?to=a@example.org", "from=ADDRESS"),
        ("email:smtp://127.0.0.1?from=a@example.org", "to=ADDRESS"),
        ("email:ops@example.org", "from=ADDRESS"),
        ("email:smtp://127.0.0.1?from=a@example.org&to=b", "mail address"),
        ("email:smtp://127.0.0.1?from=a@example.org&to=b@example.org&kinds=failed", "exhausted"),
        (
            "email:smtp://user@127.0.0.1?from=a@example.org&to=b@example.org&password_env=NOT_SET",
            "NOT_SET",
        ),
        ("email:fax://127.0.0.1?from=a@example.org&to=b@example.org", "smtp://"),
    ],
)
def test_an_address_that_cannot_be_is_said(
    address: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "milepost.toml").write_text(f'subscribers = ["{address}"]\n')
    with pytest.raises(mp.ConfigMistake, match=said):
        CliSettings().subscribers()
