"""Foreign rows (put into a ledger by other programs) and the quarantine of content that cannot be
used."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from msgspec import Struct

from milepost.core.routes.plan import Plan


class ForeignRow(Struct, frozen=True):
    """A foreign row that is not adopted yet: the stage it would be at, and the stages it has
    completed. `wrong` says why it cannot be adopted."""

    key: str
    stage: str = ""
    through: tuple[str, ...] = ()
    wrong: str | None = None


class ForeignRowPage(Struct, frozen=True):
    """A scanned page of the table: number of rows, and the foreign rows among them."""

    rows: int
    found: list[ForeignRow]
    next: Any = None
    """Pass it as `after` to continue; None: this was the last page."""


class Adopted(Struct, frozen=True):
    """Result for one key. `done`: it is an item now; else `why` says why not. `stage` is where it
    was adopted."""

    key: str
    done: bool
    stage: str = ""
    why: str = ""


class QuarantineEntry(Struct, frozen=True):
    """A quarantine entry. `kind` is "row", "record" (a change of a row), "message", or what Lambda
    gave up: "stream batch" or "list"; "unknown" where another program put it there."""

    id: str
    kind: str
    reason: str
    content: Any
    at: int
    """When it was put into quarantine."""


class QuarantineStore(Protocol):
    """Quarantine: unreadable or unwritable rows and, on a ledger that other programs write to,
    stream records and messages."""

    def put(self, refs: Sequence[tuple[str, str]], reason: str, now: int) -> None:
        """Quarantine these rows, each given by (route, key): they stay unchanged, and are not due
        until they are replayed."""

    def entries(self, most: int) -> tuple[list[QuarantineEntry], bool]:
        """Entries, oldest first, and whether there are more. They stay in quarantine."""

    def replay(
        self, plans: dict[str, Plan], ids: Sequence[str], now: int, *, by: str, why: str
    ) -> list[Adopted]:
        """Handle these again: rows and records by the row's present state, messages by their queue.
        Entries that succeed leave the quarantine; the others stay, with the reason."""

    def drop(self, ids: Sequence[str]) -> list[str]:
        """Remove these entries; returns the ids that existed. A row itself stays unchanged."""


class ForeignRowStore(Protocol):
    """Access to foreign rows."""

    def scan(self, plan: Plan, after: Any = None) -> ForeignRowPage:
        """Scan the next page of the route's table for foreign rows."""

    def get(self, plan: Plan, keys: Sequence[str]) -> list[ForeignRow | None]:
        """The foreign rows with these keys; None: there is no row, or it is adopted."""

    def adopt(
        self, plan: Plan, keys: Sequence[str], now: int, *, by: str, why: str
    ) -> list[Adopted]:
        """Adopt these rows, each at the stage that it names, with its completed stages."""


class LedgerForeignRows(Protocol):
    """Content of other programs never becomes an item unnoticed: it is adopted, or it is in
    quarantine with the reason."""

    @property
    def foreign_rows(self) -> ForeignRowStore | None:
        """Access to foreign rows; None: no other program can write to this ledger."""

    @property
    def quarantine(self) -> QuarantineStore:
        """The quarantine of content that cannot be used."""
