"""The Ledger: the durable record of every item. Plain synchronous batches; values in, values out.

Every verb takes `now` and never reads a clock. A lost race is a value (`Conflict`) and so is a row that the storage cannot take
or read (`Refused`); neither is an exception. Nothing of the storage underneath shows (no SQL, no client types). The contract
suite in `milepost.testing` says what each verb promises.
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
    """How long an offer may go unmade, and how long it lives, on this ledger; fills a plan's stages at wiring."""

    grace_ms: int
    offer_life_ms: int
    resend_delay_ms: int = 0
    """How long after its time an item is left to those who are on their way to it, before the resender sees to it."""
    stay_ms: int = 0
    """How long the row of an ended item stays, whoever prunes: until its seal has been there for so long."""


class KnownKey(Struct, frozen=True, gc=False):
    """What the ledger remembers of a key: from its row, or from the seal that outlives the row."""

    key: str
    status: Status
    input_digest: bytes
    stage: str = ""
    list_id: str | None = None
    sealed: bool = False
    ended_at: int | None = None
    head: bytes = b""
    content_digest: bytes | None = None
    """Digest of the present input, where an operator has replaced the first one."""
    life: int = 0
    """Which life of the key this is (see `core.item.Row.life`)."""

    @property
    def current_digest(self) -> bytes:
        """What comes again under this key is compared with it."""
        return self.content_digest or self.input_digest


class Same(Struct, frozen=True, gc=False):
    """A key has a row, and its content is just the one that was asked about: how the item stands, and where."""

    status: Status
    stage: str


def compare(known: Sequence[KnownKey | None], digests: Sequence[bytes]) -> list[KnownKey | Same | None]:
    """The answer of `Ledger.recognise`, from that of `Ledger.peek`."""
    return [
        one if one is None or one.sealed or one.current_digest != digest else Same(one.status, one.stage)
        for one, digest in zip(known, digests, strict=True)
    ]


class NewItem(Struct, frozen=True, gc=False):
    """An item to be added: its first change (see `core.decide.accept`) and its input."""

    change: Change
    input: Any
    over: bytes | None = None
    """The head of a seal that is not to keep the key from being added: an operator hands it over again, though it has ended."""

    def passes(self, there: KnownKey) -> bool:
        """May it be added though this is known of its key?"""
        return there.sealed and self.over is not None and there.head == self.over


class ClaimRequest(Struct, frozen=True):
    """One stage's wish for work. `want` counts items; `batch` is how many share one handler call, for the rate;
    `held` says how many this process has in hand already, by lane; `spent` are extra calls made since the last claim, by lane.
    An item that two workers were lost with is fragile: it is given only to an ask for `fragile` ones, and only one of them."""

    plan: Plan
    stage: str
    want: int
    lease: Lease
    batch: int = 1
    held: dict[str, int] = {}
    spent: dict[str, int] = {}
    fragile: bool = False


class Refused(Struct, frozen=True):
    """The storage cannot take one row, or cannot read it: it is too large, damaged, or holds a value that the storage does not know.
    The row is as it was, and its neighbours go on. `reason` says why, for people."""

    reason: str
    key: str = ""
    """Of which item, where the answer does not stand in the place of its question."""
    row: Row | None = None
    """Where the item stands, as far as that can be read: enough to take it off the route."""


class ClaimResult(Struct, frozen=True):
    """The answer to an Ask: items now held under its lease, each with its ticket where there is one, how many others were moved on without a worker,
    and the earliest moment at which asking again can bring more (None: only a new change can)."""

    items: list[Item]
    moved: int = 0
    next_at: int | None = None
    outdated: bool = False
    """The ledger holds a newer version of the route: this process must stand by."""
    fragile: bool = False
    """There are fragile items due that were passed over."""
    lost: int = 0
    """Leases that were found to have run out."""
    refused: list[Refused] = []
    """Due rows that could not be read or written. None of them is claimed: each has become its item's counted failure, or is set
    aside where operators find it, so that it is not due again at once."""


