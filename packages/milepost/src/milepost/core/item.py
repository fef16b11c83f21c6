"""Item and row: the state that the ledger holds, and the view of it that a handler gets."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

from msgspec import Struct

from milepost.core.status import TERMINAL, Status
from milepost.core.values.json import canonical_json
from milepost.core.values.key_text import SEPARATOR, key_parts


class Failure(Struct, frozen=True, omit_defaults=True, gc=False):
    """The last error of an item, and its group of similar errors."""

    category: str
    message: str
    at: int
    group: str
    details: Any = None
    http_status: int | None = None


class Row(Struct, frozen=True, gc=False):
    """The state of one item, which the rules read and write. Times are milliseconds since 1970,
    UTC."""

    route: str
    key: str
    stage: str
    status: Status
    version: int
    """Number of history lines; a write is valid only for the version that it read."""
    head: bytes
    """Digest of the last history line: the head of the chain."""
    created_at: int
    updated_at: int
    entered_at: int
    """When the item entered its present stage, or ended. For an item with a later start: that
    start, because its age counts from then."""
    correlation_id: str
    input_digest: bytes
    lane: str = ""
    look_at: int | None = None
    """When the next step is due: lease expiry, next attempt, next check or next resend. None:
    nothing is due."""
    overdue_at: int | None = None
    """When the item is to be reported as overdue at this stage; None: no mark, or already
    reported."""
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
    """The result of the last attempt is unknown: `verify` runs before the next."""
    alone: bool = False
    """The item failed alone in a halved batch: it is processed alone until it advances."""
    handed_over: bool = False
    again: bool = False
    """It was COMPLETED before and then sent to an added stage."""
    list_id: str | None = None
    note: str | None = None
    error: Failure | None = None
    kept: dict[str, Any] = {}
    """Outside outcomes, by stage, that wait until the item is ready for them."""
    undecided: Any = None
    """An outcome settled by a process whose route is out of date; a newer process decides it."""
    handle: Any = None
    """The ledger's private reference to the row."""
    not_before: int | None = None
    """The item is neither offered nor claimed before this time; None, or a past time: it may start
    at once."""
    content_digest: bytes | None = None
    """Digest of the present input, if an operator has replaced the first one (`input_digest`)."""
    settled: str | None = None
    """Digest of the last claim at this stage whose outcome made no history line (see
    `core.history.claim_digest`)."""
    life: int = 0
    """The life of its key. 0: the route remembers keys for good, so there is only one. Where the
    route forgets them (`remember`): the time at which the item was accepted, so that a key that
    comes again has its own ids and its own chain."""
    epoch: int = 0
    """The present epoch of the ledger, for the row's next line. It is no part of the row: the
    ledger fills it in when it reads the row."""

    @property
    def due_at(self) -> int | None:
        """When Milepost must look at the item again if nothing else happens."""
        if self.overdue_at is None or self.look_at is None:
            return self.look_at if self.overdue_at is None else self.overdue_at
        return min(self.look_at, self.overdue_at)

    @property
    def terminal(self) -> bool:
        return self.status in TERMINAL

    @property
    def current_digest(self) -> bytes:
        """Digest of the present input: an input that comes again is compared with it."""
        return self.content_digest or self.input_digest

    @property
    def checked(self) -> bool:
        """Whether it waits after a successful check. Any other look, and an answer that was
        refused, is counted in `looks`."""
        return self.status is Status.WAITING and self.looks == 0 and not self.handed_over

    def later_than(self, now: int) -> bool:
        """Whether the item was submitted for a time later than `now`."""
        return self.not_before is not None and self.not_before > now

    def not_earlier(self, moment: int) -> int:
        """The later of this time and the item's start: nothing is due before the start."""
        return moment if self.not_before is None else max(moment, self.not_before)


class Content(Struct, gc=False):
    """The content of an item, stored apart from its row: the first input, and each stage's payload
    and result."""

    input: Any = None
    payloads: dict[str, Any] = {}
    results: dict[str, Any] = {}


class Put(Struct, frozen=True, gc=False):
    """One piece of content that a change writes. `kind` is "payload" or "result"; "input" (then
    `stage` is empty); or "waiting", a confirmer's report of what it waits for: None removes it."""

    kind: str
    stage: str
    value: Any


class Item(Struct, gc=False, eq=False):
    """One item at one stage, as a handler gets it."""

    row: Row
    content: Content
    ticket: Any = None
    """The ledger's private reference to the cause of this claim, such as an SQS message; None where
    the row itself is the queue."""

    @property
    def route(self) -> str:
        """The name of its route."""
        return self.row.route

    @property
    def key(self) -> str:
        """Its key on the route."""
        return self.row.key

    @property
    def key_parts(self) -> list[str]:
        """The parts of a key of several fields, unescaped."""
        return key_parts(self.row.key)

    @property
    def stage(self) -> str:
        """Its present stage."""
        return self.row.stage

    @property
    def status(self) -> Status:
        """Its status."""
        return self.row.status

    @property
    def lane(self) -> str:
        """Its lane at the stage; '' where there is only one."""
        return self.row.lane

    @property
    def input(self) -> Any:
        """The input given at intake."""
        return self.content.input

    @property
    def payload(self) -> Any:
        """The payload of this stage: the output of the stage before, or the input."""
        return self.content.payloads.get(self.row.stage, self.content.input)

    def payload_of(self, stage: str) -> Any:
        """The payload of that stage; None if the item has not reached it."""
        return self.payload if stage == self.row.stage else self.content.payloads.get(stage)

    @property
    def results(self) -> dict[str, Any]:
        """The outputs of the stages before, by stage."""
        return self.content.results

    @property
    def attempt(self) -> int:
        """The number of this attempt, from 1."""
        return self.row.attempts + 1

    @property
    def losses(self) -> int:
        """How many workers were lost while they held this item at its present stage; losses are not
        counted as attempts."""
        return self.row.losses

    @property
    def unknown(self) -> bool:
        """Whether the result of the try before this one is unknown: the partner may have done the
        work."""
        return self.row.unknown

    @property
    def correlation_id(self) -> str:
        """The id of this item in logs, events and messages, here and at partners."""
        return self.row.correlation_id

    @property
    def work_id(self) -> str:
        """The same id on every attempt of this work: give it to the partner, so that it recognises
        a repeat."""
        return work_id_of(self.row)

    def __repr__(self) -> str:
        return f"<Item {self.route}/{self.key} at {self.stage}: {self.row.status}>"


def work_id(route: str, key: str, stage: str, pass_no: int, life: int = 0) -> str:
    """The id of (route, key, stage, pass), and of the life of the key where it may have several: 32
    hex digits."""
    text = f"{route}\x1f{key}\x1f{stage}\x1f{pass_no}"
    if life:
        text = f"{text}\x1f{life}"
    return sha256(text.encode()).hexdigest()[:32]


def work_id_of(row: Row) -> str:
    """The work_id of the row's present stage."""
    return work_id(row.route, row.key, row.stage, row.pass_no, row.life)


def digest_of(value: Any) -> bytes:
    """SHA-256 of the content's canonical JSON."""
    return sha256(canonical_json(value)).digest()


class KeyPart(Struct, frozen=True, array_like=True):
    """A condition on one part of a key: at `position` (from 0) it must be `text`, escaped as in the
    key."""

    position: int
    text: str

    def matches(self, key: str) -> bool:
        parts = key.split(SEPARATOR)
        return self.position < len(parts) and parts[self.position] == self.text
