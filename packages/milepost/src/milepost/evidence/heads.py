"""Daily heads: one digest per day over all history lines, chained to the previous day's and
published as an event.

A receiver that has stored the event can later check that a line existed on that day: a Merkle path
leads from it to the day's root.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from milepost.core.errors import UsageError
from milepost.core.values.json import canonical_json
from milepost.evidence.merkle import Step, climb, leaf
from milepost.evidence.signing import Signer, is_signed, public_text

SCHEMA = "milepost.head/2"
UNCOUNTED = "milepost.head/1"
"""Schema of a head without the numbers of lines by route: of an earlier Milepost, or of a tree that
one began."""
HEAD_SIGNED = "head"
_SIGNED_FIELDS = {
    UNCOUNTED: ("schema", "day", "root", "count", "after", "up_to", "previous"),
    SCHEMA: ("schema", "day", "root", "count", "after", "up_to", "previous", "lines"),
}
_PROOF_FIELDS = frozenset({"day", "root", "path"})

Head = dict[str, Any]


def head_of(
    day: str,
    root: bytes,
    count: int,
    after: int,
    up_to: int,
    previous: str | None,
    signer: Signer | None,
    lines: Mapping[str, int],
) -> Head:
    """The head of a day: `count` lines, at the places after `after` and up to `up_to` of the feed.
    `previous` is the digest of the head before it. `lines` are the numbers of these lines by route;
    a head that does not know all of them names none."""
    counted = sum(lines.values()) == count
    head: Head = {
        "schema": SCHEMA if counted else UNCOUNTED,
        "day": day,
        "root": root.hex(),
        "count": count,
        "after": after,
        "up_to": up_to,
        "previous": previous,
    }
    if counted:
        head["lines"] = dict(lines)
    head["digest"] = head_digest(head)
    if signer is not None:
        head["public_key"] = public_text(signer.public)
        head["signature"] = signer.sign(HEAD_SIGNED, head["digest"])
    return head


def head_digest(head: Head) -> str:
    """The digest of a head's signed fields."""
    return sha256(
        canonical_json({name: head[name] for name in _SIGNED_FIELDS[head["schema"]]})
    ).hexdigest()


def proof_of(head: Head, steps: Sequence[Step]) -> dict[str, Any]:
    """The path from an item's last line to the head's root."""
    return {
        "day": head["day"],
        "root": head["root"],
        "path": [[side, sibling.hex()] for side, sibling in steps],
    }


def proved_root(proof: dict[str, Any], line: bytes) -> str:
    """The root that a proof leads to from the digest of a line. Raises ValueError if it has other
    fields than a proof has."""
    if set(proof) != _PROOF_FIELDS:
        raise ValueError("it has other fields than a proof")
    return climb(
        leaf(line), [(side, bytes.fromhex(sibling)) for side, sibling in proof["path"]]
    ).hex()


class RouteTotal(NamedTuple):
    """The number of all lines of a route up to the head of a day, which covers the feed up to a
    place."""

    day: str
    up_to: int
    lines: int


