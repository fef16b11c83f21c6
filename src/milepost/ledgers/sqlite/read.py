"""Read queries: known keys, items with content, histories, the feed and the counters."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Sequence
from typing import Any

from milepost.core.item import Item, Row
from milepost.core.status import Status
from milepost.ledgers.sqlite.rows.codec import COLUMNS, STATUSES, UNREADABLE, chunks, decode, decode_rest, items_of, json_text, rows_of
from milepost.ledgers.sqlite.rows.names import NameNumbers
from milepost.ledgers.sqlite.rows.row_groups import OWN_DIGEST, digests_of
from milepost.ports.feed import Count, Group, HistoryEntry
from milepost.ports.items import KnownKey, Refused, Same, compare

log = logging.getLogger(__name__)

AS_WRITTEN = "CAST(h.previous AS BLOB), CAST(h.body AS BLOB)"
"""As bytes, even where a line was changed by hand to text."""


KNOWN = (
    "SELECT json_each.key, status, input_digest, place, list_id, rest, life"
    " FROM json_each(?) CROSS JOIN item ON item.route = ? AND item.key = value"
)
# One small number per key, in order. NULL: no row; -1: other content, or a row that must be read; else place and status.
RECOGNISED = (
    f"SELECT CASE WHEN item.id IS NULL THEN NULL WHEN rest IS NULL AND input_digest = {OWN_DIGEST} AND status BETWEEN 0 AND 15"
    " THEN (place << 4) | status ELSE -1 END FROM json_each(?) LEFT JOIN item ON item.route = ? AND item.key = value"
)
SEAL = "s.key, s.status, s.input_digest, s.stage, s.list_id, s.ended_at, s.head, s.content_digest, s.life"
# A ledger without seals does not iterate over the keys.
SEALS = f"SELECT {SEAL} FROM (SELECT 1 FROM seal LIMIT 1) CROSS JOIN json_each(?) CROSS JOIN seal s ON s.route = ? AND s.key = value"


def recognised(
    connection: sqlite3.Connection, names: NameNumbers, route: str, keys: Sequence[str], digests: Sequence[bytes]
) -> list[KnownKey | Same | None]:
    """Same where the row's content has this digest; otherwise as `known`."""
    joined = digests_of(digests)
    if joined is None:
        return compare(known(connection, names, route, keys), digests)
    codes = [code for (code,) in connection.execute(RECOGNISED, (joined, json_text(keys), names.routes.get(route)))]
    stands = {code: None if code is None else _stand(code, names) for code in set(codes)}
    found: list[KnownKey | Same | None] = [stands[code] for code in codes]
    if None in stands:
        absent = [place for place, code in enumerate(codes) if code is None]
        sealed = seals(connection, names, route, [keys[place] for place in absent])
        for place in absent if sealed else ():
            found[place] = sealed.get(keys[place])
    if any(code is not None and stand is None for code, stand in stands.items()):
        others = [place for place, code in enumerate(codes) if code is not None and stands[code] is None]
        there = known(connection, names, route, [keys[place] for place in others])
        for place, one in zip(others, compare(there, [digests[place] for place in others]), strict=True):
            found[place] = one
    return found


def _stand(code: int, names: NameNumbers) -> Same | None:
    """Decodes a number of RECOGNISED; None: the row must be read."""
    place = names.by_id.get(code >> 4)
    return None if place is None or code & 15 >= len(STATUSES) else Same(STATUSES[code & 15], place.stage)


def known(connection: sqlite3.Connection, names: NameNumbers, route: str, keys: Sequence[str]) -> list[KnownKey | None]:
    """Rows first; seals only for keys without a row."""
    found: list[KnownKey | None] = [None] * len(keys)
    by_id = names.by_id
    for place, status, digest, at, list_id, rest, life in connection.execute(KNOWN, (json_text(keys), names.routes.get(route))):
        try:
            replaced = None if rest is None else decode_rest(rest).content_digest
            found[place] = KnownKey(keys[place], STATUSES[status], digest, by_id[at].stage, list_id, False, None, b"", replaced, life)
        except UNREADABLE:
            found[place] = KnownKey(keys[place], Status.PENDING, digest)  # it exists, but its row is damaged
    if None in found:
        missing = [place for place, one in enumerate(found) if one is None]
        sealed = seals(connection, names, route, [keys[place] for place in missing])
        for place in missing if sealed else ():
            found[place] = sealed.get(keys[place])
    return found


def seals(connection: sqlite3.Connection, names: NameNumbers, route: str, keys: Sequence[str]) -> dict[str, KnownKey]:
    """Seals by key, including those of keys that have a row again."""
    return {seal[0]: _seal(seal, names) for seal in connection.execute(SEALS, (json_text(keys), names.routes.get(route)))}


def _seal(columns: Sequence[Any], names: NameNumbers) -> KnownKey:
    key, status, digest, stage, list_id, ended_at, head, replaced, life = columns
    return KnownKey(key, STATUSES[status], digest, names.stage_names[stage][1], list_id, True, ended_at, head, replaced, life)


