"""Observer: callbacks for metrics while work happens. The default observer does nothing.

Everything that must not be lost is in the ledger; this is for figures. Batches are reported as
batches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextvars import ContextVar

from milepost.core.item import Item
from milepost.ports.runner import JobResult

ABOUT: ContextVar[Item | str | None] = ContextVar("about", default=None)
"""Log context of this thread or task: the item whose handler runs, or the correlation id of a
call."""


def correlation_id() -> str | None:
    """The correlation id of the HTTP call or of the item that this thread or task works on; None:
    it works on neither."""
    about = ABOUT.get()
    return about.correlation_id if isinstance(about, Item) else about


class Observer:
    """Called by many threads at once. It must be fast and must not raise."""

    def submitted(self, route: str, answers: Mapping[str, int]) -> None:
        """Items were submitted; how many got each answer (new, known, changed, malformed)."""

    def claimed(self, route: str, stage: str, items: int, lost: int) -> None:
        """A worker claimed items; `lost` expired leases of others were found."""

    def settled(
        self, rans: Sequence[JobResult], now: int, written: int, refused: int, undecided: int
    ) -> None:
        """Handlers have finished; counts of outcomes written, refused (the lease had ended) and
        left undecided."""

    def resent(self, route: str, items: Sequence[tuple[str, str]]) -> None:
        """The resender handled items that had gone quiet: the stage of each, and the action
        (resent, offered, lost, overdue, no_answer, confirmed, decided)."""

    def delivered(self, subscriber: str, taken: int, failed: int) -> None:
        """Events were delivered to a subscriber, or failed."""

    def called(self, method: str, path: str, status: int, seconds: float) -> None:
        """An HTTP call was answered; `path` is the endpoint's, with the names of its parameters."""


class NullObserver(Observer):
    """Does nothing."""


NO_OBSERVER = NullObserver()
