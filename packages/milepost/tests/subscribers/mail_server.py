"""A real SMTP server on loopback for tests: it keeps what it accepts, and answers as a test
says."""

from __future__ import annotations

import asyncio
import ssl
import threading
from dataclasses import dataclass, field
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import default
from types import TracebackType
from typing import Any, cast

from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session


@dataclass(frozen=True)
class Received:
    """One mail as it was accepted."""

    sender: str
    recipients: list[str]
    content: bytes
    encrypted: bool
    user: str | None

    @property
    def message(self) -> EmailMessage:
        return cast(EmailMessage, message_from_bytes(self.content, policy=default))


@dataclass
class MailServer:
    """`with MailServer() as server:` then `server.mails`. `replies` holds, by command ("MAIL",
    "RCPT", an address, "DATA"), replies to give instead of acceptance; each is used once."""

    starttls: ssl.SSLContext | None = None
    implicit: ssl.SSLContext | None = None
    password: str | None = None
    largest: int = 33_554_432
    mails: list[Received] = field(default_factory=list)
    replies: dict[str, list[str]] = field(default_factory=dict)
    logins: list[tuple[str, str]] = field(default_factory=list)
    port: int = 0

    def __enter__(self) -> MailServer:
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        assert self._ready.wait(60)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(60)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(
            self._loop.create_server(self._protocol, "127.0.0.1", 0, ssl=self.implicit)
        )
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        self._loop.run_forever()
        server.close()
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        self._loop.close()

    def _protocol(self) -> SMTP:
        options: dict[str, Any] = {}
        if self.password is not None:
            # The server does not count TLS from the first byte as TLS.
            options = {
                "authenticator": self._authenticate,
                "auth_required": self.implicit is None,
                "auth_require_tls": self.implicit is None,
            }
        return SMTP(
            self,
            tls_context=self.starttls,
            data_size_limit=self.largest,
            hostname="mail.test",
            loop=self._loop,
            **options,
        )

    def _authenticate(
        self, server: Any, session: Session, envelope: Envelope, mechanism: str, data: Any
    ) -> AuthResult:
        if not isinstance(data, LoginPassword):
            return AuthResult(success=False, handled=False)
        self.logins.append((data.login.decode(), data.password.decode()))
        return AuthResult(
            success=data.password.decode() == self.password, handled=False, auth_data=data
        )

    def _next(self, *names: str) -> str | None:
        for name in names:
            if self.replies.get(name):
                return self.replies[name].pop(0)
        return None

    async def handle_MAIL(
        self, server: Any, session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        reply = self._next("MAIL")
        if reply is None:
            envelope.mail_from = address
            envelope.mail_options.extend(options)
        return reply or "250 OK"

    async def handle_RCPT(
        self, server: Any, session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        reply = self._next(address, "RCPT")
        if reply is None:
            envelope.rcpt_tos.append(address)
        return reply or "250 OK"

    async def handle_DATA(self, server: Any, session: Session, envelope: Envelope) -> str:
        reply = self._next("DATA")
        if reply == "close":
            server.transport.abort()
            return "250 never read"
        if reply is None:
            login = (
                session.auth_data.login.decode()
                if isinstance(session.auth_data, LoginPassword)
                else None
            )
            content = envelope.content if isinstance(envelope.content, bytes) else b""
            encrypted = session.ssl is not None or self.implicit is not None
            self.mails.append(
                Received(
                    str(envelope.mail_from), list(envelope.rcpt_tos), content, encrypted, login
                )
            )
        return reply or "250 queued as 4711"
