"""Evidence from the ledger: records of items, from their rows, kept evidence, or seals; rows
restored from these; and the items with files on a storage volume, such as a tape."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, islice, pairwise
from random import Random
from typing import Any, NamedTuple

import msgspec
from msgspec import UNSET, Struct
from msgspec.structs import replace

from milepost.core.errors import LedgerDamaged, LedgerError, MilepostError
from milepost.core.forgetting import is_forgotten_name, readable_name
from milepost.core.history import decode_line
from milepost.core.item import Content, Item, Row, digest_of
from milepost.core.routes.plan import Plan
from milepost.core.status import Reason, Status
from milepost.core.values.durations import iso
from milepost.engine.apply import unreadable
from milepost.engine.context import Context
from milepost.engine.forgotten_names import name_of
from milepost.engine.known_keys import known_key
from milepost.engine.ledger_pages import matching_seals, seal_pages
from milepost.engine.views.items import each
from milepost.evidence.record import (
    FORGOTTEN_SCHEMA,
    SCHEMA,
    EarlierLife,
    blob_name,
    differences,
    earlier_lives_of,
    evidence,
    forgotten_record,
    is_digest,
    kept,
    life_of,
    seal_record,
)
from milepost.evidence.reported_files import later_reports, paths_on
from milepost.ports.blobs import Blobs
from milepost.ports.feed import HistoryEntry
from milepost.ports.items import KnownKey, Query, Refused
from milepost.ports.ledger import Ledger
from milepost.ports.retention import Keep, Leaving

SEALS = 500
COUNTED, SCRUBBED = 5_000, 100
"""Seals that a scrub reads at most, and kept records that it compares with them."""
STARTED_AGAIN = frozenset({Reason.OPERATOR_RETRY, Reason.RERUN, Reason.REPLACED})
"""Reasons after which the item's work may have another work_id."""


class FoundRecord(Struct, frozen=True):
    """An item's record, the feed position of its last line (0: unknown), and its input if it was
    kept."""

    record: dict[str, Any]
    place: int
    input: Any = UNSET
    earlier: int | None = None
    """Of a record without content: the life of the key before, if there was one."""
    life: int = 0
    """Of a record without content: the life of the key, if it is known."""
    places: tuple[int, ...] = ()
    """The feed positions of its lines, if they were read from the ledger."""
    lost: str = ""
    """Why the record that should have been kept cannot be used; this one is made of what the ledger
    still has."""

    @property
    def faults(self) -> list[str]:
        """Contradictions between the record and the ledger, and what is lost."""
        contradictions = [f"{field}: {what}" for field, what in differences(self.record)]
        return [self.lost, *contradictions] if self.lost else contradictions


def keeper(blobs: Blobs) -> Keep:
    """Function that stores the evidence of items before their rows are removed."""

    def keep(leaving: Sequence[Leaving]) -> None:
        for one in leaving:
            name, body = kept(
                one.item,
                [written.body for written in one.lines],
                one.lines[-1].seq if one.lines else 0,
            )
            try:
                blobs.write(name, [body])
            except OSError as error:
                raise LedgerError(
                    f"the evidence of {one.item.route}/{one.item.key} cannot be stored, so its row stays: {error}"
                ) from error

    return keep


class Scrub(Struct, frozen=True):
    """Kept records that were compared with their seals: how many of how many seals, and what is
    wrong, by key."""

    looked_at: int
    seals: int
    more: bool
    """There are more seals than were counted."""
    faults: dict[str, str]


def scrub(ctx: Context, route: str) -> Scrub:
    """Compare kept records of a route with their seals: all of a few, else as many by chance."""
    seals: list[KnownKey] = []
    pages = seal_pages(ctx.ledger, route, SEALS)
    for page in pages:
        seals += page
        if len(seals) >= COUNTED:
            break
    more = next(pages, None) is not None
    chosen = seals if len(seals) <= SCRUBBED else Random(ctx.chance.token()).sample(seals, SCRUBBED)
    found = [(readable_name(known.key), _faults_of_lives(ctx, route, known)) for known in chosen]
    return Scrub(len(chosen), len(seals), more, {key: faults[0] for key, faults in found if faults})


def _faults_of_lives(ctx: Context, route: str, known: KnownKey) -> list[str]:
    """The faults of the record of a seal, and of those of the earlier lives of its key."""
    found = _of_seal(ctx, route, known)
    earlier = earlier_lives(ctx, route, known.key, found) if known.life else ()
    return [fault for record in (found, *earlier) for fault in record.faults]


