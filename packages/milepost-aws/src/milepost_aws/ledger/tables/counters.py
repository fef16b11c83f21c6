"""Maintained counters in the control table: items per route, stage, status and hour, and groups of
similar errors.

They are updated from row changes; only the repair counts the rows afresh. A process that reads a
stream counts a batch in the transaction that moves its position (`Counters.writes`), so a batch
that two readers have read is counted once. A function has no position of its own: it counts a batch
cell by cell (`Counters.add`), and a repeat counts again those cells that another batch has changed
in between. Until the next repair they stay wrong: `asOf` on the row of the route says when they
were last known to be correct.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterable
from functools import partial
from typing import Any

from msgspec import Struct, convert, to_builtins
from msgspec.structs import replace

from milepost.core.counters import HOUR, CounterKey, GroupKey, count
from milepost.core.forgetting import REMOVED_TEXT
from milepost.core.item import Failure, Row
from milepost.core.status import Status
from milepost.ports.feed import Count, Group
from milepost_aws.ledger.names import ResourceNames, iso, ms
from milepost_aws.ledger.requests.client import Requests, TransactionRefused, expressions
from milepost_aws.ledger.tables.documents import kind_query
from milepost_aws.ledger.tables.keys import Image

COUNT, GROUP, COUNTED = "count#", "group#", "counted"
SAMPLE = 300
TIMES = {"first": "firstAt", "last": "lastAt"}
"""Attributes of a group's cell by their names in expressions."""
MOST_CELLS = 99
"""Cells of one transaction, beside the position of the shard."""

Cell = tuple[str, str]
"""(kind, name) in the control table."""
Snapshot = dict[Cell, str]
"""The token of the last write of each cell."""


class RowChange(Struct, frozen=True):
    """A change to count: a row before and after. `after` None: the row has left the table."""

    before: Row
    after: Row | None
    seq: str = ""
    """The stream record that delivered it."""


class GroupDetails(Struct):
    """Details of a group of similar errors, stored beside the number of items that have it."""

    category: str
    sample: str
    first_at: int
    last_at: int
    total: int = 0


