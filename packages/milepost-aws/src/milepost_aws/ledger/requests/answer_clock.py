"""Clock of AWS's answers: the time in their `Date` headers, with which every process of a
deployment agrees.

AWS accepts requests of a machine whose clock is minutes off. Leases and due times are written by
one machine and judged by another, so each compares its clock with the answers that it gets anyway,
and corrects it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from email.utils import parsedate_to_datetime
from functools import lru_cache
from typing import Any

from milepost.core.clocks import (
    CORRECTED_MS,
    ENOUGH,
    STEP_MS,
    doubt_about,
    lead_in_use,
    lead_of,
    measured_lead,
)
from milepost.core.values.durations import short_span
from milepost.ports.clock import ClockState

SOURCE = "the clock of AWS's answers"
UNDATED_SOURCE = "this machine's clock, because the answers of this endpoint have no date"
KEPT = 9
"""The median is that of so many answers."""
ASK_AGAIN_MS = 1_000
"""Pause after a question that was not answered."""

log = logging.getLogger(__name__)


class AnswerDates:
    """The dates of the last answers, measured against the monotonic clock; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._leads: deque[int] = deque(maxlen=KEPT)
        self._undated = 0
        self.answered_at: int | None = None
        """When the last answer came, by the monotonic clock, in milliseconds."""

    def note(self, answer: Mapping[str, Any], sent_s: float, received_s: float) -> None:
        """Take the date of one answer, or of one error that AWS has answered with."""
        headers = answer.get("ResponseMetadata", {}).get("HTTPHeaders")
        if headers is None:
            return
        date_ms = _date_ms(headers.get("date", ""))
        lead = (
            None
            if date_ms is None
            else lead_of(date_ms, round(sent_s * 1000), round(received_s * 1000))
        )
        with self._lock:
            self.answered_at = round(received_s * 1000)
            if lead is not None:
                self._leads.append(lead)
            elif date_ms is None:
                self._undated += 1

    def forget(self) -> None:
        """Measure anew: the monotonic clock, or the machine's, has made a step."""
        with self._lock:
            self._leads.clear()
            self.answered_at = None

    def leads(self) -> list[int]:
        with self._lock:
            return list(self._leads)

    @property
    def undated(self) -> bool:
        """Whether answers come without a date, as those of some stand-ins do."""
        return self._undated >= ENOUGH and not self._leads


@lru_cache(maxsize=4)
def _date_ms(text: str) -> int | None:
    """The time of a `Date` header; None: it cannot be read."""
    try:
        return round(parsedate_to_datetime(text).timestamp() * 1000)
    except (ValueError, TypeError):
        return None


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000


class AnswerClock:
    """The machine's clock, corrected by the dates of AWS's answers where it is more than seconds
    off. Thread-safe.

    `ask` makes one cheap request, once and without waiting long; it is used only while no other
    answers come.
    """

    def __init__(
        self,
        dates: AnswerDates,
        monotonic_s: Callable[[], float],
        ask: Callable[[], object],
        wall: Callable[[], int] = _wall_ms,
    ) -> None:
        self._dates, self._monotonic_s, self._ask, self._wall = dates, monotonic_s, ask, wall
        self._lock = threading.Lock()
        self._machine = self._lead = wall() - self._ticks()
        self._since = self.now()
        self._asked_at: int | None = None
        self._doubt = ""

    def now(self) -> int:
        with self._lock:
            self._correct()
            return self._ticks() + self._lead

    def check(self) -> ClockState:
        for _ in range(ENOUGH):
            if not self._doubt_now() or not self._may_ask():
                break
            self._asked_at = self._ticks()
            self._ask()
        now = self.now()
        self._log_doubt(self._doubt_now())
        source = UNDATED_SOURCE if self._dates.undated else SOURCE
        offset = self._lead - self._machine
        return ClockState(
            source, offset if abs(offset) > CORRECTED_MS else 0, min(self._since, now), self._doubt
        )

    def follow(self, moment: int) -> None:
        """No-op: a line that is ahead was written by a process that had not compared its clock
        yet."""

    def _ticks(self) -> int:
        return round(self._monotonic_s() * 1000)

    def _correct(self) -> None:
        ticks = self._ticks()
        machine = self._wall() - ticks
        if abs(machine - self._machine) > STEP_MS:
            # Set by hand or by a time server, or suspended: the monotonic clock may have stood
            # still, so nothing measured holds.
            log.warning(
                "this machine's clock has moved by %s; it is compared with AWS's answers again",
                short_span(machine - self._machine),
            )
            self._dates.forget()
            self._asked_at = None
            self._lead = machine
        self._machine = machine
        lead = lead_in_use(machine, measured_lead(self._dates.leads()), self._lead)
        if abs(lead - self._lead) > CORRECTED_MS:
            self._since = ticks + lead
            self._log_offset(lead - machine)
        self._lead = lead

    def _doubt_now(self) -> str:
        with self._lock:
            self._correct()
        answered_at = self._dates.answered_at
        silent_ms = None if answered_at is None else self._ticks() - answered_at
        return doubt_about(len(self._dates.leads()), self._dates.undated, silent_ms)

    def _may_ask(self) -> bool:
        """Whether the last question was answered, or was long ago."""
        answered_at, asked_at = self._dates.answered_at, self._asked_at
        answered = asked_at is None or (answered_at is not None and answered_at >= asked_at)
        return answered or self._ticks() - (asked_at or 0) >= ASK_AGAIN_MS

    def _log_offset(self, offset: int) -> None:
        if offset:
            side = "behind" if offset > 0 else "ahead of"
            log.warning(
                "this machine's clock is %s %s that of AWS; it is corrected by AWS's answers",
                short_span(offset),
                side,
            )
        else:
            log.warning("this machine's clock agrees with that of AWS again")

    def _log_doubt(self, doubt: str) -> None:
        if doubt and not self._doubt:
            log.warning(
                "this process claims and resends nothing, because it is not sure of AWS's time: %s",
                doubt,
            )
        elif self._doubt and not doubt:
            log.warning("this process claims and resends again: it knows AWS's time")
        self._doubt = doubt
