"""Stand-ins for Crossref and the publisher: they answer as the real ones do, keep their limits, and
start as one process."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from email import message_from_bytes
from email.policy import default
from pathlib import Path

import pytest

import milepost_net as net
from milepost.subscribers.email import Mail, mail_transport
from milepost_deposits.standins.mailbox import MailboxStandIn
from milepost_deposits.standins.sources import CrossrefStandIn, PublisherStandIn, small_pdf

LOOPBACK = ("127.0.0.0/8",)
BROWSER = {"User-Agent": "Mozilla/5.0"}


@pytest.fixture
def client() -> net.Client:
    return net.Client(allow_cidrs=LOOPBACK)


def test_crossref_answers_a_missing_record_in_plain_text(
    crossref: CrossrefStandIn, client: net.Client
) -> None:
    with client:
        answer = client.request("GET", f"{crossref.url}/works/10.1%2Fx")
        assert (answer.status, answer.body) == (404, b"Resource not found.")
        crossref.put("10.1/X")
        record = client.request("GET", f"{crossref.url}/works/10.1%2Fx")
    assert record.headers.get("X-Rate-Limit-Interval") == "1s"
    assert b'"message-type": "work"' in record.body


def test_crossref_keeps_its_limit(client: net.Client) -> None:
    now = [0.0]
    with (
        CrossrefStandIn(everything=True, limit=2, enforced=True, clock=lambda: now[0]) as crossref,
        client,
    ):
        url = f"{crossref.url}/works/10.1%2Fx"
        assert [client.request("GET", url).status for _ in range(3)] == [200, 200, 429]
        now[0] = 1.0
        assert client.request("GET", url).status == 200


def test_the_publisher_refuses_clients_that_are_no_browser(
    publisher: PublisherStandIn, client: net.Client
) -> None:
    publisher.put("10.1/x")
    url = publisher.template.replace("{doi}", "10.1/x")
    with client:
        assert client.request("GET", url).status == 403
        assert client.request("GET", url, headers=BROWSER).body == small_pdf("10.1/x")


def test_all_partners_start_as_one_process(client: net.Client, tmp_path: Path) -> None:
    free = [
        word for name in ("crossref", "publisher", "dspace", "smtp") for word in (f"--{name}", "0")
    ]
    command = [sys.executable, "-m", "milepost_deposits.standins", *free, "--mails", str(tmp_path)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        try:
            said = tomllib.loads("".join(process.stdout.readline() for _ in range(3)))
            with client:
                assert client.request("GET", f"{said['crossref']}/works/10.1%2Fx").status == 200
                assert (
                    client.request("GET", f"{said['crossref']}/works/10.1%2Fno-record").status
                    == 404
                )
                pdf = client.request(
                    "GET", said["content"].replace("{doi}", "10.1/x"), headers=BROWSER
                )
                assert pdf.headers.get("Content-Type") == "application/pdf"
                page = client.request(
                    "GET", said["content"].replace("{doi}", "10.1/no-pdf"), headers=BROWSER
                )
                assert page.headers.get("Content-Type") == "text/html"
        finally:
            process.terminate()
            assert process.wait(60) == 0


def test_the_mailbox_keeps_each_mail_as_a_file(tmp_path: Path) -> None:
    seen: list[str] = []
    with MailboxStandIn(
        tmp_path / "mails", seen=lambda file, subject: seen.append(f"{file.name}: {subject}")
    ) as mailbox:
        transport = mail_transport(mailbox.url)
        for number in (1, 2):
            mail = Mail(
                id=f"m{number}",
                sender="a@example.org",
                to=("b@example.org",),
                subject=f"Größe {number}",
                text="one\n.\n..two\n",
                html="<p>one</p>",
            )
            assert transport.send(mail).accepted == ("b@example.org",)
        assert seen == ["0001.eml: Größe 1", "0002.eml: Größe 2"]
        read = message_from_bytes(mailbox.files[1].read_bytes(), policy=default)
        body = read.get_body(("plain",))
        assert body is not None
        assert body.get_content().replace("\r\n", "\n") == "one\n.\n..two\n"
