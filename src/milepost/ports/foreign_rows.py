"""Rows that others put into a ledger, and the quarantine: what was set aside because it cannot be used."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from msgspec import Struct

from milepost.core.routes.plan import Plan


class Stray(Struct, frozen=True):
    """A row that others put and that has not been taken in: where it would be, and what it is said to have been through.
    `wrong` says why it cannot be taken in at all."""

    key: str
    stage: str = ""
    through: tuple[str, ...] = ()
    wrong: str | None = None


class Strays(Struct, frozen=True):
    """A part of the table, gone through: so many rows, and the strays among them."""

    rows: int
    found: list[Stray]
    next: Any = None
    """Give it as `after` to go on; None: this was the last part."""


class Adopted(Struct, frozen=True):
    """What became of one key. `done`: it is an item now; else `why` says why not. `stage` is where it was taken in."""

    key: str
    done: bool
    stage: str = ""
    why: str = ""


class QuarantineEntry(Struct, frozen=True):
    """Something that was set aside. `kind` is "row", "record" (a change of a row), "message", or what Lambda gave up: "stream
    batch" or "list"; "unknown" where others put it there."""

    id: str
    kind: str
    reason: str
    content: Any
    at: int
    """When it was set aside."""


class QuarantineStore(Protocol):
    """What was set aside because it cannot be used: rows that cannot be read or written and, on a ledger that others write to, changes
    of rows and messages."""

    def put(self, refs: Sequence[tuple[str, str]], reason: str, now: int) -> None:
        """Set these rows aside, each given by (route, key): they stay as they are, and are due no more until they are replayed."""

    def set_aside(self, most: int) -> tuple[list[QuarantineEntry], bool]:
        """What was set aside, oldest first, and whether there is more than that. It is left where it is."""

    def replay(self, plans: dict[str, Plan], ids: Sequence[str], now: int, *, by: str, why: str) -> list[Adopted]:
        """See to these again: rows and changes by how the row stands now, messages by their queue. What is seen to is set aside
        no more; what is not stays, with the reason."""

    def drop(self, ids: Sequence[str]) -> list[str]:
        """Take these off the list; those that there were. A row itself stays where it is."""


class Outside(Protocol):
    """Rows that others put."""

    def strays(self, plan: Plan, after: Any = None) -> Strays:
        """Go through a part of the route's table for rows that are not taken in."""

    def stray(self, plan: Plan, keys: Sequence[str]) -> list[Stray | None]:
        """The strays with these keys; None: there is no row, or it is taken in."""

    def adopt(self, plan: Plan, keys: Sequence[str], now: int, *, by: str, why: str) -> list[Adopted]:
        """Take these rows in, each where it stands: at the stage that it names, with what it has been through."""
