"""Control documents: small named values that processes share through the ledger, written
conditionally.

`update` changes one of them, and repeats the change if another process was first. A write with
`expect` is for what must not be repeated, such as a claim: who loses the race leaves it to the
winner.

Holds, limits and breakers are named by the scope that they apply to (see
`core.admission.controls`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Generic, Protocol, TypeVar, overload

import msgspec
from msgspec import UNSET, Struct, UnsetType

from milepost.core.errors import RESTORE, LedgerBusy, LedgerDamaged
from milepost.ports.clock import ClockState

T = TypeVar("T")
After_co = TypeVar("After_co", covariant=True)
log = logging.getLogger(__name__)

TRIES = 1_000
"""Tries of one `update`. Each try that fails is a write of another process that succeeded: so many
in a row are a fault, not a race."""

ROUTE, HOLD, LIMIT, BREAKER, PROCESS, CURSOR, PARKED, ACT, LIST, MOVED, MOVING, HEAD, BACK_FILL, KEY, KEY_USE, SESSION, PROBE, APPLICATION, TALLY, ALERT, FORGET, PROGRESS = (
    "route", "hold", "limit", "breaker", "process", "cursor", "parked", "act", "list", "moved", "moving", "head", "back-fill", "key",
    "key-use", "session", "probe", "application", "tally", "alert", "forget", "progress",
)  # fmt: skip


PARKED_CHANGE = "parked-change"
"""By subscriber: its version is a number that rises when parked items of the subscriber change."""


ACT_OF_ROUTE = ":"
"""In the id of an act of a program: what stands between its route and the rest."""


class Document(Struct, frozen=True):
    value: Any
    """A `DamagedValue` where what is stored is no JSON."""
    version: int


class DamagedValue:
    """In place of a stored value that cannot be read. Whoever lists documents sees that there is
    one; using the value raises LedgerDamaged."""

    def __init__(self, why: str) -> None:
        self.why = why

    def __getitem__(self, name: object) -> Any:
        raise LedgerDamaged(self.why)

    __contains__ = get = items = keys = __getitem__


class RouteVersion(Struct, frozen=True):
    """The stages of a route in this version."""

    version: int
    digest: str
    shape: list[list[str]]
    at: int
    by: str = ""
    moves: dict[str, str | None] = {}
    """Removed stages, and where their items are moved (None: cancelled); empty once all are
    moved."""
    pace: float | None = None
    """Completed items per second to be sent to an added stage, if these are among the moves; None:
    all at once."""


EPOCH = "epoch"
"""One document, without a name: the epoch of a ledger in which history may have been repeated. A
ledger without it has the epoch 0."""


class Epoch(Struct, frozen=True):
    """What distinguishes two courses of events of one ledger: it is raised when the ledger goes
    back to an earlier state, by a restore for example. Each history line has the epoch in which it
    was written, and the ids of its events carry it, so that a receiver does not take another fact
    for a repeat."""

    epoch: int
    at: int
    why: str


def raised_epoch(known: int, now: int, why: str) -> Epoch:
    """The epoch after `known`: the time in seconds, so that each restore of one backup has its own,
    whatever became of the ledger before."""
    return Epoch(max(known + 1, now // 1000), now, why)


class BackFill(Struct, frozen=True):
    """Back-fill of a route (by its name): completed items are sent to an added stage, or run again,
    at a set pace in portions.

    A process claims a portion (`in_hand`, `held_until`) before it sends the items, and releases it
    afterwards. A portion that was not released in time is continued by another process.
    """

    stage: str
    since: int
    """When the stage was added: items that completed later have passed it."""
    pace: float
    """Items per second."""
    act: str
    by: str
    reason: str
    at: int
    total: int
    """Number of completed items; where rows can be restored, including those whose rows have
    left."""
    spent_to: int
    """Time up to which the pace is used up: the next portion is what the pace has allowed since."""
    done: int = 0
    passed: int = 0
    """Items skipped: removed in the meantime, or already past the stage."""
    seals: bool = False
    """All rows are done: next come the keys whose rows have left."""
    ledger: str = ""
    after: Any = None
    """Position of the scan, in the form of the ledger with that URL."""
    in_hand: list[str] = []
    then: Any = None
    """Position after the present portion; None: it is the last."""
    held_until: int = 0
    stopped_at: int | None = None
    stopped_by: str = ""
    stopped_why: str = ""
    finished_at: int | None = None
    rerun: dict[str, Any] | None = None
    """For running completed items again from the stage: which ones (the fields of a `Query`). None:
    they are sent to the stage."""
    as_new: bool = False

    @property
    def under_way(self) -> bool:
        return self.finished_at is None and self.stopped_at is None


class StandingStill(Struct, frozen=True):
    """A role whose service leaves its work undone: since when, and why, for people."""

    since: int
    why: str


class Process(Struct, frozen=True):
    """A running process: its identity, its last heartbeat, and the last successful run of each of
    its roles."""

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
    """It has ended, or was proved dead and its leases were taken back."""
    next_runs: dict[str, int] = {}
    """When each of its roles is to run next, as the last turn of its service has said."""
    clock: ClockState | None = None
    """What it knows about its clock."""
    known_format: int = 1
    """The newest format of tables that it knows. Versions before the formats do not write it; on
    ledgers without formats it says nothing."""
    standing_still: dict[str, StandingStill] = {}
    """Its roles that do not work now, though their services have their turns."""


MOVER = "the move"
"""The lease of a cursor, and the author of a pause, while routes are moved to this ledger."""


class Cursor(Struct, frozen=True):
    """A subscriber's position in the feed, and which process delivers to it now."""

    seq: int
    told_at: int
    lease: str = ""
    until: int = 0
    failures: int = 0
    retry_at: int = 0
    error: str = ""
    removed: bool = False
    refused: int = 0
    """So many different items were refused in a row, with the answer `refusal`."""
    refusal: str = ""
    formed: bool = False
    """It gets only events in a form of their route's own."""


