"""State of the memory ledger in plain dicts, with rename, prune and quarantine."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from threading import RLock
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from milepost.core.admission.breakers import BreakerRecord, at_clock, breaker_after, with_leases
from milepost.core.admission.controls import Limit, is_held, scope
from milepost.core.change import Change, keeps_lease
from milepost.core.errors import LedgerDamaged
from milepost.core.forgetting import REMOVED_TEXT, forgotten_name
from milepost.core.item import Content, Item, Put, Row
from milepost.core.routes.breaker import Breaker
from milepost.core.routes.plan import Plan
from milepost.core.status import Status
from milepost.core.values.durations import rate_per_second
from milepost.ports.documents import BREAKER, FORGET, HOLD, LIMIT, ROUTE, SECRET, read_as
from milepost.ports.feed import HistoryEntry
from milepost.ports.foreign_rows import Adopted, QuarantineEntry
from milepost.ports.items import KnownKey, Refused
from milepost.ports.retention import (
    ForgetRequest,
    Forgotten,
    Leaving,
    PruneCriteria,
    Pruned,
    emptied,
    not_ended,
)

Ref = tuple[str, str]
encode = msgspec.json.encode
decode_content = msgspec.json.Decoder(Content).decode

T = TypeVar("T")


class MemoryRecord(msgspec.Struct, eq=False):
    """One item: its row, its content as JSON (so that no caller shares a mutable value with the
    ledger), its lines."""

    number: int
    row: Row
    content: bytes
    lines: list[HistoryEntry] = []
    damage: str | None = None
    """For tests, the unreadable part: "row" or "content"."""

    def read(self) -> Item | Refused:
        """The item; Refused if it is unreadable."""
        if self.damage is not None:
            return Refused(
                f"its {self.damage} is damaged",
                self.row.key,
                self.row if self.damage == "content" else None,
            )
        return self.item()

    def item(self) -> Item:
        return Item(self.row, decode_content(self.content))

    def put(self, puts: Iterable[Put]) -> None:
        content = decode_content(self.content)
        for put in puts:
            if put.kind == "input":
                content.input = put.value
            else:
                (content.payloads if put.kind == "payload" else content.results)[put.stage] = (
                    put.value
                )
        self.content = encode(content)


class Bucket(msgspec.Struct):
    """Token bucket for handler calls: `rate` per second, at most `burst` saved; extra calls may
    make it negative."""

    rate: float
    at: int
    tokens: float = math.inf

    @property
    def burst(self) -> float:
        return max(1.0, self.rate * 0.1)

    def refill(self, rate: float, now: int) -> None:
        self.rate = rate
        if now < self.at - 10_000:
            self.at = now  # the clock was set back; that must not block a stage for long
        self.tokens = min(self.burst, self.tokens + max(0, now - self.at) * rate / 1000)
        self.at = max(self.at, now)

    @property
    def calls(self) -> int:
        return max(0, math.floor(self.tokens + 1e-9))

    @property
    def next_at(self) -> int:
        return self.at + max(1, math.ceil((1 - self.tokens) * 1000 / self.rate - 1e-6))


class GroupSeen(msgspec.Struct):
    category: str
    sample: str
    total: int
    first_at: int
    last_at: int


class State:
    """Everything that a memory ledger stores."""

    def __init__(self) -> None:
        self.records: dict[Ref, MemoryRecord] = {}
        self.lanes: dict[tuple[str, str], set[str]] = {}
        self.seals: dict[Ref, KnownKey] = {}
        self.departed: list[MemoryRecord] = []
        """Items whose rows have left while their lines are still here."""
        self.lines: dict[int, HistoryEntry] = {}
        self.offered: dict[int, bytes] = {}
        """The payload that a line offered to an external stage, by the line's seq."""
        self.documents: dict[str, dict[str, tuple[bytes, int]]] = {}
        self.removed: dict[str, int] = {}
        """The highest version of a removed document of each kind; a new one begins above it."""
        self.groups: dict[tuple[str, str, str], GroupSeen] = {}
        self.buckets: dict[str, Bucket] = {}
        self.served: dict[str, int] = {}
        self.holders: dict[str, bool] = {}
        self.aside: dict[Ref, QuarantineEntry] = {}
        """Quarantined rows: not due until they are replayed."""
        self.largest: int | None = None
        """Maximum bytes of one write, for tests of a storage that refuses writes."""
        self.numbers = self.seq = self.writes = 0

    def known(self, ref: Ref) -> KnownKey | None:
        if ref in self.records:
            return KnownKey.of(self.records[ref].row)
        return self.seals.get(ref) or self.forgotten(ref)

    def forgotten(self, ref: Ref) -> KnownKey | None:
        """The seal of this key, if its content was removed."""
        secret = self.document(FORGET, SECRET)
        if secret is None:
            return None
        route, key = ref
        seal = self.seals.get((route, forgotten_name(bytes.fromhex(secret["secret"]), route, key)))
        return None if seal is None else replace(seal, key=key)

    def refuses(self, change: Change, content: Any = None) -> Refused | None:
        """Refused if the write is larger than `largest`."""
        if self.largest is None:
            return None
        values = [replace(change.after, handle=None), content, *(put.value for put in change.puts)]
        size = len(change.body) + sum(len(encode(value)) for value in values)
        return (
            None
            if size <= self.largest
            else Refused(f"it takes {size:,} bytes; {self.largest:,} are allowed")
        )

    def write(self, record: MemoryRecord, change: Change) -> None:
        """Write a change: row, content, line and groups together. No other code changes a row."""
        new = change.after
        self.writes += 1
        record.row = replace(new, look_at=record.row.look_at) if keeps_lease(change) else new
        if change.puts:
            record.put(change.puts)
        if change.line is not None:
            self.seq += 1
            line = HistoryEntry(
                self.seq, new.route, new.key, new.correlation_id, change.before.head, change.body
            )
            record.lines.append(line)
            self.lines[self.seq] = line
            if change.line.offered is not None:
                content = decode_content(record.content)
                self.offered[self.seq] = encode(
                    content.payloads.get(change.line.after_stage, content.input)
                )
        error = new.error
        if error is not None:
            at = (new.route, new.stage, error.group)
            seen = self.groups.setdefault(
                at, GroupSeen(error.category, error.message[:300], 0, error.at, error.at)
            )
            if error is not change.before.error:
                seen.total += 1
                seen.last_at = max(seen.last_at, error.at)
        name = scope(change.before.route, change.before.stage, change.before.lane)
        self.put_breaker(name, breaker_after(self.breaker(name), change))

    def document(self, kind: str, name: str) -> Any:
        found = self.documents.get(kind, {}).get(name)
        return None if found is None else msgspec.json.decode(found[0])

    def put_document(self, kind: str, name: str, value: bytes) -> None:
        documents = self.documents.setdefault(kind, {})
        version = documents[name][1] if name in documents else self.removed.get(kind, 0)
        documents[name] = (value, version + 1)

    def remove_document(self, kind: str, name: str) -> bytes:
        value, version = self.documents[kind].pop(name)
        self.removed[kind] = max(version, self.removed.get(kind, 0))
        return value

    def outdated(self, route: str, version: int) -> bool:
        held = self.document(ROUTE, route)
        return held is not None and held.get("version") != version

    def open(self, row: Row) -> bool:
        """Whether its lane is not paused. What a damaged limit limits counts as paused: how much is
        allowed there is not known."""
        damaged = {
            name for name in self.documents.get(LIMIT, {}) if self._read(LIMIT, name, Limit) is None
        }
        return not is_held(
            {*self.documents.get(HOLD, {}), *damaged}, row.route, row.stage, row.lane
        )

    def workable(self, record: MemoryRecord) -> bool:
        """Whether its lane is open and it is not in quarantine."""
        return self.open(record.row) and (record.row.route, record.row.key) not in self.aside

    def set_aside(self, record: MemoryRecord, reason: str, now: int) -> None:
        ref = (record.row.route, record.row.key)
        content = {"route": ref[0], "key": ref[1], "content": msgspec.json.decode(record.content)}
        self.aside.setdefault(ref, QuarantineEntry(str(record.number), "row", reason, content, now))
        self.writes += 1

    def limit(self, name: str) -> Limit:
        return self._read(LIMIT, name, Limit) or Limit()

    def breaker(self, name: str) -> BreakerRecord | None:
        return self._read(BREAKER, name, BreakerRecord)

    def _read(self, kind: str, name: str, form: type[T]) -> T | None:
        """A document; None: there is none, or it is damaged."""
        found = self.document(kind, name)
        try:
            return None if found is None else read_as(form, found)
        except LedgerDamaged:
            return None

    def put_breaker(self, name: str, record: BreakerRecord | None) -> None:
        if record == self.breaker(name):
            return
        if record is not None:
            self.put_document(BREAKER, name, encode(record))
        else:
            self.remove_document(BREAKER, name)

    def breaker_at(self, name: str, breaker: Breaker, route: str, now: int) -> BreakerRecord | None:
        """The record by the present clock, with the leases that its probes have now."""
        record = self.breaker(name)
        if record is None:
            return None
        record = at_clock(record, breaker, now)
        over = [
            probe.key
            for probe in record.probes
            if probe.until <= now and (route, probe.key) in self.records
        ]
        rows = [self.records[route, key].row for key in over]
        record = with_leases(
            record, {row.key: row.look_at or 0 for row in rows if row.status is Status.PROCESSING}
        )
        self.put_breaker(name, record)
        return record

    def bucket(self, name: str, rate: str | float | None, now: int) -> Bucket | None:
        """The token bucket of a scope; a limit set at run time overrides the route's rate, and a
        drain only slows it down. None: no rate applies."""
        limit = self.limit(name)
        rates = (
            [limit.rate or rate]
            if limit.drains is None
            else [limit.rate, limit.normal_rate or rate]
        )
        per_second = [
            rate_per_second(one, f"the rate of {name}") for one in rates if one is not None
        ]
        if not per_second:
            self.buckets.pop(name, None)
            return None
        calls = min(per_second)
        bucket = self.buckets.setdefault(name, Bucket(calls, now))
        bucket.refill(calls, now)
        return bucket


