"""Mail transport through Amazon SES: `ses://REGION`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from milepost.core.errors import UsageError
from milepost.subscribers.email.message import (
    Mail,
    MailError,
    MailNotSent,
    MailReceipt,
    MailRefused,
    plain_address,
)
from milepost.subscribers.email.transport import check_options

_REGION = re.compile(r"[a-z]{2}(-[a-z]+)+-\d")
# Errors of this mail. All others end when an account, a limit, a permission or an identity is
# corrected.
_OF_THE_MAIL = frozenset(
    {"MessageRejected", "BadRequestException", "ValidationException", "InvalidParameterValue"}
)
_UNVERIFIED = re.compile(r"not verified", re.IGNORECASE)


def ses_transport(region: str, options: Mapping[str, str], *, timeout: float) -> SesTransport:
    """The transport of ses://REGION. The option `endpoint` is for a stand-in."""
    check_options(options, ("endpoint",))
    return SesTransport(region, endpoint=options.get("endpoint"), timeout=timeout)


class SesTransport:
    """Sends mails through SES in a region. Credentials are those of boto3. `timeout` is the limit
    in seconds for one mail. SES replaces the Message-ID; the header X-Milepost-Id stays."""

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
    """The MailError for an error of boto3, which has no common type that can be imported without
    boto3."""
    response = getattr(error, "response", None) or {}
    code = str(response.get("Error", {}).get("Code", ""))
    status = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    if not code:
        # A connection that breaks off after the request was sent; a timeout while connecting is
        # certain.
        unknown = type(error).__name__ in ("ReadTimeoutError", "ConnectionClosedError")
        maybe = "; the mail may have been sent" if unknown else ""
        return MailNotSent(f"SES cannot be reached: {type(error).__name__}{maybe}", unknown=unknown)
    said = f"{code}: {str(response['Error'].get('Message', ''))[:200]}"
    if code in _OF_THE_MAIL and not _UNVERIFIED.search(said):
        return MailRefused(f"SES refuses this mail for good ({said})", code=status)
    return MailNotSent(f"SES did not accept this mail ({said})", code=status)


def _client(region: str, endpoint: str | None, timeout: float) -> Any:
    import boto3
    from botocore.config import Config

    connect = min(3.0, timeout / 2)
    config = Config(
        retries={"total_max_attempts": 1}, connect_timeout=connect, read_timeout=timeout - connect
    )
    return boto3.client("sesv2", region_name=region, endpoint_url=endpoint, config=config)
