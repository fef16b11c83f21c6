"""Verdict on an evidence file: what is proved and what is not, with each fault and each unproved
point by line and item."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

KEPT = 100
"""Maximum differences listed; all are counted."""


class Mismatch(Struct, frozen=True):
    """A fault: line of the file, item, and field."""

    line: int
    field: str
    what: str
    key: str | None = None


class Unproved(Struct, frozen=True):
    """Something that was to be proved by what was given, and is not: line of the file, item, and
    what is missing. It contradicts nothing."""

    line: int
    what: str
    key: str | None = None


class VerifiedStage(Struct, frozen=True):
    """A completed stage: result, time and author, and the files it reported."""

    stage: str
    how: str
    at: str | None
    by: str | None
    files: int
    volumes: list[str]


class VerifiedRecord(Struct, frozen=True):
    """Summary of one record. `head_day` is the day of the head named in its proof; `under_head`:
    that head was given, and the proof is valid. `holds`: this record has no fault; only the verdict
    says whether the whole file is valid."""

    key: str
    status: str | None
    ended_at: str | None
    sealed: bool
    forgotten: bool
    stages: list[VerifiedStage]
    head_day: str | None
    under_head: bool
    holds: bool


Answer = Literal["proved", "contradicted", "unproved"]


class Verdict(Struct):
    """The result for a file."""

    file: str
    chosen: str | None = None
    """The selection of the export as text; None: a single record that was passed on alone."""
    choice: dict[str, Any] | None = None
    whole: bool = False
    """The export covered the whole route."""
    records: int = 0
    seals: int = 0
    forgotten: int = 0
    """Records whose content was removed (`milepost forget`)."""
    signed_by: str | None = None
    """Fingerprint of the key that signed everything."""
    under_heads: int = 0
    """Records whose last line is proved to be under a published head."""
    covers: dict[str, Any] | None = None
    """The newest line of the ledger when the export began: its place and time."""
    proved: list[str] = []
    not_proved: list[str] = []
    differences: list[Mismatch] = []
    found: int = 0
    """Number of differences; the first hundred are listed."""
    unproved: list[Unproved] = []
    open: int = 0
    """Number of unproved points; the first hundred are listed."""
    newer: int = 0
    """Records that no head covers and that are newer than the newest head given, if these are
    allowed."""
    complete_to: str | None = None
    """The day of the newest head given up to which no line of the route is missing in the file;
    None: that is not known."""
    not_complete: str = ""
    """Why it is not known; empty if it is, or if no heads were given."""
    lines: int = 0
    """Lines of the records that are under the given heads."""
    later_lines: int = 0
    """Lines of the route that the given heads count after that day."""
    redated: int = 0
    """Lines that date an item as of then, because the lines before were dated by a clock that was
    ahead."""

    @property
    def holds(self) -> bool:
        """Nothing contradicts itself or what was given."""
        return self.found == 0

    @property
    def answer(self) -> Answer:
        """Whether it is contradicted, or holds but is not all proved by the heads and the key that
        were given, or is proved as far as these can."""
        return "contradicted" if self.found else "unproved" if self.open else "proved"

    def lack(self, line: int, what: str, key: str | None = None) -> None:
        self.open += 1
        if len(self.unproved) < KEPT:
            self.unproved.append(Unproved(line, what, key))

    def differ(self, line: int, field: str, what: str, key: str | None = None) -> None:
        self.found += 1
        if len(self.differences) < KEPT:
            self.differences.append(Mismatch(line, field, what, key))