def records_of(ctx: Context, route: str, key: str) -> list[FoundRecord]:
    """The evidence of one key: that of its item, then the kept records of its earlier lives, latest
    first; none if it was never seen."""
    key = known_key(ctx, route, key)
    found = evidence_of(ctx, route, key)
    return [] if found is None else [found, *earlier_lives(ctx, route, key, found)]


def earlier_lives(ctx: Context, route: str, key: str, record: FoundRecord) -> Iterator[FoundRecord]:
    """The records of the lives of a key before this one, latest first. An operator submits a key
    again after its item has failed and left (see `engine.intake.submit`). A life whose record is
    lost is represented by what the later ones say of it."""
    if life_before(record) is not None or record.life:
        yield from _Lives(ctx, route, key, record).records()


class _Lives:
    """The earlier lives of a key. Each record names all of those before it, so that a lost one
    hides none; those that an earlier Milepost wrote name only the one before."""

    def __init__(self, ctx: Context, route: str, key: str, latest: FoundRecord) -> None:
        self._ctx, self._route, self._key = ctx, route, key
        self._latest = latest
        self._named: dict[int, EarlierLife] = {}
        self._found: dict[int, FoundRecord | str] = {}
        """The record of each life, or why there is none."""
        self._gap = False
        """Names of lives are lost with the record of a later one."""

    def records(self) -> list[FoundRecord]:
        self._name(self._latest)
        while waiting := self._named.keys() - self._found.keys():
            self._read(max(waiting))
        lives = sorted(self._found, reverse=True)
        before = dict(pairwise(lives))
        return [
            self._record(life, len(lives) - index, before.get(life))
            for index, life in enumerate(lives)
        ]

    def _name(self, found: FoundRecord) -> None:
        """Note the lives that a record names."""
        if found.record["schema"] != SCHEMA or not found.record["chain"]["lines"]:
            if found.earlier is not None:
                self._named.setdefault(found.earlier, EarlierLife(found.earlier, ""))
            elif found.life:
                self._names_lost(found.life)
            return
        for earlier in earlier_lives_of(found.record).lives:
            if earlier.life not in self._named or earlier.status:
                self._named[earlier.life] = earlier

    def _names_lost(self, life: int) -> None:
        """The record of this life is lost, and with it the names of those before: unless a later
        one named them, the first is tried."""
        if any(named < life for named in self._named):
            return
        if _kept_or_fault(self._ctx, self._route, self._key, 0) is not None:
            self._named[0] = EarlierLife(0, "")
        self._gap = True

    def _read(self, life: int) -> None:
        kept = _kept_or_fault(self._ctx, self._route, self._key, life)
        self._found[life] = "" if kept is None else kept
        if isinstance(kept, FoundRecord):
            self._name(kept)
        elif life:
            self._names_lost(life)

    def _record(self, life: int, number: int, before: int | None) -> FoundRecord:
        """The record of a life, which is this number in the order of the lives."""
        named, found = self._named[life], self._found[life]
        if isinstance(found, FoundRecord):
            return self._whole(found, named, number)
        head = bytes.fromhex(named.head) if is_digest(named.head) else b""
        seal = seal_record(self._route, self._key, named.status, named.stage, b"", None, head)
        plan = self._ctx.plans.get(self._route)
        fault = str(found)
        if not fault and plan is not None and plan.route.evidence:
            named_blob = blob_name(self._route, self._key, life)
            fault = f"its record is missing: {named_blob} was lost, or none was kept when its row left; restore it from a backup"
        lost = f"{self._numbered(number)}: {fault}" if fault else ""
        return FoundRecord(
            {**seal, "ended_at": named.ended_at}, 0, lost=lost, earlier=before, life=life
        )

    def _whole(self, found: FoundRecord, named: EarlierLife, number: int) -> FoundRecord:
        """A record that was read. Its head is the one that the later life names, so that lines that
        lead to another head are reported."""
        record = found.record
        if record["schema"] != SCHEMA:
            return found
        same = (record["route"], record["key"], life_of(record)) == (
            self._route,
            self._key,
            named.life,
        )
        if same and (not is_digest(named.head) or record["chain"]["head"] == named.head):
            return found
        if is_digest(named.head):
            record["chain"]["head"] = named.head
        return replace(
            found,
            lost=f"{self._numbered(number)}: its record is not the one that the later life names",
        )

    def _numbered(self, number: int) -> str:
        """The number of a life, as far as all lives are known."""
        if self._gap:
            return "an earlier life (how many there were is not known: a lost record names them)"
        return f"life {number} of {len(self._found) + 1}"


