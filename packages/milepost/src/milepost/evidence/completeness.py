"""Whether a file of a whole route lacks lines that heads count.

A head proves that a line existed, not that its item has no later one: whoever has the ledger's
trees can prove an earlier line as well. But each head also says how many lines of each route it
covers. Lines are chained, so that nobody can add one to a record that a head proves: only with the
lines that were cut off, and the records that were left out, does a file have as many lines as the
heads count.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from milepost.evidence.heads import Heads, RouteTotal


class FileLines(Struct):
    """The lines of a file's records."""

    proved: int = 0
    """Lines that are proved to be under given heads."""
    all: int = 0
    newest_proof: str = ""
    """The newest day of a given head under which a line is proved to be."""
    without: int = 0
    """Records whose lines are not known: only a seal or digests are left."""

    def count(self, day: str, lines: int) -> None:
        """Count lines of one record, the last of which is under the head of this day."""
        self.proved += lines
        self.newest_proof = max(self.newest_proof, day)


class Completeness(Struct, frozen=True):
    """Up to which head no line of the route is missing, or why that is not known, or that lines are
    missing."""

    complete_to: str | None = None
    later: int = 0
    """Lines of the route that the heads after that one count."""
    unknown: str = ""
    missing: str = ""
    short: str = ""
    """It is a whole route whose lines heads count, and other lines are proved than these; so
    `unknown` too."""


def completeness(heads: Heads, header: dict[str, Any], lines: FileLines) -> Completeness:
    """The completeness of a file with this header (empty: one record that was handed on by
    itself)."""
    if not header:
        return Completeness(unknown="this is one record, handed on by itself")
    if header.get("choice"):
        return Completeness(
            unknown="this is a selection of items, and heads count the lines of the whole route"
        )
    uncounted = heads.uncounted()
    if uncounted:
        return Completeness(unknown=uncounted)
    totals = heads.totals(str(header.get("route")))
    place = _newest_place(header)
    # An export has all lines up to the heads that prove its records, and up to the newest line of
    # the ledger when it began.
    within = [total for total in totals if total.up_to <= place or total.day <= lines.newest_proof]
    if within and lines.all < within[-1].lines and not lines.without:
        return Completeness(missing=_missing(within[-1], lines))
    equal = [
        total for total in totals if total.lines == lines.proved and total.day >= lines.newest_proof
    ]
    if equal and not lines.without:
        return Completeness(equal[-1].day, totals[-1].lines - lines.proved)
    if lines.without:
        records = "1 record" if lines.without == 1 else f"{lines.without:,} records"
        return Completeness(
            unknown=f"how many lines {records} had, of which only the seal or digests are left, is not known"
        )
    other = _other_number(within[-1] if within else totals[-1], lines)
    return Completeness(unknown=other, short=other)


def _newest_place(header: dict[str, Any]) -> int:
    """The place of the newest line that an export covers; 0 if it does not say it."""
    newest = header.get("newest")
    place = newest.get("place") if isinstance(newest, dict) else None
    return place if isinstance(place, int) else 0


def _missing(total: RouteTotal, lines: FileLines) -> str:
    missing = total.lines - lines.all
    return (
        f"the heads up to {total.day} count {total.lines:,} lines of the route, and the records have {lines.all:,}: {missing:,} missing; "
        "the last lines of a record were cut off, or a record was left out"
    )


def _other_number(total: RouteTotal, lines: FileLines) -> str:
    """Why the numbers of lines differ, though no line is known to be missing."""
    return (
        f"the heads up to {total.day} count {total.lines:,} lines of the route, and of those of the records {lines.proved:,} are proved to be "
        "under them"
    )