def rename_stage(state: State, route: str, old: str, new: str) -> None:
    """Rename it in items with their content and waiting outcomes, error groups, seals, pauses and
    limits."""
    state.writes += 1
    for record in state.records.values():
        row = record.row
        if row.route != route:
            continue
        content = decode_content(record.content)
        content.payloads, content.results = (
            _renamed(content.payloads, old, new),
            _renamed(content.results, old, new),
        )
        record.content = encode(content)
        record.row = replace(
            row, stage=new if row.stage == old else row.stage, kept=_renamed(row.kept, old, new)
        )
    for at in [at for at in state.groups if at[:2] == (route, old)]:
        seen = state.groups.pop(at)
        there = state.groups.setdefault((route, new, at[2]), seen)
        if there is not seen:
            there.total += seen.total
            there.first_at, there.last_at = (
                min(there.first_at, seen.first_at),
                max(there.last_at, seen.last_at),
            )
    for ref, seal in state.seals.items():
        if (ref[0], seal.stage) == (route, old):
            state.seals[ref] = replace(seal, stage=new)
    for kind in (HOLD, LIMIT, BREAKER):
        documents = state.documents.get(kind, {})
        for name in [name for name in documents if (name + "/").startswith(f"{route}/{old}/")]:
            state.put_document(
                kind,
                f"{route}/{new}" + name.removeprefix(f"{route}/{old}"),
                state.remove_document(kind, name),
            )


