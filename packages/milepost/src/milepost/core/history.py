"""History lines, their hash chain, and lines as people see them. The history is also the outbox:
events are made from lines alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from hashlib import sha256
from typing import Any

import msgspec
from msgspec import Struct

from milepost.core.status import ACTS, Reason, Status
from milepost.core.values.durations import iso, retry_time, short_span
from milepost.core.values.redaction import redacted


class Attempt(Struct, frozen=True, omit_defaults=True, gc=False):
    """One failed attempt: its number, the error, and when the next one is."""

    number: int
    category: str
    message: str
    details: Any = None
    response_ms: int | None = None
    http_status: int | None = None
    delay_ms: int | None = None
    exponential_ms: int | None = None
    jitter_ms: int | None = None
    next_at: int | None = None
    traceback: str | None = None

    @property
    def public_details(self) -> dict[str, Any]:
        """The error's details with its message. Details with a message of their own, such as a
        partner's, keep it."""
        details = (
            self.details
            if isinstance(self.details, dict)
            else {}
            if self.details is None
            else {"details": self.details}
        )
        return {"message": self.message, **details}


class Line(Struct, frozen=True, omit_defaults=True, gc=False):
    """One line of an item's history. `stage` is where it happened, `to` is where the item is
    afterwards, if elsewhere."""

    version: int
    at: int
    reason: Reason
    stage: str
    status: Status
    to: str | None = None
    by: str | None = None
    since: int | None = None
    why: str | None = None
    act: str | None = None
    attempt: Attempt | None = None
    output: str | None = None
    """Digest of the stage's output, to prove that the kept result is the reported one."""
    offered: str | None = None
    """The work_id of the offer to an external stage made by this write."""
    note: Any = None
    claim: str | None = None
    """Digest of the lease of the claim that this line ends or concerns (see `claim_digest`)."""
    life: int = 0
    """The life of its key that the item is in (see `core.item.Row.life`)."""
    epoch: int = 0
    """The epoch of the ledger in which the line was written (see `ports.documents.Epoch`); 0: a
    ledger that was never restored."""
    kept: bool = False
    """Decided by an answer from outside that had been kept for the item, instead of a worker's
    outcome."""

    @property
    def after_stage(self) -> str:
        """The stage at which the item is afterwards."""
        return self.to or self.stage


_decode = msgspec.json.Decoder(Line).decode


class RemovedLine(Struct, frozen=True, omit_defaults=True):
    """What is stored of a history line whose content was removed (see `core.forgetting`)."""

    removed: str
    """The digest of the line as it was: the next line's digest and the daily heads rest on it."""
    version: int
    at: int
    life: int = 0


REMOVED_PREFIX = b'{"removed":"'
"""How the stored bytes of a removed line begin; those of a line begin with its version."""
_decode_removed = msgspec.json.Decoder(RemovedLine).decode


def without_content(line: Line, digest: bytes) -> bytes:
    """The bytes that replace those of a line whose content is removed. `digest` is that of the line
    (see `link`)."""
    return msgspec.json.encode(RemovedLine(digest.hex(), line.version, line.at, line.life))


def removed_line(body: bytes) -> RemovedLine | None:
    """What is left of a line, if its content was removed; None: these are the bytes of a line."""
    if not body.startswith(REMOVED_PREFIX):
        return None
    try:
        return _decode_removed(body)
    except (msgspec.MsgspecError, UnicodeError):
        return None


def origin(route: str, key: str, input_digest: bytes, life: int = 0) -> bytes:
    """The start of an item's chain: a digest of route, key, life of the key, and first input."""
    named = f"{route}\x1f{key}\x1f{life}\x1f" if life else f"{route}\x1f{key}\x1f"
    return sha256(named.encode() + input_digest).digest()


@lru_cache(maxsize=256)
def claim_digest(lease: str) -> str:
    """A claim's public name, made from its secret lease token: 12 hex digits. Items claimed
    together share a lease, so the last digests are cached."""
    return sha256(lease.encode()).hexdigest()[:12]


encode_line: Callable[[Line], bytes] = msgspec.json.Encoder().encode
"""The only encoding of a line: the stored bytes are the hashed bytes."""


def decode_line(body: bytes) -> Line:
    """The line in these bytes. An unreadable one is returned as a note, so that it stops no reader;
    the chain shows where it is broken. One whose content was removed is a note too."""
    try:
        return _decode(body)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        removed = removed_line(body)
        if removed is not None:
            note = {"removed": removed.removed}
            return Line(
                removed.version,
                removed.at,
                Reason.NOTED,
                "",
                Status.PENDING,
                note=note,
                life=removed.life,
            )
        unreadable = body[:200].decode(errors="replace")
        return Line(0, 0, Reason.NOTED, "", Status.PENDING, note={"unreadable": unreadable})


def link(previous: bytes, body: bytes) -> bytes:
    """The digest of a line: of the previous digest and its own body."""
    return sha256(previous + body).digest()


def verify_chain(links: Iterable[tuple[bytes, bytes]], start: bytes, head: bytes) -> int | None:
    """Check (previous digest, body) pairs from `start` (see `origin`), oldest first. None: the
    chain is correct and ends at `head`; else the number (from 1) of the first wrong line, or of the
    line missing at the end."""
    expected, number = start, 0
    for number, (previous, body) in enumerate(links, 1):
        if previous != expected:
            return number
        expected = link(previous, body)
    return None if expected == head else number + 1


