"""Forget an ended item: remove its content from the ledger, its blobs, its kept evidence and the
control documents; name what stays."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from milepost.core.errors import (
    ActRefused,
    LedgerDamaged,
    LedgerError,
    MilepostError,
    NotFound,
    UsageError,
)
from milepost.core.forgetting import REMOVED_TEXT, readable_name
from milepost.core.values.durations import iso
from milepost.core.values.json import canonical_json
from milepost.engine.act_log import all_acts, digest_of_keys, enter, finish, signed
from milepost.engine.apply import unreadable
from milepost.engine.context import Context
from milepost.engine.events.cursors import live_cursors
from milepost.engine.events.parked_events import note_change
from milepost.engine.events.records import parked_items, parked_records
from milepost.engine.evidence import FoundRecord, evidence_of, life_before, read_record, records_of
from milepost.engine.forgotten_names import make_secret, name_of
from milepost.engine.heads.route import ROUTE as HEADS
from milepost.engine.known_keys import known_key
from milepost.engine.lists.keys import unpack
from milepost.engine.views.items import lists
from milepost.evidence.record import blob_name, chain_links, forgotten_record
from milepost.ports import documents as kinds
from milepost.ports.documents import Act, DamagedValue, update
from milepost.ports.feed import HistoryEntry
from milepost.ports.items import KnownKey, Refused
from milepost.ports.retention import ForgetRequest, not_ended

SEARCHED = (
    kinds.ACT,
    kinds.ALERT,
    kinds.BREAKER,
    kinds.BACK_FILL,
    kinds.HOLD,
    kinds.APPLICATION,
    kinds.TALLY,
)
"""Kinds of documents that may name a key, or repeat the text of an error."""
NAMED = (*SEARCHED, kinds.CURSOR, kinds.PROCESS)
"""Kinds of documents that are searched for what stays. Cursors and processes are not changed here:
they are written all the time, and soon again."""
OF_APPLICATIONS = (kinds.APPLICATION, kinds.TALLY)
NAMES_NO_KEY = frozenset(
    (
        "id",
        "kind",
        "verb",
        "act",
        "by",
        "to",
        "rule",
        "route",
        "routes",
        "stage",
        "stages",
        "status",
        "statuses",
        "subscriber",
        "pace",
    )
)
"""Fields of Milepost's own documents that have no key and no error in them, although their text may
be equal to a key."""
CUTS = (300, 500)
"""Lengths to which documents cut the text of an error."""
ELSEWHERE = (
    "what was exported, printed or logged before",
    "what partners and subscribers were given",
    "digests of its lines under the daily heads: whoever guesses all of its content can confirm the guess",
)


class ForgetReport(Struct):
    """Result of a forget; with `dry_run`, the expected result."""

    route: str
    name: str
    """Stands for the key in exports from now on; empty in a dry run if nothing was forgotten in
    this ledger before."""
    status: str
    dry_run: bool = False
    before: bool = False
    """An earlier call had already removed the content."""
    lines: int = 0
    """History lines whose content was removed now."""
    evidence: int = 0
    """Kept records of evidence whose content was removed now."""
    documents: int = 0
    """Control documents that named the key or repeated one of its errors, and no longer do."""
    undelivered: dict[str, int] = field(default_factory=dict)
    """By subscriber: lines of the item that it has not received, and will not."""
    stays: list[str] = field(default_factory=list)
    """What stays elsewhere, each as a phrase."""


def forget(
    ctx: Context, route: str, key: str, *, by: str, reason: str, dry_run: bool = False
) -> ForgetReport:
    """Remove the content of an ended item, whatever subscriber is absent. The key stays known by a
    keyed digest; lines and seal keep their digests. A repeat continues a call that was cut off. The
    act is recorded with name and reason; the reason should not repeat content."""
    ctx.plan(route)
    if route == HEADS:
        raise UsageError("the daily heads cannot be forgotten: evidence depends on them")
    key = known_key(ctx, route, key)
    known = _ended(ctx, route, key)
    lines = [] if known.forgotten else ctx.ledger.history(route, key)
    report = ForgetReport(
        route,
        readable_name(name_of(ctx, route, key) or ""),
        known.status.value,
        dry_run,
        known.forgotten,
    )
    report.undelivered = _undelivered(ctx, route, key, lines)
    request = ForgetRequest(
        route, key, name_of(ctx, route, key) or "", ctx.clock.now(), dry_run=True
    )
    refused = ctx.ledger.forget(request).refused
    if refused:
        raise ActRefused(f"{route}/{key}: {refused}")
    if dry_run:
        report.lines = len(lines)
        report.stays = _stays(ctx, route, key, known, lines)
        return report
    signed(by, reason)
    make_secret(ctx)
    name = name_of(ctx, route, key)
    assert name is not None, "the secret was just made"
    report.name = readable_name(name)
    act = _begun(ctx, route, report.name) or enter(
        ctx, "forget", route, by, reason, _about(ctx, route, key, known, report.name)
    )
    # Before the lines lose their content: the texts of the errors are read from them.
    report.documents = _clean_documents(ctx, route, key, report.name, _errors(lines))
    result = ctx.ledger.forget(replace(request, name=name, dry_run=False))
    if result.refused:
        finish(ctx, act, 0)
        raise ActRefused(f"{route}/{key}: {result.refused}")
    report.lines = result.lines
    report.evidence = _empty_evidence(ctx, route, key, name, act)
    report.documents += _drop_parked(ctx, route, key)
    finish(ctx, act, 1)
    report.stays = [*result.remains, *_stays(ctx, route, key, known, lines)]
    return report


def _ended(ctx: Context, route: str, key: str) -> KnownKey:
    """What the ledger knows of an item that has ended; raises if there is none, or it has not
    ended."""
    [item] = ctx.ledger.get([(route, key)])
    if item is None:
        [known] = ctx.ledger.peek(route, [key])
        if known is None:
            raise NotFound(
                f"route {route!r} has never had an item with the key {key!r}; nothing was removed"
            )
        return known
    row = item.row
    if row is None:
        assert isinstance(item, Refused)
        raise LedgerDamaged(f"{route}/{key}: {unreadable(item)}")
    if not row.terminal:
        raise ActRefused(f"{route}/{key}: {not_ended(row.status)}", "live")
    return KnownKey.of(row)


def _about(ctx: Context, route: str, key: str, known: KnownKey, name: str) -> dict[str, Any]:
    """What the act records: the name, and all lives of the key, latest first, so that a repeat
    finds the kept evidence of each."""
    earlier = [
        life_before(found) for found in ([] if known.forgotten else records_of(ctx, route, key))
    ]
    # The first life last: a lost record of a later one does not name it.
    lives = [known.life, *(life for life in earlier if life is not None), 0]
    return {"key": name, "lives": list(dict.fromkeys(lives))}


def _begun(ctx: Context, route: str, name: str) -> Act | None:
    """The act that was cut off, if there is one for this item."""
    acts = all_acts(ctx, route, "forget")
    return next(
        (act for act in acts if act.filter.get("key") == name and act.finished_at is None), None
    )


def _undelivered(ctx: Context, route: str, key: str, lines: list[HistoryEntry]) -> dict[str, int]:
    """By subscriber, how many of these lines it has not received."""
    parked = [one for one in parked_items(ctx) if (one.route, one.key) == (route, key)]
    from_version = {one.subscriber: one.version for one in parked}
    waiting = {}
    for name, cursor in live_cursors(ctx).items():
        stopped_at = from_version.get(name, 2**62)
        late = sum(line.seq > cursor.seq or line.line.version >= stopped_at for line in lines)
        if late:
            waiting[name] = late
    return waiting


def _errors(lines: list[HistoryEntry]) -> frozenset[str]:
    """The texts of the item's errors, as documents may repeat them."""
    attempts = [
        attempt for attempt in (entry.line.attempt for entry in lines) if attempt is not None
    ]
    texts = [
        text
        for attempt in attempts
        for text in (attempt.message, f"{attempt.category}: {attempt.message}")
    ]
    return frozenset(
        cut for text in texts for cut in (text, *(text[:most] for most in CUTS)) if cut
    )


