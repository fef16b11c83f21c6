"""Eyes: whoever wants to hear what happens while it happens. By default nobody does, and nothing is done for it.

What must not be lost is in the ledger; this is for figures. Whatever comes in batches is told in batches.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextvars import ContextVar
from typing import Protocol

from milepost.core.item import Item
from milepost.ports.runner import JobResult

ABOUT: ContextVar[Item | str | None] = ContextVar("about", default=None)
"""What this thread or task is busy with: the item whose handler runs, or the correlation id of a call. Log lines name it."""


class Observer(Protocol):
    """Told by many threads at once. It must be quick, and an error of its own must not come out of it."""

    def submitted(self, route: str, answers: Iterable[str]) -> None:
        """Items were handed over; an answer for each (new, known, changed, malformed)."""

    def claimed(self, route: str, stage: str, items: int, lost: int) -> None:
        """A worker took items in hand; so many leases of others were found to have run out."""

    def settled(self, rans: Sequence[JobResult], now: int, written: int, refused: int, undecided: int) -> None:
        """Handlers have answered, and so many of their outcomes were written, refused (the lease was gone) or left undecided."""

    def seen_to(self, route: str, items: Sequence[tuple[str, str]]) -> None:
        """The resender has seen to items that had gone quiet: the stage of each, and what was done (resent, offered, lost, overdue,
        no_answer, confirmed, decided)."""

    def told(self, subscriber: str, taken: int, failed: int) -> None:
        """A subscriber was told events at once."""

    def called(self, method: str, path: str, status: int, seconds: float) -> None:
        """A call over HTTP was answered; `path` is the endpoint's, with its parameters' names."""


class Nobody:
    """Hears nothing."""

    def submitted(self, route: str, answers: Iterable[str]) -> None: ...

    def claimed(self, route: str, stage: str, items: int, lost: int) -> None: ...

    def settled(self, rans: Sequence[JobResult], now: int, written: int, refused: int, undecided: int) -> None: ...

    def seen_to(self, route: str, items: Sequence[tuple[str, str]]) -> None: ...

    def told(self, subscriber: str, taken: int, failed: int) -> None: ...

    def called(self, method: str, path: str, status: int, seconds: float) -> None: ...


NOBODY = Nobody()
