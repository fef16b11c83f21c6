"""Numbers of routes, stages and lanes, cached until a rollback or a rename."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Any, Concatenate, NamedTuple, ParamSpec, TypeVar

from milepost.ports.documents import EPOCH

P = ParamSpec("P")
T = TypeVar("T")


class Place(NamedTuple):
    """A lane of a stage of a route: where an item can be."""

    route: str
    stage: str
    lane: str


def read_epoch(connection: sqlite3.Connection) -> int:
    """The epoch of the ledger in this file."""
    epoch = "SELECT json_extract(CAST(value AS TEXT), '$.epoch') FROM document WHERE kind = ? AND name = ''"
    row = connection.execute(epoch, (EPOCH,)).fetchone()
    return 0 if row is None else int(row[0])


class NameNumbers:
    """The numbers as one connection has read them; refreshed at the start of each transaction."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        self.routes: dict[str, int] = {}
        self.stages: dict[tuple[str, str], int] = {}
        self.stage_names: dict[int, tuple[str, str]] = {}
        self.places: dict[tuple[str, str, str], int] = {}
        self.by_id: dict[int, Place] = {}
        self.lanes: dict[tuple[str, str], list[tuple[int, str]]] = {}
        """The lanes of a stage that were ever used, as (place, lane)."""
        self.epoch = 0
        """The epoch of the ledger. Only a restore raises it, and then no process has the file
        open."""
        self._seen: tuple[Any, ...] = ()

    def refresh(self, connection: sqlite3.Connection) -> None:
        """Read the names that any process has added or renamed since."""
        seen = connection.execute(
            "SELECT (SELECT coalesce(max(id), 0) FROM stage), (SELECT coalesce(max(id), 0) FROM place),"
            " (SELECT version FROM document WHERE kind = 'names' AND name = '')"
        ).fetchone()
        if seen == self._seen:
            return
        known = self._seen
        if not known or known[2] != seen[2]:
            self.forget()
            known = (0, 0, None)
            self.epoch = read_epoch(connection)
        self.routes = {
            name: number for number, name in connection.execute("SELECT id, name FROM route")
        }
        for number, route, name in connection.execute(
            "SELECT s.id, r.name, s.name FROM stage s JOIN route r ON r.id = s.route WHERE s.id > ?",
            (known[0],),
        ):
            self.stages[route, name] = number
            self.stage_names[number] = (route, name)
        # Read new ones only: a route may have many lanes, and every process has to read each new
        # one.
        for number, stage, lane in connection.execute(
            "SELECT id, stage, lane FROM place WHERE id > ?", (known[1],)
        ):
            route, name = self.stage_names[stage]
            if number not in self.by_id:
                self._remember(number, Place(route, name, lane))
        self._seen = seen

    def route(self, connection: sqlite3.Connection, name: str) -> int:
        """The route's number, created if it has none (inside a write)."""
        number = self.routes.get(name)
        if number is None:
            connection.execute(
                "INSERT INTO route (name) VALUES (?) ON CONFLICT DO NOTHING", (name,)
            )
            number = connection.execute("SELECT id FROM route WHERE name = ?", (name,)).fetchone()[
                0
            ]
            self.routes[name] = number
        return number

    def stage(self, connection: sqlite3.Connection, route: str, name: str) -> int:
        number = self.stages.get((route, name))
        if number is None:
            pair = (self.route(connection, route), name)
            connection.execute(
                "INSERT INTO stage (route, name) VALUES (?, ?) ON CONFLICT DO NOTHING", pair
            )
            number = connection.execute(
                "SELECT id FROM stage WHERE route = ? AND name = ?", pair
            ).fetchone()[0]
            self.stages[route, name] = number
            self.stage_names[number] = (route, name)
        return number

    def place(self, connection: sqlite3.Connection, route: str, stage: str, lane: str) -> int:
        number = self.places.get((route, stage, lane))
        if number is None:
            pair = (self.stage(connection, route, stage), lane)
            connection.execute(
                "INSERT INTO place (stage, lane) VALUES (?, ?) ON CONFLICT DO NOTHING", pair
            )
            number = connection.execute(
                "SELECT id FROM place WHERE stage = ? AND lane = ?", pair
            ).fetchone()[0]
            self._remember(number, Place(route, stage, lane))
        return number

    def _remember(self, number: int, place: Place) -> None:
        self.places[place.route, place.stage, place.lane] = number
        self.by_id[number] = place
        self.lanes.setdefault((place.route, place.stage), []).append((number, place.lane))


class Transaction:
    """One read or write transaction: SQLite's connection, and the numbers of names that are valid
    in it."""

    __slots__ = ("connection", "execute", "executemany", "names")

    def __init__(self, connection: sqlite3.Connection, names: NameNumbers) -> None:
        self.connection, self.names = connection, names
        self.execute, self.executemany = connection.execute, connection.executemany

    def in_snapshot(
        self, run: Callable[Concatenate[Transaction, P], T], *args: P.args, **options: P.kwargs
    ) -> T:
        """Run `run` in one read transaction, so that names and rows match. A Ctrl-C may come at any
        place, and must not leave it open."""
        try:
            self.execute("BEGIN")
            self.names.refresh(self.connection)
            return run(self, *args, **options)
        except BaseException:
            self.names.forget()
            raise
        finally:
            if self.connection.in_transaction:
                self.execute("ROLLBACK")
