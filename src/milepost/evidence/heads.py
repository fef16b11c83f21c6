"""Daily heads: one digest per day over all history lines, chained to the previous day's and published as an event.

A receiver that has stored the event can later check that a line existed on that day: a Merkle path leads from it to the day's root.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec

from milepost.core.errors import UsageError
from milepost.core.values.json import canonical_json
from milepost.evidence.merkle import Step, climb, leaf
from milepost.evidence.signing import Signer, is_signed, public_text

SCHEMA = "milepost.head/1"
HEAD_SIGNED = "head"
_SIGNED_FIELDS = ("schema", "day", "root", "count", "after", "up_to", "previous")

Head = dict[str, Any]


def head_of(day: str, root: bytes, count: int, after: int, up_to: int, previous: str | None, signer: Signer | None) -> Head:
    """The head of a day: `count` lines, at the places after `after` and up to `up_to` of the feed. `previous` is the digest of the head
    before it."""
    head: Head = {
        "schema": SCHEMA,
        "day": day,
        "root": root.hex(),
        "count": count,
        "after": after,
        "up_to": up_to,
        "previous": previous,
    }
    head["digest"] = head_digest(head)
    if signer is not None:
        head["public_key"] = public_text(signer.public)
        head["signature"] = signer.sign(HEAD_SIGNED, head["digest"])
    return head


def head_digest(head: Head) -> str:
    """The digest of a head's signed fields."""
    return sha256(canonical_json({name: head[name] for name in _SIGNED_FIELDS})).hexdigest()


def proof_of(head: Head, steps: Sequence[Step]) -> dict[str, Any]:
    """The path from an item's last line to the head's root."""
    return {"day": head["day"], "root": head["root"], "path": [[side, sibling.hex()] for side, sibling in steps]}


def proved_root(proof: dict[str, Any], line: bytes) -> str:
    """The root that a proof leads to from the digest of a line."""
    return climb(leaf(line), [(side, bytes.fromhex(sibling)) for side, sibling in proof["path"]]).hex()


class Heads:
    """Published heads, as stored by a receiver, by day."""

    def __init__(self, heads: Iterable[Head], public: bytes | None = None) -> None:
        self.by_day: dict[str, Head] = {}
        self.faults: list[tuple[int, str]] = []
        """(number of the head among those given, fault)."""
        previous: Head | None = None
        for number, head in enumerate(sorted(heads, key=lambda head: str(head.get("day"))), 1):
            fault = _fault(head, previous, public)
            if fault is not None:
                self.faults.append((number, f"the head of {head.get('day')}: {fault}"))
            self.by_day[str(head.get("day"))] = previous = head


def _fault(head: Head, previous: Head | None, public: bytes | None) -> str | None:
    try:
        digest = head_digest(head)
    except KeyError as missing:
        return f"it has no {missing}"
    if head.get("digest") != digest:
        return "its digest does not match its content"
    if previous is not None and head["day"] == previous["day"] and digest != previous["digest"]:
        return "there are two different heads of this day"
    if previous is not None and head["after"] == previous["up_to"] and head["previous"] != previous["digest"]:
        return f"it does not follow the head of {previous['day']}"
    if public is not None and not is_signed(public, head.get("signature"), HEAD_SIGNED, digest):
        return "it was not signed with the given key"
    return None


def read_heads(paths: Iterable[Path]) -> list[Head]:
    """The heads in files of events: one per line, one per file, or a list, in any envelope."""
    found: list[Head] = []
    for path in paths:
        try:
            body = path.read_bytes()
        except OSError as error:
            raise UsageError(f"--head: cannot read {path}: {error.strerror}") from None
        before = len(found)
        for value in _values(body, path):
            _collect(value, found)
        if len(found) == before:
            raise UsageError(f"--head: there is no head in {path}; give the delivered event (its note has the schema {SCHEMA!r})")
    return found


def _values(body: bytes, path: Path) -> list[Any]:
    try:
        return [msgspec.json.decode(body)]
    except (msgspec.MsgspecError, UnicodeError):
        pass
    try:
        return [msgspec.json.decode(line) for line in body.splitlines() if line.strip()]
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise UsageError(f"--head: {path} is neither JSON nor JSON Lines: {error}") from None


def _collect(value: Any, found: list[Head]) -> None:
    """Find heads in nested values: some transports put an event, as text, into an envelope of their own."""
    if isinstance(value, dict):
        if value.get("schema") == SCHEMA:
            found.append(value)
            return
        for inner in value.values():
            _collect(inner, found)
    elif isinstance(value, list):
        for inner in value:
            _collect(inner, found)
    elif isinstance(value, str) and SCHEMA in value:
        try:
            _collect(msgspec.json.decode(value), found)
        except (msgspec.MsgspecError, UnicodeError):
            return