def _kept_or_fault(ctx: Context, route: str, key: str, life: int) -> FoundRecord | str | None:
    """The kept record of a life, or why it cannot be read; None: there is none."""
    try:
        return _kept_record(ctx, route, key, life)
    except LedgerError:
        raise
    except MilepostError as damaged:
        return str(damaged)


def earlier_names(ctx: Context, route: str, known: KnownKey) -> list[tuple[int, str]] | None:
    """Number and head of each life of a key before that of this seal, oldest first; None if they
    are not all known."""
    if not known.life:
        return []
    try:
        found = _of_seal(ctx, route, known)
        records = list(earlier_lives(ctx, route, known.key, found))
    except MilepostError:
        return None
    if found.record["schema"] != SCHEMA:
        return None
    named = earlier_lives_of(found.record)
    if named.complete:
        return [(life.life, life.head) for life in named.lives]
    if any(record.lost or record.record["schema"] != SCHEMA for record in records):
        return None
    return [
        (life_of(record.record), record.record["chain"]["head"]) for record in reversed(records)
    ]


def life_before(found: FoundRecord) -> int | None:
    """The life of the key before the one of this record; None: it is the first."""
    record = found.record
    if record["schema"] != SCHEMA or not record["chain"]["lines"]:
        return found.earlier
    lives = earlier_lives_of(record).lives
    return lives[-1].life if lives else None


def evidence_of(ctx: Context, route: str, key: str) -> FoundRecord | None:
    """The evidence of one item; None if the key was never seen."""
    [item] = ctx.ledger.get([(route, key)])
    if isinstance(item, Refused):
        raise LedgerDamaged(f"{route}/{key}: {unreadable(item)}")
    if item is not None:
        return _of_row(ctx, item)
    [known] = ctx.ledger.peek(route, [key])
    return None if known is None else _of_seal(ctx, route, known)


def all_evidence(ctx: Context, query: Query) -> Iterator[FoundRecord]:
    """Evidence of all matching items, existing rows first, each followed by that of the earlier
    lives of its key; `query` must request content."""
    for item in each(ctx, query):
        found = _of_row(ctx, item)
        yield found
        yield from earlier_lives(ctx, query.route, item.key, found)
    for known in matching_seals(ctx.ledger, query, SEALS, forgotten=True):
        found = _of_seal(ctx, query.route, known)
        yield found
        yield from earlier_lives(ctx, query.route, known.key, found)


def sealed_evidence(ctx: Context, query: Query) -> Iterator[FoundRecord]:
    """Evidence of matching items whose rows have left: the kept evidence, or the seal."""
    for known in matching_seals(ctx.ledger, query, SEALS):
        yield _of_seal(ctx, query.route, known)


def _of_row(ctx: Context, item: Item) -> FoundRecord:
    row = item.row
    # The item may have moved on since its row was read: ignore later lines.
    lines = ctx.ledger.history(row.route, row.key)[: row.version]
    if not lines:
        [known] = ctx.ledger.peek(row.route, [row.key])
        if known is not None and known.sealed:
            return _of_seal(ctx, row.route, known)
    return FoundRecord(
        evidence(
            row.route,
            row.key,
            row.input_digest,
            row.correlation_id,
            row.head,
            [line.body for line in lines],
            item.results,
        ),
        _place(lines),
        places=_places(lines),
    )


def _of_seal(ctx: Context, route: str, known: KnownKey) -> FoundRecord:
    """The record of a key without a row: from the evidence kept when the row left, else from its
    lines, else from the seal alone. A route that keeps evidence has lost it in the last two
    cases."""
    if known.forgotten:
        return _of_forgotten(ctx, route, known)
    found, lost = _kept_or_lost(ctx, route, known)
    if found is not None:
        # Use the head of the seal, so that lines that lead to another head are reported.
        found.record["chain"]["head"] = known.head.hex()
        if found.input is not UNSET and digest_of(found.input) != known.current_digest:
            lost = f"its kept input is not the submitted one ({blob_name(route, known.key, known.life)})"
            return replace(found, input=UNSET, lost=lost)
        return found
    lines = ctx.ledger.history(route, known.key)
    if not lines:
        seal = seal_record(
            route,
            known.key,
            known.status.value,
            known.stage,
            known.input_digest,
            known.ended_at,
            known.head,
        )
        return FoundRecord(seal, 0, lost=lost, life=known.life)
    record = evidence(
        route,
        known.key,
        known.input_digest,
        lines[0].correlation_id,
        known.head,
        [line.body for line in lines],
        {},
    )
    return FoundRecord(record, _place(lines), places=_places(lines), lost=lost)


