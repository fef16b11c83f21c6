"""Upkeep: takes back leases of dead workers, and renames stages."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from milepost.core.status import Status
from milepost.ledgers.sqlite import documents
from milepost.ledgers.sqlite.rows.codec import CODES, LOOK_AT, UNREADABLE, Rest, decode, encode
from milepost.ledgers.sqlite.rows.names import Transaction
from milepost.ports.documents import BREAKER, HOLD, LIMIT

PROCESSING = CODES[Status.PROCESSING]


def reclaim(tx: Transaction, holders: Sequence[str], now: int) -> int:
    """Set the lease expiry of items claimed by dead holders to now; the next claim writes the
    loss."""
    dead = {f"holder{number}": holder for number, holder in enumerate(holders)}
    marks = ",".join(f":{name}" for name in dead)
    return sum(
        tx.execute(
            f"UPDATE item SET {LOOK_AT} WHERE place = :place AND due_at IS NOT NULL AND status = {PROCESSING} AND holder IN ({marks})",
            {"at": now, "place": place, **dead},
        ).rowcount
        for place in tx.names.by_id
    )


def rename_stage(tx: Transaction, route: str, old: str, new: str) -> None:
    """Rename one row; items' rows have to be moved only where the new name was used before."""
    if route not in tx.names.routes:
        return
    source = tx.names.stages.get((route, old))
    target = tx.names.stages.get((route, new))
    if source is None:
        pass  # no item was ever there, but one may have a waiting confirmation for it
    elif target is None:
        tx.execute("UPDATE stage SET name = ? WHERE id = ?", (new, source))
    else:
        for place, lane in tx.names.lanes.get((route, old), ()):
            there = tx.names.place(tx.connection, route, new, lane)
            tx.execute("UPDATE item SET place = ? WHERE place = ?", (there, place))
            tx.execute("DELETE FROM place WHERE id = ?", (place,))
        tx.execute(
            "UPDATE OR REPLACE content SET stage = ? WHERE stage = ? AND kind > 0", (target, source)
        )
        tx.execute(
            "INSERT INTO counter (stage, status, hour, n) SELECT ?, status, hour, n FROM counter WHERE stage = ?"
            " ON CONFLICT DO UPDATE SET n = n + excluded.n",
            (target, source),
        )
        tx.execute("DELETE FROM counter WHERE stage = ?", (source,))
        tx.execute(
            "INSERT INTO error_group (stage, name, category, sample, present, total, first_at, last_at)"
            " SELECT ?, name, category, sample, present, total, first_at, last_at FROM error_group WHERE stage = ?"
            " ON CONFLICT DO UPDATE SET present = present + excluded.present, total = total + excluded.total,"
            " first_at = min(first_at, excluded.first_at), last_at = max(last_at, excluded.last_at)",
            (target, source),
        )
        tx.execute("DELETE FROM error_group WHERE stage = ?", (source,))
        tx.execute("UPDATE seal SET stage = ? WHERE stage = ?", (target, source))
        tx.execute("DELETE FROM stage WHERE id = ?", (source,))
    _rename_kept(tx.connection, tx.names.routes[route], old, new)
    _rename_scopes(tx.connection, f"{route}/{old}", f"{route}/{new}")
    tx.execute(
        "INSERT INTO document (kind, name, version, value) VALUES ('names', '', 1, '{}') ON CONFLICT DO UPDATE SET version = version + 1"
    )
    tx.names.forget()
    tx.names.refresh(tx.connection)


def _rename_scopes(connection: sqlite3.Connection, old: str, new: str) -> None:
    """Rename pauses, limits, breakers and used-up rates too: renaming a stage must not lift what
    was set on it."""
    for kind in (HOLD, LIMIT, BREAKER):
        documents.rename(connection, kind, old, new)
    connection.execute(
        "UPDATE OR REPLACE rate SET scope = ? || substr(scope, ?) WHERE (scope = ? OR substr(scope, 1, ?) = ?)",
        (new, len(old) + 1, old, len(old) + 1, old + "/"),
    )


def _rename_kept(connection: sqlite3.Connection, route: int, old: str, new: str) -> None:
    for number, body in connection.execute(
        "SELECT id, rest FROM item WHERE route = ? AND rest IS NOT NULL", (route,)
    ).fetchall():
        try:
            rest = decode(body, type=Rest)
        except UNREADABLE:
            continue  # the next claim quarantines it
        if old in rest.kept:
            rest.kept = {
                new if stage == old else stage: value for stage, value in rest.kept.items()
            }
            connection.execute("UPDATE item SET rest = ? WHERE id = ?", (encode(rest), number))