class Conflict(Struct, frozen=True):
    """A change lost its race. `current` is the row as it is now, None if it is gone."""

    current: Row | None
    outdated: bool = False


class Query(Struct, frozen=True, kw_only=True):
    """Which rows; all given conditions must hold. Pages go forward in one fixed order, `after` is the last page's `next`."""

    route: str
    prefix: str | None = None
    """How the key begins."""
    parts: tuple[KeyPart, ...] = ()
    """Parts that the key must have, on a route whose key is made of several fields."""
    statuses: frozenset[Status] | None = None
    stages: frozenset[str] | None = None
    lane: str | None = None
    group: str | None = None
    lists: frozenset[str] | None = None
    """Brought by one of these."""
    entered_before: int | None = None
    changed_before: int | None = None
    due_before: int | None = None
    overdue_before: int | None = None
    handed_over: bool = False
    """Only items whose work was handed over to a partner that has not answered."""
    in_queue: bool = True
    """With items whose call waits in a queue for a worker; False leaves them out where the ledger can tell (see `lost_calls`)."""
    with_content: bool = False
    exact: bool = False
    """For what decides: no row that was written before the call is missed. Where an index lags behind, the whole route is read."""
    after: Any = None
    limit: int = 1000


class Page(Struct, frozen=True):
    items: list[Item]
    next: Any = None
    """Give it as `after` to go on; None: this was the last page."""
    refused: list[Refused] = []
    """Rows of this page that cannot be read."""


class HistoryEntry(Struct, frozen=True):
    """A history line as stored. `seq` is its place in the order in which the whole ledger was written."""

    seq: int
    route: str
    key: str
    correlation_id: str
    previous: bytes
    body: bytes
    payload: Any = None
    """What this line offered to an external stage, as it was then: stored with the line, whatever the item carries by now."""

    @property
    def line(self) -> Line:
        return decode_line(self.body)


class DeliveredLines(Struct, frozen=True):
    """Which lines nothing waits for: those up to a place, but for the lines of items that a subscriber has parked."""

    up_to: int
    """Every subscriber's cursor has passed this place, and daily heads cover it, where there are any."""
    parked: frozenset[tuple[str, str]] = frozenset()
    """(route, key) of each item of which some subscriber still has to be told something that its cursor has passed."""

    def covers(self, route: str, key: str, last: int) -> bool:
        """Does nothing wait for the lines of this item, the last of which stands at that place?"""
        return last <= self.up_to and (route, key) not in self.parked


class Leaving(Struct, frozen=True):
    """An item whose row is about to be let go of: all of it, with its lines."""

    item: Item
    lines: list[HistoryEntry]


Keep = Callable[[Sequence[Leaving]], None]
"""Keeps what must outlive rows; it may be given the same ones again."""


LACKS = {
    "pulse": "It does not say that somebody has written: it is asked every few seconds, so pages and events come a little later.",
    "proof of death": "It cannot know a process dead: what that process had in hand comes back when its leases have run out.",
    "fair lanes": "It cannot look past one lane's backlog for another's work: lanes of a stage share a queue.",
    "one step": "It cannot settle and claim in one write: the claim at each stage is a write of its own.",
    "take over": "It cannot take over another ledger's record.",
    "backup": "It cannot be backed up into a file. On AWS, point-in-time recovery of its tables and versioning of its bucket do that.",
    "exact counts": "Its counters follow the changes a moment late: they are shown to people, and nothing is decided by them.",
}
"""What a ledger may be unable to do, and what that means for people."""


