"""Retention in a ledger: rows of ended items leave, their seals stay, and lines leave once they are
delivered."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from milepost.core.history import without_content
from milepost.core.item import Item
from milepost.core.status import Status
from milepost.ports.feed import HistoryEntry
from milepost.ports.items import KnownKey


class DeliveredLines(Struct, frozen=True):
    """Lines that all subscribers have: those up to a place, except the lines of items parked for a
    subscriber."""

    up_to: int
    """Every subscriber's cursor has passed this place, and daily heads, if there are any, cover
    it."""
    parked: frozenset[tuple[str, str]] = frozenset()
    """(route, key) of each item with an undelivered event that a subscriber's cursor has passed."""

    def covers(self, route: str, key: str, last: int) -> bool:
        """Whether all lines of this item, the last of which has this place, are delivered."""
        return last <= self.up_to and (route, key) not in self.parked


class Leaving(Struct, frozen=True):
    """An item whose row is about to leave: all of it, with its lines."""

    item: Item
    lines: list[HistoryEntry]


Keep = Callable[[Sequence[Leaving]], None]
"""Callback that stores what must outlive rows; it may be called again with the same items."""


class PruneCriteria(Struct, frozen=True):
    """The rows, lines and seals of a route that may leave."""

    route: str
    statuses: frozenset[Status]
    ended_before: int
    """Rows that ended before then with one of these statuses leave; their seals stay."""
    forget_before: int | None
    """Seals older than this are removed if their lines have left; None: none are."""
    delivered: DeliveredLines
    """The lines of rows that have left, and ended before then, leave once these cover them; until
    then `feed` and `history` return them."""
    limit: int
    keep: Keep | None = None
    """Gets each row just before it leaves; a row that it cannot keep stays."""


class Pruned(Struct, frozen=True):
    """Result of one call of `prune`."""

    items: int
    forgotten: int
    """Seals older than the route remembers."""
    more: bool
    lines: int = 0
    """Items without a row whose lines were removed now."""
    statuses: dict[Status, int] = {}
    """Removed rows by status."""


class LeftFailures(Struct, frozen=True):
    """Seals of failed items whose rows have left, in the order of their keys."""

    seals: list[KnownKey]
    next: str | None = None
    """Pass it as `after` to continue; None: this was the last page."""
    complete: bool = True
    """False: the ledger has not read all its old seals yet, so that there may be more."""


class ForgetRequest(Struct, frozen=True):
    """An ended item whose content is to be removed. `name` stands for its key afterwards
    (`core.forgetting.forgotten_name`). With `dry_run` nothing is changed; the answer is the
    refusal, if there is one."""

    route: str
    key: str
    name: str
    now: int
    dry_run: bool = False


class Forgotten(Struct, frozen=True):
    """Result of `forget`. `refused`: why nothing was changed; empty if the content is gone."""

    refused: str = ""
    lines: int = 0
    """Lines whose content was removed now."""
    remains: tuple[str, ...] = ()
    """Copies in this storage that the ledger cannot remove, each as a phrase."""


def not_ended(status: Status) -> str:
    """Why an item with this status is not forgotten."""
    return f"it has not ended ({status}): a worker or a partner may still need its content; cancel it first"


def emptied(entries: Sequence[HistoryEntry], name: str) -> list[HistoryEntry]:
    """The lines of one life of a key, oldest first, without their content and under the name that
    stands for the key. The first line has no digest before it either: that one is made of the key
    and the input."""
    digests = [later.previous for later in entries[1:]] + [entry.digest for entry in entries[-1:]]
    stubs = [
        HistoryEntry(
            entry.seq,
            entry.route,
            name,
            "",
            entry.previous,
            entry.body if entry.removed else without_content(entry.line, digest),
        )
        for entry, digest in zip(entries, digests, strict=True)
    ]
    return [replace(stub, previous=b"") for stub in stubs[:1]] + stubs[1:]


class LedgerRetention(Protocol):
    """A key stays known by its seal after its row has left, and no line leaves that a subscriber
    has not received."""

    row_expiry: bool
    """Ended rows leave by themselves when their route's `keep` is over. False: the retention role
    of a station removes them."""

    def prune(self, asked: PruneCriteria) -> Pruned:
        """Remove rows, lines and seals by these criteria, at most `limit` of each. A place in the
        feed is never reused."""

    def sealed(
        self, route: str, after: str | None, limit: int
    ) -> tuple[list[KnownKey], str | None]:
        """Seals of keys without a row, page by page: pass the returned position as `after` to
        continue (None: no more)."""

    def left_failures(self, route: str, prefix: str, after: str | None, limit: int) -> LeftFailures:
        """Seals of failed items without a row whose keys begin with `prefix`. Cheap for any number
        of other seals on ledgers with an index."""

    def forget(self, asked: ForgetRequest) -> Forgotten:
        """Remove everything that the ledger holds of an ended item: row, content, offered payloads,
        the content of its lines whatever subscriber has not received them, the examples of error
        groups that are its own, and its entry in quarantine; of all lives of the key. Each line
        keeps its place in the feed, its time and its digest, under the name instead of the key; the
        seal keeps status, stage, time and head. The key stays known (`KnownKey.forgotten`) by the
        secret document (`ports.documents.FORGET`).

        An item that has not ended is refused. A repeat continues a call that was cut off."""