def _kept_or_lost(ctx: Context, route: str, known: KnownKey) -> tuple[FoundRecord | None, str]:
    """The record that was kept of a sealed item; or None and, where the route keeps evidence, why
    there is none to use."""
    try:
        found = _kept_record(ctx, route, known.key, known.life)
    except LedgerError:
        raise
    except MilepostError as damaged:
        return None, str(damaged)
    plan = ctx.plans.get(route)
    if found is not None or plan is None or not plan.route.evidence:
        return found, ""
    named = blob_name(route, known.key, known.life)
    lost = f"its kept evidence {named} is missing: it was lost, or none was kept when its row left; restore it from a backup"
    return (
        None,
        f"{lost}; this was not the first life of its key, and the record names the earlier ones"
        if known.life
        else lost,
    )


def kept_input(ctx: Context, route: str, known: KnownKey) -> Any:
    """The input of an item whose row has left, from its kept evidence; UNSET if it is not there, or
    is not the submitted one."""
    try:
        content = _of_seal(ctx, route, known).input
    except MilepostError:
        return UNSET
    return content if content is not UNSET and digest_of(content) == known.current_digest else UNSET


def _kept_record(ctx: Context, route: str, key: str, life: int) -> FoundRecord | None:
    """The record that was kept of this life of a key, or what stands for it if its content was
    removed; None: there is none."""
    found = read_record(ctx, route, key, life)
    if found is not None or is_forgotten_name(key):
        return found
    name = name_of(ctx, route, key)
    return None if name is None else read_record(ctx, route, name, life)


def read_record(ctx: Context, route: str, key: str, life: int) -> FoundRecord | None:
    named = blob_name(route, key, life)
    try:
        body = b"".join(ctx.blobs.read(named))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise LedgerError(
            f"the evidence of {route}/{readable_name(key)} cannot be read: {error}"
        ) from error
    try:
        found = msgspec.json.decode(body, type=FoundRecord)
        holder = (
            found.record if found.record["schema"] == FORGOTTEN_SCHEMA else found.record["chain"]
        )
        bytes.fromhex(holder["head"])
    except (msgspec.MsgspecError, KeyError, TypeError, ValueError) as error:
        raise MilepostError(
            f"the evidence of {route}/{readable_name(key)} is damaged ({named}): {error}"
        ) from None
    return found


def _of_forgotten(ctx: Context, route: str, known: KnownKey) -> FoundRecord:
    """The record of an item whose content was removed: kept evidence of it, else the digests of its
    lines, else the seal."""
    name = (
        known.key if is_forgotten_name(known.key) else name_of(ctx, route, known.key) or known.key
    )
    found = read_record(ctx, route, name, known.life)
    if found is not None:
        found.record["head"] = known.head.hex()
        return found
    lines = ctx.ledger.history(route, name)
    ended = (known.status.value, known.stage, iso(known.ended_at))
    return FoundRecord(
        forgotten_record(route, name, ended, known.head, [line.digest for line in lines], None),
        _place(lines),
    )


def _place(lines: Sequence[HistoryEntry]) -> int:
    return lines[-1].seq if lines else 0


def _places(lines: Sequence[HistoryEntry]) -> tuple[int, ...]:
    return tuple(line.seq for line in lines)


class OnVolume(Struct, frozen=True):
    """One item with files on the volume. `left`: its row has been removed, and this comes from its
    evidence."""

    key: str
    status: str
    files: list[str]
    left: bool = False


def on_volume(
    ctx: Context,
    route: str,
    volume: str,
    on_progress: Callable[[int], None] | None = None,
    on_fault: Callable[[str, str], None] | None = None,
) -> Iterator[OnVolume]:
    """All items of the route with files on the volume. There is no index: the results of every item
    are read. A record that is lost, or does not match its seal, is not used; `on_fault` is called
    with its key and the reason."""
    for number, (key, status, results, left) in enumerate(_all_results(ctx, route, on_fault), 1):
        if on_progress is not None:
            on_progress(number)
        if files := files_on(results, volume):
            yield OnVolume(key, status, files, left)


class Results(NamedTuple):
    """The outputs of an item by stage."""

    key: str
    status: str
    results: Mapping[str, Any]
    left: bool
    """Its row has been removed, and this comes from its evidence."""


def _all_results(
    ctx: Context, route: str, on_fault: Callable[[str, str], None] | None
) -> Iterator[Results]:
    """The results of every item."""
    return _with_later_checks(
        ctx, route, chain(_results_of_rows(ctx, route), _results_of_seals(ctx, route, on_fault))
    )


def _results_of_rows(ctx: Context, route: str) -> Iterator[Results]:
    for item in each(ctx, Query(route=route, with_content=True)):
        yield Results(item.key, item.row.status.value, item.results, False)


