"""Figures of senders and destinations, counted exactly once from the history lines of all messages.
Pure.

The figures hold the place in the feed up to which they count, and are stored with it in one
conditional write. So a line is never counted twice, whichever process counts it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

import msgspec
from msgspec import Struct

import milepost as mp
import milepost.application as mpa
from milepost_notifications.outcomes import response_ms, status_line

MOST_SENDERS, MOST_DESTINATIONS = 200, 100
OTHER = "(other)"
"""The name under which senders and destinations beyond these numbers are counted together: metrics
need a bounded set of labels."""
NAMES_BYTES = 15_000
"""Bytes of all names of senders, and of destinations: the figures are one document, whose size is
limited."""
ERROR_BYTES = 500
"""Bytes of the last error of a destination: with what a network error advises."""
HOURS = 24
TIMED_HOURS = 2
"""Hours of which the times of tries are kept: the present one and the one before."""
HOUR_MS = 3_600_000
START_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 3_600.0)
"""Bounds of the time from acceptance to the first try."""
TRY_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Bounds of the time of one try."""
MOST_STARTS = 50_000
SENDER_COUNTS = ("accepted", "delivered", "failed", "cancelled", "replayed", "malformed")
"""The counts that are shown of a sender."""
ENDED = {
    "COMPLETED": "delivered",
    "MAX_RETRIES_EXCEEDED": "failed",
    "REJECTED": "failed",
    "CANCELLED": "cancelled",
}
_ENDING = frozenset(
    {"completed", "exhausted", "rejected", "lost", "cancelled", "confirmed", "skipped"}
)
_ANEW = frozenset({"operator-retry", "rerun", "replaced"})


class SenderFigures(Struct):
    """Counts of one sender, which never fall: a message that fails, is replayed and is then
    delivered counts as both."""

    accepted: int = 0
    delivered: int = 0
    failed: int = 0
    """Messages that ended in a dead letter."""
    cancelled: int = 0
    replayed: int = 0
    malformed: int = 0
    starts: list[int] = []
    """Time from acceptance to the first try: counts by the bounds `START_S`, and above."""
    starts_s: float = 0.0

    @property
    def histogram(self) -> mpa.Histogram:
        return mpa.Histogram(START_S, self.starts or [0] * (len(START_S) + 1), self.starts_s)


class HourFigures(Struct, array_like=True):
    hour: int
    """Hours since 1970."""
    succeeded: int = 0
    failed: int = 0
    times: list[int] = []
    """Time of the tries: counts by the bounds `TRY_S`, and above; of the latest hours alone."""


class DestinationFigures(Struct):
    """Counts of one destination, which never fall, and its tries of the last 24 hours."""

    accepted: int = 0
    delivered: int = 0
    failed: int = 0
    """Messages that ended in a dead letter."""
    cancelled: int = 0
    replayed: int = 0
    hours: list[HourFigures] = []
    last_success: str | None = None
    """Times of the latest try that was answered well, and of the latest that was not."""
    last_failure: str | None = None
    last_error: str = ""

    @property
    def not_ended(self) -> int:
        """About how many messages have not ended."""
        return max(0, self.accepted + self.replayed - self.delivered - self.failed - self.cancelled)


class TryFigures(Struct, frozen=True):
    """Tries within a window."""

    succeeded: int
    failed: int
    success_rate: float | None
    """None: there was no try."""
    p50_s: float | None
    """Half of the tries took at most this long; None: there was none, or they took longer than the
    longest bound."""
    p95_s: float | None


class Figures(Struct):
    """All figures, and the place in the feed up to which they count."""

    seq: int = 0
    """Lines up to this place of the feed are counted."""
    senders: dict[str, SenderFigures] = {}
    destinations: dict[str, DestinationFigures] = {}
    holder: str = ""
    """The process that counts."""
    held_until: int = 0
    """Until when no other process counts, in milliseconds since 1970."""
    tallied: dict[str, int] = {}
    """Malformed requests of the tally that are counted here, by sender."""

    def sender(self, name: str) -> SenderFigures:
        found = self.senders.get(name)
        return found or self.senders.setdefault(
            _bounded(self.senders, name, MOST_SENDERS), SenderFigures()
        )

    def destination(self, name: str) -> DestinationFigures:
        found = self.destinations.get(name)
        return found or self.destinations.setdefault(
            _bounded(self.destinations, name, MOST_DESTINATIONS), DestinationFigures()
        )


class Starts:
    """When messages were accepted that have had no try yet: in memory, of the latest messages
    alone."""

    def __init__(self, most: int = MOST_STARTS) -> None:
        self._most = most
        self._at: OrderedDict[str, int] = OrderedDict()

    def accepted(self, key: str, at: int) -> None:
        self._at[key] = at
        if len(self._at) > self._most:
            self._at.popitem(last=False)

    def first_try(self, key: str) -> int | None:
        """When the message was accepted, if this is its first try."""
        return self._at.pop(key, None)

    def recall(self, entries: Iterable[mp.HistoryEntry], route: str) -> None:
        """Learn from lines that are counted already. Without that, a process that begins to count
        would leave the messages that wait then out of the times to the first try."""
        for entry in entries:
            if entry.route == route:
                line = entry.line
                if line.reason is mp.Reason.ACCEPTED:
                    self.accepted(entry.key, line.at)
                elif line.since is not None:
                    self.first_try(entry.key)


def read_figures(value: Any) -> Figures:
    return Figures() if value is None else msgspec.convert(value, Figures)


