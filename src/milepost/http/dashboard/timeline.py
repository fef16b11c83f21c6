"""Timeline of an item: its history, line by line, as its page shows it."""

from __future__ import annotations

import json
from typing import Any

from msgspec import Struct

from milepost.core.history import Line
from milepost.core.item import digest_of
from milepost.core.status import Reason
from milepost.core.values.durations import iso, short_span
from milepost.engine.views.story import StoryLine

GOOD = frozenset({Reason.ADVANCED, Reason.COMPLETED, Reason.CONFIRMED})


class Try(Struct, frozen=True):
    """A failed attempt: its error, its duration, and the time of the next one."""

    category: str
    message: str
    http_status: int | None
    by: str
    why: str
    """Set if a partner or an operator reported the failure."""
    took: str
    again_in: str
    again_at: str | None


class TimelineEntry(Struct, frozen=True):
    """One line: a sentence, and the details below it. `said` and `details` are JSON."""

    at: str | None
    kind: str
    text: str
    act: str | None
    failed: Try | None
    said: str
    details: str
    traceback: str


def timeline(happened: list[StoryLine], results: dict[str, Any]) -> list[TimelineEntry]:
    """All lines, the oldest first."""
    return [_entry(one, results) for one in happened]


def written(value: Any) -> str:
    """JSON for people. It is formatted here and not in the browser, which would lose the last digits of large numbers."""
    return json.dumps(value, indent=2, ensure_ascii=False)


def _entry(one: StoryLine, results: dict[str, Any]) -> TimelineEntry:
    line, attempt = one.line, one.line.attempt
    kind = "fail" if attempt is not None else "done" if line.reason in GOOD else ""
    details = "" if attempt is None or attempt.details is None else written(attempt.details)
    return TimelineEntry(
        # A line that cannot be read has no time.
        at=iso(one.at) if line.version else None,
        kind=kind,
        text=one.short if attempt is None else _failed(line, attempt.number),
        act=line.act,
        failed=_try(line),
        said=_said(line, results),
        details=details,
        traceback="" if attempt is None or attempt.traceback is None else attempt.traceback,
    )


def _failed(line: Line, number: int) -> str:
    end = {Reason.EXHAUSTED: "; no attempts are left", Reason.REJECTED: " permanently"}.get(line.reason, "")
    return f"attempt {number} at '{line.stage}' failed{end}"


def _try(line: Line) -> Try | None:
    attempt = line.attempt
    if attempt is None:
        return None
    took = attempt.response_ms or (0 if line.since is None else line.at - line.since)
    return Try(
        category=attempt.category,
        message=attempt.message,
        http_status=attempt.http_status,
        by=line.by or "",
        why=line.why or "",
        took=short_span(took) if took > 0 else "",
        again_in="" if attempt.delay_ms is None else short_span(attempt.delay_ms),
        again_at=iso(attempt.next_at),
    )


def _said(line: Line, results: dict[str, Any]) -> str:
    """The value of a confirmation, if it still is the stage's result, and notes about the item."""
    if line.version and line.note is not None and not isinstance(line.note, str):
        return written(line.note)
    given = results.get(line.stage)
    if line.reason is Reason.CONFIRMED and line.output is not None and given is not None and digest_of(given).hex() == line.output:
        return written(given)
    return ""