def _results_of_seals(
    ctx: Context, route: str, on_fault: Callable[[str, str], None] | None
) -> Iterator[Results]:
    for found in sealed_evidence(ctx, Query(route=route)):
        record, faults = found.record, found.faults
        if faults:
            if on_fault is not None:
                on_fault(record["key"], faults[0])
            continue
        stages = record["stages"] if record["schema"] == SCHEMA else ()
        yield Results(
            record["key"],
            record["status"],
            {entry["stage"]: entry.get("output") for entry in stages},
            True,
        )


def _with_later_checks(ctx: Context, route: str, every: Iterator[Results]) -> Iterator[Results]:
    """The results, replaced by those of later checks: of the items with the same keys on the route
    that follows this one."""
    plan = ctx.plans.get(route)
    if plan is None or plan.route.follow_up is None:
        yield from every
        return
    following = plan.route.follow_up.target.name
    while some := list(islice(every, SEALS)):
        checks = ctx.ledger.get([(following, one.key) for one in some])
        for one, check in zip(some, checks, strict=True):
            later = later_reports(check.results) if isinstance(check, Item) else {}
            yield one._replace(results={**one.results, **later})


def files_on(results: Mapping[str, Any], volume: str) -> list[str]:
    """The files on the volume according to these results by stage, each once."""
    return list(
        dict.fromkeys(path for output in results.values() for path in paths_on(output, volume))
    )


# Restored rows: of a ledger that can take over rows, and that keeps lines when rows are removed ---
def can_restore(ledger: Ledger) -> bool:
    """Whether this ledger can restore rows."""
    return "take over" not in ledger.missing_capabilities


def restore_rows(
    ctx: Context, plan: Plan, keys: Sequence[str], since: int, *, dry_run: bool = False
) -> dict[str, str]:
    """Restore the rows of these keys as they were, if they had finished by `since`; returns why
    not, for those that cannot be restored. Idempotent. With `dry_run` nothing is written."""
    refused: dict[str, str] = {}
    items: list[Item] = []
    for known in ctx.ledger.peek(plan.name, keys):
        if known is None or not known.sealed or known.forgotten:
            continue
        if known.status is not Status.COMPLETED or (known.ended_at or 0) > since:
            continue
        found = restored_item(ctx, plan, known)
        if isinstance(found, Item):
            items.append(found)
        else:
            refused[known.key] = found
    if items and not dry_run:
        refused |= dict(ctx.ledger.take_over(plan, items, (), (), ctx.clock.now()).refused)
    return refused


def restored_item(ctx: Context, plan: Plan, known: KnownKey) -> Item | str:
    """The item behind a seal, or why it cannot be restored. Everything is verified: the lines must
    lead to the seal's head, and input and results must have the recorded digests."""
    try:
        found = evidence_of(ctx, plan.name, known.key)
    except LedgerError:
        raise
    except MilepostError as error:
        return str(error)
    if found is not None and found.lost:
        return found.lost
    if found is None or found.record["schema"] != SCHEMA:
        return "its history lines have been pruned"
    if found.faults:
        return f"its record is inconsistent: {found.faults[0]}"
    record = found.record
    # If a stage was done several times, its last output is the item's result.
    last = {entry["stage"]: entry for entry in record["stages"]}
    missing = [
        stage
        for stage, entry in last.items()
        if entry["output_digest"] is not None and "output" not in entry
    ]
    if missing:
        return f"the result of {', '.join(missing)} is no longer recorded"
    if found.input is UNSET or digest_of(found.input) != known.current_digest:
        return "its input is no longer recorded, or is not the submitted one"
    content = found.input
    lines = [decode_line(body.encode()) for body in record["chain"]["lines"]]
    stage = plan.by_name.get(known.stage)
    row = Row(
        plan.name,
        known.key,
        known.stage,
        known.status,
        len(lines),
        known.head,
        lines[0].at,
        lines[-1].at,
        known.ended_at or lines[-1].at,
        record["correlation_id"],
        known.input_digest,
        "" if stage is None or stage.lane is None else stage.lane_of(content),
        list_id=known.list_id,
        # At least as high as before: no line says which retries were made as new work, so all
        # count. A work_id must not be used twice.
        pass_no=1 + sum(line.reason in STARTED_AGAIN for line in lines),
        content_digest=known.content_digest,
        life=lines[0].life,
        epoch=plan.epoch,
    )
    return Item(
        row,
        Content(
            content,
            {},
            {stage: entry["output"] for stage, entry in last.items() if "output" in entry},
        ),
    )
