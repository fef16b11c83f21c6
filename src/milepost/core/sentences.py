"""History lines as sentences in plain English, for people."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.json import encode

from milepost.core.history import Line
from milepost.core.status import Reason, Status
from milepost.core.values.durations import retry_time, short_span


def line_sentence(line: Line, source: str = "") -> str:
    """One line as a sentence without its full stop. `source` names the list that an accepted item came from."""
    text = SENTENCES[line.reason](line)
    if line.reason is Reason.ACCEPTED and source:
        text += f", from the list {source}"
    if line.reason in _BY_PEOPLE and line.by:
        text += f", by {line.by}"
    if line.why:
        text += f": {line.why}"
    if line.act:
        text += f" (act {line.act})"
    return text


_BY_PEOPLE = frozenset(
    {
        Reason.ACCEPTED, Reason.SKIPPED, Reason.CANCELLED, Reason.OPERATOR_RETRY, Reason.MOVED, Reason.BACK_FILL,
        Reason.RERUN, Reason.REPLACED, Reason.RESCHEDULED,
        Reason.CONFIRMED, Reason.RESENT, Reason.KEPT, Reason.NOTED,
    }
)  # fmt: skip


def _attempt(line: Line) -> str:
    attempt = line.attempt
    if attempt is None:
        return "failed"
    took = "" if not attempt.response_ms else f" after {short_span(attempt.response_ms)}"
    http = "" if attempt.http_status is None else f" (HTTP {attempt.http_status})"
    return f"attempt {attempt.number} at '{line.stage}' failed{took}: {attempt.category}: {attempt.message}{http}"


def _retry(line: Line) -> str:
    delay = None if line.attempt is None else line.attempt.delay_ms
    return _attempt(line) + ("" if delay is None else f"; retry {retry_time(delay)}")


def _took(line: Line) -> str:
    return "" if line.since is None else f" in {short_span(line.at - line.since)}"


def _onward(line: Line) -> str:
    return f", next '{line.to}'" if line.to else ", the last stage" if line.status is Status.COMPLETED else ""


def _noted(line: Line) -> str:
    return "" if line.note is None else f": {line.note if isinstance(line.note, str) else encode(line.note).decode()}"


def _not_before(line: Line) -> str:
    if not isinstance(line.note, dict) or "not_before" not in line.note:
        return ""
    start = line.note["not_before"]
    return ": may start at once" if start is None else f", not before {start}"


def _not_yet(line: Line) -> str:
    if isinstance(line.note, dict) and "because" in line.note:
        return f"an answer for '{line.stage}' was refused: {line.note['because']}"
    return f"checked '{line.stage}': not yet{_noted(line)}"


def _forced(line: Line) -> str:
    forced = line.note.get("forced") if isinstance(line.note, dict) else None
    return "" if forced is None else f", forced: it would have been refused otherwise ({forced})"


def _plain_note(line: Line) -> str:
    if isinstance(line.note, dict) and "because" in line.note:
        return f"noted: an answer for '{line.note.get('for')}' does not confirm: {line.note['because']}"
    if isinstance(line.note, dict) and isinstance(line.note.get("text"), str):
        return f"noted: {line.note['text']}"
    return f"noted{_noted(line)}"


SENTENCES: dict[Reason, Callable[[Line], str]] = {
    Reason.ACCEPTED: lambda line: f"accepted at '{line.stage}'{_not_before(line)}",
    Reason.OFFERED: lambda line: f"offered to '{line.stage}'",
    Reason.CLAIMED: lambda line: f"claimed by {line.by}",
    Reason.ADVANCED: lambda line: f"'{line.stage}' done{_took(line)}{_onward(line)}",
    Reason.COMPLETED: lambda line: f"'{line.stage}' done{_took(line)}: completed the last stage",
    Reason.NOT_YET: _not_yet,
    Reason.HANDED_OVER: lambda line: f"'{line.stage}' handed over; waiting for the answer{_noted(line)}",
    Reason.RETRY: _retry,
    Reason.EXHAUSTED: lambda line: f"{_attempt(line)}; no attempts left",
    Reason.REJECTED: lambda line: f"{_attempt(line)}; permanent",
    Reason.LOST: lambda line: f"the worker {line.by} was lost while holding it",
    Reason.GIVEN_BACK: lambda line: f"given back unfinished by {line.by}",
    Reason.RESENT: lambda line: f"'{line.stage}' offered again",
    Reason.CONFIRMED: lambda line: f"'{line.stage}' confirmed{_onward(line)}{_forced(line)}",
    Reason.SKIPPED: lambda line: f"'{line.stage}' skipped{_onward(line)}",
    Reason.CANCELLED: lambda line: f"cancelled at '{line.stage}'",
    Reason.OPERATOR_RETRY: lambda line: f"restarted at '{line.after_stage}'",
    Reason.MOVED: lambda line: f"moved from '{line.stage}' to '{line.to}', because the route changed",
    Reason.BACK_FILL: lambda line: f"sent to the added stage '{line.to}'",
    Reason.RERUN: lambda line: f"run again from '{line.after_stage}'",
    Reason.REPLACED: lambda line: f"content replaced, restarted at '{line.after_stage}'",
    Reason.RESCHEDULED: lambda line: f"rescheduled{_not_before(line)}",
    Reason.OVERDUE: lambda line: f"overdue at '{line.stage}': reported",
    Reason.KEPT: lambda line: f"an answer arrived early and is kept{_noted(line)}",
    Reason.NOTED: _plain_note,
    Reason.LATE: lambda line: f"an outcome of {line.by} arrived too late and was refused{_noted(line)}",
    Reason.UNDECIDED: lambda line: f"an outcome of {line.by} waits for a process with the current route",
}