class Parked(Struct, frozen=True):
    """An item whose event a subscriber refused: its later events wait behind that one, for that
    subscriber only."""

    subscriber: str
    route: str
    key: str
    version: int
    since: int
    tries: int
    retry_at: int
    error: str
    behind: int = 0
    """The place of the newest line known to wait behind it. Raising it invalidates a removal that
    does not know of that line."""


class Act(Struct, frozen=True):
    """An operator's bulk act. It touches only rows last changed before `started_at`; a repeat
    continues where it stopped."""

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
    """Approximate number of items when it began, where known without reading each."""
    moved_at: int | None = None
    """When it last handled some of them: an interrupted one makes no progress."""
    asked: dict[str, Any] | None = None
    """The filter as the caller gave it, which a repeat must give again; None: the act is for keys,
    or an earlier version recorded it."""
    report: dict[str, Any] | None = None
    """The answer of the call that finished it, which a repeat gets; None: it has not finished, or
    an earlier version recorded it."""
    from_seq: int | None = None
    """The place in the feed when it began: its lines come after it. None: an earlier version
    recorded it."""
    to_seq: int | None = None
    """The place in the feed when it had finished: none of its lines comes after it. None: it is not
    known, as on a ledger whose feed follows its rows with a delay."""


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
    """In the source ledger of a move, by the route's name: no process works on the route here any
    more."""

    to: str
    at: int
    by: str
    reason: str
    routes: list[str]
    """All routes that are moved together with it."""
    finished_at: int | None = None
    """When the target was found identical; None: the move is in progress, or was interrupted."""


class Moving(Struct, frozen=True):
    """In the target ledger of a move, by the name of the move: its progress."""

    source: str
    routes: list[str]
    since: int
    """The newest place in the feed when it began."""
    lines: int = 0
    """The place in the source's feed up to which lines are transferred."""
    place: int = 0
    """The place here of the last of them."""
    cursors: dict[str, int] = {}
    """Each subscriber's position, as a place here."""
    finished_at: int | None = None


class Key(Struct, frozen=True):
    """API key for HTTP access, by its name. Only the digest of its secret is stored."""

    id: str
    name: str
    digest: str
    """SHA-256 of the secret, in hex."""
    scopes: list[str]
    routes: list[str] | None
    """The routes it may see; None: all."""
    by: str
    at: int
    expires_at: int | None = None
    rate: float | None = None
    """Calls per second, if not the default."""
    burst: int | None = None
    """Concurrent calls, if not the default."""
    attributes: dict[str, str] = {}
    """Names and values that applications give a meaning to, such as the sender that its holder
    speaks for."""
    revoked_at: int | None = None
    revoked_by: str = ""
    revoked_why: str = ""

    def holds(self, now: int) -> bool:
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)


class KeyUse(Struct, frozen=True):
    """Approximate time at which a key was last used, by the key's name. It is a document of its
    own, so that a process that serves calls need not be allowed to write keys."""

    id: str
    at: int


SECRET = "secret"
"""Name of the one document of the kind FORGET."""


class ForgetSecret(Struct, frozen=True):
    """The secret of the keyed digests that stand for forgotten keys, in hex. It never changes: the
    keys are known by it."""

    secret: str
    at: int


class Session(Struct, frozen=True):
    """A login session, by the digest of its cookie. It is valid as long as its key."""

    key_id: str
    at: int
    until: int


def read_as(kind: type[T], value: Any) -> T:
    """A document's value as its type; LedgerDamaged if it is no such value."""
    if isinstance(value, DamagedValue):
        raise LedgerDamaged(value.why)
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise LedgerDamaged(
            f"a control document ({kind.__name__}) of the ledger is damaged: {error}; {RESTORE}"
        ) from error


def read_all(documents: LedgerDocuments, kind: str, form: type[T]) -> dict[str, T]:
    """All control documents of a kind as values of this type, by name."""
    return {name: read_as(form, document.value) for name, document in documents.read(kind).items()}


