"""Refusals: why nothing is written for an item, as a value with a kind for code and a sentence for
people."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct


class RefusalKind(StrEnum):
    IMPOSSIBLE = "impossible"
    """The item's status or its route does not allow it."""
    UNCHANGED = "unchanged"
    """The item is already in the requested state."""
    KNOWN = "known"
    """The same confirmation was given and accepted before: no failure."""
    NOTED_BEFORE = "noted-before"
    """The same contradicting confirmation was given before and is already noted: no failure."""
    ENDED = "ended"
    """The item has ended, and a partner's confirmation cannot change that. Worth a note
    (`core.confirmations.too_late`)."""
    CONFIRMS_NOTHING = "confirms-nothing"
    """The answer does not confirm what the stage was given to do. Worth a note
    (`core.confirmations.refused`)."""
    DONE_BEFORE = "done-before"
    """The same act has already handled the item."""
    CHANGED_SINCE = "changed-since"
    """The item has changed since the act began, or changes all the time."""
    GONE = "gone"
    """The row does not exist (any more)."""
    UNREADABLE = "unreadable"
    """The storage cannot read the row."""
    UNSTORABLE = "unstorable"
    """The storage refuses the change."""
    OUTDATED = "outdated"
    """The ledger holds a newer version of the route."""


SAID_BEFORE = frozenset({RefusalKind.KNOWN, RefusalKind.NOTED_BEFORE})
"""Refusals that are no failure: the same confirmation was given before."""


class Refusal(Struct, frozen=True):
    """Nothing is written, for this reason."""

    kind: RefusalKind
    text: str

    def __str__(self) -> str:
        return self.text


def impossible(text: str) -> Refusal:
    """A refusal because of the item's status or its route."""
    return Refusal(RefusalKind.IMPOSSIBLE, text)
