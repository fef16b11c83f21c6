"""History lines and their hash chain. The history is also the outbox: events are made from lines alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from hashlib import sha256
from typing import Any

import msgspec
from msgspec import Struct

from milepost.core.status import Reason, Status
from milepost.core.values.durations import iso


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


class Line(Struct, frozen=True, omit_defaults=True, gc=False):
    """One line of an item's history. `stage` is where it happened, `to` is where the item is afterwards, if elsewhere."""

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

    @property
    def after_stage(self) -> str:
        return self.to or self.stage


_decode = msgspec.json.Decoder(Line).decode


def origin(route: str, key: str, input_digest: bytes, life: int = 0) -> bytes:
    """The start of an item's chain: a digest of route, key, life of the key, and first input."""
    named = f"{route}\x1f{key}\x1f{life}\x1f" if life else f"{route}\x1f{key}\x1f"
    return sha256(named.encode() + input_digest).digest()


@lru_cache(maxsize=256)
def claim_digest(lease: str) -> str:
    """A claim's public name, made from its secret lease token: 12 hex digits. Items claimed together share a lease, so the last digests
    are cached."""
    return sha256(lease.encode()).hexdigest()[:12]


encode_line: Callable[[Line], bytes] = msgspec.json.Encoder().encode
"""The only encoding of a line: the stored bytes are the hashed bytes."""


def decode_line(body: bytes) -> Line:
    """The line in these bytes. An unreadable one is returned as a note, so that it stops no reader; the chain shows where it is
    broken."""
    try:
        return _decode(body)
    except msgspec.MsgspecError:
        unreadable = body[:200].decode(errors="replace")
        return Line(0, 0, Reason.NOTED, "", Status.PENDING, note={"unreadable": unreadable})


def link(previous: bytes, body: bytes) -> bytes:
    """The digest of a line: of the previous digest and its own body."""
    return sha256(previous + body).digest()


def verify_chain(links: Iterable[tuple[bytes, bytes]], start: bytes, head: bytes) -> int | None:
    """Check (previous digest, body) pairs from `start` (see `origin`), oldest first. None: the chain is correct and ends at `head`;
    else the number (from 1) of the first wrong line, or of the line missing at the end."""
    expected, number = start, 0
    for number, (previous, body) in enumerate(links, 1):
        if previous != expected:
            return number
        expected = link(previous, body)
    return None if expected == head else number + 1


def line_to_public(line: Line, correlation_id: str) -> dict[str, Any]:
    """A line for people and programs: ISO times, and for a failed attempt all fields of the retry document."""
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
    details = attempt.details if isinstance(attempt.details, dict) else {"details": attempt.details} if attempt.details is not None else {}
    return {
        "attempt_number": attempt.number,
        "timestamp": iso(at),
        "error_category": attempt.category,
        "error_details": {"message": attempt.message, **details},
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
