"""Mail transports by URL: SMTP with STARTTLS, SMTP with TLS, or what a package adds, such as Amazon
SES."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Protocol
from urllib.parse import parse_qsl, unquote, urlsplit

from milepost.core.errors import UsageError
from milepost.ports.extensions import MAIL, extension, missing_package
from milepost.subscribers.email.message import Mail, MailReceipt
from milepost.subscribers.email.smtp import Encryption, SmtpTransport
from milepost_net import Tls
from milepost_net.guard import is_loopback

PORTS = {"smtp": 587, "smtps": 465}
PASSWORD_ENV = "SMTP_PASSWORD"
FORMS = "smtp://HOST:PORT, smtps://USER@HOST or ses://REGION"

_HOST = re.compile(r"[A-Za-z0-9_.:-]+")
_TLS: dict[str, Encryption] = {
    "required": "starttls",
    "if-offered": "starttls-if-offered",
    "never": "none",
}


class MailTransport(Protocol):
    """Sends mails. It may be used by several threads."""

    name: str

    def send(self, mail: Mail) -> MailReceipt:
        """Send a mail: returns when it was accepted for at least one recipient. Raises MailRefused
        if a repeat would be refused too, and MailNotSent if it may succeed later."""


def mail_transport(
    url: str,
    *,
    password_env: str | None = None,
    timeout: float = 10.0,
    tls: Tls | None = None,
    environment: Mapping[str, str] | None = None,
) -> MailTransport:
    """The transport of a URL.

    `smtp://HOST` (port 587) demands STARTTLS, except on loopback, where STARTTLS is used if it is
    offered; `?tls=never` is for a relay in your own network that has none, `?tls=required` and
    `?tls=if-offered` say it otherwise. `smtps://HOST` (port 465) begins with TLS. With a user, as
    in `smtps://USER@HOST` (`@` within it is `%40`), it logs in; the password is in the environment
    variable `password_env`, SMTP_PASSWORD if none is named. `ses://REGION` is Amazon SES (the
    package milepost-aws). `timeout` is the limit in seconds for one mail. `environment` stands for
    `os.environ` in tests.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise UsageError(f"the mail server's URL is not one ({error}); write {FORMS}") from None
    if parts.password is not None:
        raise UsageError(
            "the mail server's URL holds a password; put it into an environment variable, and name that one as password_env"
        )
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    host = parts.hostname or ""
    if _HOST.fullmatch(host) is None or parts.path not in ("", "/") or parts.fragment:
        raise UsageError(f"{url!r} is no URL of a mail server; write {FORMS}")
    if parts.scheme not in PORTS:
        return _installed(url, parts.scheme, host, options, timeout)
    check_options(options, ("tls",) if parts.scheme == "smtp" else ())
    encryption: Encryption = (
        "tls"
        if parts.scheme == "smtps"
        else "starttls-if-offered"
        if is_loopback(host)
        else "starttls"
    )
    if "tls" in options:
        if options["tls"] not in _TLS:
            raise UsageError(
                f"the mail server's URL has tls={options['tls']!r}; write {', '.join(_TLS)}"
            )
        encryption = _TLS[options["tls"]]
    user, password = unquote(parts.username) if parts.username else None, None
    if user is not None:
        variable = password_env or PASSWORD_ENV
        password = (os.environ if environment is None else environment).get(variable)
        if not password:
            raise UsageError(
                f"the password of {user} at the mail server is missing: set the environment variable {variable}"
            )
    return SmtpTransport(
        host, port or PORTS[parts.scheme], encryption=encryption, user=user, password=password, timeout=timeout, tls=tls
    )  # fmt: skip


def check_options(options: Mapping[str, str], known: tuple[str, ...]) -> None:
    for name in options:
        if name not in known:
            raise UsageError(
                f"the mail server's URL has the unknown option {name!r}"
                + (f"; known is {known[0]}" if known else "")
            )


def _installed(
    url: str, scheme: str, host: str, options: Mapping[str, str], timeout: float
) -> MailTransport:
    """The transport of a scheme that an installed package adds."""
    known = extension(MAIL, scheme)
    if known is None:
        missing = missing_package(MAIL, scheme)
        if missing is None:
            raise UsageError(f"{url!r} is no URL of a mail server; write {FORMS}")
        raise UsageError(
            f"the mail server {url!r} needs a package that is not installed; {missing}"
        )
    transport: MailTransport = known(host, options, timeout=timeout)
    return transport