def _renamed(values: dict[str, Any], old: str, new: str) -> dict[str, Any]:
    return {new if name == old else name: value for name, value in values.items()}


def prune(state: State, asked: PruneCriteria) -> Pruned:
    """Ended rows leave, their lines once they are delivered, and seals once they may be
    forgotten."""
    route, limit, ended_before = asked.route, asked.limit, asked.ended_before
    ended = [
        record
        for record in state.records.values()
        if record.row.route == route
        and record.row.terminal
        and record.row.status in asked.statuses
        and record.row.entered_at < ended_before
    ]
    leaving = ended[:limit]
    if asked.keep is not None and leaving:
        kept = {(record.row.route, record.row.key): record.row.head for record in leaving}
        asked.keep([Leaving(record.item(), list(record.lines)) for record in leaving])
        # What has changed meanwhile stays, and is kept anew the next time.
        leaving = [
            state.records[ref]
            for ref, head in kept.items()
            if ref in state.records and state.records[ref].row.head == head
        ]
    for record in leaving:
        row = record.row
        state.seals[row.route, row.key] = KnownKey.of(row, sealed=True)
        state.departed.append(state.records.pop((row.route, row.key)))
    gone = [
        record
        for record in state.departed
        if record.row.route == route
        and record.row.entered_at < ended_before
        and asked.delivered.covers(route, record.row.key, record.lines[-1].seq)
    ]
    for record in gone[:limit]:
        state.departed.remove(record)
        for line in record.lines:
            del state.lines[line.seq]
            state.offered.pop(line.seq, None)
    waiting = {(record.row.route, record.row.key) for record in state.departed}
    old = [
        ref
        for ref, seal in state.seals.items()
        if asked.forget_before is not None
        and ref[0] == route
        and (seal.ended_at or 0) < asked.forget_before
        and ref not in waiting
    ]
    for ref in old[:limit]:
        del state.seals[ref]
    state.writes += 1
    left = Counter(record.row.status for record in leaving)
    more = max(len(ended), len(gone), len(old)) > limit
    return Pruned(len(leaving), len(old[:limit]), more, len(gone[:limit]), dict(left))


