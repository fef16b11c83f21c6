"""SMTP transport: one connection per mail, with STARTTLS or TLS from the start, a login, and one
deadline for everything."""

from __future__ import annotations

import smtplib
import socket
import ssl
import threading
import time
from contextlib import suppress
from ipaddress import ip_address
from typing import Literal

from milepost.core.errors import UsageError
from milepost.net_errors import translated_net_errors
from milepost.subscribers.email.message import (
    Mail,
    MailError,
    MailNotSent,
    MailReceipt,
    MailRefused,
    RecipientRefusal,
    plain_address,
)
from milepost_net import Tls
from milepost_net.tls import context_of

Encryption = Literal["starttls", "starttls-if-offered", "tls", "none"]


class SmtpTransport:
    """Sends mails to the server at `host` and `port`.

    `encryption`: "tls" from the first byte, "starttls" before any other command,
    "starttls-if-offered" (for a server on the same machine), or "none". Certificates are verified;
    `tls` names an authority of your own. With a `user` it logs in, and never over a connection that
    is not encrypted. `timeout` is the limit in seconds for one mail, from the connection to the
    last reply.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        encryption: Encryption = "starttls",
        user: str | None = None,
        password: str | None = None,
        timeout: float = 10.0,
        tls: Tls | None = None,
    ) -> None:
        if timeout <= 0:
            raise UsageError(f"SmtpTransport(timeout={timeout!r}): give seconds, more than 0")
        if user is not None and password is None:
            raise UsageError(f"SmtpTransport(user={user!r}) needs password=… too")
        if user is not None and encryption == "none":
            raise UsageError(
                "a login needs an encrypted connection: a password is never sent in the clear"
            )
        self._host, self._port, self._encryption = host, port, encryption
        self._user, self._password = user, password
        self._timeout = timeout
        self._tls = tls or Tls()
        self.name = f"{host}:{port}"

    def __repr__(self) -> str:
        return f"<SmtpTransport {self.name}>"

    def send(self, mail: Mail) -> MailReceipt:
        """Send the mail. Returns when the server has accepted it for at least one recipient; the
        receipt names those it refused. Raises MailRefused or MailNotSent."""
        content = mail.as_bytes()
        ends_at = time.monotonic() + self._timeout
        smtp = _Smtp(
            self._host, self._port, ends_at, self._context() if self._encryption == "tls" else None
        )
        # Break the connection off at the deadline: a socket's own timeout starts anew with every
        # byte that comes.
        timer = threading.Timer(max(0.0, ends_at - time.monotonic()), smtp.break_off)
        timer.daemon = True
        timer.start()
        try:
            self._prepare(smtp)
            return self._transfer(smtp, mail, content)
        except MailError:
            raise
        except (smtplib.SMTPException, OSError, ValueError) as error:
            # smtplib reports a socket's timeout as a connection that was closed.
            late = smtp.broken_off or isinstance(error, TimeoutError) or time.monotonic() >= ends_at
            why = f"no reply within {self._timeout:g} s" if late else _cause(error)
            code = error.smtp_code if isinstance(error, smtplib.SMTPResponseException) else None
            raise MailNotSent(f"the mail server {self.name}: {why}", code=code) from None
        finally:
            smtp.end()
            timer.cancel()

    @translated_net_errors()
    def _context(self) -> ssl.SSLContext:
        return context_of(self._tls, None)

    def _prepare(self, smtp: _Smtp) -> None:
        code, reply = smtp.connect(self._host, self._port)
        if code != 220:
            raise self._not_now("does not accept connections", code, reply)
        self._greet(smtp)
        encrypted = self._encryption == "tls"
        if self._encryption in ("starttls", "starttls-if-offered"):
            if smtp.has_extn("starttls"):
                code, reply = smtp.starttls(context=self._context())
                if code != 220:
                    raise self._not_now("does not start TLS", code, reply)
                self._greet(smtp)
                encrypted = True
            elif self._encryption == "starttls":
                raise MailNotSent(
                    f"the mail server {self.name} does not offer STARTTLS; use smtps://, or, for a relay in your own network, ?tls=never"
                )
        if self._user is not None and self._password is not None:
            if not encrypted:
                raise MailNotSent(
                    f"the mail server {self.name} offers no encryption; the password is not sent in the clear"
                )
            try:
                smtp.login(self._user, self._password)
            except smtplib.SMTPAuthenticationError as error:
                raise self._not_now(
                    f"refuses the login of {self._user}", error.smtp_code, error.smtp_error
                ) from None
            except smtplib.SMTPNotSupportedError:
                raise MailNotSent(f"the mail server {self.name} offers no login") from None

    def _greet(self, smtp: _Smtp) -> None:
        code, reply = smtp.ehlo()
        if not 200 <= code < 300:
            code, reply = smtp.helo()
        if not 200 <= code < 300:
            raise self._not_now("refuses the greeting", code, reply)

    def _transfer(self, smtp: _Smtp, mail: Mail, content: bytes) -> MailReceipt:
        sender = plain_address(mail.sender)
        options = [f"SIZE={len(content)}"] if smtp.has_extn("size") else []
        code, reply = smtp.mail(sender, options)
        if code != 250:
            raise self._refusal(f"refuses mail from {sender}", code, reply)
        accepted, refused = list[str](), list[RecipientRefusal]()
        for address in mail.recipients:
            code, reply = smtp.rcpt(address)
            if code in (250, 251):
                accepted.append(address)
            elif code == 421:
                raise self._not_now("closes the connection", code, reply)
            else:
                refused.append(RecipientRefusal(address, code, _text(reply)))
        if not accepted:
            # One that may be accepted later is reason enough to try again.
            worst = next((one for one in refused if not one.permanent), refused[0])
            raise self._refusal(f"refuses mail to {worst.address}", worst.code, worst.text)
        try:
            code, reply = smtp.data(content)
        except smtplib.SMTPDataError as error:
            raise self._refusal("refuses the mail", error.smtp_code, error.smtp_error) from None
        except (smtplib.SMTPException, OSError) as error:
            raise MailNotSent(
                f"the mail server {self.name}: {_cause(error)}; the mail may have been sent",
                unknown=True,
            ) from None
        if code != 250:
            raise self._refusal("refuses the mail", code, reply)
        return MailReceipt(tuple(accepted), tuple(refused), _text(reply))

    def _refusal(self, what: str, code: int, reply: bytes | str) -> MailError:
        if 500 <= code < 600:
            return MailRefused(
                f"the mail server {self.name} {what} for good ({_said(code, reply)})", code=code
            )
        return self._not_now(what, code, reply)

    def _not_now(self, what: str, code: int, reply: bytes | str) -> MailNotSent:
        return MailNotSent(f"the mail server {self.name} {what} ({_said(code, reply)})", code=code)


class _Smtp(smtplib.SMTP):
    """smtplib's client, with TLS from the start where a context is given, and a deadline for the
    connection."""

    def __init__(self, host: str, port: int, ends_at: float, tls: ssl.SSLContext | None) -> None:
        # An explicit name: the default asks DNS for it, without a time limit.
        super().__init__(local_hostname="localhost", timeout=max(0.001, ends_at - time.monotonic()))
        self._host, self._tls, self._ends_at = host, tls, ends_at
        self.broken_off = False
        self._twin: socket.socket | None = None

    def _get_socket(self, host: str, port: int, timeout: float) -> socket.socket:
        sock = _connected(host, port, self._ends_at)
        self._twin = sock.dup()
        if time.monotonic() >= self._ends_at:
            raise TimeoutError
        self.local_hostname = _own_name(sock)
        return sock if self._tls is None else self._tls.wrap_socket(sock, server_hostname=host)

    def break_off(self) -> None:
        """End the connection from another thread. Through a second descriptor: TLS keeps the first
        for itself, also during its handshake."""
        self.broken_off = True
        if self._twin is not None:
            with suppress(OSError):
                self._twin.shutdown(socket.SHUT_RDWR)

    def end(self) -> None:
        """Send QUIT without waiting for the reply, because the result of the mail is known, and
        close the connection."""
        with suppress(Exception):
            self.putcmd("quit")
        with suppress(Exception):
            self.close()
        if self._twin is not None:
            self._twin.close()


def _connected(host: str, port: int, ends_at: float) -> socket.socket:
    """A connection to the first address that answers. The lookup runs in a thread: the system's has
    no time limit."""
    answers: list[list[str] | OSError] = []

    def look_up() -> None:
        try:
            answers.append(
                [
                    str(entry[4][0])
                    for entry in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
                ]
            )
        except (OSError, UnicodeError) as error:
            answers.append(
                error if isinstance(error, OSError) else OSError("not a name that can be resolved")
            )

    lookup = threading.Thread(target=look_up, name="milepost-resolve", daemon=True)
    lookup.start()
    lookup.join(max(0.0, ends_at - time.monotonic()))
    if not answers:
        raise TimeoutError
    [found] = answers
    if isinstance(found, OSError):
        raise found
    failure: OSError = OSError("it has no address")
    for address in dict.fromkeys(found):
        left = ends_at - time.monotonic()
        if left <= 0:
            raise TimeoutError
        try:
            return socket.create_connection((address, port), left)
        except OSError as error:
            failure = error
    raise failure


def _own_name(sock: socket.socket) -> str:
    """The name for EHLO: this machine's, if it is a whole one, else its address."""
    name = socket.gethostname()
    if "." in name:
        return name
    address = ip_address(str(sock.getsockname()[0]).partition("%")[0])
    return f"[IPv6:{address}]" if address.version == 6 else f"[{address}]"


def _cause(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not accepted ({error.verify_message})"
    if isinstance(error, ssl.SSLError):
        return "TLS failed; is it the right port? smtps:// begins with TLS, smtp:// with STARTTLS"
    if isinstance(error, smtplib.SMTPServerDisconnected):
        return "the connection was closed"
    if isinstance(error, smtplib.SMTPResponseException):
        return _said(error.smtp_code, error.smtp_error)
    if isinstance(error, OSError):
        return error.strerror or str(error) or type(error).__name__
    return type(error).__name__


def _said(code: int, reply: bytes | str) -> str:
    return f"{code} {_text(reply)}".strip()


def _text(reply: bytes | str) -> str:
    """A server's reply as one short line."""
    text = reply.decode("utf-8", "replace") if isinstance(reply, bytes) else reply
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())[:200]
