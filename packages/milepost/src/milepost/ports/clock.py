"""Clocks that check themselves: which clock a process uses, how far the machine's clock is off, and
whether it may be used."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from msgspec import Struct

from milepost.ports.runner import Clock


class ClockState(Struct, frozen=True):
    """What a process knows about its clock."""

    source: str
    """Which clock it uses, for people."""
    offset_ms: int = 0
    """How far its time is ahead of this machine's clock; negative: behind."""
    since: int | None = None
    """From when on it has this offset, or since when it has used this clock."""
    doubt: str = ""
    """Why leases and due times must not be judged by it now; empty: they may."""

    @property
    def stops_work(self) -> str:
        """Why a process with this clock claims and resends nothing, for people; empty: it does."""
        return f"it is not sure of the time of {self.source}: {self.doubt}" if self.doubt else ""


@runtime_checkable
class CheckedClock(Clock, Protocol):
    """A clock that corrects itself. A program's own clock needs only `now`."""

    def check(self) -> ClockState:
        """Compare the clock with what it stands for, and correct it. Called between two steps,
        never within one."""

    def follow(self, moment: int) -> None:
        """Do not fall behind this time, that of the newest history line, unless it is too far ahead
        to be right."""


OWN_CLOCK = ClockState("the program's own clock")
"""The state of a clock that cannot check itself."""


def check(clock: Clock) -> ClockState:
    """The state of a clock, corrected where the clock can do that."""
    return clock.check() if isinstance(clock, CheckedClock) else OWN_CLOCK