def forget(state: State, asked: ForgetRequest) -> Forgotten:
    """The row leaves at once; seal and lines of all lives get the name instead of the key, and lose
    their content."""
    ref, new = (asked.route, asked.key), (asked.route, asked.name)
    record = state.records.get(ref)
    if record is not None and not record.row.terminal:
        return Forgotten(refused=not_ended(record.row.status))
    if asked.dry_run:
        return Forgotten()
    if record is not None:
        state.seals[ref] = KnownKey.of(record.row, sealed=True)
        state.departed.append(state.records.pop(ref))
        state.aside.pop(ref, None)
    seal = state.seals.pop(ref, None)
    if seal is not None:
        state.seals[new] = replace(
            seal, key=asked.name, input_digest=b"", content_digest=None, list_id=None
        )
    departed = [gone for gone in state.departed if (gone.row.route, gone.row.key) == ref]
    for gone in departed:
        texts = [line.line.attempt.message for line in gone.lines if line.line.attempt is not None]
        for seen in state.groups.values():
            if seen.sample in [text[:300] for text in texts]:
                seen.sample = REMOVED_TEXT
        gone.row = replace(
            gone.row,
            key=asked.name,
            correlation_id="",
            note=None,
            error=None,
            list_id=None,
            kept={},
            undecided=None,
        )
        gone.content = encode(Content())
        gone.lines = emptied(gone.lines, asked.name)
        for line in gone.lines:
            state.lines[line.seq] = line
            state.offered.pop(line.seq, None)
    state.writes += 1
    return Forgotten(lines=sum(len(gone.lines) for gone in departed))


class MemoryQuarantine:
    """See `ports.foreign_rows.QuarantineStore`."""

    def __init__(self, state: State, lock: RLock) -> None:
        self._state, self._lock = state, lock

    def put(self, refs: Sequence[tuple[str, str]], reason: str, now: int) -> None:
        with self._lock:
            for ref in refs:
                if ref in self._state.records:
                    self._state.set_aside(self._state.records[ref], reason, now)

    def entries(self, most: int) -> tuple[list[QuarantineEntry], bool]:
        with self._lock:
            found = sorted(self._state.aside.values(), key=lambda aside: aside.at)
            return found[:most], len(found) > most

    def replay(
        self, plans: dict[str, Plan], ids: Sequence[str], now: int, *, by: str, why: str
    ) -> list[Adopted]:
        with self._lock:
            return [self._release(id, now) for id in ids]

    def _release(self, id: str, now: int) -> Adopted:
        ref = next((ref for ref, aside in self._state.aside.items() if aside.id == id), None)
        if ref is None:
            return Adopted(
                id,
                False,
                why="there is no quarantine entry with this id; 'milepost quarantine list' shows them",
            )
        record = self._state.records[ref]
        item = record.read()
        if isinstance(item, Refused):
            return Adopted(id, False, why=f"{item.reason}; correct it, or cancel the item")
        del self._state.aside[ref]
        record.row = replace(record.row, look_at=now)
        self._state.writes += 1
        return Adopted(id, True, item.stage)

    def drop(self, ids: Sequence[str]) -> list[str]:
        with self._lock:
            found = {aside.id: ref for ref, aside in self._state.aside.items()}
            for id in ids:
                if id in found:
                    del self._state.aside[found[id]]
            return [id for id in ids if id in found]
