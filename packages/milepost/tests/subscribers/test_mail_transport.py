"""Mail transports: what a real SMTP server receives, and what its refusals mean."""

from __future__ import annotations

import json
import socket
import threading
from base64 import b64decode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from tests.net.test_http_tls import Authority
from tests.subscribers.mail_server import MailServer

import milepost as mp
from milepost.core.outcome import outcome_of_exception
from milepost.subscribers.email import (
    Mail,
    MailAttachment,
    MailNotSent,
    MailRefused,
    MailTransport,
    RecipientRefusal,
    mail_transport,
)
from milepost_net import Tls

MAIL = Mail(
    id="digest-7",
    sender="Deposits <deposits@example.org>",
    to=["ops@example.org", "Ann <ann@example.org>"],
    subject="Digest 7",
    text="Grüße\n.\nAll is well.\n",
    html="<p>Grüße</p>",
    attachments=[MailAttachment("all.csv", b"doi\r\n10.1/a\r\n", "text/csv")],
)
QUICK = 0.3
"""Seconds for servers that never reply. No test needs a reply within it."""


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"), "ours")


@pytest.fixture
def server() -> Iterator[MailServer]:
    with MailServer() as server:
        yield server


def plain(server: MailServer, timeout: float = 60.0) -> MailTransport:
    return mail_transport(f"smtp://127.0.0.1:{server.port}", timeout=timeout)


def test_a_mail_arrives_with_all_its_parts(server: MailServer) -> None:
    receipt = plain(server).send(MAIL)
    assert receipt.accepted == ("ops@example.org", "ann@example.org")
    assert receipt.refused == ()
    assert "4711" in receipt.reply
    [received] = server.mails
    assert received.sender == "deposits@example.org"
    assert received.recipients == ["ops@example.org", "ann@example.org"]
    message = received.message
    assert str(message["Message-ID"]) == MAIL.message_id
    body = message.get_body(("plain",))
    assert body is not None
    assert body.get_content().replace("\r\n", "\n") == MAIL.text
    [attachment] = message.iter_attachments()
    assert attachment.get_payload(decode=True) == b"doi\r\n10.1/a\r\n"


def test_starttls_and_a_login(authority: Authority) -> None:
    with MailServer(starttls=authority.context("localhost"), password="pass phrase") as server:
        transport = mail_transport(
            f"smtp://user%40example.org@localhost:{server.port}?tls=required",
            password_env="MAIL_PASSWORD",
            environment={"MAIL_PASSWORD": "pass phrase"},
            timeout=60,
            tls=Tls(ca_file=str(authority.file)),
        )
        transport.send(MAIL)
        [received] = server.mails
        assert received.encrypted
        assert received.user == "user@example.org"


def test_tls_from_the_first_byte_and_a_login(authority: Authority) -> None:
    with MailServer(implicit=authority.context("localhost"), password="secret") as server:
        transport = mail_transport(
            f"smtps://user@localhost:{server.port}",
            environment={"SMTP_PASSWORD": "secret"},
            timeout=60,
            tls=Tls(ca_file=str(authority.file)),
        )
        transport.send(MAIL)
        assert [(mail.encrypted, mail.user) for mail in server.mails] == [(True, "user")]


def test_a_certificate_of_an_unknown_authority_is_refused(authority: Authority) -> None:
    with MailServer(starttls=authority.context("localhost")) as server:
        with pytest.raises(MailNotSent, match="certificate"):
            mail_transport(f"smtp://localhost:{server.port}?tls=required", timeout=60).send(MAIL)
        assert server.mails == []


@pytest.mark.parametrize("kind", ["starttls", "implicit"])
def test_a_file_of_certificates_that_cannot_be_read_is_a_usage_error(
    authority: Authority, kind: str
) -> None:
    scheme = "smtp" if kind == "starttls" else "smtps"
    with MailServer(**{kind: authority.context("localhost")}) as server:
        transport = mail_transport(
            f"{scheme}://localhost:{server.port}", timeout=60, tls=Tls(ca_file="nowhere.pem")
        )
        with pytest.raises(mp.UsageError, match=r"nowhere\.pem.*No such file"):
            transport.send(MAIL)
        assert server.mails == []


def test_a_server_without_tls_gets_nothing_where_tls_is_required(server: MailServer) -> None:
    with pytest.raises(MailNotSent, match="STARTTLS"):
        mail_transport(f"smtp://127.0.0.1:{server.port}?tls=required", timeout=60).send(MAIL)
    transport = mail_transport(
        f"smtp://user@127.0.0.1:{server.port}", environment={"SMTP_PASSWORD": "secret"}, timeout=60
    )
    with pytest.raises(MailNotSent, match="in the clear"):
        transport.send(MAIL)
    assert (server.mails, server.logins) == ([], [])


