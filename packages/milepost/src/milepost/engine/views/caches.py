"""Caches of ledger queries: with a time to live, and for one answer, whose repeated reads then
agree."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar, cast

from milepost.engine.context import Context
from milepost.ports.documents import Document
from milepost.ports.ledger import Ledger

KEEP_S = 60.0
"""How long an answer is usually valid."""
T = TypeVar("T")


class TtlCache:
    """Caches answers for `keep_s`, or the usual time; at most one query runs at a time."""

    def __init__(
        self, ticks: Callable[[], float] = time.monotonic, keep_s: float | None = None
    ) -> None:
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

    def drop(self, about: tuple[str, ...]) -> None:
        """Forget the cached answer, because an act has changed it."""
        with self._lock:
            self._kept.pop(about, None)


def read_cached(ctx: Context) -> Context:
    """A context for one answer whose repeated reads are cached; drop it afterwards."""
    seen = Context(cast(Ledger, ReadCache(ctx.ledger)), ctx.plans, ctx.clock, ctx.chance, ctx.blobs)
    seen.observer, seen.checks = ctx.observer, ctx.checks
    return seen


class ReadCache:
    """Ledger that caches the reads named here; everything else goes to the ledger. Do not write
    through it: writes do not update the cache."""

    CACHED = frozenset({"read", "counts", "groups", "last_seq", "get", "history"})

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._seen: dict[tuple[Any, ...], Any] = {}

    def __getattr__(self, name: str) -> Any:
        return partial(self._once, name) if name in self.CACHED else getattr(self._ledger, name)

    def read_one(self, kind: str, name: str) -> Document | None:
        if ("read", kind) in self._seen:
            return cast(Document | None, self._seen["read", kind].get(name))
        return cast(Document | None, self._once("read_one", kind, name))

    def _once(self, name: str, *asked: Any, **options: Any) -> Any:
        # A route that is None means the same as none.
        question = (
            name,
            *(tuple(one) if isinstance(one, list) else one for one in asked if one is not None),
            *options.items(),
        )
        if question not in self._seen:
            self._seen[question] = getattr(self._ledger, name)(*asked, **options)
        return self._seen[question]