def read_each(documents: LedgerDocuments, kind: str, form: type[T]) -> dict[str, T]:
    """As `read_all`, without damaged documents: for loops in which one document must not stop the
    others."""
    return {name: value for name, (value, _) in read_each_versioned(documents, kind, form).items()}


def read_each_versioned(
    documents: LedgerDocuments, kind: str, form: type[T]
) -> dict[str, tuple[T, int]]:
    """As `read_each`, each with the version for `expect` of a conditional write."""
    sound, damaged = sort_out(documents.read(kind), kind, form)
    log_damage(damaged)
    return sound


def sort_out(
    found: Mapping[str, Document], kind: str, form: type[T]
) -> tuple[dict[str, tuple[T, int]], dict[str, str]]:
    """The documents of a kind that can be read, each with its version; and why the others cannot.
    Both by name."""
    sound: dict[str, tuple[T, int]] = {}
    damaged: dict[str, str] = {}
    for name, document in found.items():
        try:
            sound[name] = read_as(form, document.value), document.version
        except LedgerDamaged as error:
            damaged[name] = f"{kind} {name!r}: {error}"
    return sound, damaged


def log_damage(damaged: Mapping[str, str]) -> None:
    """Log each damaged document once in the life of this process; `milepost doctor` names them
    whenever it runs."""
    for why in damaged.values():
        _log_once(why)


@lru_cache(maxsize=1000)
def _log_once(why: str) -> None:
    log.error("a damaged document is left out: %s", why)


def read_versioned(
    documents: LedgerDocuments,
    kind: str,
    name: str,
    form: type[T],
    *,
    damaged: T | UnsetType | None = UNSET,
) -> tuple[T | None, int]:
    """A control document as a value of this type, with the version for `expect` of a conditional
    write; (None, 0): it does not exist. `damaged` stands for one that cannot be read; without it,
    that raises LedgerDamaged."""
    document = documents.read_one(kind, name)
    if document is None:
        return None, 0
    try:
        return read_as(form, document.value), document.version
    except LedgerDamaged:
        if isinstance(damaged, UnsetType):
            raise
        return damaged, document.version


class Updated(Struct, Generic[T, After_co], frozen=True):
    """What `update` has done to a document. None in place of a value: there is no document."""

    before: T | None
    after: After_co
    version: int
    """Of the document before; 0: there was none. A write raises it by one, but the ledger chooses
    the version of a new document."""
    written: bool
    """False: the document was left as it is."""


@overload
def update(
    documents: LedgerDocuments,
    kind: str,
    name: str,
    form: type[T],
    change: Callable[[T | None], T],
    *,
    known: tuple[T | None, int] | None = None,
    damaged: T | UnsetType | None = UNSET,
) -> Updated[T, T]: ...


@overload
def update(
    documents: LedgerDocuments,
    kind: str,
    name: str,
    form: type[T],
    change: Callable[[T | None], T | None],
    *,
    known: tuple[T | None, int] | None = None,
    damaged: T | UnsetType | None = UNSET,
) -> Updated[T, T | None]: ...


def update(
    documents: LedgerDocuments,
    kind: str,
    name: str,
    form: type[T],
    change: Callable[[T | None], T | None],
    *,
    known: tuple[T | None, int] | None = None,
    damaged: T | UnsetType | None = UNSET,
) -> Updated[T, T | None]:
    """Change one document on the condition that nobody has written it meanwhile; if somebody has,
    change the newer one. Raises LedgerBusy if that happens `TRIES` times.

    `change` gets the present value (None: there is none) and returns the new one (None: remove the
    document). A value equal to the present one is not written. It may be called several times, and
    only the last call counts: whatever it does besides must bear repetition.

    `known`: the value and version that the caller has read already; the first try goes by them.
    `damaged` stands for a document that cannot be read, as in `read_versioned`.
    """
    if known is None:
        known = read_versioned(documents, kind, name, form, damaged=damaged)
    for _ in range(TRIES):
        before, version = known
        after = change(before)
        if after == before:
            return Updated(before, after, version, written=False)
        if documents.write(kind, name, after, expect=version):
            return Updated(before, after, version, written=True)
        known = read_versioned(documents, kind, name, form, damaged=damaged)
    raise LedgerBusy(f"the document {kind} {name!r} is changed all the time; try again")


class LedgerDocuments(Protocol):
    """A document is written whole; with `expect`, of several writers that saw the same version one
    succeeds. `update` changes one that others may change too."""

    def read(self, kind: str) -> dict[str, Document]:
        """All control documents of a kind, by name."""

    def read_one(self, kind: str, name: str) -> Document | None:
        """One control document; None: it does not exist. One small read, however many documents the
        kind has."""

    def write(self, kind: str, name: str, value: Any, expect: int | None = None) -> bool:
        """Write one document (None removes it). `expect` is its required version, 0 for absent;
        False: it differs. Each write raises the version by one. The ledger chooses a new document's
        first version, but never one that a document of this name had before, even if that was
        removed: so an old version is never mistaken for a new one."""