def test_a_wrong_password_is_no_fault_of_the_mail(authority: Authority) -> None:
    with MailServer(implicit=authority.context("localhost"), password="secret") as server:
        url, tls = f"smtps://user@localhost:{server.port}", Tls(ca_file=str(authority.file))
        transport = mail_transport(
            url, environment={"SMTP_PASSWORD": "hunter2"}, timeout=60, tls=tls
        )
        with pytest.raises(MailNotSent, match="login of user") as caught:
            transport.send(MAIL)
        assert caught.value.code == 535
        assert "hunter2" not in str(caught.value) + repr(transport)


@pytest.mark.parametrize(
    ("command", "reply", "permanent"),
    [
        ("MAIL", "550 5.1.8 we do not know you", True),
        ("MAIL", "451 4.7.1 later", False),
        ("DATA", "554 5.7.1 that is spam", True),
        ("DATA", "452 4.3.1 disk full", False),
    ],
)
def test_a_refusal_of_5xx_is_for_good_and_one_of_4xx_is_not(
    server: MailServer, command: str, reply: str, permanent: bool
) -> None:
    server.replies[command] = [reply]
    with pytest.raises(MailRefused if permanent else MailNotSent) as caught:
        plain(server).send(MAIL)
    assert (caught.value.code, caught.value.permanent, caught.value.unknown) == (
        int(reply[:3]),
        permanent,
        False,
    )
    assert reply in str(caught.value)
    assert isinstance(outcome_of_exception(caught.value), mp.Reject if permanent else mp.Retry)
    plain(server).send(MAIL)
    assert len(server.mails) == 1


def test_recipients_are_accepted_and_refused_one_by_one(server: MailServer) -> None:
    server.replies["ann@example.org"] = ["550 no such user"]
    receipt = plain(server).send(MAIL)
    assert receipt.accepted == ("ops@example.org",)
    assert receipt.refused == (RecipientRefusal("ann@example.org", 550, "no such user"),)
    assert receipt.refused[0].permanent
    assert server.mails[0].recipients == ["ops@example.org"]


def test_a_mail_without_any_recipient_left_is_not_sent(server: MailServer) -> None:
    server.replies = {
        "ops@example.org": ["550 no such user"],
        "ann@example.org": ["550 no such user"],
    }
    with pytest.raises(MailRefused, match="no such user"):
        plain(server).send(MAIL)
    server.replies = {
        "ops@example.org": ["550 no such user"],
        "ann@example.org": ["450 greylisted"],
    }
    with pytest.raises(MailNotSent, match="greylisted"):
        plain(server).send(MAIL)
    assert server.mails == []


def test_a_mail_that_is_too_large_is_refused_for_good() -> None:
    with MailServer(largest=500) as server, pytest.raises(MailRefused) as caught:
        plain(server).send(MAIL)
    assert caught.value.code == 552


def test_a_connection_lost_before_the_last_reply_leaves_it_unknown(server: MailServer) -> None:
    server.replies["DATA"] = ["close"]
    with pytest.raises(MailNotSent, match="may have been sent") as caught:
        plain(server).send(MAIL)
    assert caught.value.unknown
    outcome = outcome_of_exception(caught.value)
    assert isinstance(outcome, mp.Retry)
    assert outcome.unknown


@contextmanager
def listening(script: Callable[[socket.socket, threading.Event], None]) -> Iterator[int]:
    """A server that runs the script for its first connection."""
    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                try:
                    script(connection, over)
                except OSError:
                    pass

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            over.set()
            thread.join(60)


def silent(connection: socket.socket, over: threading.Event) -> None:
    over.wait(60)


def dribbling(connection: socket.socket, over: threading.Event) -> None:
    connection.sendall(b"220-")
    while not over.wait(0.02):
        connection.sendall(b"x")


def silent_after_greeting(connection: socket.socket, over: threading.Event) -> None:
    connection.sendall(b"220 hello\r\n")
    over.wait(60)


@pytest.mark.parametrize("scheme", ["smtp", "smtps"])
@pytest.mark.parametrize("script", [silent, dribbling, silent_after_greeting])
def test_a_server_that_hangs_is_given_up_on(
    scheme: str, script: Callable[[socket.socket, threading.Event], None]
) -> None:
    with listening(script) as port, pytest.raises(MailNotSent) as caught:
        mail_transport(f"{scheme}://127.0.0.1:{port}", timeout=QUICK).send(MAIL)
    assert not caught.value.unknown
    if scheme == "smtp":
        assert "no reply within 0.3 s" in str(caught.value)


