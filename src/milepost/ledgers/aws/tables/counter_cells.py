"""Counter deltas added up from changes, and the cells of the control table that store them."""

from __future__ import annotations

from typing import Any

from msgspec import Struct, convert, to_builtins
from msgspec.structs import replace

from milepost.core.counters import HOUR, CounterKey, GroupKey, count
from milepost.core.item import Failure, Row
from milepost.core.status import Status
from milepost.ledgers.aws.names import iso, ms
from milepost.ledgers.aws.tables.keys import Image

COUNT, GROUP, COUNTED = "count#", "group#", "counted"
SAMPLE = 300

Cell = tuple[str, str]
"""(kind, name) in the control table."""


class GroupDetails(Struct):
    """Details of a group of similar errors, stored beside the number of items that have it."""

    category: str
    sample: str
    first_at: int
    last_at: int
    total: int = 0


class CounterTally:
    """Deltas of many changes, added up before they are written. A tally of all rows is the correct content of the cells."""

    def __init__(self) -> None:
        self.counters: dict[CounterKey, int] = {}
        self.groups: dict[GroupKey, int] = {}
        self.seen: dict[GroupKey, GroupDetails] = {}

    def change(self, before: Row, after: Row) -> None:
        """Count one change; a `before` of version 0 is a row that did not exist."""
        if before.error == after.error and before.total_attempts == after.total_attempts:
            # Both rows were read from a table, so the same error is two values here; a new equal error comes from a new attempt.
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
        tally.counters = {(route, stage, Status(status), hour): n for route, stage, status, hour, n in counters}
        tally.groups = {(route, stage, group): n for route, stage, group, n in groups}
        tally.seen = {(route, stage, group): convert(content, GroupDetails) for route, stage, group, content in seen}
        return tally

    def _see(self, at: GroupKey, error: Failure, new: bool) -> None:
        """Record an error that is new, or that a moved item brings to a stage that may not have it yet."""
        seen = self.seen.setdefault(at, GroupDetails(error.category, error.message[:SAMPLE], error.at, error.at))
        if new:
            seen.total += 1
            seen.last_at = max(seen.last_at, error.at)


def cell_key(cell: Cell) -> Image:
    return {"kind": {"S": cell[0]}, "name": {"S": cell[1]}}


def count_cell(at: CounterKey) -> Cell:
    route, stage, status, hour = at
    return COUNT + route, f"{stage}#{status.value}#{hour}"


def group_cell(at: GroupKey) -> Cell:
    route, stage, group = at
    return GROUP + route, f"{stage}#{group}"


def stage_of(cell: Cell) -> str:
    return cell[1].split("#", 1)[0]


def number(image: Image) -> int:
    return int(image["n"]["N"]) if "n" in image else 0


def seen_in(image: Image) -> GroupDetails | None:
    """The error details of a group's cell; None where the cell was only ever decremented."""
    if "category" not in image:
        return None
    moments = (ms(image["firstAt"]["S"]), ms(image["lastAt"]["S"]))
    return GroupDetails(image["category"]["S"], image["sample"]["S"], *moments, int(image["total"]["N"]))


def together(one: GroupDetails | None, other: GroupDetails | None) -> GroupDetails | None:
    """Merge two groups; the second one's text is kept."""
    if one is None or other is None:
        return one or other
    return GroupDetails(
        other.category, other.sample, min(one.first_at, other.first_at), max(one.last_at, other.last_at), one.total + other.total
    )


def cell_image(cell: Cell, n: int, seen: GroupDetails | None, token: str) -> Image:
    image: Image = {**cell_key(cell), "n": {"N": str(n)}, "token": {"S": token}}
    if seen is not None:
        image |= {"category": {"S": seen.category}, "sample": {"S": seen.sample}, "total": {"N": str(seen.total)}}
        image |= {"firstAt": {"S": iso(seen.first_at)}, "lastAt": {"S": iso(seen.last_at)}}
    return image


def unchanged(image: Image | None) -> dict[str, Any]:
    """Condition: the cell is unchanged since it was read."""
    condition: dict[str, Any] = {"ConditionExpression": "attribute_not_exists(#token)", "ExpressionAttributeNames": {"#token": "token"}}
    if image is not None:
        condition |= {"ConditionExpression": "#token = :token", "ExpressionAttributeValues": {":token": image["token"]}}
    return condition
