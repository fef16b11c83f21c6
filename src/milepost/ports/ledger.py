"""The Ledger port: the durable record of every item. Plain synchronous batches; values in, values out.

Every operation takes `now` and never reads a clock. A lost race is a value (`Conflict`) and so is a row that the storage refuses or
cannot read (`Refused`); neither is an exception. Nothing of the storage shows (no SQL, no client types). The contract suite in
`milepost.testing` tests the promises of each operation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from msgspec import Struct

from milepost.core.change import Change
from milepost.core.due import Lease
from milepost.core.history import Line, decode_line
from milepost.core.item import Content, Item, KeyPart, Row
from milepost.core.routes.plan import Plan
from milepost.core.status import Status
from milepost.ports.answers import BackupReport, Count, Document, Group, Progress, Pruned, ScanCost, TransferResult
from milepost.ports.foreign_rows import Outside, QuarantineStore
from milepost.ports.runner import Chance, Clock, Service


class Timing(Struct, frozen=True):
    """Grace before an offer and life of an offer on this ledger; copied into a plan's stages when the plan is made."""

    grace_ms: int
    offer_life_ms: int
    resend_delay_ms: int = 0
    """Delay after the due time before the resender acts, so that it does not race a message in flight."""
    stay_ms: int = 0
    """Minimum time that an ended item's row stays after its seal is written, for pruning too."""


class KnownKey(Struct, frozen=True, gc=False):
    """The ledger's answer for a known key: from its row, or from the seal that outlives the row."""

    key: str
    status: Status
    input_digest: bytes
    stage: str = ""
    list_id: str | None = None
    sealed: bool = False
    ended_at: int | None = None
    head: bytes = b""
    content_digest: bytes | None = None
    """Digest of the present input, if an operator has replaced the first one."""
    life: int = 0
    """The life of the key (see `core.item.Row.life`)."""

    @property
    def current_digest(self) -> bytes:
        """Digest to compare a repeated input of this key with."""
        return self.content_digest or self.input_digest


class Same(Struct, frozen=True, gc=False):
    """The key has a row whose content has the given digest: the item's status and stage."""

    status: Status
    stage: str


def compare(known: Sequence[KnownKey | None], digests: Sequence[bytes]) -> list[KnownKey | Same | None]:
    """The answer of `Ledger.recognise`, made from that of `Ledger.peek`."""
    return [
        one if one is None or one.sealed or one.current_digest != digest else Same(one.status, one.stage)
        for one, digest in zip(known, digests, strict=True)
    ]


class NewItem(Struct, frozen=True, gc=False):
    """An item to be added: its first change (see `core.decide.accept`) and its input."""

    change: Change
    input: Any
    over: bytes | None = None
    """The head of a seal that does not prevent adding the key: an operator submits it again although it has ended."""

    def passes(self, there: KnownKey) -> bool:
        """Whether it may be added although the key is known."""
        return there.sealed and self.over is not None and there.head == self.over


class ClaimRequest(Struct, frozen=True):
    """One stage's request for work. `want` counts items; `batch` is the number of items per handler call, for the rate; `held` is how
    many items this process has claimed, by lane; `spent` are extra calls since the last claim, by lane. An item that lost two workers
    is fragile: only a request for `fragile` items gets it, and only one at a time."""

    plan: Plan
    stage: str
    want: int
    lease: Lease
    batch: int = 1
    held: dict[str, int] = {}
    spent: dict[str, int] = {}
    fragile: bool = False


class Refused(Struct, frozen=True):
    """The storage refuses one row or cannot read it: it is too large, damaged, or has an unsupported value. The row is unchanged, and
    other rows are not affected. `reason` says why, for people."""

    reason: str
    key: str = ""
    """The item's key, where the position of the answer does not show it."""
    row: Row | None = None
    """The item's row, as far as it is readable: enough to cancel the item."""


