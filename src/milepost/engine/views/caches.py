"""Caches of ledger queries: with a time to live, and for one answer, whose repeated reads then agree."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

from milepost.core.item import Item
from milepost.engine.context import Context
from milepost.ports.documents import Document
from milepost.ports.feed import Count, Group, HistoryEntry
from milepost.ports.items import Refused
from milepost.ports.ledger import Ledger

KEEP_S = 60.0
"""How long an answer is usually valid."""
T = TypeVar("T")


class TtlCache:
    """Caches answers for `keep_s`, or the usual time; at most one query runs at a time."""

    def __init__(self, ticks: Callable[[], float] = time.monotonic, keep_s: float | None = None) -> None:
        self._ticks, self._keep_s = ticks, keep_s
        self._lock = threading.Lock()
        self._kept: dict[tuple[str, ...], tuple[float, Any]] = {}

    def once(self, about: tuple[str, ...], ask: Callable[[], T]) -> T:
        """The cached answer, or a new one."""
        with self._lock:
            now, kept = self._ticks(), self._kept.get(about)
            if kept is None or now - kept[0] >= (self._keep_s or KEEP_S):
                kept = self._kept[about] = now, ask()
            return cast(T, kept[1])


def read_cached(ctx: Context) -> Context:
    """A context for one answer whose repeated reads are cached; drop it afterwards."""
    seen = Context(cast(Ledger, ReadCache(ctx.ledger)), ctx.plans, ctx.clock, ctx.chance, ctx.blobs)
    seen.observer, seen.checks = ctx.observer, ctx.checks
    return seen


class ReadCache:
    """Ledger that caches the reads below; everything else goes to the ledger. Do not write through it: writes do not update the cache."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._seen: dict[tuple[Any, ...], Any] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ledger, name)

    def read(self, kind: str) -> dict[str, Document]:
        return self._once(("read", kind), lambda: self._ledger.read(kind))

    def read_one(self, kind: str, name: str) -> Document | None:
        if ("read", kind) in self._seen:
            return self.read(kind).get(name)
        return self._once(("read_one", kind, name), lambda: self._ledger.read_one(kind, name))

    def counts(self, route: str | None = None) -> list[Count]:
        return self._once(("counts", route), lambda: self._ledger.counts(route))

    def groups(self, route: str | None = None) -> list[Group]:
        return self._once(("groups", route), lambda: self._ledger.groups(route))

    def last_seq(self) -> int:
        return self._once(("last_seq",), self._ledger.last_seq)

    def get(self, refs: Sequence[tuple[str, str]]) -> list[Item | Refused | None]:
        return self._once(("get", *refs), lambda: self._ledger.get(refs))

    def history(self, route: str, key: str, *, payloads: bool = False) -> list[HistoryEntry]:
        return self._once(("history", route, key, payloads), lambda: self._ledger.history(route, key, payloads=payloads))

    def _once(self, asked: tuple[Any, ...], ask: Callable[[], T]) -> T:
        if asked not in self._seen:
            self._seen[asked] = ask()
        return cast(T, self._seen[asked])
