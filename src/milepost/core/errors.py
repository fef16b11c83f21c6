"""Exceptions: one tree. Every message says what is wrong, where, and what would be right."""

from __future__ import annotations


class MilepostError(Exception):
    """Base of all errors that Milepost raises."""


class UsageError(MilepostError):
    """The call is wrong; nothing was done."""


class RouteMistake(UsageError):
    """A route is written wrongly; raised while its file is imported."""


class ConfigMistake(UsageError):
    """The configuration (milepost.toml, --ledger or --routes) has an invalid value."""


class NotFound(UsageError):
    """The object that the call names does not exist; over HTTP the status is 404."""


class CostlyQuery(UsageError):
    """No index of the ledger serves this search, and the caller did not allow a full scan; over HTTP the status is 400."""


class ActConflict(UsageError):
    """The id of this act is on record for an act with other content; over HTTP the status is 409."""


class MalformedInput(MilepostError):
    """One input cannot be accepted; the others can. `field` names the wrong field and `expected` says what would be right, where known."""

    def __init__(self, message: str, *, field: str = "", expected: str = "") -> None:
        super().__init__(message)
        self.field, self.expected = field, expected


class RouteChanged(MilepostError):
    """The ledger holds another version of a route than this process."""


class ActRefused(MilepostError):
    """An act on an item cannot be carried out; nothing was changed but perhaps a note in its history. `kind` is a stable code of the
    reason, such as "gone" (there is no such item), "ended", "confirms-nothing" or "impossible"."""

    def __init__(self, message: str, kind: str = "impossible") -> None:
        super().__init__(message)
        self.kind = kind


class EventRefused(MilepostError):
    """Raised by a subscriber that will never accept this event: the item is parked for it at once."""


class LedgerError(MilepostError):
    """The ledger cannot be used. `recorded` is the number of items that the failed operation had recorded before."""

    recorded = 0

    def after(self, done: str) -> None:
        """Add to the message what had been done before."""
        self.args = (f"{self}. {done}", *self.args[1:])


class LedgerBusy(LedgerError):
    """Other processes locked the ledger for too long."""


class LedgerFull(LedgerError):
    """No space is left where the ledger is."""


class LedgerReadOnly(LedgerError):
    """The ledger may not be written."""


class LedgerDamaged(LedgerError):
    """The ledger's file is corrupt."""


class LedgerForeign(LedgerError):
    """The file belongs to another program."""


class LedgerMissing(LedgerError):
    """The table or queue does not exist."""


class LedgerMoved(LedgerError):
    """The route's items were, or are being, moved to another ledger."""


class LedgerTooNew(LedgerError):
    """A later version of Milepost made this ledger."""
