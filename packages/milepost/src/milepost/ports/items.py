"""Items of a ledger: accept, claim, settle, read and find them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, Protocol

from msgspec import Struct

from milepost.core.admission.controls import lanes_above
from milepost.core.change import Change
from milepost.core.due import Lease
from milepost.core.future import dated_at
from milepost.core.item import Item, KeyPart, Row
from milepost.core.routes.plan import Plan
from milepost.core.status import Status
from milepost.ports.feed import HistoryEntry


class Timing(Struct, frozen=True):
    """Grace before an offer and life of an offer on this ledger; copied into a plan's stages when
    the plan is made."""

    grace_ms: int
    offer_life_ms: int
    resend_delay_ms: int = 0
    """Delay after the due time before the resender acts, so that it does not race a message in
    flight."""
    stay_ms: int = 0
    """Minimum time that an ended item's row stays after its seal is written, for pruning too."""
    notice_ms: int = 0
    """Time after which every process has read a control document that was written."""


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

    @classmethod
    def of(cls, row: Row, *, sealed: bool = False) -> KnownKey:
        """The answer for a key with this row; `sealed`: the seal of the row."""
        ended_at = row.entered_at if row.terminal else None
        return cls(
            row.key,
            row.status,
            row.input_digest,
            row.stage,
            row.list_id,
            sealed,
            ended_at,
            row.head,
            row.content_digest,
            row.life,
        )

    @property
    def forgotten(self) -> bool:
        """Its content was removed (see `LedgerRetention.forget`): no digest of its input is left
        either."""
        return self.sealed and not self.input_digest

    @property
    def current_digest(self) -> bytes:
        """Digest to compare a repeated input of this key with."""
        return self.content_digest or self.input_digest


class Same(Struct, frozen=True, gc=False):
    """The key has a row whose content has the given digest: the item's status and stage."""

    status: Status
    stage: str


def compare(
    known: Sequence[KnownKey | None], digests: Sequence[bytes]
) -> list[KnownKey | Same | None]:
    """The answer of `Ledger.recognise`, made from that of `Ledger.peek`."""
    return [
        one
        if one is None or one.sealed or one.current_digest != digest
        else Same(one.status, one.stage)
        for one, digest in zip(known, digests, strict=True)
    ]


class NewItem(Struct, frozen=True, gc=False):
    """An item to be added: its first change (see `core.decide.accept`) and its input."""

    change: Change
    input: Any
    over: bytes | None = None
    """The head of a seal that does not prevent adding the key: an operator submits it again
    although it has ended."""

    def passes(self, there: KnownKey) -> bool:
        """Whether it may be added although the key is known."""
        return there.sealed and self.over is not None and there.head == self.over


class Additions:
    """The answers of `LedgerItems.add`, for a ledger that writes batches of items with different
    keys. Keys that are `known`, such as sealed ones, are not written. Of several items with one
    key, the first that the storage does not refuse is written; the later ones are known.

        additions = Additions(new_items, known)
        while batch := additions.next_batch():
            additions.record(write(batch))
        return additions.answers
    """

    def __init__(self, new_items: Sequence[NewItem], known: Mapping[str, KnownKey]) -> None:
        self.answers: list[KnownKey | Refused | None] = [None] * len(new_items)
        self._new_items, self._known = new_items, known
        self._unanswered: Sequence[int] = range(len(new_items))
        self._batch: dict[str, int] = {}
        """The place of the item that is written now, by key."""

    def next_batch(self) -> list[NewItem]:
        """The first unanswered item of each key; empty: all are answered."""
        self._batch = {}
        later: list[int] = []
        for place in self._unanswered:
            new_item = self._new_items[place]
            key = new_item.change.after.key
            known_key = self._known.get(key)
            if key in self._batch:
                later.append(place)
            elif known_key is not None and not new_item.passes(known_key):
                self.answers[place] = known_key
            else:
                self._batch[key] = place
        self._unanswered = later
        return [self._new_items[place] for place in self._batch.values()]

    def record(self, answers: Sequence[KnownKey | Refused | None]) -> None:
        """Note what became of each item of the batch: written (None), known, or refused. Where one
        was refused, a later one with its key is in the next batch."""
        for place, answer in zip(self._batch.values(), answers, strict=True):
            self.answers[place] = answer
        refused: list[int] = []
        for place in self._unanswered:
            written = self._batch[self._new_items[place].change.after.key]
            answer = self.answers[written]
            if isinstance(answer, Refused):
                refused.append(place)
            else:
                self.answers[place] = answer or self._key_of_new(written)
        self._unanswered = refused

    def _key_of_new(self, place: int) -> KnownKey:
        """The answer for items with the key of this one, which was written."""
        row = self._new_items[place].change.after
        return KnownKey(
            row.key, row.status, row.input_digest, row.stage, row.list_id, head=row.head
        )


