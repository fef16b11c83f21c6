"""One tree of errors. Every message says what is wrong, where, and what would be right.

MilepostError
├── UsageError              the call itself is wrong (command line exit code 2)
│   ├── RouteMistake        a route is written wrongly; raised while it is being imported
│   └── ConfigMistake       milepost.toml, --ledger or --routes say something that cannot be
├── MalformedInput          one item's input cannot be taken in (the others can)
├── RouteChanged            this process's route differs from the one the ledger holds
├── EventRefused            a subscriber says that it will never take this event
└── LedgerError             the ledger cannot be used
    ├── LedgerBusy          other processes held the file longer than we are willing to wait
    ├── LedgerFull          no space left where the ledger lives
    ├── LedgerReadOnly      the ledger may not be written
    ├── LedgerDamaged       the file is corrupt
    ├── LedgerForeign       the file is not a ledger of ours
    ├── LedgerMissing       the table or queue is not there
    ├── LedgerMoved         its items have been moved to another ledger
    └── LedgerTooNew        a later Milepost made this ledger
"""

from __future__ import annotations


class MilepostError(Exception):
    """Anything that Milepost itself has to say."""


class UsageError(MilepostError):
    """The call is wrong; nothing was done."""


class RouteMistake(UsageError):
    """A route is written wrongly."""


class ConfigMistake(UsageError):
    """The configuration says something that cannot be."""


class MalformedInput(MilepostError):
    """One input cannot be taken in. `field` names what is wrong in it and `expected` says what would be right, where that can be said."""

    def __init__(self, message: str, *, field: str = "", expected: str = "") -> None:
        super().__init__(message)
        self.field, self.expected = field, expected


class RouteChanged(MilepostError):
    """The ledger holds another version of this route."""


class ActRefused(MilepostError):
    """What was asked of an item cannot be done; nothing was changed."""


class EventRefused(MilepostError):
    """Raised by a subscriber that will never accept the event it was given: the item is parked for it at once."""


class LedgerError(MilepostError):
    """The ledger cannot be used."""

    def after(self, done: str) -> None:
        """Say in the message what had been done before."""
        self.args = (f"{self}. {done}", *self.args[1:])


class LedgerBusy(LedgerError):
    """Other processes held the ledger for too long."""


class LedgerFull(LedgerError):
    """No space is left where the ledger lives."""


class LedgerReadOnly(LedgerError):
    """The ledger may not be written."""


class LedgerDamaged(LedgerError):
    """The ledger's file is corrupt."""


class LedgerForeign(LedgerError):
    """The file belongs to some other program."""


class LedgerMissing(LedgerError):
    """The table or queue is not there."""


class LedgerMoved(LedgerError):
    """The route's items have been, or are being, moved to another ledger."""


class LedgerTooNew(LedgerError):
    """A later version of Milepost made this ledger."""