def sealed(
    connection: sqlite3.Connection, names: NameNumbers, route: str, after: str | None, limit: int
) -> tuple[list[KnownKey], str | None]:
    """In key order. A key that has a row again is left out."""
    found = connection.execute(
        f"SELECT {SEAL} FROM seal s WHERE route = ? AND key > ?"
        " AND NOT EXISTS (SELECT 1 FROM item i WHERE i.route = s.route AND i.key = s.key) ORDER BY key LIMIT ?",
        (names.routes.get(route), after or "", limit),
    ).fetchall()
    seals = [_seal(seal, names) for seal in found]
    return seals, seals[-1].key if len(seals) == limit else None


def get(connection: sqlite3.Connection, names: NameNumbers, refs: Sequence[tuple[str, str]]) -> list[Item | Refused | None]:
    found: list[Row | Refused | None] = []
    for route, key in refs:
        columns = connection.execute(f"SELECT {COLUMNS} FROM item WHERE route = ? AND key = ?", (names.routes.get(route), key)).fetchone()
        found.append(None if columns is None else rows_of([columns], names)[0])
    items = iter(items_of(connection, [row for row in found if isinstance(row, Row)], names))
    return [next(items) if isinstance(row, Row) else row for row in found]


def history(connection: sqlite3.Connection, names: NameNumbers, route: str, key: str, *, payloads: bool = False) -> list[HistoryEntry]:
    """Of the item that has a row; else of the item whose row left last, as far as its lines still exist."""
    of = (names.routes.get(route), key)
    owner = connection.execute("SELECT id, correlation_id FROM item WHERE route = ? AND key = ?", of).fetchone()
    if owner is None:
        departed = "SELECT item, correlation_id FROM departed WHERE route = ? AND key = ? ORDER BY item DESC LIMIT 1"
        owner = connection.execute(departed, of).fetchone()
    if owner is None:
        return []
    number, correlation_id = owner
    lines = connection.execute(f"SELECT h.seq, {AS_WRITTEN} FROM history h WHERE h.item = ? ORDER BY h.seq", (number,)).fetchall()
    offered = _offered(connection, [(seq, body) for seq, _, body in lines]) if payloads else {}
    return [HistoryEntry(seq, route, key, correlation_id, previous, body, offered.get(seq)) for seq, previous, body in lines]


def feed(connection: sqlite3.Connection, names: NameNumbers, after: int, limit: int) -> list[HistoryEntry]:
    """Lines in the order written, each with the payload that it offered to an external stage."""
    lines = connection.execute(
        f"SELECT h.seq, coalesce(i.route, d.route), coalesce(i.key, d.key), coalesce(i.correlation_id, d.correlation_id),"
        f" {AS_WRITTEN} FROM history h LEFT JOIN item i ON i.id = h.item LEFT JOIN departed d ON d.item = h.item"
        " WHERE h.seq > ? AND (i.id IS NOT NULL OR d.item IS NOT NULL) ORDER BY h.seq LIMIT ?",
        (after, limit),
    ).fetchall()
    offered = _offered(connection, [(line[0], line[5]) for line in lines])
    routes = {number: name for name, number in names.routes.items()}
    # The route of a damaged row may be unknown: its lines are left out.
    return [
        HistoryEntry(seq, routes[route], key, correlation_id, previous, body, offered.get(seq))
        for seq, route, key, correlation_id, previous, body in lines
        if route in routes
    ]


def _offered(connection: sqlite3.Connection, lines: Sequence[tuple[int, bytes]]) -> dict[int, Any]:
    """The payloads that these lines (seq, body) offered, by seq. Only lines with an offer are looked up."""
    found: dict[int, Any] = {}
    for chunk in chunks([seq for seq, body in lines if b'"offered":"' in body], 500):
        marks = ",".join("?" * len(chunk))
        for seq, body in connection.execute(
            f"SELECT o.seq, coalesce(o.body, s.body) FROM offer o LEFT JOIN offer s ON s.seq = o.same WHERE o.seq IN ({marks})", chunk
        ):
            try:
                found[seq] = decode(body)
            except UNREADABLE as error:
                # A damaged payload stops no reader: the event is delivered without it.
                log.error("cannot read the payload offered by line %s: %s", seq, error)
    return found


def counts(connection: sqlite3.Connection, names: NameNumbers, route: str | None) -> list[Count]:
    found = []
    for stage, status, hour, n in connection.execute("SELECT stage, status, hour, n FROM counter WHERE n <> 0"):
        owner, name = names.stage_names[stage]
        if route is None or owner == route:
            found.append(Count(owner, name, STATUSES[status], hour, n))
    return found


def groups(connection: sqlite3.Connection, names: NameNumbers, route: str | None) -> list[Group]:
    found = []
    for stage, *facts in connection.execute(
        "SELECT stage, name, category, sample, present, total, first_at, last_at FROM error_group ORDER BY present DESC, last_at DESC"
    ):
        owner, name = names.stage_names[stage]
        if route is None or owner == route:
            found.append(Group(owner, name, *facts))
    return found