class Heads:
    """Published heads, as stored by a receiver, by day."""

    def __init__(self, heads: Iterable[Head], public: bytes | None = None) -> None:
        self.by_day: dict[str, Head] = {}
        self.faults: list[tuple[int, str]] = []
        """(number of the head among those given, fault)."""
        self.unsigned: list[str] = []
        """Days of heads without a signature, if a key was given: whose they are is not proved."""
        previous: Head | None = None
        for number, head in enumerate(sorted(heads, key=lambda head: str(head.get("day"))), 1):
            fault = _fault(head, previous, public)
            if fault is not None:
                self.faults.append((number, f"the head of {head.get('day')}: {fault}"))
            day = str(head.get("day"))
            if public is not None and "signature" not in head and day not in self.by_day:
                self.unsigned.append(day)
            self.by_day[day] = previous = head

    def totals(self, route: str) -> list[RouteTotal]:
        """The number of all lines of a route up to each head, oldest first; empty if the heads do
        not tell it (see `uncounted`)."""
        totals: list[RouteTotal] = []
        if self.uncounted():
            return totals
        number = 0
        for day in sorted(self.by_day):
            head = self.by_day[day]
            number += head["lines"].get(route, 0)
            totals.append(RouteTotal(day, head["up_to"], number))
        return totals

    def uncounted(self) -> str:
        """Why these heads do not tell how many lines a route has; empty: they do."""
        first = self.by_day[min(self.by_day)] if self.by_day else None
        if first is None or self.faults:
            return "the heads cannot be used"
        if first["previous"] is not None or first["after"] != 0:
            return f"the heads before {first['day']} were not given"
        old = [day for day, head in sorted(self.by_day.items()) if "lines" not in head]
        if old:
            return f"{len(old):,} of the heads, the last of {old[-1]}, do not count the lines of each route: an earlier Milepost made them"
        return ""

    @property
    def newest_day(self) -> str:
        """The day of the newest head given."""
        return max(self.by_day, default="")

    @property
    def up_to(self) -> int:
        """The place up to which the newest head given covers the feed; 0 if that cannot be read."""
        place = self.by_day[self.newest_day].get("up_to") if self.by_day else None
        return place if isinstance(place, int) else 0


def _fault(head: Head, previous: Head | None, public: bytes | None) -> str | None:
    try:
        if head["schema"] not in _SIGNED_FIELDS:
            return f"{head['schema']!r} is not a known kind of head; a later Milepost may have written it"
        digest = head_digest(head)
        places = head["after"], head["up_to"], head["count"]
    except KeyError as missing:
        return f"it has no {missing}"
    if head.get("digest") != digest:
        return "its digest does not match its content"
    if (
        not all(isinstance(number, int) for number in places)
        or not 0 < head["count"] <= head["up_to"] - head["after"]
    ):
        return f"it cannot cover {head['count']} lines between the places {head['after']} and {head['up_to']}: they were shifted"
    fault = None if previous is None or digest == previous.get("digest") else _gap(head, previous)
    if fault is not None:
        return fault
    if head["schema"] == SCHEMA and not _adds_up(head["lines"], head["count"]):
        return "its numbers of lines by route do not add up to its number of lines"
    signed = "signature" in head
    if (
        public is not None
        and signed
        and not is_signed(public, head["signature"], HEAD_SIGNED, digest)
    ):
        return (
            "it was not signed with the given key: its signature is that of another key, or wrong"
        )
    return None


def _adds_up(lines: Any, count: int) -> bool:
    if not isinstance(lines, dict) or not all(
        type(number) is int and number >= 0 for number in lines.values()
    ):
        return False
    return sum(lines.values()) == count


def _gap(head: Head, previous: Head) -> str | None:
    """Why a head is not the next one after another; None: it is."""
    day = previous.get("day")
    if head["day"] == day:
        return "there are two different heads of this day"
    if head["previous"] == previous.get("digest"):
        if head["after"] == previous.get("up_to"):
            return None
        return f"it begins after place {head['after']}, but the head of {day} ends at place {previous.get('up_to')}: one was shifted"
    if head["after"] == previous.get("up_to"):
        return f"it does not follow the head of {day}"
    return f"one or more heads between {day} and it are missing; give all heads from the first to the last"


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
            raise UsageError(
                f"--head: there is no head in {path}; give the delivered event (its note has the schema {SCHEMA!r})"
            )
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
    """Find heads in nested values: some transports put an event, as text, into an envelope of their
    own."""
    if isinstance(value, dict):
        if value.get("schema") in _SIGNED_FIELDS:
            found.append(value)
            return
        for inner in value.values():
            _collect(inner, found)
    elif isinstance(value, list):
        for inner in value:
            _collect(inner, found)
    elif isinstance(value, str) and any(schema in value for schema in _SIGNED_FIELDS):
        try:
            _collect(msgspec.json.decode(value), found)
        except (msgspec.MsgspecError, UnicodeError):
            return