def line_to_public(line: Line, correlation_id: str) -> dict[str, Any]:
    """A line for people and programs: ISO times, and for a failed attempt all fields of the retry
    document."""
    public: dict[str, Any] = {
        "version": line.version,
        "at": iso(line.at),
        "reason": line.reason.value,
        "stage": line.stage,
        "status": line.status.value,
    }
    for name in ("to", "by", "why", "act", "output", "offered", "note", "claim"):
        value = getattr(line, name)
        if value is not None:
            public[name] = value
    if line.since is not None:
        public["claimed_at"] = iso(line.since)
    if line.attempt is not None:
        public |= attempt_to_public(line.attempt, line.at, correlation_id)
        if line.attempt.traceback is not None:
            public["traceback"] = line.attempt.traceback
    return public


def attempt_to_public(attempt: Attempt, at: int, correlation_id: str) -> dict[str, Any]:
    """A failed attempt with the field names of the retry document."""
    return {
        "attempt_number": attempt.number,
        "timestamp": iso(at),
        "error_category": attempt.category,
        "error_details": attempt.public_details,
        "response_time": attempt.response_ms,
        "http_status": attempt.http_status,
        "retry_delay_seconds": _seconds(attempt.delay_ms),
        "exponential_delay": _seconds(attempt.exponential_ms),
        "jitter_applied": _seconds(attempt.jitter_ms),
        "next_retry_timestamp": iso(attempt.next_at),
        "correlation_id": correlation_id,
    }


def _seconds(ms: int | None) -> float | None:
    return None if ms is None else ms / 1000


# Sentences ----------------------------------------------------------------------------------------
def line_sentence(line: Line, source: str = "") -> str:
    """One line as a sentence without its full stop. `source` names the list that an accepted item
    came from."""
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


_BY_PEOPLE = ACTS | {Reason.ACCEPTED, Reason.CONFIRMED, Reason.RESENT, Reason.KEPT, Reason.NOTED}


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
    return (
        f", next '{line.to}'"
        if line.to
        else ", the last stage"
        if line.status is Status.COMPLETED
        else ""
    )


def _noted(line: Line) -> str:
    if line.note is None:
        return ""
    note = redacted(line.note)
    return f": {note if isinstance(note, str) else msgspec.json.encode(note).decode()}"


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


NO_NEXT_TRY = {Reason.EXHAUSTED: "; no attempts left", Reason.REJECTED: "; permanent"}
"""The end of the text on a failed attempt that is not followed by another one."""

SENTENCES: dict[Reason, Callable[[Line], str]] = {
    Reason.ACCEPTED: lambda line: f"accepted at '{line.stage}'{_not_before(line)}",
    Reason.OFFERED: lambda line: f"offered to '{line.stage}'",
    Reason.CLAIMED: lambda line: f"claimed by {line.by}",
    Reason.ADVANCED: lambda line: f"'{line.stage}' done{_took(line)}{_onward(line)}",
    Reason.COMPLETED: lambda line: f"'{line.stage}' done{_took(line)}: completed the last stage",
    Reason.NOT_YET: _not_yet,
    Reason.CHECKED: lambda line: f"fixity check at '{line.stage}' successful{_noted(line)}",
    Reason.HANDED_OVER: lambda line: (
        f"'{line.stage}' handed over; waiting for the answer{_noted(line)}"
    ),
    Reason.RETRY: _retry,
    Reason.EXHAUSTED: lambda line: _attempt(line) + NO_NEXT_TRY[line.reason],
    Reason.REJECTED: lambda line: _attempt(line) + NO_NEXT_TRY[line.reason],
    Reason.LOST: lambda line: f"the worker {line.by} was lost while holding it",
    Reason.GIVEN_BACK: lambda line: f"given back unfinished by {line.by}",
    Reason.RESENT: lambda line: f"'{line.stage}' offered again",
    Reason.CONFIRMED: lambda line: f"'{line.stage}' confirmed{_onward(line)}{_forced(line)}",
    Reason.SKIPPED: lambda line: f"'{line.stage}' skipped{_onward(line)}",
    Reason.CANCELLED: lambda line: f"cancelled at '{line.stage}'",
    Reason.OPERATOR_RETRY: lambda line: f"restarted at '{line.after_stage}'",
    Reason.MOVED: lambda line: (
        f"moved from '{line.stage}' to '{line.to}', because the route changed"
    ),
    Reason.BACK_FILL: lambda line: f"sent to the added stage '{line.to}'",
    Reason.RERUN: lambda line: f"run again from '{line.after_stage}'",
    Reason.REPLACED: lambda line: f"content replaced, restarted at '{line.after_stage}'",
    Reason.RESCHEDULED: lambda line: f"rescheduled{_not_before(line)}",
    Reason.OVERDUE: lambda line: f"overdue at '{line.stage}': reported",
    Reason.KEPT: lambda line: f"an answer arrived early and is kept{_noted(line)}",
    Reason.NOTED: _plain_note,
    Reason.LATE: lambda line: (
        f"an outcome of {line.by} arrived too late and was refused{_noted(line)}"
    ),
    Reason.UNDECIDED: lambda line: (
        f"an outcome of {line.by} waits for a process with the current route"
    ),
}