class CounterTally:
    """Deltas of many changes, added up before they are written. A tally of all rows is the correct
    content of the cells."""

    def __init__(self) -> None:
        self.counters: dict[CounterKey, int] = {}
        self.groups: dict[GroupKey, int] = {}
        self.seen: dict[GroupKey, GroupDetails] = {}

    @classmethod
    def of(cls, changes: Iterable[RowChange]) -> CounterTally:
        """The deltas of these changes."""
        tally = cls()
        for change in changes:
            if change.after is None:
                tally.gone(change.before)
            else:
                tally.change(change.before, change.after)
        return tally

    @property
    def cells(self) -> int:
        """The number of cells that it concerns."""
        return len(self.counters) + len(self.groups)

    @property
    def routes(self) -> set[str]:
        return {at[0] for at in self.counters} | {at[0] for at in self.groups}

    def change(self, before: Row, after: Row) -> None:
        """Count one change; a `before` of version 0 is a row that did not exist."""
        if before.error == after.error and before.total_attempts == after.total_attempts:
            # Both rows were read from a table, so the same error is two values here; a new equal
            # error comes from a new attempt.
            after = replace(after, error=before.error)
        count(before, after, self.counters, self.groups)
        error = after.error
        if error is not None and (error is not before.error or before.stage != after.stage):
            self._see((after.route, after.stage, error.group), error, error is not before.error)

    def present(self, row: Row) -> None:
        """Count a row that exists, wherever it came from."""
        self.change(replace(row, version=0, error=None), row)

    def gone(self, row: Row) -> None:
        """Uncount a row that no longer exists."""
        at = (row.route, row.stage, row.status, row.entered_at // HOUR)
        self.counters[at] = self.counters.get(at, 0) - 1
        if row.error is not None:
            lost = (row.route, row.stage, row.error.group)
            self.groups[lost] = self.groups.get(lost, 0) - 1

    def to_json(self) -> Any:
        """The tally as plain JSON values; see `from_json`."""
        return [[[*at, n] for at, n in sums.items()] for sums in (self.counters, self.groups)] + [
            [[*at, to_builtins(seen)] for at, seen in self.seen.items()]
        ]

    @classmethod
    def from_json(cls, values: Any) -> CounterTally:
        """The tally that `to_json` returned."""
        tally = cls()
        counters, groups, seen = values
        tally.counters = {
            (route, stage, Status(status), hour): n for route, stage, status, hour, n in counters
        }
        tally.groups = {(route, stage, group): n for route, stage, group, n in groups}
        tally.seen = {
            (route, stage, group): convert(content, GroupDetails)
            for route, stage, group, content in seen
        }
        return tally

    def _see(self, at: GroupKey, error: Failure, new: bool) -> None:
        """Record an error that is new, or that a moved item brings to a stage that may not have it
        yet."""
        seen = self.seen.setdefault(
            at, GroupDetails(error.category, error.message[:SAMPLE], error.at, error.at)
        )
        if new:
            seen.total += 1
            seen.last_at = max(seen.last_at, error.at)


class Counters:
    """The counters of one ledger."""

    def __init__(self, requests: Requests, names: ResourceNames) -> None:
        self._requests = requests
        self._table = names.control
        self._known: set[str] = set()

    # Written --------------------------------------------------------------------------------------
    def add(self, changes: Iterable[RowChange], batch: str | None = None) -> None:
        """Count changes: one write per cell, in parallel. (The total of items that ever had an
        error stays.) `batch` names the changes: a cell whose last write was of the same batch is
        left as it is."""
        tally = CounterTally.of(changes)
        self._announce(tally.routes)
        marked = batch or secrets.token_urlsafe(9)
        self._requests.each(
            [partial(self._add, cell, n, seen, marked) for cell, n, seen in _deltas(tally)]
        )

    def writes(self, tally: CounterTally) -> list[dict[str, Any]]:
        """The same as actions of a transaction; `note_last` comes after it."""
        self._announce(tally.routes)
        token = secrets.token_urlsafe(9)
        actions = []
        for cell, n, seen in _deltas(tally):
            adds, sets, values = _addition(n, seen, token)
            if seen is not None:
                sets.append("#last = if_not_exists(#last, :last)")
            update = expressions(
                values, TIMES, UpdateExpression=f"ADD {', '.join(adds)} SET {', '.join(sets)}"
            )
            actions.append({"Update": {"TableName": self._table, "Key": _cell_key(cell), **update}})
        return actions

    def note_last(self, tally: CounterTally) -> None:
        """Move the time of each group's last error forward. A transaction leaves it: its condition
        would refuse all of it."""
        jobs = [
            partial(self._note_last, _group_cell(at), seen)
            for at, seen in tally.seen.items()
            if seen.total
        ]
        self._requests.each(jobs)

    def _note_last(self, cell: Cell, seen: GroupDetails) -> None:
        condition = "attribute_not_exists(#last) OR #last < :last"
        moved = {"last": {"S": iso(seen.last_at)}}
        last = expressions(
            moved, TIMES, UpdateExpression="SET #last = :last", ConditionExpression=condition
        )
        self._requests.write_if("update_item", TableName=self._table, Key=_cell_key(cell), **last)

    def _announce(self, routes: Iterable[str]) -> None:
        """Add routes that have cells to the shared list of routes; each process does so once per
        route."""
        for route in set(routes) - self._known:
            self._requests.call(
                "dynamodb", "update_item", TableName=self._table, Key=_cell_key((COUNTED, route))
            )
            self._known.add(route)

    def _add(
        self, cell: Cell, n: int, seen: GroupDetails | None, batch: str, *, latest: bool = True
    ) -> None:
        """Add to one cell. The token shows whether a refused repeat was in fact written; otherwise
        a lost answer would count twice."""
        # The token of each write is new: the repair must see that a cell was written after it was
        # read.
        adds, sets, values = _addition(n, seen, f"{batch}.{secrets.token_urlsafe(6)}")
        condition = "(attribute_not_exists(#token) OR NOT begins_with(#token, :batch))"
        values["batch"] = {"S": f"{batch}."}
        if seen is not None and latest and seen.total:
            sets.append("#last = :last")
            condition += " AND (attribute_not_exists(#last) OR #last <= :last)"
        elif seen is not None:
            sets.append("#last = if_not_exists(#last, :last)")
        change = f"ADD {', '.join(adds)} SET {', '.join(sets)}"
        update = expressions(values, TIMES, UpdateExpression=change, ConditionExpression=condition)
        there = self._requests.conflict(
            "update_item", TableName=self._table, Key=_cell_key(cell), **update
        )
        if there is not None and not there.get("token", {"S": ""})["S"].startswith(f"{batch}."):
            # The cell has a later error already: count this one and keep the time.
            self._add(cell, n, seen, batch, latest=False)

    # Read -----------------------------------------------------------------------------------------
    def counts(self, route: str | None = None) -> list[Count]:
        """Non-empty cells, of one route or of all."""
        if route is None:
            return [
                found
                for each in self._requests.each(
                    [partial(self.counts, name) for name in self._routes()]
                )
                for found in each
            ]
        counts = []
        for image in self._cells(COUNT + route):
            stage, status, hour = image["name"]["S"].rsplit("#", 2)
            # A negative cell was decremented twice; the repair corrects it.
            if _number(image) > 0:
                counts.append(Count(route, stage, Status(status), int(hour), _number(image)))
        return counts

    def groups(self, route: str | None = None) -> list[Group]:
        """Groups of similar errors that an item has or had."""
        if route is None:
            return [
                found
                for each in self._requests.each(
                    [partial(self.groups, name) for name in self._routes()]
                )
                for found in each
            ]
        groups = []
        for image in self._cells(GROUP + route):
            stage, group = image["name"]["S"].split("#", 1)
            seen = _seen_in(image)
            if seen is not None:
                now = max(0, _number(image))
                groups.append(
                    Group(
                        route,
                        stage,
                        group,
                        seen.category,
                        seen.sample,
                        now,
                        seen.total,
                        seen.first_at,
                        seen.last_at,
                    )
                )
        return groups

    def _routes(self) -> list[str]:
        return [image["name"]["S"] for image in self._cells(COUNTED)]

    def _cells(self, kind: str) -> Iterable[Image]:
        return self._requests.query(self._table, **kind_query(kind))

    # Set right ------------------------------------------------------------------------------------
    def snapshot(self, route: str) -> Snapshot:
        """Cell tokens to pass to `replace`, taken before the rows are read."""
        return {cell: image["token"]["S"] for cell, image in self._both(route).items()}

    def replace(
        self, route: str, truth: CounterTally, now: int, since: Snapshot | None = None
    ) -> int:
        """Set the route's cells to the counts of its rows and remove empty cells; returns how many
        cells were wrong.

        Rows change during the scan. A cell written after the snapshot `since` is therefore left to
        the next repair; cells are per hour, so each one stops changing. `truth` must not contain
        changes that are not counted yet.
        """
        wanted: dict[Cell, tuple[int, GroupDetails | None]] = {
            _count_cell(at): (n, None) for at, n in truth.counters.items() if at[0] == route
        }
        wanted |= {
            _group_cell(at): (n, truth.seen.get(at))
            for at, n in truth.groups.items()
            if at[0] == route
        }
        present = self._both(route)
        jobs = []
        for cell in wanted.keys() | present.keys():
            image = present.get(cell)
            token = None if image is None else image["token"]["S"]
            if since is None or since.get(cell) == token:
                n, seen = wanted.get(cell, (0, None))
                jobs.append(partial(self._set, cell, image, n, seen))
        wrong = sum(self._requests.each(jobs))
        as_of = expressions({"asOf": {"S": iso(now)}}, UpdateExpression="SET #asOf = :asOf")
        self._requests.call(
            "dynamodb",
            "update_item",
            TableName=self._table,
            Key=_cell_key((COUNTED, route)),
            **as_of,
        )
        return wrong

    def remove_samples(self, route: str, messages: Collection[str]) -> None:
        """Remove the examples of error groups that are one of these messages."""
        samples = {message[:SAMPLE] for message in messages}
        for image in self._cells(GROUP + route) if samples else ():
            if "sample" not in image or image["sample"]["S"] not in samples:
                continue
            values = {
                "sample": {"S": REMOVED_TEXT},
                "token": {"S": secrets.token_urlsafe(9)},
                "old": image["sample"],
            }
            change = "SET #sample = :sample, #token = :token"
            update = expressions(
                values, UpdateExpression=change, ConditionExpression="#sample = :old"
            )
            cell = _cell_key((image["kind"]["S"], image["name"]["S"]))
            self._requests.write_if("update_item", TableName=self._table, Key=cell, **update)

    def rename(self, route: str, old: str, new: str) -> None:
        """Move the counts of stage `old` to `new` and add them to those there; each cell in one
        transaction."""
        cells = (
            [cell for cell in self._both(route) if cell[1].split("#", 1)[0] == old]
            if old != new
            else []
        )
        self._requests.each(
            [
                partial(self._move, cell, (cell[0], new + cell[1].removeprefix(old)))
                for cell in cells
            ]
        )

    def _both(self, route: str) -> dict[Cell, Image]:
        images = [image for kind in (COUNT, GROUP) for image in self._cells(kind + route)]
        return {(image["kind"]["S"], image["name"]["S"]): image for image in images}

    def _set(self, cell: Cell, image: Image | None, n: int, seen: GroupDetails | None) -> bool:
        found = {} if image is None else image
        right = _number(found) == n and (seen is None or _seen_in(found) is not None)
        if right and (n or image is None or cell[0].startswith(GROUP)):
            return False
        params: dict[str, Any] = {"TableName": self._table, **_unchanged(image)}
        if n or cell[0].startswith(GROUP):
            kept = _seen_in(found) or seen
            params["Item"] = _cell_image(cell, n, kept, secrets.token_urlsafe(9))
            operation = "put_item"
        else:
            params["Key"] = _cell_key(cell)
            operation = "delete_item"
        # If the condition does not hold, the cell was changed in the meantime, or this is the
        # repeat of a lost answer.
        return self._requests.write_if(operation, **params) and not right

    def _move(self, cell: Cell, target: Cell) -> None:
        while True:
            images = self._requests.batch_get(self._table, [_cell_key(cell), _cell_key(target)])
            found = {(image["kind"]["S"], image["name"]["S"]): image for image in images}
            source, there = found.get(cell), found.get(target)
            if source is None:
                return
            seen = _together(_seen_in(source), None if there is None else _seen_in(there))
            merged = _cell_image(
                target, _number(source) + _number(there or {}), seen, secrets.token_urlsafe(9)
            )
            moves = [
                {
                    "Delete": {
                        "TableName": self._table,
                        "Key": _cell_key(cell),
                        **_unchanged(source),
                    }
                },
                {"Put": {"TableName": self._table, "Item": merged, **_unchanged(there)}},
            ]
            try:
                self._requests.call("dynamodb", "transact_write_items", TransactItems=moves)
            except TransactionRefused:
                continue  # one of the two cells was changed in the meantime
            return


# Cells --------------------------------------------------------------------------------------------
def _cell_key(cell: Cell) -> Image:
    return {"kind": {"S": cell[0]}, "name": {"S": cell[1]}}


def _count_cell(at: CounterKey) -> Cell:
    route, stage, status, hour = at
    return COUNT + route, f"{stage}#{status.value}#{hour}"


def _group_cell(at: GroupKey) -> Cell:
    route, stage, group = at
    return GROUP + route, f"{stage}#{group}"


def _deltas(tally: CounterTally) -> Iterable[tuple[Cell, int, GroupDetails | None]]:
    """The cells that a tally changes, each with its delta and the details of a group's errors."""
    for at, n in tally.counters.items():
        if n:
            yield _count_cell(at), n, None
    for group, n in tally.groups.items():
        seen = tally.seen.get(group)
        if n or seen is not None:
            yield _group_cell(group), n, seen


def _addition(
    n: int, seen: GroupDetails | None, token: str
) -> tuple[list[str], list[str], dict[str, Any]]:
    """The ADD and SET parts of an addition to a cell, but for the time of the last error, and their
    values."""
    adds, sets = ["#n :n"], ["#token = :token"]
    values: dict[str, Any] = {"n": {"N": str(n)}, "token": {"S": token}}
    if seen is not None:
        adds.append("#total :total")
        sets += [
            f"#{name} = if_not_exists(#{name}, :{name})" for name in ("category", "sample", "first")
        ]
        values |= {
            "total": {"N": str(seen.total)},
            "category": {"S": seen.category},
            "sample": {"S": seen.sample},
        }
        values |= {"first": {"S": iso(seen.first_at)}, "last": {"S": iso(seen.last_at)}}
    return adds, sets, values


def _number(image: Image) -> int:
    return int(image["n"]["N"]) if "n" in image else 0


def _seen_in(image: Image) -> GroupDetails | None:
    """The error details of a group's cell; None where the cell was only ever decremented."""
    if "category" not in image:
        return None
    moments = (ms(image["firstAt"]["S"]), ms(image["lastAt"]["S"]))
    return GroupDetails(
        image["category"]["S"], image["sample"]["S"], *moments, int(image["total"]["N"])
    )


def _together(one: GroupDetails | None, other: GroupDetails | None) -> GroupDetails | None:
    """Merge two groups; the second one's text is kept."""
    if one is None or other is None:
        return one or other
    return GroupDetails(
        other.category,
        other.sample,
        min(one.first_at, other.first_at),
        max(one.last_at, other.last_at),
        one.total + other.total,
    )


def _cell_image(cell: Cell, n: int, seen: GroupDetails | None, token: str) -> Image:
    image: Image = {**_cell_key(cell), "n": {"N": str(n)}, "token": {"S": token}}
    if seen is not None:
        image |= {
            "category": {"S": seen.category},
            "sample": {"S": seen.sample},
            "total": {"N": str(seen.total)},
        }
        image |= {"firstAt": {"S": iso(seen.first_at)}, "lastAt": {"S": iso(seen.last_at)}}
    return image


def _unchanged(image: Image | None) -> dict[str, Any]:
    """Condition: the cell is unchanged since it was read."""
    if image is None:
        return expressions(ConditionExpression="attribute_not_exists(#token)")
    return expressions({"token": image["token"]}, ConditionExpression="#token = :token")
