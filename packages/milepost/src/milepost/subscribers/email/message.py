"""Mail messages, written as the bytes that a mail server takes, and the results of sending them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime, parseaddr
from hashlib import sha256

from msgspec import Struct

from milepost.core.errors import MilepostError, UsageError

ID_HEADER = "X-Milepost-Id"
"""Header with the digest of the mail's id, because a service such as SES replaces the
Message-ID."""

# 7-bit, because not every server takes eight; long lines are encoded.
_POLICY = SMTP.clone(cte_type="7bit")
_ADDRESS = re.compile(
    r"[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}@(?P<domain>[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*)"
)
_TYPE = re.compile(r"[A-Za-z0-9!#$&^_.+-]+/[A-Za-z0-9!#$&^_.+-]+")


class MailAttachment(Struct, frozen=True):
    """A file of a mail. Text is given as bytes in UTF-8, such as a CSV's."""

    filename: str
    content: bytes
    content_type: str = "application/octet-stream"


class Mail(Struct, frozen=True, kw_only=True):
    """A mail. `id` identifies its content, such as an event's id: a repeat with the same id has the
    same Message-ID and the same bytes, so that receivers recognise it. Addresses are `name@host`,
    or `Name <name@host>`. Raises UsageError if a field cannot be sent."""

    id: str
    sender: str
    to: Sequence[str]
    subject: str
    text: str
    html: str | None = None
    """The same as `text`, for mail programs that show HTML."""
    attachments: Sequence[MailAttachment] = ()
    cc: Sequence[str] = ()
    reply_to: str | None = None
    date: datetime | None = None
    """When it was written; None: when it is sent. A time without a zone is in UTC."""
    follows: str | None = None
    """The id of an earlier mail of the same sender: mail programs show both as one conversation."""

    def __post_init__(self) -> None:
        if isinstance(self.to, str) or isinstance(self.cc, str):
            raise UsageError("Mail(to=…, cc=…): give lists of addresses, not one text")
        if not self.id:
            raise UsageError(
                "Mail(id=…) is empty; give an id that is the same for a repeat, such as the event's"
            )
        if not self.recipients:
            raise UsageError("Mail(to=…) names no recipient")
        for address in (
            self.sender,
            *self.to,
            *self.cc,
            *([] if self.reply_to is None else [self.reply_to]),
        ):
            plain_address(address)
        if not self.subject.strip() or _broken(self.subject):
            raise UsageError("Mail(subject=…) must be one line of text")
        for attachment in self.attachments:
            if (
                not attachment.filename
                or _broken(attachment.filename)
                or "/" in attachment.filename
                or "\\" in attachment.filename
            ):
                raise UsageError(
                    f"the attachment {attachment.filename!r} needs a plain file name, without a folder"
                )
            if _TYPE.fullmatch(
                attachment.content_type
            ) is None or attachment.content_type.lower().startswith(("multipart/", "message/")):
                raise UsageError(
                    f"the attachment {attachment.filename!r} has the type {attachment.content_type!r}; write text/csv or so"
                )

    @property
    def recipients(self) -> list[str]:
        """The plain addresses it goes to, each once."""
        return list(dict.fromkeys(plain_address(address) for address in (*self.to, *self.cc)))

    @property
    def message_id(self) -> str:
        """Its Message-ID, which follows from `id` and the sender's domain."""
        return _message_id(self.id, self.sender)

    def as_bytes(self, now: datetime | None = None) -> bytes:
        """The whole message (RFC 5322). `now` is its Date where the mail has none of its own; the
        present if not given."""
        message = EmailMessage(policy=_POLICY)
        message["From"] = _named(self.sender)
        message["To"] = [_named(address) for address in self.to]
        if self.cc:
            message["Cc"] = [_named(address) for address in self.cc]
        if self.reply_to is not None:
            message["Reply-To"] = _named(self.reply_to)
        message["Subject"] = self.subject
        date = self.date or now or datetime.now(UTC)
        message["Date"] = format_datetime(
            date.replace(tzinfo=UTC) if date.tzinfo is None else date.astimezone(UTC)
        )
        message["Message-ID"] = self.message_id
        if self.follows is not None:
            message["In-Reply-To"] = message["References"] = _message_id(self.follows, self.sender)
        # Answering machines stay quiet (RFC 3834).
        message["Auto-Submitted"] = "auto-generated"
        message[ID_HEADER] = _digest(self.id)
        message.set_content(self.text)
        if self.html is not None:
            message.add_alternative(self.html, subtype="html")
        for attachment in self.attachments:
            kind, _, subtype = attachment.content_type.partition("/")
            parameters = {"charset": "utf-8"} if kind == "text" else None
            message.add_attachment(
                attachment.content, kind, subtype, filename=attachment.filename, params=parameters
            )
        multiparts = (
            part
            for part in message.walk()
            if isinstance(part, EmailMessage) and part.is_multipart()
        )
        for number, part in enumerate(multiparts):
            # Python's own boundaries are random; a repeat is the same bytes.
            part.set_boundary(f"=_{_digest(f'{self.id}/{number}')}")
        return message.as_bytes()


def plain_address(address: str) -> str:
    """`name@host` of an address that may have a display name; raises UsageError."""
    name, plain = parseaddr(address) if isinstance(address, str) else ("", "")
    if (
        _ADDRESS.fullmatch(plain) is None
        or _broken(address)
        or (not name and plain != address.strip().strip("<>"))
    ):
        raise UsageError(
            f"{address!r} is no mail address; write ops@example.org, or Operations <ops@example.org>"
        )
    return plain


def _named(address: str) -> Address:
    name, _ = parseaddr(address)
    return Address(display_name=name, addr_spec=plain_address(address))


def _message_id(mail_id: str, sender: str) -> str:
    domain = plain_address(sender).rpartition("@")[2].lower()
    return f"<{_digest(mail_id)}@{domain}>"


def _digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:40]


def _broken(text: str) -> bool:
    """Whether the text has control characters, which could begin another header."""
    return any(
        ord(character) < 32 or ord(character) == 127 or character in "\x85\u2028\u2029"
        for character in text
    )


class RecipientRefusal(Struct, frozen=True):
    """A recipient that the server refused, while it accepted the mail for others."""

    address: str
    code: int
    text: str

    @property
    def permanent(self) -> bool:
        """Would a repeat be refused too?"""
        return 500 <= self.code < 600


class MailReceipt(Struct, frozen=True):
    """A mail that was accepted for at least one recipient."""

    accepted: tuple[str, ...]
    refused: tuple[RecipientRefusal, ...] = ()
    reply: str = ""
    """The server's last reply; with SES the id that it gave the mail."""


class MailError(MilepostError):
    """A mail was not sent. `code` is the SMTP reply code, if the server gave one. A handler may let
    it through: it is a `Retry`, or a `Reject` where `permanent` is True."""

    permanent = False

    def __init__(self, message: str, *, code: int | None = None, unknown: bool = False) -> None:
        super().__init__(message)
        self.code = code
        self.unknown = unknown
        """May the mail have been sent? The connection was lost before the server's last reply. A
        repeat has the same Message-ID."""


class MailRefused(MailError):
    """The server refuses this mail for good (5xx for its sender, its recipients or its content): a
    repeat would be refused too."""

    permanent = True


class MailNotSent(MailError):
    """The mail was not sent now, and a repeat may succeed: no connection, no reply in time, a reply
    of 4xx, a refused login."""