class Ledger(Protocol):
    """Eight verbs for items, four for what surrounds them, and a few for its own upkeep."""

    timing: Timing
    url: str
    missing_capabilities: frozenset[str]
    """What this ledger cannot do, of `LACKS`."""

    @property
    def outside(self) -> Outside | None:
        """For rows that others put; None: nobody else can write to it."""

    @property
    def quarantine(self) -> QuarantineStore:
        """What was set aside because it cannot be used."""

    def prepare(self, plan: Plan) -> None:
        """This process has the route at hand: what is read and offered from now on goes by it."""

    # Items ------------------------------------------------------------------------------------------------------------
    def peek(self, route: str, keys: Sequence[str]) -> list[KnownKey | None]:
        """What is known of each key, rows and seals alike, in the order asked."""

    def recognise(self, route: str, keys: Sequence[str], digests: Sequence[bytes]) -> list[KnownKey | Same | None]:
        """What `peek` says of each key, but Same where its item has a row and content with this digest, one for each key: of a list
        that is delivered again that holds for almost all, and a ledger may answer it more cheaply."""

    def invalid_keys(self, plan: Plan, keys: Sequence[str]) -> dict[str, str]:
        """Keys that an item cannot have on this ledger, such as ones that are too long for it, each with the reason."""

    def add(self, plan: Plan, new_items: Sequence[NewItem], now: int) -> list[KnownKey | Refused | None]:
        """Record new items: row, content, first line and counters at once. None: recorded; Known: it was there before, and is not
        a seal that the new_item is to pass (nothing written); Refused: the storage cannot take this one (the others are recorded). Raises RouteChanged if the ledger holds another version of the route."""

    def claim(self, asks: Sequence[ClaimRequest], now: int, jitter: float) -> list[ClaimResult]:
        """Give due items of open lanes to a worker, oldest due first, within rates and pauses, by `core.due.look`."""

    def apply(self, changes: Sequence[Change], now: int, versions: dict[str, int] | None = None) -> list[Conflict | Refused | None]:
        """Write each change if the ledger still holds its `before` (see `core.change.holds`). None: written; Conflict: the row has
        changed since; Refused: the storage cannot take this row, so that the same change will never be written.
        Each is whole or not at all, and none hinders another. `versions` are the route versions that were decided by."""

    def apply_and_claim(
        self, changes: Sequence[Change], now: int, versions: dict[str, int], asks: Sequence[ClaimRequest], jitter: float
    ) -> tuple[list[Conflict | Refused | None], list[ClaimResult]]:
        """`apply`, and right after it `claim`, with no other write between: an item that a change brings to a stage can be claimed
        there at once, after the items that were due there before. A ledger that lacks "one step" makes two writes of it."""

    def extend(self, rows: Sequence[Row], until: int, now: int, tickets: Sequence[Any] = ()) -> list[bool]:
        """Move the leases on; False: that lease is gone. `tickets` are the claims' own (`Item.ticket`), in the order of `rows`."""

    def drop_tickets(self, tickets: Sequence[Any]) -> None:
        """The claims behind these tickets (`Item.ticket`) have ended: what called for them is not needed any more. Never raises:
        a ticket that stays only brings a worker to a row that says the rest."""

    def get(self, refs: Sequence[tuple[str, str]]) -> list[Item | Refused | None]:
        """Items with their content, by (route, key). None: there is none; Refused: there is a row, and it cannot be read."""

    def find(self, query: Query) -> Page:
        """Rows that match, a page at a time. Each row is as it stood when its page was read, and matches; none comes twice. One that
        matches the whole time is missed only where an index lags behind the rows, which `Query.exact` rules out. A row that matches
        and cannot be read is named in `Page.refused`."""

    def history(self, route: str, key: str, *, payloads: bool = False) -> list[HistoryEntry]:
        """One item's lines, oldest first; with the payload where a line offered one, if `payloads` are asked for. A line that cannot be read is there as it is stored (see `core.history.decode_line`)."""

    # What surrounds them ----------------------------------------------------------------------------------------------
    def feed(self, after: int, limit: int) -> list[HistoryEntry]:
        """Lines of all items in the order written, past `after`; with the payload where the line offered one."""

    def last_seq(self) -> int:
        """The place of the newest line."""

    def counts(self, route: str | None = None) -> list[Count]:
        """Maintained counters, never a scan. They are written with the rows and agree with them, but on a ledger that lacks "exact
        counts": there they follow the rows a moment late, and nothing may be decided by them."""

    def groups(self, route: str | None = None) -> list[Group]:
        """Groups of like errors that some item has at present or ever had."""

    def read(self, kind: str) -> dict[str, Document]:
        """All control documents of a kind, by name."""

    def read_one(self, kind: str, name: str) -> Document | None:
        """One control document; None: there is none of that name. Costs one small read, however many documents the kind has."""

    def write(self, kind: str, name: str, value: Any, expect: int | None = None) -> bool:
        """Write one document (None removes it). `expect` is the version it must have now, 0 for absent; False: it has not.
        Each write raises a document's version by one. Which version a new document begins with is up to the ledger, but never one
        that a document of this name had before, even if that was removed: so an old version can never be mistaken for a new one."""

    # Upkeep -----------------------------------------------------------------------------------------------------------
    def cost_of(self, query: Query) -> ScanCost | None:
        """What it costs to find these; None: an index answers, or reading costs nothing here."""

    def sealed(self, route: str, after: str | None, limit: int) -> tuple[list[KnownKey], str | None]:
        """Seals of keys that have no row any more, some at a time: give what comes with them as `after` to go on (None: no more)."""

    def take_over(
        self, plan: Plan, items: Sequence[Item], lines: Sequence[HistoryEntry], seals: Sequence[KnownKey], now: int
    ) -> TransferResult:
        """Write what another ledger had on record: lines to the byte and in this order, rows as they stand with what they carry, and
        seals. Lines come before the rows that they belong to. Said again it changes nothing. Whatever a stage of ours is to be
        called for is due at once."""

    def next_due(self, plans: Iterable[Plan]) -> int | None:
        """The earliest due time among items that our own workers could take (handler stages, open lanes)."""

    def missing_calls(self, plan: Plan, now: int) -> dict[str, int]:
        """How many items at each handler stage have been offered for longer than an offer lives, and have no message in the stage's
        queue any more; stages without such are left out. Where the row itself is the queue there are none."""

    def lost_calls(self, plan: Plan, now: int, limit: int) -> list[Item]:
        """Some of those items, the longest offered first, without content: their stages are to be called again. A backlog whose
        messages are there is never among them. Empty: there are no more just now."""

    def rename_stage(self, route: str, old: str, new: str) -> None:
        """Every item at stage `old` is at `new`, its counters too. Nothing else changes."""

    def reclaim(self, holders: Sequence[str], now: int) -> int:
        """The holders are proved dead: what they held is due at once. How many items that was."""

    def prune(
        self,
        route: str,
        statuses: frozenset[Status],
        ended_before: int,
        forget_before: int | None,
        told: DeliveredLines,
        limit: int,
        keep: Keep | None = None,
    ) -> Pruned:
        """Let go of rows that ended before then with one of these statuses; their seals stay. `keep` is given each row before it
        goes, just as it goes; what it cannot keep stays. The lines of rows that have left, by this call or otherwise, and that ended
        before then, leave once `told` covers them; until then `feed` and `history` have them. Seals older than `forget_before` are
        forgotten, if their lines have left. A place in the feed is never given out twice, whatever has been pruned."""

    def sign_on(self, holder: str) -> None:
        """This process is alive as `holder` until it signs off or dies."""

    def sign_off(self, holder: str) -> None: ...

    def dead_workers(self) -> list[str]:
        """Holders that signed on here and are proved dead."""

    def change_counter(self) -> int:
        """A number that differs whenever anybody may have written since."""

    def rest(self) -> None:
        """There is nothing to do just now: time for upkeep of its own."""

    def services(self, plans: Mapping[str, Plan], clock: Clock, chance: Chance, holder: str) -> list[tuple[str, Service]]:
        """What must run beside the engine for this ledger, each with the role that it belongs to."""

    def backup(self, target: Path, overwrite: bool, on_progress: Progress) -> BackupReport:
        """Copy the ledger as it is at this moment, with its blobs, to a file, while others go on writing; "backup" may be lacking."""

    def describe(self) -> dict[str, Any]:
        """Facts for `milepost doctor`: where it lives, how large it is, what it thinks of itself."""

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
    "Page",
    "Pruned",
    "Query",
    "Refused",
    "Same",
    "ScanCost",
    "Timing",
    "TransferResult",
]  # fmt: skip
