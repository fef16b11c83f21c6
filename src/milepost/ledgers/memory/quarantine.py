"""Quarantine of the memory ledger."""

from __future__ import annotations

from collections.abc import Sequence
from threading import RLock

from msgspec.structs import replace

from milepost.core.routes.plan import Plan
from milepost.ledgers.memory.state import State
from milepost.ports.foreign_rows import Adopted, QuarantineEntry
from milepost.ports.items import Refused


class MemoryQuarantine:
    """See `ports.outside.QuarantineStore`."""

    def __init__(self, state: State, lock: RLock) -> None:
        self._state, self._lock = state, lock

    def put(self, refs: Sequence[tuple[str, str]], reason: str, now: int) -> None:
        with self._lock:
            for ref in refs:
                if ref in self._state.records:
                    self._state.set_aside(self._state.records[ref], reason, now)

    def set_aside(self, most: int) -> tuple[list[QuarantineEntry], bool]:
        with self._lock:
            found = sorted(self._state.aside.values(), key=lambda aside: aside.at)
            return found[:most], len(found) > most

    def replay(self, plans: dict[str, Plan], ids: Sequence[str], now: int, *, by: str, why: str) -> list[Adopted]:
        with self._lock:
            return [self._release(id, now) for id in ids]

    def _release(self, id: str, now: int) -> Adopted:
        ref = next((ref for ref, aside in self._state.aside.items() if aside.id == id), None)
        if ref is None:
            return Adopted(id, False, why="there is no quarantine entry with this id; 'milepost quarantine list' shows them")
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
