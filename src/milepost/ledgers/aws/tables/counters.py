"""Maintained counters: how many items are where, and which errors are alike, in cells of the control table.

They follow the rows, added up from what changed, and are never counted afresh but by the repair. Where a batch of changes is
counted twice, or not at all, they are wrong until then: `as_of` says when they were last known to be right.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

from milepost.core.item import Row
from milepost.core.status import Status
from milepost.ledgers.aws.names import ResourceNames, iso, ms
from milepost.ledgers.aws.requests.client import ConditionFailed, Requests, TransactionRefused
from milepost.ledgers.aws.tables.counter_cells import (
    COUNT,
    COUNTED,
    GROUP,
    Cell,
    CounterTally,
    GroupDetails,
    cell_image,
    cell_key,
    count_cell,
    group_cell,
    number,
    seen_in,
    stage_of,
    together,
    unchanged,
)
from milepost.ledgers.aws.tables.keys import Image
from milepost.ports.ledger import Count, Group

Snapshot = dict[Cell, str]
"""Which write each cell had last."""


class Counters:
    """The counters of one ledger."""

    def __init__(self, requests: Requests, names: ResourceNames) -> None:
        self._requests = requests
        self._table = names.control
        self._known: set[str] = set()

    # Written --------------------------------------------------------------------------------------------------------
    def add(self, changes: Sequence[tuple[Row, Row]]) -> None:
        """Count changes, each a row before and after. One write for each cell that they touch, side by side."""
        tally = CounterTally()
        for before, after in changes:
            tally.change(before, after)
        self._write(tally)

    def removed(self, rows: Sequence[Row]) -> None:
        """Rows that have left the table: their cells hold them no more; how many ever had an error stays."""
        tally = CounterTally()
        for row in rows:
            tally.gone(row)
        self._write(tally)

    def _write(self, tally: CounterTally) -> None:
        self._announce({at[0] for at in tally.counters} | {at[0] for at in tally.groups})
        token = secrets.token_urlsafe(9)
        jobs = [partial(self._add, count_cell(at), n, None, token) for at, n in tally.counters.items() if n]
        for at, n in tally.groups.items():
            seen = tally.seen.get(at)
            if n or seen is not None:
                jobs.append(partial(self._add, group_cell(at), n, seen, token))
        self._requests.each(jobs)

    def _announce(self, routes: Iterable[str]) -> None:
        """Routes that have cells are on a list, so that all can be asked for; each process sees to that once."""
        for route in set(routes) - self._known:
            self._requests.call("dynamodb", "update_item", TableName=self._table, Key=cell_key((COUNTED, route)))
            self._known.add(route)

    def _add(self, cell: Cell, n: int, seen: GroupDetails | None, token: str, *, latest: bool = True) -> None:
        """Add to one cell. A token tells whether a refused repeat was written before; without it a lost answer would count twice."""
        adds, sets = ["#n :n"], ["#token = :token"]
        names = {"#n": "n", "#token": "token"}
        values: dict[str, Any] = {":n": {"N": str(n)}, ":token": {"S": token}}
        condition = "(attribute_not_exists(#token) OR #token <> :token)"
        if seen is not None:
            adds.append("#total :total")
            sets += ["#category = if_not_exists(#category, :category)", "#sample = if_not_exists(#sample, :sample)"]
            sets.append("#first = if_not_exists(#first, :first)")
            names |= {"#total": "total", "#category": "category", "#sample": "sample", "#first": "firstAt", "#last": "lastAt"}
            values |= {":total": {"N": str(seen.total)}, ":category": {"S": seen.category}, ":sample": {"S": seen.sample}}
            values |= {":first": {"S": iso(seen.first_at)}, ":last": {"S": iso(seen.last_at)}}
            if latest and seen.total:
                sets.append("#last = :last")
                condition += " AND (attribute_not_exists(#last) OR #last <= :last)"
            else:
                sets.append("#last = if_not_exists(#last, :last)")
        try:
            self._requests.call(
                "dynamodb",
                "update_item",
                TableName=self._table,
                Key=cell_key(cell),
                UpdateExpression=f"ADD {', '.join(adds)} SET {', '.join(sets)}",
                ConditionExpression=condition,
                ExpressionAttributeNames=names,
                ExpressionAttributeValues=values,
                ReturnValuesOnConditionCheckFailure="ALL_OLD",
            )
        except ConditionFailed as refused:
            if (refused.image or {}).get("token") != {"S": token}:
                # A later error than ours is there already: count ours, and leave the time.
                self._add(cell, n, seen, token, latest=False)

    # Read -----------------------------------------------------------------------------------------------------------
    def counts(self, route: str | None = None) -> list[Count]:
        """Cells with anything in them, of one route or of all."""
        if route is None:
            return [found for each in self._requests.each([partial(self.counts, name) for name in self._routes()]) for found in each]
        counts = []
        for image in self._cells(COUNT + route):
            stage, status, hour = image["name"]["S"].rsplit("#", 2)
            # Below nothing there is only what was counted out twice; the repair puts it right.
            if number(image) > 0:
                counts.append(Count(route, stage, Status(status), int(hour), number(image)))
        return counts

    def groups(self, route: str | None = None) -> list[Group]:
        """Groups of like errors that some item has or ever had."""
        if route is None:
            return [found for each in self._requests.each([partial(self.groups, name) for name in self._routes()]) for found in each]
        groups = []
        for image in self._cells(GROUP + route):
            stage, group = image["name"]["S"].split("#", 1)
            seen = seen_in(image)
            if seen is not None:
                now = max(0, number(image))
                groups.append(Group(route, stage, group, seen.category, seen.sample, now, seen.total, seen.first_at, seen.last_at))
        return groups

    def as_of(self, route: str) -> int | None:
        """When the route's cells were last compared with its rows; None: never."""
        found = self._requests.call("dynamodb", "get_item", TableName=self._table, Key=cell_key((COUNTED, route)), ConsistentRead=True)
        image = found.get("Item", {})
        return ms(image["asOf"]["S"]) if "asOf" in image else None

    def _routes(self) -> list[str]:
        return [image["name"]["S"] for image in self._cells(COUNTED)]

    def _cells(self, kind: str) -> Iterable[Image]:
        return self._requests.query(
            self._table,
            KeyConditionExpression="#kind = :kind",
            ExpressionAttributeNames={"#kind": "kind"},
            ExpressionAttributeValues={":kind": {"S": kind}},
            ConsistentRead=True,
        )

    # Set right ------------------------------------------------------------------------------------------------------
    def snapshot(self, route: str) -> Snapshot:
        """To be taken before the rows are gone through; see `replace`."""
        return {cell: image["token"]["S"] for cell, image in self._both(route).items()}

    def replace(self, route: str, truth: CounterTally, now: int, since: Snapshot | None = None) -> int:
        """Set the route's cells to what its rows say; how many were wrong. Cells that hold nothing go.

        Rows change while they are gone through. So a cell that was written after the snapshot `since` is left to the next
        repair; cells are by hour, and each comes to rest. What has changed but is not counted yet must not be in `truth`.
        """
        wanted: dict[Cell, tuple[int, GroupDetails | None]] = {
            count_cell(at): (n, None) for at, n in truth.counters.items() if at[0] == route
        }
        wanted |= {group_cell(at): (n, truth.seen.get(at)) for at, n in truth.groups.items() if at[0] == route}
        present = self._both(route)
        jobs = []
        for cell in wanted.keys() | present.keys():
            image = present.get(cell)
            token = None if image is None else image["token"]["S"]
            if since is None or since.get(cell) == token:
                n, seen = wanted.get(cell, (0, None))
                jobs.append(partial(self._set, cell, image, n, seen))
        wrong = sum(self._requests.each(jobs))
        self._requests.call(
            "dynamodb",
            "update_item",
            TableName=self._table,
            Key=cell_key((COUNTED, route)),
            UpdateExpression="SET #asOf = :asOf",
            ExpressionAttributeNames={"#asOf": "asOf"},
            ExpressionAttributeValues={":asOf": {"S": iso(now)}},
        )
        return wrong

    def rename(self, route: str, old: str, new: str) -> None:
        """What is counted at stage `old` is counted at `new`, together with what was there; each cell is moved in one piece."""
        cells = [cell for cell in self._both(route) if stage_of(cell) == old] if old != new else []
        self._requests.each([partial(self._move, cell, (cell[0], new + cell[1].removeprefix(old))) for cell in cells])

    def _both(self, route: str) -> dict[Cell, Image]:
        images = [image for kind in (COUNT, GROUP) for image in self._cells(kind + route)]
        return {(image["kind"]["S"], image["name"]["S"]): image for image in images}

    def _set(self, cell: Cell, image: Image | None, n: int, seen: GroupDetails | None) -> bool:
        found = {} if image is None else image
        right = number(found) == n and (seen is None or seen_in(found) is not None)
        if right and (n or image is None or cell[0].startswith(GROUP)):
            return False
        params: dict[str, Any] = {"TableName": self._table, **unchanged(image)}
        if n or cell[0].startswith(GROUP):
            kept = seen_in(found) or seen
            params["Item"] = cell_image(cell, n, kept, secrets.token_urlsafe(9))
            operation = "put_item"
        else:
            params["Key"] = cell_key(cell)
            operation = "delete_item"
        try:
            self._requests.call("dynamodb", operation, **params)
        except ConditionFailed:
            return False  # it was counted on meanwhile, or this is the repeat of a lost answer
        return not right

    def _move(self, cell: Cell, target: Cell) -> None:
        while True:
            images = self._requests.batch_get(self._table, [cell_key(cell), cell_key(target)])
            found = {(image["kind"]["S"], image["name"]["S"]): image for image in images}
            source, there = found.get(cell), found.get(target)
            if source is None:
                return
            seen = together(seen_in(source), None if there is None else seen_in(there))
            merged = cell_image(target, number(source) + number(there or {}), seen, secrets.token_urlsafe(9))
            moves = [
                {"Delete": {"TableName": self._table, "Key": cell_key(cell), **unchanged(source)}},
                {"Put": {"TableName": self._table, "Item": merged, **unchanged(there)}},
            ]
            try:
                self._requests.call("dynamodb", "transact_write_items", TransactItems=moves)
            except TransactionRefused:
                continue  # one of them was counted on meanwhile
            return
