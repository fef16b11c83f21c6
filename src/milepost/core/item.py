"""An item and its row: what the ledger holds, and what a handler is given."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from typing import Any

import msgspec
from msgspec import Struct

from milepost.core.status import TERMINAL, Status


class Failure(Struct, frozen=True, omit_defaults=True, gc=False):
    """The last error of an item, and the group of like errors that it belongs to."""

    category: str
    message: str
    at: int
    group: str
    details: Any = None
    http_status: int | None = None


class Row(Struct, frozen=True, gc=False):
    """Where one item is: the state that the rules read and write. Times are milliseconds since 1970, UTC."""

    route: str
    key: str
    stage: str
    status: Status
    version: int
    """How many history lines the item has; a write holds only for the version that it read."""
    head: bytes
    """Digest of the last history line: the head of the chain."""
    created_at: int
    updated_at: int
    entered_at: int
    """When the item came to its present stage, or ended. For an item that is set for later: when it starts, so that its age and its
    lateness count from then."""
    correlation_id: str
    input_digest: bytes
    lane: str = ""
    look_at: int | None = None
    """The next look: lease expiry, next try, next check, next resend. None: nobody needs to look."""
    overdue_at: int | None = None
    """When people are to be told that the item is late at this stage; None: no mark, or told already."""
    lease: str | None = None
    holder: str | None = None
    claimed_at: int | None = None
    attempts: int = 0
    total_attempts: int = 0
    looks: int = 0
    losses: int = 0
    round: int = 1
    pass_no: int = 1
    unknown: bool = False
    """The last try's result is not known: `verify` runs before the next."""
    alone: bool = False
    """The item failed alone in a halved batch: it is given alone until it advances."""
    handed_over: bool = False
    again: bool = False
    """It was COMPLETED before, and then sent on to a stage that had been added."""
    list_id: str | None = None
    note: str | None = None
    error: Failure | None = None
    kept: dict[str, Any] = {}
    """Outside outcomes, by stage, that wait for the item to be ready for them."""
    undecided: Any = None
    """An outcome settled by a process whose route is out of date; a newer process decides it."""
    handle: Any = None
    """The ledger's own way to find the row again; means nothing to anybody else."""
    not_before: int | None = None
    """The item is neither offered nor claimed earlier; None: it may start at once. A moment in the past means nothing."""
    content_digest: bytes | None = None
    """Digest of the present input, where an operator has replaced the first one (`input_digest`)."""
    settled: str | None = None
    """Digest of the last claim at this stage whose outcome made no history line (see `core.history.claim_digest`)."""
    life: int = 0
    """Which life of its key this is. 0: its only one, since the route remembers its keys for good. Where the route forgets them
    (`remember`), the moment at which the item was accepted: a key that comes again has ids and a chain of its own."""

    @property
    def due_at(self) -> int | None:
        """The one clock of an item: when somebody must look at it if nothing else happens."""
        if self.overdue_at is None or self.look_at is None:
            return self.look_at if self.overdue_at is None else self.overdue_at
        return min(self.look_at, self.overdue_at)

    @property
    def terminal(self) -> bool:
        return self.status in TERMINAL

    @property
    def current_digest(self) -> bytes:
        """Digest of the input that the item has now: what comes again is compared with it."""
        return self.content_digest or self.input_digest

    def later_than(self, now: int) -> bool:
        """Was the item submitted for a later time than this?"""
        return self.not_before is not None and self.not_before > now

    def not_earlier(self, moment: int) -> int:
        """This moment, or the start of an item that was submitted for later, whichever comes last: nothing is due before the start."""
        return moment if self.not_before is None else max(moment, self.not_before)


class Content(Struct, gc=False):
    """What an item carries, kept apart from its row: the first input, each stage's own payload and result."""

    input: Any = None
    payloads: dict[str, Any] = {}
    results: dict[str, Any] = {}


class Put(Struct, frozen=True, gc=False):
    """One piece of content that a change writes. `kind` is "payload" or "result"; "input" (then `stage` is empty); or
    "waiting", what a confirmer has said that it waits for: None takes that off."""

    kind: str
    stage: str
    value: Any


class Item(Struct, gc=False, eq=False):
    """One item at one stage, as a handler sees it."""

    row: Row
    content: Content
    ticket: Any = None
    """The ledger's own note of what called for this claim, such as an SQS message; None where the row itself is the queue."""

    @property
    def route(self) -> str:
        """The route it travels."""
        return self.row.route

    @property
    def key(self) -> str:
        """What it is known by on its route."""
        return self.row.key

    @property
    def key_parts(self) -> list[str]:
        """The parts of a key of several fields, as they were handed over."""
        return [unescape_part(part) for part in self.row.key.split(SEPARATOR)]

    @property
    def stage(self) -> str:
        """Where it is."""
        return self.row.stage

    @property
    def status(self) -> Status:
        """How it stands there."""
        return self.row.status

    @property
    def lane(self) -> str:
        """Which lane of the stage it is in; '' where there is only one."""
        return self.row.lane

    @property
    def input(self) -> Any:
        """What was handed over at intake."""
        return self.content.input

    @property
    def payload(self) -> Any:
        """What this stage is to work on: the stage before's output, or the input."""
        return self.content.payloads.get(self.row.stage, self.content.input)

    def payload_of(self, stage: str) -> Any:
        """What that stage is, or was, given to work on; None where the item has not come to it."""
        return self.payload if stage == self.row.stage else self.content.payloads.get(stage)

    @property
    def results(self) -> dict[str, Any]:
        """The outputs of the stages before, by stage."""
        return self.content.results

    @property
    def attempt(self) -> int:
        """This try's number, from 1."""
        return self.row.attempts + 1

    @property
    def correlation_id(self) -> str:
        """The same in all that is said of this item, here and at partners'."""
        return self.row.correlation_id

    @property
    def work_id(self) -> str:
        """The same on every try of this work: give it to the partner, so that it can recognise a repeat."""
        return work_id_of(self.row)

    def __repr__(self) -> str:
        return f"<Item {self.route}/{self.key} at {self.stage}: {self.row.status}>"


def work_id(route: str, key: str, stage: str, pass_no: int, life: int = 0) -> str:
    """One name for (route, key, stage, pass), and the life of the key where it may have several: 32 hex digits."""
    parts = (route, key, stage, str(pass_no), str(life)) if life else (route, key, stage, str(pass_no))
    return sha256("\x1f".join(parts).encode()).hexdigest()[:32]


def work_id_of(row: Row) -> str:
    """The work_id of the stage that this row is at."""
    return work_id(row.route, row.key, row.stage, row.pass_no, row.life)


_canonical = msgspec.json.Encoder(order="deterministic")


canonical_json: Callable[[Any], bytes] = _canonical.encode
"""JSON with sorted names and no spaces: the same content always gives the same bytes."""


def digest_of(value: Any) -> bytes:
    """SHA-256 of the content's canonical JSON."""
    return sha256(_canonical.encode(value)).digest()


SEPARATOR = "#"


class KeyPart(Struct, frozen=True, array_like=True):
    """A condition on one part of a key: at `position` (from 0) it must be `text`, as it is written in the key."""

    position: int
    text: str

    def matches(self, key: str) -> bool:
        parts = key.split(SEPARATOR)
        return self.position < len(parts) and parts[self.position] == self.text


def escape_part(text: str) -> str:
    """A part as it is written in a key."""
    return text.replace("%", "%25").replace(SEPARATOR, "%23")


def unescape_part(text: str) -> str:
    """A part as it was handed over."""
    return text.replace("%23", SEPARATOR).replace("%25", "%")
