"""Index of the parked items of one subscriber, in memory: a relay's turn reads no parked item that
it does not need."""

from __future__ import annotations

from collections.abc import Iterable

from milepost.core.clocks import still_ahead
from milepost.engine.context import Context
from milepost.engine.events.feed import FeedEvent, Ref
from milepost.engine.events.parked_events import (
    LONGEST_RETRY_MS,
    change_number,
    note_change,
    parked_for,
)
from milepost.engine.events.records import NEVER
from milepost.ports.documents import Parked

READ_AGAIN_MS = 600_000
"""All parked items are read again after so long, in case a process died between a change and its
note."""


class ParkedIndex:
    """Which items are parked, from which line on, and when they are retried. It is read again once
    another process has noted a change."""

    def __init__(self, ctx: Context, subscriber: str) -> None:
        self._ctx = ctx
        self._subscriber = subscriber
        self._from_line: dict[Ref, int] = {}
        self._retry_at: dict[Ref, int] = {}
        self._number: int | None = None
        """The change number for which the index holds; None: it does not hold."""
        self._read_at = 0
        self._changed = False
        """This process has made a change that it has not noted yet."""

    def __len__(self) -> int:
        return len(self._from_line)

    def refresh(self) -> None:
        """Read everything again, if another process has made a change."""
        now, number = self._ctx.clock.now(), change_number(self._ctx, self._subscriber)
        if (
            number is not None
            and number == self._number
            and 0 <= now - self._read_at < READ_AGAIN_MS
        ):
            return
        self._from_line, self._retry_at = {}, {}
        for parked, _ in parked_for(self._ctx, self._subscriber).values():
            self._put(parked)
        self._number, self._read_at = number, now

    def note(self) -> None:
        """Note this process's own changes for the others, before the cursor passes the lines of
        newly parked events."""
        if not self._changed:
            return
        if self._number is None or not note_change(self._ctx, self._subscriber, self._number):
            note_change(self._ctx, self._subscriber)
            self._number = None
        else:
            self._number += 1
        self._changed = False

    def set(self, parked: Parked) -> None:
        self._put(parked)
        self._changed = True

    def remove(self, ref: Ref) -> None:
        self._from_line.pop(ref, None)
        self._retry_at.pop(ref, None)
        self._changed = True

    def waits(self, entry: FeedEvent) -> bool:
        """Whether the event's item is parked at this event or before it. Events before the parked
        one come only if the cursor was set back; they are then delivered again like all others."""
        return entry.ref in self._from_line and entry.event.sequence >= self._from_line[entry.ref]

    def has(self, ref: Ref) -> bool:
        return ref in self._from_line

    def due(self, now: int) -> list[Ref]:
        """The items to retry, the longest due first."""
        due = [
            ref for ref, at in self._retry_at.items() if not still_ahead(at, now, LONGEST_RETRY_MS)
        ]
        return sorted(due, key=lambda ref: self._retry_at[ref])

    def retries(self) -> Iterable[int]:
        return self._retry_at.values()

    def _put(self, parked: Parked) -> None:
        ref = (parked.route, parked.key)
        self._from_line[ref] = parked.version
        if parked.retry_at == NEVER:
            self._retry_at.pop(ref, None)
        else:
            self._retry_at[ref] = parked.retry_at
