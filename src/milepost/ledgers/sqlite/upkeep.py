"""Upkeep: taking back what the dead held, renaming stages, and letting go of what has long ended."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence

from milepost.core.item import Item, Row
from milepost.core.status import Status
from milepost.ledgers.sqlite import documents
from milepost.ledgers.sqlite.codec import CODES, COLUMNS, LOOK_AT, UNREADABLE, Rest, chunks, decode, decode_rest, encode, items_of, rows_of
from milepost.ledgers.sqlite.names import Names
from milepost.ledgers.sqlite.reading import history
from milepost.ledgers.sqlite.store import Run
from milepost.ports.documents import HOLD, LIMIT
from milepost.ports.ledger import Keep, Leaving, Pruned

PROCESSING = CODES[Status.PROCESSING]


def reclaim(connection: sqlite3.Connection, names: Names, holders: Sequence[str], now: int) -> int:
    """Bring the expiry of the dead holders' leases forward to now; the next claim writes the loss."""
    dead = {f"holder{number}": holder for number, holder in enumerate(holders)}
    marks = ",".join(f":{name}" for name in dead)
    return sum(
        connection.execute(
            f"UPDATE item SET {LOOK_AT} WHERE place = :place AND due_at IS NOT NULL AND status = {PROCESSING} AND holder IN ({marks})",
            {"at": now, "place": place, **dead},
        ).rowcount
        for place in names.by_id
    )


def rename_stage(connection: sqlite3.Connection, names: Names, route: str, old: str, new: str) -> None:
    """One row is renamed; only where the new name was used before do the items' own rows have to be moved over."""
    if route not in names.routes:
        return
    source = names.stages.get((route, old))
    target = names.stages.get((route, new))
    if source is None:
        pass  # no item has ever been there; one may still be confirmed ahead of it
    elif target is None:
        connection.execute("UPDATE stage SET name = ? WHERE id = ?", (new, source))
    else:
        for place, lane in names.lanes.get((route, old), ()):
            there = names.place(connection, route, new, lane)
            connection.execute("UPDATE item SET place = ? WHERE place = ?", (there, place))
            connection.execute("DELETE FROM place WHERE id = ?", (place,))
        connection.execute("UPDATE OR REPLACE content SET stage = ? WHERE stage = ? AND kind > 0", (target, source))
        connection.execute(
            "INSERT INTO counter (stage, status, hour, n) SELECT ?, status, hour, n FROM counter WHERE stage = ?"
            " ON CONFLICT DO UPDATE SET n = n + excluded.n",
            (target, source),
        )
        connection.execute("DELETE FROM counter WHERE stage = ?", (source,))
        connection.execute(
            "INSERT INTO error_group (stage, name, category, sample, present, total, first_at, last_at)"
            " SELECT ?, name, category, sample, present, total, first_at, last_at FROM error_group WHERE stage = ?"
            " ON CONFLICT DO UPDATE SET present = present + excluded.present, total = total + excluded.total,"
            " first_at = min(first_at, excluded.first_at), last_at = max(last_at, excluded.last_at)",
            (target, source),
        )
        connection.execute("DELETE FROM error_group WHERE stage = ?", (source,))
        connection.execute("UPDATE seal SET stage = ? WHERE stage = ?", (target, source))
        connection.execute("DELETE FROM stage WHERE id = ?", (source,))
    _rename_kept(connection, names.routes[route], old, new)
    _rename_scopes(connection, f"{route}/{old}", f"{route}/{new}")
    connection.execute(
        "INSERT INTO document (kind, name, version, value) VALUES ('names', '', 1, '{}') ON CONFLICT DO UPDATE SET version = version + 1"
    )
    names.forget()
    names.refresh(connection)


def _rename_scopes(connection: sqlite3.Connection, old: str, new: str) -> None:
    """Pauses, limits and used-up rates come along: renaming a stage must not lift what was set on it."""
    for kind in (HOLD, LIMIT):
        documents.rename(connection, kind, old, new)
    connection.execute(
        "UPDATE OR REPLACE rate SET scope = ? || substr(scope, ?) WHERE (scope = ? OR substr(scope, 1, ?) = ?)",
        (new, len(old) + 1, old, len(old) + 1, old + "/"),
    )


def _rename_kept(connection: sqlite3.Connection, route: int, old: str, new: str) -> None:
    for number, body in connection.execute("SELECT id, rest FROM item WHERE route = ? AND rest IS NOT NULL", (route,)).fetchall():
        try:
            rest = decode(body, type=Rest)
        except UNREADABLE:
            continue  # whoever claims it sets it aside
        if old in rest.kept:
            rest.kept = {new if stage == old else stage: value for stage, value in rest.kept.items()}
            connection.execute("UPDATE item SET rest = ? WHERE id = ?", (encode(rest), number))


ENDED = (
    "SELECT i.id, i.head FROM item i WHERE i.route = ? AND i.due_at IS NULL AND i.status > 4 AND i.entered_at < ?"
    " AND (SELECT max(h.seq) FROM history h WHERE h.item = i.id) <= ?"
)


