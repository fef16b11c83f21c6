"""The embedded ledger: one SQLite file, no services. The row is the queue; row, history and counters are one transaction."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from milepost.core.change import Change
from milepost.core.errors import RouteChanged
from milepost.core.history import decode_line
from milepost.core.item import Item, Row
from milepost.core.route import Plan
from milepost.ledgers.sqlite import finding, upkeep
from milepost.ledgers.sqlite.claiming import Rules, claim_one
from milepost.ledgers.sqlite.codec import COLUMNS, STATUSES, chunks, contents_of, decode, encode, items_of, row_of
from milepost.ledgers.sqlite.liveness import Liveness
from milepost.ledgers.sqlite.names import Names
from milepost.ledgers.sqlite.store import Store
from milepost.ledgers.sqlite.writing import Tally, write_changes, write_new
from milepost.ports.ledger import (
    Ask,
    Claimed,
    Conflict,
    Count,
    Document,
    Group,
    Known,
    Newcomer,
    Page,
    Pruned,
    Query,
    Timing,
    Written,
)

T = TypeVar("T")


class SqliteLedger:
    """See `ports.ledger.Ledger` for what each verb promises."""

    timing = Timing(0, 0)

    def __init__(self, path: str) -> None:
        self.url = f"sqlite:///{path}"
        self.path = path
        self._store = Store(path)
        self._names = Names()
        self._store.on_rollback = self._names.forget
        self._reading = threading.local()
        self._liveness = Liveness(path)

    @classmethod
    def open(cls, path: str) -> SqliteLedger:
        """The ledger in this file; made if there is none."""
        return cls(str(path))

    # Items ------------------------------------------------------------------------------------------------------------
    def peek(self, route: str, keys: Sequence[str]) -> list[Known | None]:
        def run(connection: sqlite3.Connection, names: Names) -> list[Known | None]:
            number = names.routes.get(route)
            return [None] * len(keys) if number is None else self._known(connection, names, number, keys)

        return self._read(run)

    def _known(self, connection: sqlite3.Connection, names: Names, route: int, keys: Sequence[str]) -> list[Known | None]:
        found: dict[str, Known] = {}
        for chunk in chunks(keys, 500):
            marks = ",".join("?" * len(chunk))
            for key, status, digest, place, list_id in connection.execute(
                f"SELECT key, status, input_digest, place, list_id FROM item WHERE route = ? AND key IN ({marks})", (route, *chunk)
            ):
                found[key] = Known(key, STATUSES[status], digest, names.by_id[place].stage, list_id)
            missing = [key for key in chunk if key not in found]
            if missing:
                marks = ",".join("?" * len(missing))
                for key, status, digest, stage, list_id, ended_at, head in connection.execute(
                    f"SELECT key, status, input_digest, stage, list_id, ended_at, head FROM seal WHERE route = ? AND key IN ({marks})",
                    (route, *missing),
                ):
                    found[key] = Known(key, STATUSES[status], digest, names.stage_names[stage][1], list_id, True, ended_at, head)
        return [found.get(key) for key in keys]

    def add(self, plan: Plan, newcomers: Sequence[Newcomer], now: int) -> list[Known | None]:
        def run(connection: sqlite3.Connection, names: Names) -> list[Known | None]:
            if Rules(connection).outdated(plan.name, plan.version):
                raise RouteChanged(
                    f"route {plan.name!r} has been changed in the ledger since this process started; restart it with the new route"
                )
            known = self._known(connection, names, names.route(connection, plan.name), [n.change.after.key for n in newcomers])
            first: dict[str, Newcomer] = {}
            answers: list[Known | None] = []
            for newcomer, there in zip(newcomers, known, strict=True):
                row = newcomer.change.after
                if there is None and row.key in first:
                    twin = first[row.key].change.after
                    there = Known(row.key, twin.status, twin.input_digest, twin.stage, twin.list_id)
                elif there is None:
                    first[row.key] = newcomer
                answers.append(there)
            tally = Tally()
            write_new(connection, names, list(first.values()), tally)
            tally.write(connection, names)
            return answers

        return self._write(run)

    def claim(self, asks: Sequence[Ask], now: int, jitter: float) -> list[Claimed]:
        def run(connection: sqlite3.Connection, names: Names) -> list[Claimed]:
            rules, tally = Rules(connection), Tally()
            answers = [claim_one(connection, names, rules, tally, ask, now, jitter) for ask in asks]
            tally.write(connection, names)
            return answers

        return self._write(run)

    def apply(self, changes: Sequence[Change], now: int, versions: dict[str, int] | None = None) -> list[Conflict | None]:
        def run(connection: sqlite3.Connection, names: Names) -> list[Conflict | None]:
            rules = Rules(connection) if versions else None
            there: dict[int, tuple[int, str | None]] = {}
            for chunk in chunks([change.before.handle for change in changes], 500):
                marks = ",".join("?" * len(chunk))
                for number, version, lease in connection.execute(f"SELECT id, version, lease FROM item WHERE id IN ({marks})", chunk):
                    there[number] = (version, lease)
            good: list[Change] = []
            answers: list[Conflict | None] = []
            for change in changes:
                before = change.before
                outdated = rules is not None and rules.outdated(before.route, (versions or {}).get(before.route, -1))
                if not outdated and there.get(before.handle) == (before.version, before.lease):
                    there[before.handle] = (change.after.version, change.after.lease)
                    good.append(change)
                    answers.append(None)
                else:
                    answers.append(Conflict(self._row(connection, names, before.handle), outdated))
            tally = Tally()
            write_changes(connection, names, good, tally)
            tally.write(connection, names)
            return answers

        return self._write(run)

    def _row(self, connection: sqlite3.Connection, names: Names, number: int) -> Row | None:
        columns = connection.execute(f"SELECT {COLUMNS} FROM item WHERE id = ?", (number,)).fetchone()
        return None if columns is None else row_of(columns, names)

    def extend(self, rows: Sequence[Row], until: int, now: int) -> list[bool]:
        def run(connection: sqlite3.Connection, names: Names) -> list[bool]:
            answers = []
            for row in rows:
                changed = connection.execute(
                    "UPDATE item SET due_at = CASE WHEN overdue_at < ?1 THEN overdue_at ELSE ?1 END,"
                    " look_at = CASE WHEN overdue_at < ?1 THEN ?1 END WHERE id = ?2 AND lease = ?3",
                    (until, row.handle, row.lease),
                ).rowcount
                answers.append(changed == 1)
            return answers

        return self._write(run)

    def get(self, refs: Sequence[tuple[str, str]]) -> list[Item | None]:
        def run(connection: sqlite3.Connection, names: Names) -> list[Item | None]:
            found: list[Row | None] = []
            for route, key in refs:
                columns = connection.execute(
                    f"SELECT {COLUMNS} FROM item WHERE route = ? AND key = ?", (names.routes.get(route), key)
                ).fetchone()
                found.append(None if columns is None else row_of(columns, names))
            items = iter(items_of(connection, [row for row in found if row is not None], names))
            return [None if row is None else next(items) for row in found]

        return self._read(run)

    def find(self, query: Query) -> Page:
        return self._read(lambda connection, names: finding.find(connection, names, query))

    def history(self, route: str, key: str) -> list[Written]:
        def run(connection: sqlite3.Connection, names: Names) -> list[Written]:
            return [
                Written(seq, route, key, correlation_id, previous, body)
                for seq, correlation_id, previous, body in connection.execute(
                    "SELECT h.seq, i.correlation_id, h.previous, h.body FROM item i JOIN history h ON h.item = i.id"
                    " WHERE i.route = ? AND i.key = ? ORDER BY h.seq",
                    (names.routes.get(route), key),
                )
            ]

        return self._read(run)

    # What surrounds them ----------------------------------------------------------------------------------------------
    def feed(self, after: int, limit: int) -> list[Written]:
        def run(connection: sqlite3.Connection, names: Names) -> list[Written]:
            lines = connection.execute(
                "SELECT h.seq, h.item, i.place, i.key, i.correlation_id, h.previous, h.body FROM history h JOIN item i ON i.id = h.item"
                " WHERE h.seq > ? ORDER BY h.seq LIMIT ?",
                (after, limit),
            ).fetchall()
            offered = [line[1] for line in lines if b'"offered":"' in line[6]]
            contents = contents_of(connection, offered, names)
            found = []
            for seq, item, place, key, correlation_id, previous, body in lines:
                payload = None
                if item in contents:
                    stage = decode_line(body).after_stage
                    payload = contents[item].payloads.get(stage, contents[item].input)
                found.append(Written(seq, names.by_id[place].route, key, correlation_id, previous, body, payload))
            return found

        return self._read(run)

    def last_seq(self) -> int:
        return self._read(lambda connection, names: int(connection.execute("SELECT coalesce(max(seq), 0) FROM history").fetchone()[0]))

    def counts(self, route: str | None = None) -> list[Count]:
        def run(connection: sqlite3.Connection, names: Names) -> list[Count]:
            found = []
            for stage, status, hour, n in connection.execute("SELECT stage, status, hour, n FROM counter WHERE n <> 0"):
                owner, name = names.stage_names[stage]
                if route is None or owner == route:
                    found.append(Count(owner, name, STATUSES[status], hour, n))
            return found

        return self._read(run)

    def groups(self, route: str | None = None) -> list[Group]:
        def run(connection: sqlite3.Connection, names: Names) -> list[Group]:
            found = []
            for stage, *facts in connection.execute(
                "SELECT stage, name, category, sample, present, total, first_at, last_at FROM error_group ORDER BY present DESC, last_at DESC"
            ):
                owner, name = names.stage_names[stage]
                if route is None or owner == route:
                    found.append(Group(owner, name, *facts))
            return found

        return self._read(run)

    def read(self, kind: str) -> dict[str, Document]:
        return self._read(
            lambda connection, names: {
                name: Document(decode(value), version)
                for name, version, value in connection.execute(
                    "SELECT name, version, value FROM document WHERE kind = ? ORDER BY name", (kind,)
                )
            }
        )

    def write(self, kind: str, name: str, value: Any, expect: int | None = None) -> bool:
        def run(connection: sqlite3.Connection, names: Names) -> bool:
            row = connection.execute("SELECT version FROM document WHERE kind = ? AND name = ?", (kind, name)).fetchone()
            version = row[0] if row else 0
            if expect is not None and expect != version:
                return False
            if value is None:
                connection.execute("DELETE FROM document WHERE kind = ? AND name = ?", (kind, name))
            else:
                connection.execute(
                    "INSERT OR REPLACE INTO document (kind, name, version, value) VALUES (?, ?, ?, ?)",
                    (kind, name, version + 1, encode(value)),
                )
            return True

        return self._write(run)

    # Upkeep -----------------------------------------------------------------------------------------------------------
    def next_due(self, plans: Iterable[Plan]) -> int | None:
        def run(connection: sqlite3.Connection, names: Names) -> int | None:
            rules = Rules(connection)
            found = [
                row[0]
                for plan in plans
                for stage in plan.stages
                if not stage.external
                for place, lane in names.lanes.get((plan.name, stage.name), ())
                if not rules.held(plan.name, stage.name, lane)
                for row in connection.execute("SELECT min(due_at) FROM item WHERE place = ? AND due_at IS NOT NULL", (place,))
            ]
            return min((due for due in found if due is not None), default=None)

        return self._read(run)

    def rename_stage(self, route: str, old: str, new: str) -> None:
        self._write(lambda connection, names: upkeep.rename_stage(connection, names, route, old, new))

    def reclaim(self, holders: Sequence[str], now: int) -> int:
        taken: int = self._write(lambda connection, names: upkeep.reclaim(connection, names, holders, now)) if holders else 0
        self._liveness.bury(list(holders))
        return taken

    def prune(self, route: str, ended_before: int, forget_before: int | None, up_to_seq: int, limit: int) -> Pruned:
        return self._write(lambda connection, names: upkeep.prune(connection, names, route, ended_before, forget_before, up_to_seq, limit))

    def sign_on(self, holder: str) -> None:
        self._liveness.sign_on(holder)

    def sign_off(self, holder: str) -> None:
        self._liveness.sign_off(holder)

    def departed(self) -> list[str]:
        self._store.crowded = self._liveness.neighbours() > 0
        return self._liveness.departed()

    def pulse(self) -> int:
        return self._store.pulse()

    def describe(self) -> dict[str, Any]:
        sizes = self._store.size()
        facts = self._read(
            lambda connection, names: {
                "schema": connection.execute("PRAGMA user_version").fetchone()[0],
                "sqlite": sqlite3.sqlite_version,
                "sound": connection.execute("PRAGMA quick_check(1)").fetchone()[0] == "ok" if sizes["file"] < 200_000_000 else None,
            }
        )
        return {"kind": "sqlite", "path": self.path, "bytes": sizes["file"], "log_bytes": sizes["log"], **facts}

    def rest(self) -> None:
        """Nothing to do just now: move the log into the file."""
        self._store.checkpoint()

    def close(self) -> None:
        self._liveness.close()
        self._store.close()

    def _read(self, run: Callable[[sqlite3.Connection, Names], T]) -> T:
        names = getattr(self._reading, "names", None)
        if names is None:
            names = self._reading.names = Names()

        def refreshed(connection: sqlite3.Connection) -> T:
            # One transaction, so that the names fit the rows.
            connection.execute("BEGIN")
            try:
                names.refresh(connection)
                return run(connection, names)
            finally:
                connection.execute("ROLLBACK")

        return self._store.read(refreshed)

    def _write(self, run: Callable[[sqlite3.Connection, Names], T]) -> T:
        def refreshed(connection: sqlite3.Connection) -> T:
            self._names.refresh(connection)
            return run(connection, self._names)

        return self._store.write(refreshed)
