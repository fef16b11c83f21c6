"""Read queries: known keys, items with content, histories, the feed and the counters."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from milepost.core.forgetting import forgotten_name
from milepost.core.item import Item, Row
from milepost.core.routes.one_field import KeyDigests
from milepost.core.status import FAILED, Status
from milepost.ledgers.sqlite import documents
from milepost.ledgers.sqlite.find import LAST
from milepost.ledgers.sqlite.rows.codec import (
    CODES,
    COLUMNS,
    STATUSES,
    UNREADABLE,
    decode,
    decode_rest,
    items_of,
    json_text,
    rows_of,
)
from milepost.ledgers.sqlite.rows.names import NameNumbers, Transaction
from milepost.ledgers.sqlite.rows.row_groups import DIGEST, digests_of
from milepost.ports.documents import FORGET, SECRET
from milepost.ports.feed import Count, Group, HistoryEntry
from milepost.ports.items import KnownKey, Refused, Same, compare
from milepost.ports.retention import LeftFailures

log = logging.getLogger(__name__)

AS_WRITTEN = "CAST(h.previous AS BLOB), CAST(h.body AS BLOB)"
"""As bytes, even where a line was changed by hand to text."""


KNOWN = (
    "SELECT json_each.key, status, input_digest, place, list_id, rest, life"
    " FROM json_each(?) CROSS JOIN item ON item.route = ? AND item.key = value"
)
# The keys whose row is not as most are, by their place: `:place` and `:status` are those of a usual
# row. With each one small number: place and status of its row; NULL: no row; -1: other content, or
# a row that must be read. All are one JSON text: while SQLite makes it, other threads of the
# process run, and are not interrupted for each row.
_RECOGNISED = (
    "SELECT json_group_array(json_array(json_each.key, CASE WHEN item.id IS NULL THEN NULL WHEN rest IS NULL AND {same}"
    " AND status BETWEEN 0 AND 15 THEN (place << 4) | status ELSE -1 END)) FROM json_each(:keys) LEFT JOIN item ON item.route = :route AND item.key = value"
    " WHERE (rest IS NULL AND {same} AND place = :place AND status = :status) IS NOT TRUE"
)
_read_codes = msgspec.json.Decoder(list[tuple[int, int | None]]).decode
SAME_DIGEST = _RECOGNISED.format(
    same=f"input_digest = substr(:mark, 1 + {DIGEST} * json_each.key, {DIGEST})"
)
KEY_ALONE = _RECOGNISED.format(same="key_field = :mark")
USUAL = (
    "SELECT place, status FROM item WHERE route = ? AND key IN (?, ?, ?) AND typeof(place) = 'integer' AND typeof(status) = 'integer'"
    " AND status BETWEEN 0 AND 15 LIMIT 1"
)
MANY = 50
"""Keys from which on it is worth looking for a usual row first."""
SEAL = "s.key, s.status, s.input_digest, s.stage, s.list_id, s.ended_at, s.head, s.content_digest, s.life"
FAILED_CODES = ",".join(str(CODES[status]) for status in sorted(FAILED))
"""As the index `seal_failed` has them: it serves queries that name the same."""
OFFERED = (
    "SELECT o.seq, coalesce(o.body, s.body) FROM offer o LEFT JOIN offer s ON s.seq = o.same"
    " WHERE o.seq IN (SELECT value FROM json_each(?))"
)
# A ledger without seals does not iterate over the keys.
SEALS = f"SELECT {SEAL} FROM (SELECT 1 FROM seal LIMIT 1) CROSS JOIN json_each(?) CROSS JOIN seal s ON s.route = ? AND s.key = value"


def recognised(
    tx: Transaction, route: str, keys: Sequence[str], digests: Sequence[bytes]
) -> list[KnownKey | Same | None]:
    """Same where the row's content has this digest; otherwise as `known`."""
    alone = isinstance(digests, KeyDigests)
    mark = digests.field if isinstance(digests, KeyDigests) else digests_of(digests)
    if mark is None:
        return compare(known(tx, route, keys), digests)
    route_id = tx.names.routes.get(route)
    same, (usual_place, usual_status) = _usual(tx, route_id, keys)
    bound = {
        "mark": mark,
        "keys": json_text(keys),
        "route": route_id,
        "place": usual_place,
        "status": usual_status,
    }
    unlike = _read_codes(tx.execute(KEY_ALONE if alone else SAME_DIGEST, bound).fetchone()[0])
    stands = {
        code: None if code is None else _stand(code, tx.names)
        for code in {code for _, code in unlike}
    }
    found: list[KnownKey | Same | None] = [same] * len(keys)
    for place, code in unlike:
        found[place] = stands[code]
    if None in stands:
        absent = [place for place, code in unlike if code is None]
        sealed = seals(tx, route, [keys[place] for place in absent])
        for place in absent if sealed else ():
            found[place] = sealed.get(keys[place])
    others = [place for place, code in unlike if code is not None and stands[code] is None]
    if others:
        some, theirs = [keys[place] for place in others], [digests[place] for place in others]
        # A row from before the column key_field may have the same content all the same.
        there = (
            recognised(tx, route, some, theirs)
            if alone
            else compare(known(tx, route, some), theirs)
        )
        for place, one in zip(others, there, strict=True):
            found[place] = one
    return found