# Kept evidence ------------------------------------------------------------------------------------
def _empty_evidence(ctx: Context, route: str, key: str, name: str, act: Act) -> int:
    """Put a record without content in the place of each kept record of the key; returns how many
    there were. A route that keeps evidence also gets one for an item that still had its row. A
    record that is damaged goes too: what can still be read of it is content."""
    lives: list[int] = act.filter["lives"]
    if ctx.plan(route).route.evidence:
        _write_without_content(ctx, route, key, name, act)
    kept = [life for life in lives if _kept(ctx, route, key, life)[0]]
    for life in kept:
        ctx.blobs.remove(blob_name(route, key, life))
    return len(kept)


def _write_without_content(ctx: Context, route: str, key: str, name: str, act: Act) -> None:
    """Write a record without content for the latest life of the key, and for each earlier one that
    has a readable record."""
    latest, *before = act.filter["lives"]
    lives = [
        latest,
        *(
            life
            for life in before
            if _kept(ctx, route, key, life)[1] or _kept(ctx, route, name, life)[1]
        ),
    ]
    for life, earlier in zip(lives, [*lives[1:], None], strict=True):
        if _kept(ctx, route, name, life)[1] is None:
            found = _without_content(ctx, route, key, name, _kept(ctx, route, key, life)[1], act)
            body = canonical_json(
                {"record": found.record, "place": found.place, "earlier": earlier}
            )
            ctx.blobs.write(blob_name(route, name, life), [body])


def _kept(ctx: Context, route: str, key: str, life: int) -> tuple[bool, FoundRecord | None]:
    """Whether a record of this life was kept, and the record; None if it is damaged."""
    try:
        found = read_record(ctx, route, key, life)
    except LedgerError:
        raise
    except MilepostError:
        return True, None
    return found is not None, found