class ClaimRequest(Struct, frozen=True):
    """One stage's request for work. `want` counts items; `batch` is the number of items per handler
    call, for the rate; `held` is how many items this process has claimed, by lane; `spent` are
    extra calls since the last claim, by lane; `ahead` is how many items beyond a lane's concurrency
    may wait in this process, by lane. An item that lost two workers is fragile: only a request for
    `fragile` items gets it, and only one at a time."""

    plan: Plan
    stage: str
    want: int
    lease: Lease
    batch: int = 1
    held: dict[str, int] = {}
    spent: dict[str, int] = {}
    fragile: bool = False
    ahead: dict[str, int] = {}


class Refused(Struct, frozen=True):
    """The storage refuses one row or cannot read it: it is too large, damaged, or has an
    unsupported value. The row is unchanged, and other rows are not affected. `reason` says why, for
    people. A refused outcome becomes a counted failure (`core.failures.unstorable`)."""

    reason: str
    key: str = ""
    """The item's key, where the position of the answer does not show it."""
    row: Row | None = None
    """The item's row, as far as it is readable: enough to cancel the item."""


class ClaimResult(Struct, frozen=True):
    """The answer to a ClaimRequest: items claimed under its lease, each with its ticket where there
    is one; how many others moved without a worker; and the earliest time at which another request
    can return more (None: only after a change)."""

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
    """Due rows that could not be read or written. None is claimed: each has become a counted
    failure of its item or is in quarantine, so that it is not due again at once."""


class Conflict(Struct, frozen=True):
    """A change lost its race. `current` is the present row, None if there is none."""

    current: Row | None
    outdated: bool = False


class Query(Struct, frozen=True, kw_only=True):
    """A search for rows; all given conditions must hold. Without an `order`, pages come in the
    order of the index that serves the search; `after` is the `next` of the last page."""

    route: str
    prefix: str | None = None
    """Prefix of the key."""
    parts: tuple[KeyPart, ...] = ()
    """Parts that the key must have, on a route whose key has several fields."""
    statuses: frozenset[Status] | None = None
    stages: frozenset[str] | None = None
    lane: str | None = None
    within: str | None = None
    """Only items of this lane and of the lanes within it."""
    group: str | None = None
    lists: frozenset[str] | None = None
    """Items from one of these lists."""
    entered_before: int | None = None
    changed_before: int | None = None
    dated_from: int | None = None
    """Only rows that were last changed, or claimed, at that time or later."""
    created_from: int | None = None
    created_before: int | None = None
    due_before: int | None = None
    due_after: int | None = None
    overdue_before: int | None = None
    handed_over: bool = False
    """Only items whose work was handed over to a partner that has not answered."""
    in_queue: bool = True
    """Include items whose message waits in a queue for a worker; False leaves them out where the
    ledger can (see `lost_messages`)."""
    with_content: bool = False
    exact: bool = False
    """For decisions: no row that was written before the call is missed. Where an index lags behind,
    the whole route is read."""
    order: Literal["newest", "oldest"] | None = None
    """By acceptance: the last or the first first, for people. Not for `exact` searches."""
    after: Any = None
    limit: int = 1000

    def matches(self, row: Row) -> bool:
        """Whether all given conditions hold. `due_before`, `overdue_before`, `dated_from` and
        `created_from` are inclusive; all other times are exclusive."""
        return (
            row.route == self.route
            and (self.prefix is None or row.key.startswith(self.prefix))
            and all(part.matches(row.key) for part in self.parts)
            and (self.statuses is None or row.status in self.statuses)
            and (self.stages is None or row.stage in self.stages)
            and (self.lane is None or row.lane == self.lane)
            and (self.within is None or self.within in lanes_above(row.lane))
            and (not self.handed_over or row.handed_over)
            and (self.group is None or (row.error is not None and row.error.group == self.group))
            and (self.lists is None or row.list_id in self.lists)
            and (self.entered_before is None or row.entered_at < self.entered_before)
            and (self.changed_before is None or row.updated_at < self.changed_before)
            and (self.dated_from is None or dated_at(row) >= self.dated_from)
            and (self.created_from is None or row.created_at >= self.created_from)
            and (self.created_before is None or row.created_at < self.created_before)
            and (
                self.due_before is None
                or (row.due_at is not None and row.due_at <= self.due_before)
            )
            and (self.due_after is None or (row.due_at is not None and row.due_at > self.due_after))
            and (
                self.overdue_before is None
                or (row.overdue_at is not None and row.overdue_at <= self.overdue_before)
            )
        )


class QueryPage(Struct, frozen=True):
    items: list[Item]
    next: Any = None
    """Pass it as `after` to continue; None: this was the last page."""
    refused: list[Refused] = []
    """Unreadable rows of this page."""
    ordered: bool = True
    """False: more rows match than the ledger can put in `Query.order`, and the pages come in its
    own order."""