def _usual(
    tx: Transaction, route_id: int | None, keys: Sequence[str]
) -> tuple[Same | None, tuple[int | None, int | None]]:
    """How most rows of these keys probably are, judged by a few, with place and status; None:
    unknown."""
    found = (
        tx.execute(USUAL, (route_id, keys[0], keys[len(keys) // 2], keys[-1])).fetchone()
        if len(keys) >= MANY
        else None
    )
    place, status = found or (None, None)
    same = None if place is None else _stand(place << 4 | status, tx.names)
    return (None, (None, None)) if same is None else (same, (place, status))


def _stand(code: int, names: NameNumbers) -> Same | None:
    """Decodes a number of `_RECOGNISED`; None: the row must be read."""
    place = names.by_id.get(code >> 4)
    return (
        None
        if place is None or code & 15 >= len(STATUSES)
        else Same(STATUSES[code & 15], place.stage)
    )


def known(tx: Transaction, route: str, keys: Sequence[str]) -> list[KnownKey | None]:
    """Rows first; seals only for keys without a row."""
    found: list[KnownKey | None] = [None] * len(keys)
    by_id = tx.names.by_id
    for place, status, digest, at, list_id, rest, life in tx.execute(
        KNOWN, (json_text(keys), tx.names.routes.get(route))
    ):
        try:
            replaced = None if rest is None else decode_rest(rest).content_digest
            found[place] = KnownKey(
                keys[place],
                STATUSES[status],
                digest,
                by_id[at].stage,
                list_id,
                False,
                None,
                b"",
                replaced,
                life,
            )
        except UNREADABLE:
            found[place] = KnownKey(
                keys[place], Status.PENDING, digest
            )  # it exists, but its row is damaged
    if None in found:
        missing = [place for place, one in enumerate(found) if one is None]
        sealed = seals(tx, route, [keys[place] for place in missing])
        for place in missing if sealed else ():
            found[place] = sealed.get(keys[place])
    return found


def seals(tx: Transaction, route: str, keys: Sequence[str]) -> dict[str, KnownKey]:
    """Seals by key, including those of keys that have a row again. A key that was forgotten is
    found by the name that stands for it."""
    names = _forgotten_names(tx.connection, route, keys)
    asked = json_text([*keys, *names])
    found = {
        seal[0]: _seal(seal, tx.names)
        for seal in tx.execute(SEALS, (asked, tx.names.routes.get(route)))
    }
    for name in found.keys() & names.keys():
        seal = found.pop(name)
        found.setdefault(names[name], replace(seal, key=names[name]))
    return found


def _forgotten_names(
    connection: sqlite3.Connection, route: str, keys: Sequence[str]
) -> dict[str, str]:
    """The keys by the names that stand for them if they were forgotten; empty if this ledger has
    forgotten none."""
    document = documents.read_one(connection, FORGET, SECRET)
    if document is None:
        return {}
    secret = bytes.fromhex(document.value["secret"])
    return {forgotten_name(secret, route, key): key for key in keys}


def _seal(columns: Sequence[Any], names: NameNumbers) -> KnownKey:
    key, status, digest, stage, list_id, ended_at, head, replaced, life = columns
    try:
        return KnownKey(
            key,
            STATUSES[status],
            digest,
            names.stage_names[stage][1],
            list_id,
            True,
            ended_at,
            head,
            replaced,
            life,
        )
    except UNREADABLE:
        return KnownKey(
            key, Status.PENDING, digest, sealed=True, head=head
        )  # the key is known, but its seal is damaged


def sealed(
    tx: Transaction, route: str, after: str | None, limit: int
) -> tuple[list[KnownKey], str | None]:
    """In key order. A key that has a row again is left out."""
    found = tx.execute(
        f"SELECT {SEAL} FROM seal s WHERE route = ? AND key > ?"
        " AND NOT EXISTS (SELECT 1 FROM item i WHERE i.route = s.route AND i.key = s.key) ORDER BY key LIMIT ?",
        (tx.names.routes.get(route), after or "", limit),
    ).fetchall()
    seals = [_seal(seal, tx.names) for seal in found]
    return seals, seals[-1].key if len(seals) == limit else None


def left_failures(
    tx: Transaction, route: str, prefix: str, after: str | None, limit: int
) -> LeftFailures:
    """By an index of failed seals alone, over the range of keys with this prefix."""
    failed = tx.execute(
        f"SELECT {SEAL} FROM seal s INDEXED BY seal_failed WHERE route = ? AND key >= ? AND key < ? AND key > ? AND status IN ({FAILED_CODES})"
        " AND NOT EXISTS (SELECT 1 FROM item i WHERE i.route = s.route AND i.key = s.key) ORDER BY key LIMIT ?",
        (tx.names.routes.get(route), prefix, prefix + LAST, after or "", limit),
    ).fetchall()
    seals = [_seal(seal, tx.names) for seal in failed]
    return LeftFailures(seals, seals[-1].key if len(seals) == limit else None)


def get(tx: Transaction, refs: Sequence[tuple[str, str]]) -> list[Item | Refused | None]:
    found: list[Row | Refused | None] = []
    for route, key in refs:
        columns = tx.execute(
            f"SELECT {COLUMNS} FROM item WHERE route = ? AND key = ?",
            (tx.names.routes.get(route), key),
        ).fetchone()
        found.append(None if columns is None else rows_of([columns], tx.names)[0])
    items = iter(items_of(tx, [row for row in found if isinstance(row, Row)]))
    return [next(items) if isinstance(row, Row) else row for row in found]


def history(tx: Transaction, route: str, key: str, *, payloads: bool = False) -> list[HistoryEntry]:
    """Of the item that has a row; else of the item whose row left last, as far as its lines still
    exist."""
    of = (tx.names.routes.get(route), key)
    owner = tx.execute(
        "SELECT id, correlation_id FROM item WHERE route = ? AND key = ?", of
    ).fetchone()
    if owner is None:
        departed = "SELECT item, correlation_id FROM departed WHERE route = ? AND key = ? ORDER BY item DESC LIMIT 1"
        owner = tx.execute(departed, of).fetchone()
    if owner is None:
        return []
    number, correlation_id = owner
    lines = tx.execute(
        f"SELECT h.seq, {AS_WRITTEN} FROM history h WHERE h.item = ? ORDER BY h.seq", (number,)
    ).fetchall()
    offered = _offered(tx.connection, [(seq, body) for seq, _, body in lines]) if payloads else {}
    return [
        HistoryEntry(seq, route, key, correlation_id, previous, body, offered.get(seq))
        for seq, previous, body in lines
    ]


def feed(tx: Transaction, after: int, limit: int) -> list[HistoryEntry]:
    """Lines in the order written, each with the payload that it offered to an external stage."""
    lines = tx.execute(
        f"SELECT h.seq, coalesce(i.route, d.route), coalesce(i.key, d.key), coalesce(i.correlation_id, d.correlation_id),"
        f" {AS_WRITTEN} FROM history h LEFT JOIN item i ON i.id = h.item LEFT JOIN departed d ON d.item = h.item"
        " WHERE h.seq > ? AND (i.id IS NOT NULL OR d.item IS NOT NULL) ORDER BY h.seq LIMIT ?",
        (after, limit),
    ).fetchall()
    offered = _offered(tx.connection, [(line[0], line[5]) for line in lines])
    routes = {number: name for name, number in tx.names.routes.items()}
    # The route of a damaged row may be unknown: its lines are left out.
    return [
        HistoryEntry(seq, routes[route], key, correlation_id, previous, body, offered.get(seq))
        for seq, route, key, correlation_id, previous, body in lines
        if route in routes
    ]


def _offered(connection: sqlite3.Connection, lines: Sequence[tuple[int, bytes]]) -> dict[int, Any]:
    """The payloads that these lines (seq, body) offered, by seq. Only lines with an offer are
    looked up."""
    found: dict[int, Any] = {}
    offering = [seq for seq, body in lines if b'"offered":"' in body]
    for seq, body in connection.execute(OFFERED, (json_text(offering),)) if offering else ():
        try:
            found[seq] = decode(body)
        except UNREADABLE as error:
            # A damaged payload stops no reader: the event is delivered without it.
            log.error("cannot read the payload offered by line %s: %s", seq, error)
    return found


def counts(tx: Transaction, route: str | None) -> list[Count]:
    found = []
    for stage, status, hour, n in tx.execute(
        "SELECT stage, status, hour, n FROM counter WHERE n <> 0"
    ):
        owner, name = tx.names.stage_names[stage]
        if route is None or owner == route:
            found.append(Count(owner, name, STATUSES[status], hour, n))
    return found


def groups(tx: Transaction, route: str | None) -> list[Group]:
    found = []
    for stage, *facts in tx.execute(
        "SELECT stage, name, category, sample, present, total, first_at, last_at FROM error_group ORDER BY present DESC, last_at DESC"
    ):
        owner, name = tx.names.stage_names[stage]
        if route is None or owner == route:
            found.append(Group(owner, name, *facts))
    return found
