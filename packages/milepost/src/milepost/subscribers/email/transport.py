"""Mail transports by URL: SMTP with STARTTLS, SMTP with TLS, or Amazon SES."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any, Protocol
from urllib.parse import parse_qsl, unquote, urlsplit

from milepost.core.errors import UsageError
from milepost_net import Tls
from milepost_net.guard import is_loopback
from milepost.subscribers.email.message import Mail, MailError, MailNotSent, MailReceipt, MailRefused, plain_address
from milepost.subscribers.email.smtp import Encryption, SmtpTransport

PORTS = {"smtp": 587, "smtps": 465}
PASSWORD_ENV = "SMTP_PASSWORD"
FORMS = "smtp://HOST:PORT, smtps://USER@HOST or ses://REGION"

_HOST = re.compile(r"[A-Za-z0-9_.:-]+")
_TLS: dict[str, Encryption] = {"required": "starttls", "if-offered": "starttls-if-offered", "never": "none"}

_REGION = re.compile(r"[a-z]{2}(-[a-z]+)+-\d")
# Errors of this mail. All others end when an account, a limit, a permission or an identity is corrected.
_OF_THE_MAIL = frozenset({"MessageRejected", "BadRequestException", "ValidationException", "InvalidParameterValue"})
_UNVERIFIED = re.compile(r"not verified", re.IGNORECASE)


class MailTransport(Protocol):
    """Sends mails. It may be used by several threads."""

    name: str

    def send(self, mail: Mail) -> MailReceipt:
        """Send a mail: returns when it was accepted for at least one recipient. Raises MailRefused if a repeat would be refused too, and
        MailNotSent if it may succeed later."""


def mail_transport(
    url: str,
    *,
    password_env: str | None = None,
    timeout: float = 10.0,
    tls: Tls | None = None,
    environment: Mapping[str, str] | None = None,
) -> MailTransport:
    """The transport of a URL.

    `smtp://HOST` (port 587) demands STARTTLS, except on loopback, where STARTTLS is used if it is offered; `?tls=never` is for a relay in
    your own network that has none, `?tls=required` and `?tls=if-offered` say it otherwise. `smtps://HOST` (port 465) begins with TLS.
    With a user, as in `smtps://USER@HOST` (`@` within it is `%40`), it logs in; the password is in the environment variable `password_env`,
    SMTP_PASSWORD if none is named. `ses://REGION` is Amazon SES (needs `milepost[aws]`). `timeout` is the limit in seconds for one mail.
    `environment` stands for `os.environ` in tests.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise UsageError(f"the mail server's URL is not one ({error}); write {FORMS}") from None
    if parts.password is not None:
        raise UsageError("the mail server's URL holds a password; put it into an environment variable, and name that one as password_env")
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    host = parts.hostname or ""
    if parts.scheme not in ("smtp", "smtps", "ses") or _HOST.fullmatch(host) is None or parts.path not in ("", "/") or parts.fragment:
        raise UsageError(f"{url!r} is no URL of a mail server; write {FORMS}")
    if parts.scheme == "ses":
        _check_options(options, ("endpoint",))
        return SesTransport(host, endpoint=options.get("endpoint"), timeout=timeout)
    _check_options(options, ("tls",) if parts.scheme == "smtp" else ())
    encryption: Encryption = "tls" if parts.scheme == "smtps" else "starttls-if-offered" if is_loopback(host) else "starttls"
    if "tls" in options:
        if options["tls"] not in _TLS:
            raise UsageError(f"the mail server's URL has tls={options['tls']!r}; write {', '.join(_TLS)}")
        encryption = _TLS[options["tls"]]
    user, password = unquote(parts.username) if parts.username else None, None
    if user is not None:
        variable = password_env or PASSWORD_ENV
        password = (os.environ if environment is None else environment).get(variable)
        if not password:
            raise UsageError(f"the password of {user} at the mail server is missing: set the environment variable {variable}")
    return SmtpTransport(
        host, port or PORTS[parts.scheme], encryption=encryption, user=user, password=password, timeout=timeout, tls=tls
    )  # fmt: skip


def _check_options(options: Mapping[str, str], known: tuple[str, ...]) -> None:
    for name in options:
        if name not in known:
            raise UsageError(f"the mail server's URL has the unknown option {name!r}" + (f"; known is {known[0]}" if known else ""))


class SesTransport:
    """Sends mails through SES in a region. Credentials are those of boto3. `timeout` is the limit in seconds for one mail. SES replaces
    the Message-ID; the header X-Milepost-Id stays."""

    def __init__(self, region: str, *, endpoint: str | None = None, timeout: float = 10.0) -> None:
        if _REGION.fullmatch(region) is None:
            raise UsageError(f"{region!r} is no AWS region; write ses://eu-west-2 or so")
        if timeout <= 0:
            raise UsageError(f"SesTransport(timeout={timeout!r}): give seconds, more than 0")
        self.name = f"ses-{region}"
        self._client = _client(region, endpoint, timeout)

    def __repr__(self) -> str:
        return f"<SesTransport {self.name}>"

    def send(self, mail: Mail) -> MailReceipt:
        """Send the mail through SES. Raises MailRefused or MailNotSent."""
        recipients = mail.recipients
        try:
            answer = self._client.send_email(
                FromEmailAddress=plain_address(mail.sender),
                Destination={"ToAddresses": recipients},
                Content={"Raw": {"Data": mail.as_bytes()}},
            )
        except Exception as error:
            raise _failure(error) from None
        return MailReceipt(tuple(recipients), reply=str(answer.get("MessageId", "")))


def _failure(error: Exception) -> MailError:
    """The MailError for an error of boto3, which has no common type that can be imported without boto3."""
    response = getattr(error, "response", None) or {}
    code = str(response.get("Error", {}).get("Code", ""))
    status = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    if not code:
        # A connection that breaks off after the request was sent; a timeout while connecting is certain.
        unknown = type(error).__name__ in ("ReadTimeoutError", "ConnectionClosedError")
        maybe = "; the mail may have been sent" if unknown else ""
        return MailNotSent(f"SES cannot be reached: {type(error).__name__}{maybe}", unknown=unknown)
    said = f"{code}: {str(response['Error'].get('Message', ''))[:200]}"
    if code in _OF_THE_MAIL and not _UNVERIFIED.search(said):
        return MailRefused(f"SES refuses this mail for good ({said})", code=status)
    return MailNotSent(f"SES did not accept this mail ({said})", code=status)


def _client(region: str, endpoint: str | None, timeout: float) -> Any:
    try:
        import boto3
        from botocore.config import Config
    except ImportError:
        raise UsageError("SES needs boto3, which is not installed: pip install '/path/to/milepost[aws]'") from None
    connect = min(3.0, timeout / 2)
    config = Config(retries={"total_max_attempts": 1}, connect_timeout=connect, read_timeout=timeout - connect)
    return boto3.client("sesv2", region_name=region, endpoint_url=endpoint, config=config)
