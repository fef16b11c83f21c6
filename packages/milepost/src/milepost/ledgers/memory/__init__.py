"""Memory ledger, the test oracle: plain dicts and full scans, written to be obviously correct
rather than fast.

Other ledgers are compared with it, so it shares no code with them but the values of the port. It
also serves tests of users' own routes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from threading import RLock
from typing import Any

import msgspec
from msgspec.structs import replace

from milepost.core.admission.breakers import BreakerRecord
from milepost.core.admission.controls import Controls
from milepost.core.change import Change, holds
from milepost.core.counters import HOUR
from milepost.core.errors import LedgerError, RouteChanged
from milepost.core.forecast import LaneCount
from milepost.core.item import Content, Item, Row
from milepost.core.routes.plan import Plan
from milepost.core.status import FAILED, Status
from milepost.ledgers.memory.claim import claim_one
from milepost.ledgers.memory.state import (
    MemoryQuarantine,
    MemoryRecord,
    State,
    encode,
    forget,
    prune,
    rename_stage,
)
from milepost.ports.documents import BREAKER, Document, sort_out
from milepost.ports.feed import Count, Group, HistoryEntry
from milepost.ports.items import (
    ClaimRequest,
    ClaimResult,
    Conflict,
    KnownKey,
    NewItem,
    Query,
    QueryPage,
    Refused,
    Same,
    Timing,
    compare,
)
from milepost.ports.retention import ForgetRequest, Forgotten, LeftFailures, PruneCriteria, Pruned
from milepost.ports.service import Service
from milepost.ports.upkeep import BackupReport, Progress, TransferResult


class MemoryLedger:
    """A ledger in one process's memory, behind one lock; `memory:`."""

    missing_capabilities = frozenset({"backup", "take over"})
    work_queues, row_expiry = False, False
    known_format = 0
    foreign_rows = None

    def __init__(self) -> None:
        self.timing = Timing(0, 0)
        self.url = "memory:"
        self._lock = RLock()
        self._state = State()
        self.quarantine = MemoryQuarantine(self._state, self._lock)

    def prepare(self, plan: Plan) -> Plan:
        """The plan as it is: rows of all routes are in one place, and nothing is sent."""
        return plan

    # Items ----------------------------------------------------------------------------------------
    def peek(self, route: str, keys: Sequence[str]) -> list[KnownKey | None]:
        with self._lock:
            return [self._state.known((route, key)) for key in keys]

    def recognise(
        self, route: str, keys: Sequence[str], digests: Sequence[bytes]
    ) -> list[KnownKey | Same | None]:
        return compare(self.peek(route, keys), digests)

    def invalid_keys(self, plan: Plan, keys: Sequence[str]) -> dict[str, str]:
        return {}

    def add(
        self, plan: Plan, new_items: Sequence[NewItem], now: int
    ) -> list[KnownKey | Refused | None]:
        with self._lock:
            if self._state.outdated(plan.name, plan.version):
                raise RouteChanged(
                    f"the ledger holds another version of route {plan.name!r}; run 'milepost routes apply', or restart this process"
                )
            answers: list[KnownKey | Refused | None] = []
            for new_item in new_items:
                ref = (new_item.change.after.route, new_item.change.after.key)
                known = self._state.known(ref)
                if known is not None and new_item.passes(known):
                    known = None
                refused = (
                    self._state.refuses(new_item.change, new_item.input) if known is None else None
                )
                answers.append(known or refused)
                if known is None and refused is None:
                    self._state.numbers += 1
                    record = MemoryRecord(
                        self._state.numbers, new_item.change.before, encode(Content(new_item.input))
                    )
                    self._state.records[ref] = record
                    self._state.write(record, new_item.change)
            return answers

    def claim(self, asks: Sequence[ClaimRequest], now: int, jitter: float) -> list[ClaimResult]:
        with self._lock:
            return [claim_one(self._state, ask, now, jitter) for ask in asks]

    def apply(
        self, changes: Sequence[Change], now: int, versions: dict[str, int] | None = None
    ) -> list[Conflict | Refused | None]:
        with self._lock:
            return [self._apply(change, versions or {}) for change in changes]

    def apply_and_claim(
        self,
        changes: Sequence[Change],
        now: int,
        versions: dict[str, int],
        asks: Sequence[ClaimRequest],
        jitter: float,
    ) -> tuple[list[Conflict | Refused | None], list[ClaimResult]]:
        with self._lock:
            return self.apply(changes, now, versions), self.claim(asks, now, jitter)

    def _apply(self, change: Change, versions: dict[str, int]) -> Conflict | Refused | None:
        before = change.before
        record = self._state.records.get((before.route, before.key))
        if record is None:
            return Conflict(None)
        row = record.row
        if before.route in versions and self._state.outdated(before.route, versions[before.route]):
            return Conflict(row, outdated=True)
        if not holds(change, row):
            return Conflict(row)
        refused = self._state.refuses(change)
        if refused is None:
            self._state.write(record, change)
            # A row that could be written needs no quarantine.
            self._state.aside.pop((before.route, before.key), None)
        return refused

    def extend(
        self, rows: Sequence[Row], until: int, now: int, tickets: Sequence[Any] = ()
    ) -> list[bool]:
        with self._lock:
            return [self._extend(row, until) for row in rows]

    def drop_tickets(self, tickets: Sequence[Any]) -> None:
        """No-op: the row is the queue."""

    def _extend(self, row: Row, until: int) -> bool:
        record = self._state.records.get((row.route, row.key))
        if record is None or row.lease is None or record.row.lease != row.lease:
            return False
        record.row = replace(record.row, look_at=until)
        self._state.writes += 1
        return True

    def get(self, refs: Sequence[tuple[str, str]]) -> list[Item | Refused | None]:
        with self._lock:
            return [
                self._state.records[ref].read() if ref in self._state.records else None
                for ref in map(tuple, refs)
            ]

    def find(self, query: Query) -> QueryPage:
        with self._lock:
            step = -1 if query.order == "newest" else 1
            rows = sorted(self._state.records.values(), key=lambda record: step * record.number)
            found = [
                one
                for one in rows
                if (query.after is None or step * one.number > step * query.after)
                and query.matches(one.row)
            ]
            page = found[: query.limit]
            items = [
                record.read()
                if query.with_content or record.damage == "row"
                else Item(record.row, Content())
                for record in page
            ]
            return QueryPage(
                [item for item in items if isinstance(item, Item)],
                page[-1].number if len(found) > len(page) else None,
                [item for item in items if isinstance(item, Refused)],
            )

    def history(self, route: str, key: str, *, payloads: bool = False) -> list[HistoryEntry]:
        with self._lock:
            record = self._state.records.get((route, key))
            if record is None:
                lives = [
                    gone
                    for gone in self._state.departed
                    if (gone.row.route, gone.row.key) == (route, key)
                ]
                record = lives[-1] if lives else None
            lines = [] if record is None else list(record.lines)
            return [self._with_payload(line) for line in lines] if payloads else lines

    # Feed, counters, documents --------------------------------------------------------------------
    def feed(self, after: int, limit: int) -> list[HistoryEntry]:
        with self._lock:
            return [
                self._with_payload(line) for seq, line in self._state.lines.items() if seq > after
            ][:limit]

    def _with_payload(self, written: HistoryEntry) -> HistoryEntry:
        payload = self._state.offered.get(written.seq)
        return (
            written if payload is None else replace(written, payload=msgspec.json.decode(payload))
        )

    def last_seq(self) -> int:
        return self._state.seq

    def counts(self, route: str | None = None) -> list[Count]:
        """Counted afresh each time: this makes the ledger the oracle for the others' maintained
        counters."""
        with self._lock:
            sums: dict[tuple[str, str, Status, int], int] = {}
            for record in self._state.records.values():
                row = record.row
                if route is None or row.route == route:
                    at = (row.route, row.stage, row.status, row.entered_at // HOUR)
                    sums[at] = sums.get(at, 0) + 1
            return [Count(*at, n) for at, n in sums.items()]

    def lane_counts(self, route: str, now: int, lists: Collection[str] = ()) -> list[LaneCount]:
        with self._lock:
            rows = [
                record.row
                for ref, record in self._state.records.items()
                if record.row.route == route
                and ref not in self._state.aside
                and (record.row.list_id in lists if lists else not record.row.terminal)
            ]
        lanes = sorted({(row.stage, row.lane) for row in rows})
        return [
            _lane_count(
                stage, lane, [row for row in rows if (row.stage, row.lane) == (stage, lane)], now
            )
            for stage, lane in lanes
        ]

    def entered_by(self, route: str, stage: str, until: int) -> int:
        with self._lock:
            return sum(
                (record.row.route, record.row.stage) == (route, stage)
                and not record.row.terminal
                and record.row.entered_at <= until
                for ref, record in self._state.records.items()
                if ref not in self._state.aside
            )

    def groups(self, route: str | None = None) -> list[Group]:
        with self._lock:
            now: dict[tuple[str, str, str], int] = {}
            for record in self._state.records.values():
                if record.row.error is not None:
                    at = (record.row.route, record.row.stage, record.row.error.group)
                    now[at] = now.get(at, 0) + 1
            return [
                Group(
                    *at,
                    seen.category,
                    seen.sample,
                    now.get(at, 0),
                    seen.total,
                    seen.first_at,
                    seen.last_at,
                )
                for at, seen in self._state.groups.items()
                if route is None or at[0] == route
            ]

    def read(self, kind: str) -> dict[str, Document]:
        with self._lock:
            return {
                name: Document(msgspec.json.decode(value), n)
                for name, (value, n) in self._state.documents.get(kind, {}).items()
            }

    def read_one(self, kind: str, name: str) -> Document | None:
        return self.read(kind).get(name)

    def write(self, kind: str, name: str, value: Any, expect: int | None = None) -> bool:
        with self._lock:
            documents = self._state.documents.setdefault(kind, {})
            version = documents[name][1] if name in documents else 0
            if expect is not None and expect != version:
                return False
            if value is not None:
                self._state.put_document(kind, name, encode(value))
            elif name in documents:
                self._state.remove_document(kind, name)
            self._state.writes += 1
            return True

    # Upkeep ---------------------------------------------------------------------------------------
    def cost_of(self, query: Query) -> None:
        """None: reading is free here."""

    def sealed(
        self, route: str, after: str | None, limit: int
    ) -> tuple[list[KnownKey], str | None]:
        with self._lock:
            keys = sorted(
                key
                for name, key in self._state.seals
                if name == route and (name, key) not in self._state.records
            )
            seals = [self._state.seals[route, key] for key in keys if key > (after or "")]
            return seals[:limit], seals[limit - 1].key if len(seals) > limit else None

    def left_failures(self, route: str, prefix: str, after: str | None, limit: int) -> LeftFailures:
        with self._lock:
            known = [
                seal
                for (name, key), seal in sorted(self._state.seals.items())
                if name == route and (name, key) not in self._state.records
            ]
            failed = [
                seal
                for seal in known
                if seal.status in FAILED
                and seal.key.startswith(prefix)
                and seal.key > (after or "")
            ]
            return LeftFailures(
                failed[:limit], failed[limit - 1].key if len(failed) > limit else None
            )

    def take_over(self, *_: Any) -> TransferResult:
        raise LedgerError(
            "a memory ledger cannot be the target of a move: it would be lost with its process"
        )

    def next_due(self, plans: Iterable[Plan]) -> int | None:
        with self._lock:
            ours = {
                (plan.name, stage.name): stage
                for plan in plans
                for stage in plan.stages
                if stage.ours
            }
            rows = [
                record.row
                for record in self._state.records.values()
                if (record.row.route, record.row.stage) in ours and self._state.workable(record)
            ]
            sound, _ = sort_out(self.read(BREAKER), BREAKER, BreakerRecord)
            controls = Controls((), {}, {name: record for name, (record, _) in sound.items()})
            return min(
                (
                    max(
                        row.due_at,
                        controls.opens_at(row.route, ours[row.route, row.stage], row.lane),
                    )
                    for row in rows
                    if row.due_at is not None
                ),
                default=None,
            )

    def missing_messages(self, plan: Plan, now: int) -> dict[str, int]:
        """None: the row is the queue."""
        return {}

    def lost_messages(self, plan: Plan, now: int, limit: int) -> list[Item]:
        """None: the row is the queue."""
        return []

    def rename_stage(self, route: str, old: str, new: str) -> None:
        with self._lock:
            rename_stage(self._state, route, old, new)

    def idle_upkeep(self) -> None: ...

    def reclaim(self, holders: Sequence[str], now: int) -> int:
        with self._lock:
            held = [
                record
                for record in self._state.records.values()
                if record.row.status is Status.PROCESSING and record.row.holder in holders
            ]
            for record in held:
                record.row = replace(record.row, look_at=now)
            for holder in holders:
                if self._state.holders.get(holder) is False:
                    del self._state.holders[holder]
            self._state.writes += 1
            return len(held)

    def prune(self, asked: PruneCriteria) -> Pruned:
        with self._lock:
            return prune(self._state, asked)

    def forget(self, asked: ForgetRequest) -> Forgotten:
        with self._lock:
            return forget(self._state, asked)

    def sign_on(self, holder: str) -> None:
        with self._lock:
            self._state.holders[holder] = True

    def sign_off(self, holder: str) -> None:
        with self._lock:
            self._state.holders.pop(holder, None)

    def kill(self, holder: str) -> None:
        """For tests: the holder counts as dead from now on."""
        with self._lock:
            self._state.holders[holder] = False

    def damage(self, route: str, key: str, what: str | None) -> None:
        """For tests: make the "row" or the "content" of this item unreadable (None: readable
        again)."""
        with self._lock:
            self._state.records[route, key].damage = what

    def refuse_above(self, largest: int | None) -> None:
        """For tests: refuse writes of more than so many bytes from now on."""
        self._state.largest = largest

    def dead_workers(self) -> list[str]:
        with self._lock:
            return [holder for holder, alive in self._state.holders.items() if not alive]

    def change_counter(self) -> int:
        return self._state.writes

    def clock(self) -> None:
        """None: there is one process."""

    def services(self, *_: Any) -> list[tuple[str, Service]]:
        """None: all consequences are part of the write."""
        return []

    def counted_future(self, route: str) -> None:
        """None: a search finds them."""

    def format(self) -> None:
        """None: there is nothing that an operator raises."""

    def raise_format(self) -> int:
        return 0

    def backup(self, target: Path, overwrite: bool, on_progress: Progress) -> BackupReport:
        raise LedgerError(
            "a memory ledger cannot be backed up: it ends with its process; use sqlite:///FILE"
        )

    def describe(self) -> dict[str, Any]:
        with self._lock:
            return {
                "url": self.url,
                "items": len(self._state.records),
                "seals": len(self._state.seals),
                "lines": len(self._state.lines),
                "problems": [],
            }

    def close(self) -> None:
        """No-op: there is nothing to close."""


def _lane_count(stage: str, lane: str, rows: Sequence[Row], now: int) -> LaneCount:
    """The numbers of these items of one lane."""
    ours = [
        row
        for row in rows
        if not row.terminal and row.status is not Status.PROCESSING and not row.handed_over
    ]
    due = [row.due_at for row in ours if row.due_at is not None]
    later = [at for at in due if at > now]
    return LaneCount(
        stage,
        lane,
        completed=sum(row.status is Status.COMPLETED for row in rows),
        failed=sum(row.status in FAILED for row in rows),
        cancelled=sum(row.status is Status.CANCELLED for row in rows),
        claimed=sum(row.status is Status.PROCESSING for row in rows),
        with_partner=sum(
            row.handed_over and not row.terminal and row.status is not Status.PROCESSING
            for row in rows
        ),
        ready=len(due) - len(later),
        later=len(later),
        next_at=min(later, default=None),
    )
