"""The control documents that processes share through the ledger: small, named, and written conditionally.

Holds, limits and breakers are named by the scope that they apply to (see `core.admission.controls`).
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec
from msgspec import Struct

T = TypeVar("T")

ROUTE, HOLD, LIMIT, BREAKER, PROCESS, CURSOR, PARKED, ACT, LIST, MOVED, MOVING, HEAD, BACK_FILL, KEY, SESSION, PROBE = (
    "route", "hold", "limit", "breaker", "process", "cursor", "parked", "act", "list", "moved", "moving", "head", "back-fill", "key",
    "session", "probe",
)  # fmt: skip


class RouteVersion(Struct, frozen=True):
    """Which stages a route has, as of this version."""

    version: int
    digest: str
    shape: list[list[str]]
    at: int
    by: str = ""
    moves: dict[str, str | None] = {}
    """Stages that are gone, and where their items are being moved (None: cancelled); empty once all have been."""
    pace: float | None = None
    """How many finished items a second are to be sent on to an added stage, where these are among the moves; None: all at once."""


class BackFill(Struct, frozen=True):
    """By the route's name: its finished items are being sent on to an added stage, or run again, at a pace, a portion at a time.

    A portion is taken (`in_hand`, `held_until`) before it is sent on and laid down after; whoever comes upon one that was not laid
    down in time goes on with it.
    """

    stage: str
    since: int
    """When the stage was added: what has finished later has been through it."""
    pace: float
    """Items a second."""
    act: str
    by: str
    reason: str
    at: int
    total: int
    """How many finished items there were; where rows can be brought back, with those whose rows have left."""
    spent_to: int
    """The moment up to which the pace has been used: the next portion is what has become free since."""
    done: int = 0
    passed: int = 0
    """Looked at and left alone: gone meanwhile, or through the stage already."""
    seals: bool = False
    """All rows have been looked at: now come the keys whose rows have left."""
    ledger: str = ""
    after: Any = None
    """How far it has come, in the words of the ledger with that URL."""
    in_hand: list[str] = []
    then: Any = None
    """Where it goes on when that portion is laid down; None: nowhere, it was the last."""
    held_until: int = 0
    stopped_at: int | None = None
    stopped_by: str = ""
    stopped_why: str = ""
    finished_at: int | None = None
    rerun: dict[str, Any] | None = None
    """The finished items are run again from the stage: which of them (the fields of a `Query`). None: they are sent on to it."""
    as_new: bool = False

    @property
    def under_way(self) -> bool:
        return self.finished_at is None and self.stopped_at is None


class Process(Struct, frozen=True):
    """A process at work: who it is, when it was last heard of, when each of its roles last had a good run."""

    holder: str
    host: str
    pid: int
    started_at: int
    seen_at: int
    roles: dict[str, int] = {}
    in_hand: int = 0
    overrunning: list[dict[str, Any]] = []
    outdated: list[str] = []
    stopped: bool = False
    """It has ended: by itself, or it was proved dead, and what it held was taken back."""


class Cursor(Struct, frozen=True):
    """How far a subscriber has been told, and who tells it now."""

    seq: int
    told_at: int
    lease: str = ""
    until: int = 0
    failures: int = 0
    retry_at: int = 0
    error: str = ""
    removed: bool = False


class Parked(Struct, frozen=True):
    """An item whose event one subscriber refused: its later events wait behind that one, for that subscriber only."""

    subscriber: str
    route: str
    key: str
    version: int
    since: int
    tries: int
    retry_at: int
    error: str
    behind: int = 0
    """The place of the newest line that is known to wait behind it. Raising it voids a removal that does not know of that line."""


class Act(Struct, frozen=True):
    """A bulk act by an operator. It touches only rows last changed before `started_at`; a rerun goes on where it stopped."""

    id: str
    verb: str
    route: str
    by: str
    reason: str
    started_at: int
    filter: dict[str, Any] = {}
    done: int = 0
    refused: int = 0
    finished_at: int | None = None
    expected: int | None = None
    """About how many items there were when it began, where that was known without looking at each."""
    moved_at: int | None = None
    """When it last dealt with some of them: one that was cut off moves no more."""


class ListRecord(Struct, frozen=True):
    """A delivered list of keys."""

    id: str
    route: str
    name: str
    digest: str
    at: int
    full: bool
    counts: dict[str, int]
    keys_blob: str
    by: str = ""


class Moved(Struct, frozen=True):
    """In the ledger that a route is moved from, by the route's name: nobody works on it here any more."""

    to: str
    at: int
    by: str
    reason: str
    routes: list[str]
    """All that are moved together with it."""
    finished_at: int | None = None
    """When everything had been found there just as it was here; None: the move is under way, or was cut off."""


class Moving(Struct, frozen=True):
    """In the ledger that routes are moved to, by the name of the move: how far it has come."""

    source: str
    routes: list[str]
    since: int
    """The newest place in the feed when it began."""
    lines: int = 0
    """The place, in the source's feed, up to which lines have been taken over."""
    place: int = 0
    """Where the last of them is here."""
    cursors: dict[str, int] = {}
    """How far each subscriber has been told, in places here."""
    finished_at: int | None = None


class Key(Struct, frozen=True):
    """By its name: a key to the door over HTTP. Of its secret only the digest is here."""

    id: str
    name: str
    digest: str
    """SHA-256 of the secret, in hex."""
    scopes: list[str]
    routes: list[str] | None
    """The routes that it sees; None: all."""
    by: str
    at: int
    expires_at: int | None = None
    rate: float | None = None
    """Calls a second, where that is not the usual."""
    burst: int | None = None
    """Calls at once, where that is not the usual."""
    used_at: int | None = None
    """About when it was last used: written once in a while."""
    revoked_at: int | None = None
    revoked_by: str = ""
    revoked_why: str = ""

    def holds(self, now: int) -> bool:
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)


class Session(Struct, frozen=True):
    """By the digest of its cookie: somebody who has logged in with a key. It holds while that key does."""

    key_id: str
    at: int
    until: int


def read_as(kind: type[T], value: Any) -> T:
    """A document's value as its type."""
    return msgspec.convert(value, kind)
