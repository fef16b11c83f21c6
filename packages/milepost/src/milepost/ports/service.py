"""Service: a background task of a process, and all that a station asks of it."""

from __future__ import annotations


class Service:
    """Base of all background tasks. A service is called repeatedly: each turn does the present work
    and returns the time of the next. It overrides what it needs; the defaults are right for one
    that only takes turns."""

    name: str

    follows_others = False
    """Whether it acts on writes of other processes, so that a process that ends when it is idle
    waits for what follows from its last outcomes."""
    failed = False
    """Whether the last turn met an error that it has handled."""
    stands_still = ""
    """Why the last turn has left its work undone; empty if it worked. Such a turn is no successful
    run."""

    def turn(self) -> float:
        """Seconds until the next turn; a wake-up may bring it sooner."""
        raise NotImplementedError

    @property
    def quiet(self) -> bool:
        """Whether it has found nothing to do for a while. A process that ends when it is idle waits
        for that."""
        return True

    def stop(self) -> None:
        """Called once, after the last turn."""
