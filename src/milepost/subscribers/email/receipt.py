"""Receipts: which recipients a mail was accepted for."""

from __future__ import annotations

from msgspec import Struct


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
