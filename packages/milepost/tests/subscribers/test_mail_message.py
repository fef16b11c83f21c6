"""Mail messages: headers, parts, and the same bytes for a repeat."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import default
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

import milepost as mp
from milepost.subscribers.email import Mail, MailAttachment

AT = datetime(2026, 3, 1, 12, 30, tzinfo=UTC)


def mail(**fields: Any) -> Mail:
    return Mail(**{"id": "digest-7", "sender": "Deposits <deposits@example.org>", "to": ["ops@example.org"], "subject": "Digest 7", "text": "All is well.\n", "date": AT} | fields)  # fmt: skip


def parsed(one: Mail) -> EmailMessage:
    return cast(EmailMessage, message_from_bytes(one.as_bytes(), policy=default))


def test_a_mail_has_the_headers_that_a_mail_needs() -> None:
    message = parsed(mail(cc=["Ann Ödegård <ann@example.org>"], reply_to="desk@example.org"))
    assert str(message["From"]) == "Deposits <deposits@example.org>"
    assert str(message["To"]) == "ops@example.org"
    assert message["Cc"].addresses[0].display_name == "Ann Ödegård"
    assert str(message["Reply-To"]) == "desk@example.org"
    assert message["Date"].datetime == AT
    assert str(message["Message-ID"]).endswith("@example.org>")
    assert str(message["Auto-Submitted"]) == "auto-generated"
    assert message["In-Reply-To"] is None


def test_a_repeat_is_the_same_bytes_and_another_mail_has_another_id() -> None:
    whole = mail(
        html="<p>All is well.</p>",
        attachments=[MailAttachment("all.csv", b"doi\n10.1/a\n", "text/csv")],
    )
    assert whole.as_bytes() == whole.as_bytes()
    assert parsed(whole)["Message-ID"] != parsed(mail(id="digest-8"))["Message-ID"]
    assert parsed(whole)["X-Milepost-Id"] != parsed(mail(id="digest-8"))["X-Milepost-Id"]
    assert str(parsed(mail(id="over", follows="digest-7"))["In-Reply-To"]) == whole.message_id


def test_without_a_date_it_is_of_the_time_it_is_sent() -> None:
    undated = mail(date=None)
    assert b"Date: Sun, 01 Mar 2026 12:30:00 +0000" in undated.as_bytes(AT)
    here = AT.astimezone(timezone(timedelta(hours=8)))
    assert b"Date: Sun, 01 Mar 2026 12:30:00 +0000" in mail(date=here).as_bytes()


def test_text_html_and_files_arrive_as_they_were_given() -> None:
    table = "doi;titel\r\n10.1/a;Ærøskøbing\r\n".encode()
    message = parsed(
        mail(text="Grüße\n" + "x" * 2000 + "\n.\n", html="<p>Grüße</p>", attachments=[MailAttachment("Bericht März.csv", table, "text/csv"), MailAttachment("a.bin", bytes(range(256)))])
    )  # fmt: skip
    body, rich = message.get_body(("plain",)), message.get_body(("html",))
    assert body is not None
    assert rich is not None
    assert body.get_content().replace("\r\n", "\n") == "Grüße\n" + "x" * 2000 + "\n.\n"
    assert rich.get_content().rstrip() == "<p>Grüße</p>"
    first, second = message.iter_attachments()
    assert (first.get_filename(), first.get_content_type(), first.get_payload(decode=True)) == (
        "Bericht März.csv",
        "text/csv",
        table,
    )
    assert first.get_content_charset() == "utf-8"
    assert (second.get_filename(), second.get_payload(decode=True)) == ("a.bin", bytes(range(256)))


@given(st.text(min_size=1, max_size=400), st.text(max_size=2000), st.text(max_size=500))
def test_any_text_is_written_in_seven_bits_and_short_lines(
    subject: str, text: str, html: str
) -> None:
    subject = " ".join("".join(c if c.isprintable() else " " for c in subject).split()) or "x"
    try:
        subject.encode()
        text.encode()
        html.encode()
    except UnicodeEncodeError:
        return
    content = mail(subject=subject, text=text, html=html).as_bytes()
    assert content.isascii()
    assert max(map(len, content.split(b"\r\n"))) <= 998
    assert b"\n" not in content.replace(b"\r\n", b"")


@pytest.mark.parametrize(
    "fields",
    [
        {"to": []},
        {"to": "ops@example.org"},
        {"to": ["ops"]},
        {"to": ["ops@example.org, other@example.org"]},
        {"to": ["a@example.org\r\nBcc: b@example.org"]},
        {"cc": ["Ann <ann>"]},
        {"sender": ""},
        {"reply_to": "nowhere"},
        {"id": ""},
        {"subject": ""},
        {"subject": "one\r\nBcc: b@example.org"},
        {"attachments": [MailAttachment("../a.csv", b"")]},
        {"attachments": [MailAttachment("a.csv", b"", "csv")]},
        {"attachments": [MailAttachment("a.eml", b"", "message/rfc822")]},
    ],
)
def test_a_mail_that_cannot_be_sent_is_refused_when_it_is_made(fields: dict[str, Any]) -> None:
    with pytest.raises(mp.UsageError):
        mail(**fields)
