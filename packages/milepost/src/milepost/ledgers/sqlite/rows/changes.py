"""Writes of changes: row, content, history line and counters, in the caller's transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from milepost.core.change import Change
from milepost.core.counters import CounterKey, GroupKey, count_all
from milepost.core.item import Row
from milepost.ledgers.sqlite.errors import ROW_REFUSED, RowRefused, translated
from milepost.ledgers.sqlite.rows.codec import (
    CODES,
    INPUT,
    PAYLOAD,
    RESULT,
    UPDATE,
    encode,
    json_text,
    shared,
)
from milepost.ledgers.sqlite.rows.names import Transaction
from milepost.ledgers.sqlite.rows.packed import write_contents, write_history
from milepost.ledgers.sqlite.rows.row_groups import FEW, HISTORY_GROUP, UPDATE_GROUP, digests_of

KINDS = {"input": INPUT, "payload": PAYLOAD, "result": RESULT}
CONTENT_BODY = "SELECT body FROM content WHERE item = ? AND kind = ? AND stage = ?"
LAST_OFFER = (
    "SELECT coalesce(o.same, o.seq), coalesce(o.body, s.body) FROM offer o LEFT JOIN offer s ON s.seq = o.same"
    " WHERE o.seq IN (SELECT seq FROM history WHERE item = ?) ORDER BY o.seq DESC LIMIT 1"
)


class CounterDeltas:
    """Counter deltas of one transaction, added up before they are written."""

    __slots__ = ("counters", "failures", "groups")

    def __init__(self) -> None:
        self.counters: dict[CounterKey, int] = {}
        self.groups: dict[GroupKey, int] = {}
        self.failures: dict[GroupKey, tuple[str, str, int, int]] = {}

    def add(self, changes: Sequence[Change]) -> None:
        count_all(changes, self.counters, self.groups)
        for change in changes:
            before, after = change.before, change.after
            # A new failure, or one that a moved item brings to a stage that does not have it yet.
            if after.error is not None and (
                after.error is not before.error or after.stage != before.stage
            ):
                key = (after.route, after.stage, after.error.group)
                times = self.failures[key][3] if key in self.failures else 0
                self.failures[key] = (
                    after.error.category,
                    after.error.message[:300],
                    after.error.at,
                    times + (after.error is not before.error),
                )

    def write(self, tx: Transaction) -> None:
        counters = [
            (tx.names.stage(tx.connection, route, stage), CODES[status], hour, n)
            for (route, stage, status, hour), n in self.counters.items()
            if n
        ]
        tx.executemany(
            "INSERT INTO counter (stage, status, hour, n) VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE SET n = n + excluded.n",
            counters,
        )
        fallen = [(stage, status, hour) for stage, status, hour, n in counters if n < 0]
        if fallen:
            tx.executemany(
                "DELETE FROM counter WHERE stage = ? AND status = ? AND hour = ? AND n = 0", fallen
            )
        for (route, stage, group), n in self.groups.items():
            category, sample, at, times = self.failures.get((route, stage, group), ("", "", 0, 0))
            tx.execute(
                "INSERT INTO error_group (stage, name, category, sample, present, total, first_at, last_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
                " ON CONFLICT DO UPDATE SET present = present + excluded.present, total = total + excluded.total,"
                " last_at = max(last_at, excluded.last_at)",
                (
                    tx.names.stage(tx.connection, route, stage),
                    group,
                    category,
                    sample,
                    n,
                    times,
                    at,
                    at,
                ),
            )


def write_changes(tx: Transaction, changes: Sequence[Change], tally: CounterDeltas) -> None:
    """Write changes that have passed the fence in this transaction, at most one per item."""
    places, place = tx.names.places, tx.names.place
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for change in changes:
        row = change.after
        values = shared(
            row,
            places.get((row.route, row.stage, row.lane))
            or place(tx.connection, row.route, row.stage, row.lane),
        )
        if values in groups:
            groups[values].append(row)
        else:
            groups[values] = [row]
    singles: list[tuple[Any, ...]] = []
    for values, rows in groups.items():
        heads = digests_of([row.head for row in rows]) if len(rows) > FEW else None
        if heads is None:
            singles += [(*values[:6], row.head, *values[6:], row.handle) for row in rows]
        else:
            tx.execute(UPDATE_GROUP, (*values, heads, json_text([row.handle for row in rows])))
    if singles:
        tx.executemany(UPDATE, singles)
    write_lines(tx, changes)
    tally.add(changes)


def write_lines(tx: Transaction, changes: Sequence[Change]) -> None:
    groups: dict[bytes, list[Change]] = {}
    for change in changes:
        body = change.body
        if body in groups:
            groups[body].append(change)
        elif body:
            groups[body] = [change]
    singles: list[tuple[int, bytes, bytes]] = []
    for body, group in groups.items():
        heads = digests_of([change.before.head for change in group]) if len(group) > FEW else None
        if heads is None:
            singles += [(change.after.handle, change.before.head, body) for change in group]
        else:
            tx.execute(
                HISTORY_GROUP, (heads, body, json_text([change.after.handle for change in group]))
            )
    if singles:
        write_history(tx, singles)
    puts: dict[tuple[int, int], dict[int, bytes]] = {}
    for change in changes:
        for put in change.puts:
            stage = tx.names.stage(tx.connection, change.after.route, put.stage) if put.stage else 0
            puts.setdefault((KINDS[put.kind], stage), {})[change.after.handle] = encode(put.value)
    for (kind, stage), bodies in puts.items():
        write_contents(tx, kind, stage, bodies.keys(), bodies.values())
    for change in changes:
        if change.line is not None and change.line.offered is not None:
            _write_offer(tx, change)


def _write_offer(tx: Transaction, change: Change) -> None:
    """Store the payload that the change offered, as of this transaction, with its line."""
    line, row = change.line, change.after
    assert line is not None, "it offers something"
    number, stage = row.handle, tx.names.stage(tx.connection, row.route, line.after_stage)
    (seq,) = tx.execute(
        "SELECT max(seq) FROM history WHERE item = ? AND previous = ?", (number, change.before.head)
    ).fetchone()
    own = (
        tx.execute(CONTENT_BODY, (number, PAYLOAD, stage)).fetchone()
        or tx.execute(CONTENT_BODY, (number, INPUT, 0)).fetchone()
    )
    body = own[0] if own else b"null"
    last = tx.execute(LAST_OFFER, (number,)).fetchone()
    same = last is not None and last[1] == body
    tx.execute(
        "INSERT INTO offer (seq, same, body) VALUES (?, ?, ?)",
        (seq, last[0] if same else None, None if same else body),
    )


@contextmanager
def row_savepoint(tx: Transaction) -> Iterator[None]:
    """A savepoint around the write of one row. If the row cannot be written, everything in the
    block is rolled back, and RowRefused says why; the transaction goes on."""
    tx.execute("SAVEPOINT one")
    try:
        yield
    except (*ROW_REFUSED, sqlite3.Error) as error:
        cause = translated(error, "") if isinstance(error, sqlite3.Error) else error
        if not isinstance(cause, ROW_REFUSED):
            raise
        tx.execute("ROLLBACK TO one")
        tx.execute("RELEASE one")
        # Numbers given to new names are free again.
        tx.names.forget()
        tx.names.refresh(tx.connection)
        raise RowRefused(f"{type(error).__name__}: {error}") from error
    tx.execute("RELEASE one")
