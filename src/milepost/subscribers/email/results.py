"""Results of sending a mail: a receipt, or an error that says whether a repeat can help and whether the mail may have been sent."""

from __future__ import annotations

from msgspec import Struct

from milepost.core.errors import MilepostError


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
    """A mail was not sent. `code` is the SMTP reply code, if the server gave one. A handler may let it through: it is a `Retry`, or a
    `Reject` where `permanent` is True."""

    permanent = False

    def __init__(self, message: str, *, code: int | None = None, unknown: bool = False) -> None:
        super().__init__(message)
        self.code = code
        self.unknown = unknown
        """May the mail have been sent? The connection was lost before the server's last reply. A repeat has the same Message-ID."""


class MailRefused(MailError):
    """The server refuses this mail for good (5xx for its sender, its recipients or its content): a repeat would be refused too."""

    permanent = True


class MailNotSent(MailError):
    """The mail was not sent now, and a repeat may succeed: no connection, no reply in time, a reply of 4xx, a refused login."""