class LedgerItems(Protocol):
    """A key is accepted once, and a change is written only if the ledger still holds its `before`.
    Answers come in the order of the arguments. A lost race is the value `Conflict`, a row that the
    storage cannot take or read the value `Refused`."""

    timing: Timing
    work_queues: bool
    """Messages in a queue call the workers. False: the row itself is the queue, and a due row is
    found by its index."""

    def prepare(self, plan: Plan) -> Plan:
        """Load the plan: from now on rows are read and items are offered by it. Returns the plan to
        pass to all other operations: the same one, or one with what the ledger knows about its
        stages, such as how long a partner's queue keeps an offer, and with the ledger's epoch (see
        `ports.documents.Epoch`). A ledger that has one gives it to each row that it reads, too
        (`Row.epoch`)."""

    def peek(self, route: str, keys: Sequence[str]) -> list[KnownKey | None]:
        """The record of each key, from rows and seals, in the order given."""

    def recognise(
        self, route: str, keys: Sequence[str], digests: Sequence[bytes]
    ) -> list[KnownKey | Same | None]:
        """As `peek`, but Same where the item has a row and content with the given digest (one per
        key). For a list that is delivered again this holds for almost all keys, and a ledger may
        answer it faster. `KeyDigests` say that the content is the key alone: a ledger may have
        noted that about its items, and need not compute digests."""

    def invalid_keys(self, plan: Plan, keys: Sequence[str]) -> dict[str, str]:
        """Keys that are invalid on this ledger, such as too long ones, each with the reason."""

    def add(
        self, plan: Plan, new_items: Sequence[NewItem], now: int
    ) -> list[KnownKey | Refused | None]:
        """Record new items: row, content, first line and counters at once. None: recorded;
        KnownKey: it existed before (nothing written), unless it is a seal that the new item may
        pass; Refused: the storage refuses it (the others are recorded). Raises RouteChanged if the
        ledger has another version of the route."""

    def claim(self, asks: Sequence[ClaimRequest], now: int, jitter: float) -> list[ClaimResult]:
        """Claim due items of open lanes for a worker, oldest due first, within rates and pauses, by
        `core.due.look`."""

    def apply(
        self, changes: Sequence[Change], now: int, versions: dict[str, int] | None = None
    ) -> list[Conflict | Refused | None]:
        """Write each change if the ledger still holds its `before` (see `core.change.holds`). None:
        written; Conflict: the row has changed since; Refused: the storage refuses this row, so that
        the same change can never be written. Each change is atomic, and none affects another.
        `versions` are the route versions that the decisions used."""

    def apply_and_claim(
        self,
        changes: Sequence[Change],
        now: int,
        versions: dict[str, int],
        asks: Sequence[ClaimRequest],
        jitter: float,
    ) -> tuple[list[Conflict | Refused | None], list[ClaimResult]]:
        """`apply` followed by `claim` with no other write between: an item that a change brings to
        a stage can be claimed there at once, after the items already due there. A ledger that lacks
        "one step" makes two writes."""

    def extend(
        self, rows: Sequence[Row], until: int, now: int, tickets: Sequence[Any] = ()
    ) -> list[bool]:
        """Extend the leases; False: that lease has ended. `tickets` are those of the claims
        (`Item.ticket`), in the order of `rows`."""

    def drop_tickets(self, tickets: Sequence[Any]) -> None:
        """Discard the tickets (`Item.ticket`) of claims that have ended. Never raises: a ticket
        that stays only brings a worker to a row that needs no work."""

    def get(self, refs: Sequence[tuple[str, str]]) -> list[Item | Refused | None]:
        """Items with their content, by (route, key). None: there is no row; Refused: the row cannot
        be read."""

    def find(self, query: Query) -> QueryPage:
        """Matching rows, page by page. Each row matches as of the time its page was read; none
        comes twice. A row that matches the whole time is missed only where an index lags behind the
        rows, which `Query.exact` excludes. Unreadable matching rows are in `QueryPage.refused`."""

    def history(self, route: str, key: str, *, payloads: bool = False) -> list[HistoryEntry]:
        """One item's lines, oldest first; with `payloads`, also the payloads they offered. An
        unreadable line is returned as stored (see `core.history.decode_line`)."""

    def next_due(self, plans: Iterable[Plan]) -> int | None:
        """The earliest due time of items that our own workers could claim (handler stages, open
        lanes)."""

    def missing_messages(self, plan: Plan, now: int) -> dict[str, int]:
        """Number of items, by handler stage, that are past their offer life and have no message in
        the stage's queue; stages without such items are left out. Empty where the row itself is the
        queue."""

    def lost_messages(self, plan: Plan, now: int, limit: int) -> list[Item]:
        """Some of those items, the longest offered first, without content: they need a new message.
        A backlog whose messages exist is never among them. Empty: there are no more at present."""