class ClaimResult(Struct, frozen=True):
    """The answer to a ClaimRequest: items claimed under its lease, each with its ticket where there is one; how many others moved without
    a worker; and the earliest time at which another request can return more (None: only after a change)."""

    items: list[Item]
    moved: int = 0
    next_at: int | None = None
    outdated: bool = False
    """The ledger has a newer version of the route: this process must stand by."""
    fragile: bool = False
    """Fragile items are due and were skipped."""
    lost: int = 0
    """Expired leases that were found."""
    refused: list[Refused] = []
    """Due rows that could not be read or written. None is claimed: each has become a counted failure of its item or is in quarantine, so
    that it is not due again at once."""


class Conflict(Struct, frozen=True):
    """A change lost its race. `current` is the present row, None if there is none."""

    current: Row | None
    outdated: bool = False


class Query(Struct, frozen=True, kw_only=True):
    """A search for rows; all given conditions must hold. Pages have one fixed order; `after` is the `next` of the last page."""

    route: str
    prefix: str | None = None
    """Prefix of the key."""
    parts: tuple[KeyPart, ...] = ()
    """Parts that the key must have, on a route whose key has several fields."""
    statuses: frozenset[Status] | None = None
    stages: frozenset[str] | None = None
    lane: str | None = None
    group: str | None = None
    lists: frozenset[str] | None = None
    """Items from one of these lists."""
    entered_before: int | None = None
    changed_before: int | None = None
    due_before: int | None = None
    overdue_before: int | None = None
    handed_over: bool = False
    """Only items whose work was handed over to a partner that has not answered."""
    in_queue: bool = True
    """Include items whose message waits in a queue for a worker; False leaves them out where the ledger can (see `lost_calls`)."""
    with_content: bool = False
    exact: bool = False
    """For decisions: no row that was written before the call is missed. Where an index lags behind, the whole route is read."""
    after: Any = None
    limit: int = 1000


class QueryPage(Struct, frozen=True):
    items: list[Item]
    next: Any = None
    """Pass it as `after` to continue; None: this was the last page."""
    refused: list[Refused] = []
    """Unreadable rows of this page."""


class HistoryEntry(Struct, frozen=True):
    """A history line as stored. `seq` is its place in the order of all lines of the ledger."""

    seq: int
    route: str
    key: str
    correlation_id: str
    previous: bytes
    body: bytes
    payload: Any = None
    """The payload that this line offered to an external stage: stored with the line, so later changes do not affect it."""

    @property
    def line(self) -> Line:
        return decode_line(self.body)


class DeliveredLines(Struct, frozen=True):
    """Lines that all subscribers have: those up to a place, except the lines of items parked for a subscriber."""

    up_to: int
    """Every subscriber's cursor has passed this place, and daily heads, if there are any, cover it."""
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
"""Keeps what must outlive rows; may be called again with the same items."""


MISSING_CAPABILITIES = {
    "pulse": "It has no change counter: it is polled every few seconds, so pages and events come a little later.",
    "proof of death": "It cannot prove that a process is dead: the items it had claimed come back when its leases expire.",
    "fair lanes": "Lanes of a stage share a queue, so a lane may wait behind another lane's backlog.",
    "one step": "It cannot settle and claim in one write: each claim is a separate write.",
    "take over": "It cannot be the target of a move from another ledger.",
    "backup": "It cannot be backed up into a file. On AWS, point-in-time recovery of its tables and versioning of its bucket do that.",
    "exact counts": "Its counters follow changes with a short delay: they are for display, and no decision uses them.",
}
"""Capabilities that a ledger may lack, and what that means for people."""