@pytest.mark.parametrize(
    "greeting", [b"554 no service here\r\n", b"HTTP/1.1 400 Bad Request\r\n\r\n", b""]
)
def test_what_is_no_mail_server_is_said(greeting: bytes) -> None:
    with (
        listening(lambda connection, over: connection.sendall(greeting)) as port,
        pytest.raises(MailNotSent, match=f"127.0.0.1:{port}"),
    ):
        mail_transport(f"smtp://127.0.0.1:{port}", timeout=60).send(MAIL)


def test_no_server_at_all_is_said() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(MailNotSent, match="refused"):
        mail_transport(f"smtp://127.0.0.1:{port}", timeout=60).send(MAIL)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("smtp://user:hunter2@mail.example.org", "environment variable"),
        ("smtps://user@mail.example.org", "NOT_SET"),
        ("http://mail.example.org", "smtp://"),
        ("smtp://", "smtp://"),
        ("smtp://mail.example.org/inbox", "smtp://"),
        ("smtp://mail.example.org:port", "smtp://"),
        ("smtp://mail.example.org?tls=maybe", "if-offered"),
        ("smtp://user@mail.example.org?tls=never", "in the clear"),
        ("smtps://mail.example.org?tls=never", "unknown option"),
        ("ses://somewhere", "region"),
        ("ses://eu-west-2?via=x", "unknown option"),
    ],
)
def test_a_url_that_cannot_be_is_refused(url: str, said: str) -> None:
    environment = {"NOT_SET": "x"} if "never" in url else {}
    with pytest.raises(mp.UsageError, match=said) as caught:
        mail_transport(url, password_env="NOT_SET", environment=environment)
    assert "hunter2" not in str(caught.value)


class _Ses(BaseHTTPRequestHandler):
    """SES's HTTP interface for one call: send an e-mail (version 2 of the API)."""

    server: SesServer

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.calls.append((self.path, body))
        status, kind, answer = (
            self.server.answers.pop(0)
            if self.server.answers
            else (200, "", {"MessageId": "0102-abc"})
        )
        content = json.dumps(answer).encode()
        self.send_response(status)
        if kind:
            self.send_header("x-amzn-ErrorType", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Requests are in `calls`."""


class SesServer(ThreadingHTTPServer):
    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Ses)
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.answers: list[tuple[int, str, dict[str, str]]] = []


@pytest.fixture
def ses(monkeypatch: pytest.MonkeyPatch) -> Iterator[SesServer]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    with SesServer() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join(60)


def by_ses(ses: SesServer) -> MailTransport:
    return mail_transport(
        f"ses://eu-west-2?endpoint=http://127.0.0.1:{ses.server_address[1]}", timeout=60
    )


def test_ses_is_given_the_whole_message(ses: SesServer) -> None:
    receipt = by_ses(ses).send(MAIL)
    assert receipt.reply == "0102-abc"
    assert receipt.accepted == ("ops@example.org", "ann@example.org")
    [(path, body)] = ses.calls
    assert path == "/v2/email/outbound-emails"
    assert body["FromEmailAddress"] == "deposits@example.org"
    assert body["Destination"] == {"ToAddresses": ["ops@example.org", "ann@example.org"]}
    assert f"Message-ID: {MAIL.message_id}".encode() in b64decode(body["Content"]["Raw"]["Data"])


@pytest.mark.parametrize(
    ("status", "kind", "said", "permanent"),
    [
        (400, "MessageRejected", "Address is on the suppression list", True),
        (400, "MessageRejected", "Email address is not verified", False),
        (400, "BadRequestException", "Message length is more than 10485760 bytes", True),
        (400, "SendingPausedException", "paused", False),
        (429, "TooManyRequestsException", "slower", False),
        (403, "AccessDeniedException", "not allowed", False),
        (500, "InternalServiceErrorException", "oops", False),
    ],
)
def test_errors_of_ses(ses: SesServer, status: int, kind: str, said: str, permanent: bool) -> None:
    ses.answers = [(status, kind, {"message": said})]
    with pytest.raises(MailRefused if permanent else MailNotSent, match=said):
        by_ses(ses).send(MAIL)
    assert len(ses.calls) == 1, "the engine repeats, not the SDK"


def test_ses_that_cannot_be_reached(ses: SesServer, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(MailNotSent, match="cannot be reached"):
        mail_transport(f"ses://eu-west-2?endpoint=http://127.0.0.1:{port}", timeout=60).send(MAIL)
