"""Exceptions: one tree. Every message says what is wrong, where, and what would be right."""

from __future__ import annotations

import errno


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


class NotAllowed(UsageError):
    """The caller may not do this; over HTTP the status is 403."""


class CostlyQuery(UsageError):
    """No index of the ledger serves this search, and the caller did not allow a full scan; over
    HTTP the status is 400."""


class ActConflict(UsageError):
    """The id of this act is on record for an act with other content; over HTTP the status is
    409."""


class MalformedInput(MilepostError):
    """One input cannot be accepted; the others can. `field` names the wrong field and `expected`
    says what would be right, where known."""

    def __init__(self, message: str, *, field: str = "", expected: str = "") -> None:
        super().__init__(message)
        self.field, self.expected = field, expected


class RouteChanged(MilepostError):
    """The ledger holds another version of a route than this process."""


class ActRefused(MilepostError):
    """An act on an item cannot be carried out; nothing was changed but perhaps a note in its
    history. `kind` is a stable code of the reason, such as "gone" (there is no such item), "ended",
    "confirms-nothing" or "impossible"."""

    def __init__(self, message: str, kind: str = "impossible") -> None:
        super().__init__(message)
        self.kind = kind


class EventRefused(MilepostError):
    """Raised by a subscriber that will never accept this event: the item is parked for it at
    once."""


class LedgerError(MilepostError):
    """The ledger cannot be used. `recorded` is the number of items that the failed operation had
    recorded before."""

    recorded = 0

    def after(self, done: str) -> None:
        """Add to the message what had been done before."""
        self.args = (f"{self}. {done}", *self.args[1:])


class LedgerUnavailable(LedgerError):
    """The ledger cannot be used at this moment, but perhaps later. A handler that raises it does
    not use up an attempt of its item."""


class LedgerBusy(LedgerUnavailable):
    """Other processes locked the ledger for too long."""


class LedgerFull(LedgerUnavailable):
    """No space is left where the ledger is."""


class TooManyOpenFiles(LedgerUnavailable):
    """This process, or the system, has no free file descriptor."""


class LedgerReadOnly(LedgerError):
    """The ledger may not be written."""


RESTORE = "stop all processes, keep a copy, and restore it from a backup"
"""What to do about a damaged ledger."""


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


NO_DESCRIPTOR = frozenset({errno.EMFILE, errno.ENFILE})
"""Codes of the system for "too many open files": in this process, and in the whole system."""


def is_shortage(error: BaseException | None) -> bool:
    """Whether the error, or the one that it was raised from, says that the process or its ledger
    lacks something that may come back: a lock, disk space or file descriptors. No item is at fault,
    and a service that meets it continues later."""
    while error is not None:
        if isinstance(error, LedgerUnavailable) or (
            isinstance(error, OSError) and error.errno in NO_DESCRIPTOR
        ):
            return True
        error = error.__cause__
    return False