def let_go(
    read: Run, write: Run, route: str, ended_before: int, forget_before: int | None, up_to_seq: int, limit: int, keep: Keep | None
) -> Pruned:
    """Look for rows that may go, have kept of them what is to be kept, and let go of those that are still the same."""
    heads = read(lambda connection, names: prunable(connection, names, route, ended_before, up_to_seq, limit))
    if not heads and forget_before is None:
        return Pruned(0, 0, False)
    more = len(heads) == limit
    if keep is not None and heads:
        going = read(lambda connection, names: leaving(connection, names, list(heads)))
        keep(going)
        # One that cannot be read cannot be kept: it stays.
        heads = {one.item.row.handle: heads[one.item.row.handle] for one in going}
    items, forgotten = write(lambda connection, names: prune(connection, names, route, heads, ended_before, forget_before, up_to_seq))
    return Pruned(items, forgotten, more and items > 0)


def prunable(connection: sqlite3.Connection, names: Names, route: str, ended_before: int, up_to_seq: int, limit: int) -> dict[int, bytes]:
    """The numbers of rows that may go, with their heads. Looked for while reading, so that nobody waits for a long search."""
    newest = connection.execute("SELECT coalesce(max(seq), 0) FROM history").fetchone()[0]
    # The newest line stays in any case: its number must never be given out again, or a cursor would pass over the next one.
    told = min(up_to_seq, newest - 1)
    # "+route" keeps SQLite on the table itself: in the order of numbers the oldest come first.
    search = ENDED.replace("i.route", "+i.route") + " ORDER BY i.id LIMIT ?"
    return dict(connection.execute(search, (names.routes.get(route), ended_before, told, limit)).fetchall())


def leaving(connection: sqlite3.Connection, names: Names, numbers: Sequence[int]) -> list[Leaving]:
    """Those of these items that can be read, with their content and their lines, in one view of the file."""
    rows: list[Row] = []
    for chunk in chunks(numbers, 500):
        marks = ",".join("?" * len(chunk))
        found = rows_of(connection.execute(f"SELECT {COLUMNS} FROM item WHERE id IN ({marks})", chunk), names)
        rows += [row for row in found if isinstance(row, Row)]
    items = [item for item in items_of(connection, rows, names) if isinstance(item, Item)]
    return [Leaving(item, history(connection, names, item.route, item.key)) for item in items]


def prune(
    connection: sqlite3.Connection,
    names: Names,
    route: str,
    heads: Mapping[int, bytes],
    ended_before: int,
    forget_before: int | None,
    up_to_seq: int,
) -> tuple[int, int]:
    """These rows, where they still are as they were found, ended long ago and with all their lines told, become seals.
    How many, and how many old seals were forgotten."""
    route_id = names.routes.get(route)
    forgotten = 0
    if forget_before is not None:
        forgotten = connection.execute("DELETE FROM seal WHERE route = ? AND ended_at < ?", (route_id, forget_before)).rowcount
    each = [
        (number,)
        for number, head in heads.items()
        if connection.execute(ENDED + " AND i.id = ? AND i.head = ?", (route_id, ended_before, up_to_seq, number, head)).fetchone()
    ]
    connection.executemany(
        "INSERT OR REPLACE INTO seal (route, key, status, input_digest, ended_at, head, list_id, stage)"
        " SELECT i.route, i.key, i.status, i.input_digest, i.entered_at, i.head, i.list_id, p.stage"
        " FROM item i JOIN place p ON p.id = i.place WHERE i.id = ?",
        each,
    )
    connection.executemany(
        "UPDATE seal SET content_digest = ? WHERE (route, key) = (SELECT route, key FROM item WHERE id = ?)",
        _replaced(connection, [number for (number,) in each]),
    )
    connection.executemany(
        "UPDATE counter SET n = n - 1 WHERE (stage, status, hour) ="
        " (SELECT p.stage, i.status, i.entered_at / 3600000 FROM item i JOIN place p ON p.id = i.place WHERE i.id = ?)",
        each,
    )
    connection.executemany(
        "UPDATE error_group SET present = present - 1 WHERE (stage, name) ="
        " (SELECT p.stage, i.error_group FROM item i JOIN place p ON p.id = i.place WHERE i.id = ?)",
        each,
    )
    connection.executemany("DELETE FROM history WHERE item = ?", each)
    connection.executemany("DELETE FROM content WHERE item = ?", each)
    connection.executemany("DELETE FROM item WHERE id = ?", each)
    connection.execute("DELETE FROM counter WHERE n = 0")
    return len(each), forgotten


def _replaced(connection: sqlite3.Connection, numbers: Sequence[int]) -> list[tuple[bytes, int]]:
    """The digest of the present input of each of these items whose first input was replaced, with the item's number."""
    found = []
    for chunk in chunks(numbers, 500):
        marks = ",".join("?" * len(chunk))
        search = f"SELECT id, rest FROM item WHERE id IN ({marks}) AND instr(rest, CAST('\"content_digest\"' AS BLOB))"
        for number, rest in connection.execute(search, chunk):
            try:
                digest = decode_rest(rest).content_digest
            except UNREADABLE:
                continue
            if digest is not None:
                found.append((digest, number))
    return found
