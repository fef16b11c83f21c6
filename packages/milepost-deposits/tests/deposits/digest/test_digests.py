"""Digests: mails received by a real SMTP server after each run; a DOI is named once for what has
become of it."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.deposits.conftest import MakeScene
from tests.deposits.deposits_scene import DepositsScene
from tests.subscribers.mail_server import MailServer, Received

from milepost_deposits.acts import mark_deposited, requeue
from milepost_deposits.application import digests_check
from milepost_deposits.commands import _mail_lines
from milepost_deposits.digest import collect
from milepost_deposits.digest.collect import CURSOR, collect_digests, collect_when_due
from milepost_deposits.digest.mail import recipients_of
from milepost_deposits.people.doi_view import files_of
from milepost_deposits.people.pages import _doi_page
from milepost_deposits.settings import AttemptSettings, MailSettings
from milepost_deposits.standins.sources import CrossrefStandIn, PublisherStandIn

GOOD, LATE, NEVER = "10.1002/good", "10.1002/late", "10.5555/never"


@pytest.fixture(scope="module")
def served() -> Iterator[MailServer]:
    with MailServer() as server:
        yield server


@pytest.fixture
def mails(served: MailServer) -> MailServer:
    served.mails.clear()
    served.replies.clear()
    return served


def mail_settings(server: MailServer, **more: object) -> MailSettings:
    given = {
        "smtp": f"smtp://127.0.0.1:{server.port}",
        "sender": "deposits@example.org",
        "to": ("librarian@example.org",),
        **more,
    }
    return MailSettings(**given)  # type: ignore[arg-type]


@pytest.fixture
def scene(
    make_scene: MakeScene,
    ledger_url: str,
    crossref: CrossrefStandIn,
    publisher: PublisherStandIn,
    mails: MailServer,
) -> DepositsScene:
    crossref.everything = True
    publisher.put(GOOD)
    made = make_scene(ledger_url, mail=mail_settings(mails), attempts=AttemptSettings(content=2))
    made.deliver("list.csv", "".join(f"{doi}\n" for doi in (GOOD, LATE, NEVER)))
    return made


def text_of(mail: Received) -> str:
    body = mail.message.get_body(("plain",))
    assert body is not None
    return str(body.get_content()).replace("\r\n", "\n")


def table_of(mail: Received) -> list[dict[str, str]]:
    [attachment] = mail.message.iter_attachments()
    assert attachment.get_filename() == "deposits.csv"
    content = attachment.get_payload(decode=True)
    assert isinstance(content, bytes)
    return list(csv.DictReader(io.StringIO(content.decode("utf-8-sig"))))


def test_after_each_run_one_mail_says_what_was_deposited_what_is_retried_and_what_needs_people(
    scene: DepositsScene, mails: MailServer, publisher: PublisherStandIn
) -> None:
    assert scene.round().digests == 1
    [first] = mails.mails
    assert (first.sender, first.recipients) == ("deposits@example.org", ["librarian@example.org"])
    assert first.message["Subject"] == "Deposits: 2 will be retried, 1 deposited"
    text = text_of(first)
    assert f"{GOOD}  https://hdl.handle.net/123456789/1" in text
    assert "next try in the next run" in text
    assert "MANUAL" not in text

    publisher.put(LATE)
    scene.round()
    second = mails.mails[1]
    assert second.message["Subject"] == "Deposits: 1 needs a manual deposit, 1 deposited"
    text = text_of(second)
    assert GOOD not in text, "it was in the mail before"
    assert f"NEEDS A MANUAL DEPOSIT\n  {NEVER}\n    Failed at content after 2 tries: " in text
    assert "Fetch the PDF from the publisher by hand" in text
    rows = {row["doi"]: row for row in table_of(second)}
    assert (rows[NEVER]["status"], rows[NEVER]["attempts"]) == (
        "Failed after too many attempts",
        "2",
    )
    assert (rows[LATE]["status"], rows[LATE]["handle"]) == ("Success", "123456789/2")
    html = second.message.get_body(("html",))
    assert html is not None
    assert f'href="https://doi.org/{NEVER}"' in html.get_content()

    assert scene.round().digests == 0, "nothing is mailed when there is nothing to say"
    assert len(mails.mails) == 2


def test_a_mail_links_to_the_page_of_manual_deposits_where_its_address_is_known(
    make_scene: MakeScene, ledger_url: str, crossref: CrossrefStandIn, mails: MailServer
) -> None:
    crossref.everything = True
    mail = mail_settings(mails, dashboard="https://milepost.example.org/base/")
    scene = make_scene(ledger_url, mail=mail, attempts=AttemptSettings(content=1))
    scene.deliver("list.csv", f"{NEVER}\n")
    scene.round()
    [sent] = mails.mails
    assert (
        "on the page of manual deposits, https://milepost.example.org/base/deposits/worklist, or with\n"
        in text_of(sent)
    )
    html = sent.message.get_body(("html",))
    assert html is not None
    assert (
        '<a href="https://milepost.example.org/base/deposits/worklist">the page of manual deposits</a>'
        in html.get_content()
    )


def test_a_mail_that_cannot_be_sent_is_kept_and_sent_later(
    scene: DepositsScene, mails: MailServer
) -> None:
    mails.replies["DATA"] = ["451 try again later"]
    scene.round()
    assert not mails.mails
    [finding] = digests_check(scene.app)
    assert finding.level == "warn"
    assert "1 digest was not mailed yet, and will be tried again" in finding.what
    assert (
        scene.ledger.act(
            "resend",
            "deposits-digests",
            statuses=["RETRY_SCHEDULED"],
            by="ops",
            reason="the server is back",
        ).done
        == 1
    )
    scene.ledger.run(until_idle=0)
    [mail] = mails.mails
    assert GOOD in text_of(mail)
    assert not list(digests_check(scene.app))


def test_a_process_that_dies_before_it_moves_its_cursor_mails_nothing_twice(
    scene: DepositsScene, mails: MailServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(Exception):
        pass

    def killed(*_: object, **__: object) -> bool:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr("milepost.application.context.AppDocuments.put", killed)
        with pytest.raises(Killed):
            scene.round()
    assert scene.app.documents.get(CURSOR) is None
    scene.round()
    scene.round()
    named = [
        row["doi"] for mail in mails.mails for row in table_of(mail) if row["status"] == "Success"
    ]
    assert named == [GOOD]
    failed = [
        row["doi"]
        for mail in mails.mails
        for row in table_of(mail)
        if row["status"] == "Failed after too many attempts"
    ]
    assert sorted(failed) == [LATE, NEVER]


def test_owners_get_the_dois_of_their_prefix_and_others_the_rest(
    make_scene: MakeScene, crossref: CrossrefStandIn, publisher: PublisherStandIn, mails: MailServer
) -> None:
    crossref.everything = publisher.everything = True
    owners = {"10.1002": ("one@example.org",), "10.1002/special": ("two@example.org",)}
    made = make_scene(mail=mail_settings(mails, owners=owners))
    made.deliver("list.csv", "10.1002/a\n10.1002/special-b\n10.5555/c\n")
    assert made.round().digests == 3
    found = {mail.recipients[0]: [row["doi"] for row in table_of(mail)] for mail in mails.mails}
    assert found == {
        "one@example.org": ["10.1002/a"],
        "two@example.org": ["10.1002/special-b"],
        "librarian@example.org": ["10.5555/c"],
    }


def test_what_people_have_done_since_is_not_mailed_as_a_failure(
    scene: DepositsScene, mails: MailServer
) -> None:
    collected: list[int] = []
    scene.ledger.run(until_idle=0)
    scene.take_in()
    scene.ledger.run(until_idle=0)
    requeue(scene.app, [LATE], by="ops", reason="again")
    mark_deposited(scene.app, NEVER, "123456789/77", by="librarian", reason="deposited by hand")
    collected += [len(collect_digests(scene.app))]
    scene.ledger.run(until_idle=0)
    assert collected == [1]
    rows = {row["doi"]: row["handle"] for row in table_of(mails.mails[0])}
    assert rows == {GOOD: "123456789/1", NEVER: "123456789/77"}


def test_in_continuous_mode_a_digest_comes_once_a_day(
    make_scene: MakeScene,
    crossref: CrossrefStandIn,
    publisher: PublisherStandIn,
    mails: MailServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    crossref.everything = publisher.everything = True
    made = make_scene(mail=mail_settings(mails), mode="continuous")
    app = made.app
    for name in ("one", "two"):
        made.deliver(f"{name}.csv", f"10.1/{name}\n")
        made.take_in()
        made.ledger.run(until_idle=0)
        collect_when_due(app)
    assert [digest["key"] for digest in made.ledger.items("deposits-digests")] == ["0"]
    cursor = app.documents.get(CURSOR)
    assert cursor is not None
    app.documents.put(CURSOR, {**cursor.value, "at": "2126-01-01T00:00:00+00:00"})
    assert len(collect_when_due(app)) == 1, (
        "a clock that was ahead by years, and was set right, stops no digest"
    )
    made.deliver("three.csv", "10.1/three\n")
    made.take_in()
    made.ledger.run(until_idle=0)
    assert collect_when_due(app) == []
    monkeypatch.setattr(collect.mpa, "span_ms", lambda span, name: 0)
    assert len(collect_when_due(app)) == 1


def test_a_stage_that_an_operator_has_confirmed_with_any_value_keeps_no_digest_back(
    make_scene: MakeScene, mails: MailServer
) -> None:
    """By force: `milepost confirm` says `true` unless a value is given."""
    scene = make_scene(mail=mail_settings(mails), clean="all")
    scene.deliver("list.csv", "".join(f"{doi}\n" for doi in (GOOD, LATE, NEVER)))
    scene.take_in()
    for value, handle, doi in (
        (True, "1/2", GOOD),
        ("done", 12, NEVER),
        ({"title": 7, "file": "a.pdf"}, None, LATE),
    ):
        for stage in ("metadata", "content"):
            scene.ledger.confirm(
                "deposits", doi, stage, value, by="ann", force=True, reason="it is fine"
            )
        scene.ledger.confirm(
            "deposits", doi, "submit", {"handle": handle}, by="ann", force=True, reason="it is fine"
        )
        assert files_of(scene.row(doi)) == []
        assert _doi_page(scene.app, doi).status == 200
    assert scene.round().counts["Success"] == 3
    assert {(row["title"], row["handle"]) for row in table_of(mails.mails[0])} == {
        ("", "1/2"),
        ("", "12"),
        ("7", ""),
    }


def test_a_cell_of_the_table_is_never_a_formula(scene: DepositsScene, mails: MailServer) -> None:
    from milepost_deposits.digest.mail import Digest, DigestEntry, csv_of

    entry = DigestEntry("10.1/x", "Success", title='=HYPERLINK("http://evil.example")')
    digest = Digest(id="d", to=(), owner="", deposited=(entry,), retries=(), manual=(), counts={})
    [row] = csv.DictReader(io.StringIO(csv_of(digest).decode("utf-8-sig")))
    assert row["title"].startswith("'=")


REFUSED = "550 no such user"


def owned_scene(make_scene: MakeScene, mails: MailServer, folder: str = "memory:") -> DepositsScene:
    scene = make_scene(folder, mail=mail_settings(mails, owners={"10.1002": ("gone@example.org",)}))
    scene.deliver("list.csv", "10.1002/a\n")
    return scene


def test_a_digest_whose_owner_is_refused_goes_to_everyone_else(
    make_scene: MakeScene, crossref: CrossrefStandIn, publisher: PublisherStandIn, mails: MailServer
) -> None:
    crossref.everything = publisher.everything = True
    scene = owned_scene(make_scene, mails)
    mails.replies["RCPT"] = [REFUSED]
    report = scene.round()
    [mail] = mails.mails
    assert mail.recipients == ["librarian@example.org"]
    assert report.needs_people
    assert "a digest was refused for the owners of 10.1002: " in "\n".join(
        _mail_lines(scene.app, report)
    )
    assert (
        "This digest is for the owners of 10.1002 (gone@example.org), to whom it could not be mailed"
        in text_of(mail)
    )
    assert not report.unmailed
    [row] = scene.ledger.items("deposits-digests")
    view = scene.ledger.show("deposits-digests", row["key"])
    assert view is not None
    assert view["results"]["mail"]["refused"][0].startswith("the owners of 10.1002: ")


def test_a_digest_that_was_refused_is_sent_to_the_corrected_address(
    make_scene: MakeScene,
    crossref: CrossrefStandIn,
    publisher: PublisherStandIn,
    mails: MailServer,
    tmp_path: Path,
) -> None:
    """The cure that doctor names, as it is written."""
    crossref.everything = publisher.everything = True
    ledger = f"sqlite:///{tmp_path}/owners.db"
    scene = owned_scene(make_scene, mails, ledger)
    mails.replies["RCPT"] = [REFUSED, REFUSED]
    report = scene.round()
    assert (report.unmailed, report.mails_refused, report.needs_people) == (1, 1, True)
    [finding] = digests_check(scene.app)
    assert finding.what.startswith("1 digest was refused, and not tried again: ")
    assert (
        finding.next
        == "correct [deposits.mail], then 'milepost retry deposits-digests --status failed --by YOU --reason corrected'"
    )
    assert "digests refused: 1; they are kept, and no run tries again by itself" in "\n".join(
        _mail_lines(scene.app, report)
    )
    corrected = make_scene(
        ledger, mail=mail_settings(mails, owners={"10.1002": ("right@example.org",)})
    )
    assert (
        corrected.ledger.act(
            "retry", "deposits-digests", statuses=["failed"], by="ann", reason="corrected"
        ).done
        == 1
    )
    report = corrected.round()
    assert (report.unmailed, report.needs_people) == (0, False)
    [mail] = mails.mails
    assert mail.recipients == ["right@example.org"]
    assert "10.1002/a" in text_of(mail)


def test_a_digest_of_an_owner_who_has_left_the_settings_goes_to_everyone_else(
    mails: MailServer,
) -> None:
    settings = mail_settings(mails, owners={"10.1002": ("one@example.org",)})
    assert recipients_of("10.1002", settings) == ("one@example.org",)
    assert recipients_of("10.9", settings) == ("librarian@example.org",)
    assert recipients_of("", settings) == ("librarian@example.org",)