def _without_content(
    ctx: Context, route: str, key: str, name: str, whole: FoundRecord | None, act: Act
) -> FoundRecord:
    """The record that stands for a kept one, or for the seal and the digests of the lines if none
    was kept."""
    if whole is None:
        found = evidence_of(ctx, route, key)
        assert found is not None, "the seal was just written"
        return FoundRecord(
            {
                **found.record,
                "forgotten_at": iso(act.started_at),
                "by": act.by,
                "reason": act.reason,
            },
            found.place,
        )
    record = whole.record
    ended, head = (
        (record["status"], record["stage"], record["ended_at"]),
        bytes.fromhex(record["chain"]["head"]),
    )
    about = (act.started_at, act.by, act.reason)
    return FoundRecord(
        forgotten_record(route, name, ended, head, chain_links(record), about), whole.place
    )


# Documents ----------------------------------------------------------------------------------------
def _clean_documents(ctx: Context, route: str, key: str, name: str, errors: frozenset[str]) -> int:
    """Replace the item's key, its digest without a secret, and its errors where they are a value of
    a document; returns how many documents were changed."""
    texts = {key: name, digest_of_keys([key]): name, **dict.fromkeys(errors, REMOVED_TEXT)}
    return sum(
        _clean_document(ctx, kind, document_name, texts)
        for kind in SEARCHED
        for document_name in ctx.ledger.read(kind)
    )


def _drop_parked(ctx: Context, route: str, key: str) -> int:
    """Remove what is parked for the item; returns how many documents that were."""
    found = {
        name: parked
        for name, (parked, _) in parked_records(ctx).items()
        if (parked.route, parked.key) == (route, key)
    }
    for name in found:
        ctx.ledger.write(kinds.PARKED, name, None)
    for subscriber in {parked.subscriber for parked in found.values()}:
        note_change(ctx, subscriber)
    return len(found)


def _clean_document(ctx: Context, kind: str, name: str, texts: Mapping[str, str]) -> bool:
    """Replace these texts in one document; another process may write it at the same time."""
    spared = frozenset[str]() if kind in OF_APPLICATIONS else NAMES_NO_KEY

    def cleaned(value: Any) -> Any:
        return _with_texts(value, texts, spared)

    return update(ctx.ledger, kind, name, object, cleaned, damaged=None).written


def _with_texts(value: Any, texts: Mapping[str, str], spared: frozenset[str]) -> Any:
    if isinstance(value, dict):
        return {
            name: inner if name in spared else _with_texts(inner, texts, spared)
            for name, inner in value.items()
        }
    if isinstance(value, list):
        return [_with_texts(inner, texts, spared) for inner in value]
    return texts.get(value, value) if isinstance(value, str) else value


# What stays ---------------------------------------------------------------------------------------
def _stays(
    ctx: Context, route: str, key: str, known: KnownKey, lines: list[HistoryEntry]
) -> list[str]:
    """What stays in this ledger beside its storage, and elsewhere."""
    stays = [
        f"the stored keys of the list {record.name!r} ({record.id})"
        for record in lists(ctx, route)
        if _lists_key(ctx, record.keys_blob, key)
    ]
    for kind in NAMED:
        for name, document in ctx.ledger.read(kind).items():
            if isinstance(document.value, DamagedValue):
                stays.append(f"the document {kind}/{name}, which is damaged: it cannot be searched")
            elif key in name or key in canonical_json(document.value).decode(errors="replace"):
                stays.append(f"the document {kind}/{name}, which has the key within a text")
    if (
        not lines
        and not known.forgotten
        and any(group.sample not in ("", REMOVED_TEXT) for group in ctx.ledger.groups(route))
    ):
        stays.append(
            f"examples of errors, if they are its own: its lines, which would tell, had left before ('milepost groups {route}')"
        )
    if ctx.ledger.quarantine.entries(1)[0]:
        stays.append("entries in quarantine, if they are about it: 'milepost quarantine list'")
    follow_up = ctx.plan(route).route.follow_up
    if follow_up is not None:
        stays.append(
            f"the item that follows it on the route {follow_up.target.name!r}, if there is one: forget that too"
        )
    moved = ctx.ledger.read(kinds.MOVED).get(route)
    if moved is not None:
        stays.append("the ledger from which, or to which, the route was moved")
    return [*stays, *ELSEWHERE]


def _lists_key(ctx: Context, keys_blob: str, key: str) -> bool:
    """Whether the stored keys of a list have this one, or cannot be read."""
    if not keys_blob:
        return False
    try:
        blocks: Iterator[list[str]] = unpack(ctx.blobs.read(keys_blob))
        return any(key in block for block in blocks if block[-1] >= key)
    except FileNotFoundError:
        return False
    except (OSError, EOFError, zlib.error):
        return True