class Ledger(Protocol):
    """Operations on items, on feed, counters and documents, and for the ledger's own upkeep."""

    timing: Timing
    url: str
    missing_capabilities: frozenset[str]
    """Capabilities that this ledger lacks, of `MISSING_CAPABILITIES`."""

    @property
    def outside(self) -> Outside | None:
        """Access to foreign rows; None: no other program can write to this ledger."""

    @property
    def quarantine(self) -> QuarantineStore:
        """The quarantine of content that cannot be used."""

    def prepare(self, plan: Plan) -> Plan:
        """Take up the plan: what is read and offered from now on goes by it. Returns the plan to give to every other verb: the same
        one, or one with what the ledger knows about its stages, such as how long a partner's queue keeps an offer."""

    # Items ------------------------------------------------------------------------------------------------------------
    def peek(self, route: str, keys: Sequence[str]) -> list[KnownKey | None]:
        """What is known of each key, from rows and seals, in the order given."""

    def recognise(self, route: str, keys: Sequence[str], digests: Sequence[bytes]) -> list[KnownKey | Same | None]:
        """As `peek`, but Same where the item has a row and content with the given digest (one per key). For a list that is delivered again
        this holds for almost all keys, and a ledger may answer it faster."""

    def invalid_keys(self, plan: Plan, keys: Sequence[str]) -> dict[str, str]:
        """Keys that are invalid on this ledger, such as too long ones, each with the reason."""

    def add(self, plan: Plan, new_items: Sequence[NewItem], now: int) -> list[KnownKey | Refused | None]:
        """Record new items: row, content, first line and counters at once. None: recorded; KnownKey: it existed before (nothing written),
        unless it is a seal that the new item may pass; Refused: the storage refuses it (the others are recorded). Raises RouteChanged if
        the ledger has another version of the route."""

    def claim(self, asks: Sequence[ClaimRequest], now: int, jitter: float) -> list[ClaimResult]:
        """Claim due items of open lanes for a worker, oldest due first, within rates and pauses, by `core.due.look`."""

    def apply(self, changes: Sequence[Change], now: int, versions: dict[str, int] | None = None) -> list[Conflict | Refused | None]:
        """Write each change if the ledger still holds its `before` (see `core.change.holds`). None: written; Conflict: the row has changed
        since; Refused: the storage refuses this row, so that the same change can never be written. Each change is atomic, and none
        affects another. `versions` are the route versions that the decisions used."""

    def apply_and_claim(
        self, changes: Sequence[Change], now: int, versions: dict[str, int], asks: Sequence[ClaimRequest], jitter: float
    ) -> tuple[list[Conflict | Refused | None], list[ClaimResult]]:
        """`apply` followed by `claim` with no other write between: an item that a change brings to a stage can be claimed there at once,
        after the items already due there. A ledger that lacks "one step" makes two writes."""

    def extend(self, rows: Sequence[Row], until: int, now: int, tickets: Sequence[Any] = ()) -> list[bool]:
        """Extend the leases; False: that lease has ended. `tickets` are those of the claims (`Item.ticket`), in the order of `rows`."""

    def drop_tickets(self, tickets: Sequence[Any]) -> None:
        """Discard the tickets (`Item.ticket`) of claims that have ended. Never raises: a ticket that stays only brings a worker to a row
        that needs no work."""

    def get(self, refs: Sequence[tuple[str, str]]) -> list[Item | Refused | None]:
        """Items with their content, by (route, key). None: there is no row; Refused: the row cannot be read."""

    def find(self, query: Query) -> QueryPage:
        """Matching rows, page by page. Each row matches as of the time its page was read; none comes twice. A row that matches the whole
        time is missed only where an index lags behind the rows, which `Query.exact` excludes. Unreadable matching rows are in
        `QueryPage.refused`."""

    def history(self, route: str, key: str, *, payloads: bool = False) -> list[HistoryEntry]:
        """One item's lines, oldest first; with `payloads`, also the payloads they offered. An unreadable line is returned as stored (see
        `core.history.decode_line`)."""

    # Feed, counters, documents ----------------------------------------------------------------------------------------
    def feed(self, after: int, limit: int) -> list[HistoryEntry]:
        """Lines of all items in the order written, after the place `after`, with the payloads they offered."""

    def last_seq(self) -> int:
        """The place of the newest line."""

    def counts(self, route: str | None = None) -> list[Count]:
        """Maintained counters, never a scan. They are written with the rows and agree with them, except on a ledger that lacks "exact
        counts": there they follow with a short delay, and no decision may use them."""

    def groups(self, route: str | None = None) -> list[Group]:
        """Groups of similar errors that an item has or had."""

    def read(self, kind: str) -> dict[str, Document]:
        """All control documents of a kind, by name."""

    def read_one(self, kind: str, name: str) -> Document | None:
        """One control document; None: it does not exist. One small read, however many documents the kind has."""

    def write(self, kind: str, name: str, value: Any, expect: int | None = None) -> bool:
        """Write one document (None removes it). `expect` is its required version, 0 for absent; False: it differs. Each write raises the
        version by one. The ledger chooses a new document's first version, but never one that a document of this name had before, even if
        that was removed: so an old version is never mistaken for a new one."""

    # Upkeep -----------------------------------------------------------------------------------------------------------
    def cost_of(self, query: Query) -> ScanCost | None:
        """Cost of this search; None: an index answers it, or reading is free here."""

    def sealed(self, route: str, after: str | None, limit: int) -> tuple[list[KnownKey], str | None]:
        """Seals of keys without a row, page by page: pass the returned position as `after` to continue (None: no more)."""

    def take_over(
        self, plan: Plan, items: Sequence[Item], lines: Sequence[HistoryEntry], seals: Sequence[KnownKey], now: int
    ) -> TransferResult:
        """Write the record of another ledger: lines byte for byte and in this order, rows with their content, and seals. Lines come before
        the rows that they belong to. A repeat changes nothing. Items that wait for a worker are due at once."""

    def next_due(self, plans: Iterable[Plan]) -> int | None:
        """The earliest due time of items that our own workers could claim (handler stages, open lanes)."""

    def missing_calls(self, plan: Plan, now: int) -> dict[str, int]:
        """Number of items, by handler stage, that are past their offer life and have no message in the stage's queue; stages without such
        items are left out. Empty where the row itself is the queue."""

    def lost_calls(self, plan: Plan, now: int, limit: int) -> list[Item]:
        """Some of those items, the longest offered first, without content: they need a new message. A backlog whose messages exist is never
        among them. Empty: there are no more at present."""

    def rename_stage(self, route: str, old: str, new: str) -> None:
        """Move every item at stage `old` to `new`, with its counters. Nothing else changes."""

    def reclaim(self, holders: Sequence[str], now: int) -> int:
        """Make the items claimed by these dead holders due at once; returns how many."""

    def prune(
        self,
        route: str,
        statuses: frozenset[Status],
        ended_before: int,
        forget_before: int | None,
        delivered: DeliveredLines,
        limit: int,
        keep: Keep | None = None,
    ) -> Pruned:
        """Remove rows that ended before then with one of these statuses; their seals stay. `keep` gets each row just before it leaves;
        a row that it cannot keep stays. The lines of removed rows that ended before then leave once `delivered` covers them; until then `feed`
        and `history` return them. Seals older than `forget_before` are removed if their lines have left. A place in the feed is never
        reused."""

    def sign_on(self, holder: str) -> None:
        """This process is alive as `holder` until it signs off or dies."""

    def sign_off(self, holder: str) -> None: ...

    def dead_workers(self) -> list[str]:
        """Holders that signed on here and are proved dead."""

    def change_counter(self) -> int:
        """A number that changes whenever a process may have written."""

    def rest(self) -> None:
        """Idle: time for the ledger's own upkeep."""

    def services(self, plans: Mapping[str, Plan], clock: Clock, chance: Chance, holder: str) -> list[tuple[str, Service]]:
        """Services that must run beside the engine for this ledger, each with its role."""

    def backup(self, target: Path, overwrite: bool, on_progress: Progress) -> BackupReport:
        """Copy the ledger as of now, with its blobs, to a file, while other processes write; a ledger may lack "backup"."""

    def describe(self) -> dict[str, Any]:
        """Facts for `milepost doctor`: address, size and problems of the ledger."""

    def close(self) -> None: ...


__all__ = [
    "ClaimRequest",
    "ClaimResult",
    "Conflict",
    "Content",
    "Count",
    "DeliveredLines",
    "Document",
    "Group",
    "HistoryEntry",
    "Keep",
    "KnownKey",
    "Leaving",
    "Ledger",
    "NewItem",
    "Pruned",
    "Query",
    "QueryPage",
    "Refused",
    "Same",
    "ScanCost",
    "Timing",
    "TransferResult",
]  # fmt: skip