def count(
    figures: Figures,
    entries: Iterable[mp.HistoryEntry],
    route: str,
    lanes: Mapping[tuple[str, str], str],
    starts: Starts,
) -> Figures:
    """The figures after these lines of the feed. `lanes` has the lane of each sender's messages to
    each target URL."""
    figures = msgspec.convert(msgspec.to_builtins(figures), Figures)
    for entry in entries:
        figures.seq = entry.seq
        if entry.route == route:
            _count_line(figures, entry, lanes, starts)
    return figures


def add_tally(figures: Figures, tally: Mapping[str, int]) -> bool:
    """Count the malformed requests of the tally that are not counted yet; False: all are."""
    new = {
        name: n - figures.tallied.get(name, 0)
        for name, n in tally.items()
        if n > figures.tallied.get(name, 0)
    }
    for name, n in new.items():
        figures.sender(name).malformed += n
    figures.tallied |= {name: tally[name] for name in new}
    return bool(new)


@lru_cache(1024)
def parties_of(key: str) -> tuple[str, str]:
    """The sender and the target URL of a message's key. Several lines of a page are about one
    message."""
    _, sender, _, target, *_ = (*mpa.key_parts(key), "", "", "")
    return sender, target


def tries_since(figures: DestinationFigures, now_ms: int) -> TryFigures:
    """The tries of the present hour and of the hour before it."""
    begin = now_ms // HOUR_MS - 1
    window = [one for one in figures.hours if one.hour >= begin]
    times = mpa.Histogram.empty(TRY_S)
    for one in window:
        for number, n in enumerate(one.times):
            times.counts[number] += n
    p50_s, p95_s = (times.within(0.5), times.within(0.95)) if sum(times.counts) else (None, None)
    succeeded, failed = sum(one.succeeded for one in window), sum(one.failed for one in window)
    return TryFigures(
        succeeded,
        failed,
        succeeded / (succeeded + failed) if succeeded + failed else None,
        p50_s,
        p95_s,
    )


def _count_line(
    figures: Figures, entry: mp.HistoryEntry, lanes: Mapping[tuple[str, str], str], starts: Starts
) -> None:
    key, line = entry.key, entry.line
    parties = parties_of(key)
    sender, destination = figures.sender(parties[0]), figures.destination(lanes.get(parties, OTHER))
    if line.reason is mp.Reason.ACCEPTED:
        sender.accepted += 1
        destination.accepted += 1
        starts.accepted(key, line.at)
        return
    if line.reason in _ANEW:
        sender.replayed += 1
        destination.replayed += 1
        return
    if line.since is not None:
        accepted_at = starts.first_try(key)
        if accepted_at is not None:
            waited_s = max(0.0, (line.since - accepted_at) / 1000)
            sender.starts = _with_one(sender.starts, START_S, waited_s)
            sender.starts_s += waited_s
        _count_try(destination, line, line.since)
    ended = ENDED.get(line.status)
    if ended is not None and line.reason in _ENDING:
        for counted in (sender, destination):
            setattr(counted, ended, getattr(counted, ended) + 1)


def _count_try(destination: DestinationFigures, line: mp.Line, began_ms: int) -> None:
    if line.attempt is None and line.reason is not mp.Reason.COMPLETED:
        return
    hour, took_ms = _hour(destination, line.at // HOUR_MS), None
    if line.attempt is None:
        hour.succeeded += 1
        destination.last_success = mpa.iso(line.at)
    else:
        details = line.attempt.public_details
        hour.failed += 1
        destination.last_failure = mpa.iso(line.at)
        destination.last_error = _short(_error_text(line.attempt.category, details))
        took_ms = response_ms(details)
    hour.times = _with_one(hour.times, TRY_S, (took_ms or line.at - began_ms) / 1000)


def _with_one(counts: list[int], bounds: tuple[float, ...], value: float) -> list[int]:
    """The counts of a histogram with these bounds, after one more value. `[]` stands for no value
    yet."""
    counts = counts or [0] * (len(bounds) + 1)
    counts[bisect_left(bounds, value)] += 1
    return counts


def _error_text(category: str, details: Mapping[str, Any]) -> str:
    """The error of a try for people. The message of a refused request is the partner's own text:
    alone it may say nothing."""
    message = str(details.get("message") or category)
    status = None if details.get("statusCode") is None else status_line(details["statusCode"])
    return message if status is None or status == message else f"{status}: {message}"


def _hour(destination: DestinationFigures, hour: int) -> HourFigures:
    hours = destination.hours
    if hours and hours[-1].hour == hour:
        return hours[-1]
    found = next((one for one in hours if one.hour == hour), None)
    if found is None:
        found = HourFigures(hour)
        destination.hours = [
            one for one in [*destination.hours, found] if hour - HOURS < one.hour <= hour
        ]
        for one in destination.hours:
            if one.hour <= hour - TIMED_HOURS:
                one.times = []
    return found


def _bounded(known: Mapping[str, object], name: str, most: int) -> str:
    if name in known:
        return name
    fits = len(known) < most and sum(len(one.encode()) for one in (*known, name)) <= NAMES_BYTES
    return name if fits else OTHER


def _short(text: str) -> str:
    """An error on one line, within the bytes that it may have."""
    line = "".join(
        character if character.isprintable() else " " for character in text[: ERROR_BYTES + 1]
    ).strip()
    data = line.encode("utf-8", "replace")
    if len(data) <= ERROR_BYTES:
        return data.decode()
    return data[: ERROR_BYTES - len("…".encode())].decode("utf-8", "ignore") + "…"
