"""Conditional write of a row: its request, the row of a new item, and how a lost answer is
recognised."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

from milepost.core.change import Change
from milepost.core.status import NOTES, Status
from milepost_aws.ledger.names import iso
from milepost_aws.ledger.requests.client import Requests, expressions
from milepost_aws.ledger.tables.item_rows import (
    attributes,
    column_values,
    copied_of,
    input_of,
    links_of,
)
from milepost_aws.ledger.tables.keys import Image, Layout
from milepost_aws.ledger.tables.values import Values


class Update:
    """Builder for one UpdateItem request; names and values are numbered, because an attribute name
    may be a reserved word."""

    def __init__(self, layout: Layout, key: str) -> None:
        self.layout = layout
        self.key = key
        self._names: dict[str, str] = {}
        self._values: dict[str, Any] = {}
        self._parts: dict[str, list[str]] = {"SET": [], "REMOVE": [], "ADD": [], "DELETE": []}
        self._conditions: list[str] = []

    def name(self, attribute: str) -> str:
        return self._names.setdefault(attribute, f"#n{len(self._names)}")

    def value(self, value: dict[str, Any]) -> str:
        placeholder = f":v{len(self._values)}"
        self._values[placeholder] = value
        return placeholder

    def set(self, attribute: str, value: dict[str, Any]) -> None:
        self._parts["SET"].append(f"{self.name(attribute)} = {self.value(value)}")

    def append(self, attribute: str, entries: list[dict[str, Any]]) -> None:
        name = self.name(attribute)
        self._parts["SET"].append(
            f"{name} = list_append(if_not_exists({name}, {self.value({'L': []})}), {self.value({'L': entries})})"
        )

    def set_or(self, attribute: str, source: str, value: dict[str, Any]) -> None:
        """Set the attribute to the row's `source`, or to `value` where the row has no `source`."""
        self._parts["SET"].append(
            f"{self.name(attribute)} = if_not_exists({self.name(source)}, {self.value(value)})"
        )

    def move(self, attribute: str, to: str) -> None:
        """Move the attribute's value, if there is one, to attribute `to`."""
        self._parts["SET"].append(
            f"{self.name(to)} = if_not_exists({self.name(attribute)}, {self.name(to)})"
        )
        self.remove(attribute)

    def set_all(self, image: Image) -> None:
        for attribute, value in image.items():
            self.set(attribute, value)

    def remove(self, *attributes: str) -> None:
        self._parts["REMOVE"] += map(self.name, attributes)

    def remove_at(self, attribute: str, place: int) -> None:
        """Remove one entry of a list."""
        self._parts["REMOVE"].append(f"{self.name(attribute)}[{place}]")

    def add(self, attribute: str, value: dict[str, Any]) -> None:
        self._parts["ADD"].append(f"{self.name(attribute)} {self.value(value)}")

    def delete(self, attribute: str, value: dict[str, Any]) -> None:
        self._parts["DELETE"].append(f"{self.name(attribute)} {self.value(value)}")

    def replace(self, before: Image, after: Image) -> None:
        """Set the attributes that differ and remove those missing in `after`."""
        self.set_all(
            {
                attribute: value
                for attribute, value in after.items()
                if before.get(attribute) != value
            }
        )
        self.remove(*(before.keys() - after.keys()))

    def equal(self, attribute: str, value: dict[str, Any] | None) -> None:
        """Condition: the attribute has this value; None: the row has no such attribute."""
        if value is None:
            self._conditions.append(f"attribute_not_exists({self.name(attribute)})")
        else:
            self._conditions.append(f"{self.name(attribute)} = {self.value(value)}")

    def unchanged(self, image: Image, *attributes: str) -> None:
        """Condition: these attributes are as in the image."""
        for attribute in attributes:
            self.equal(attribute, image.get(attribute))

    def only_if(self, condition: str) -> None:
        self._conditions.append(condition)

    @property
    def empty(self) -> bool:
        """Whether it would change nothing."""
        return not any(self._parts.values())

    def params(self) -> dict[str, Any]:
        """The request's parameters. There is always a condition: without one, an update of a
        removed row would create it again."""
        expression = " ".join(
            f"{verb} {', '.join(parts)}" for verb, parts in self._parts.items() if parts
        )
        params: dict[str, Any] = {
            "TableName": self.layout.table,
            "Key": self.layout.key_image(self.key),
            "UpdateExpression": expression,
            "ConditionExpression": " AND ".join(self._conditions)
            or f"attribute_exists({self.name(self.layout.key[0])})",
            "ExpressionAttributeNames": {
                placeholder: name for name, placeholder in self._names.items()
            },
            "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
        }
        if self._values:
            params["ExpressionAttributeValues"] = self._values
        return params

    def written(self, requests: Requests) -> bool:
        """Send the request; False: its condition does not hold, because another writer was
        first."""
        return requests.write_if("update_item", **self.params())


def put_new(requests: Requests, layout: Layout, image: Image) -> Image | None:
    """Put a row if its key has none. None: it was put; else the row that exists, empty if it has
    just left."""
    absent = expressions(
        None, {"key": layout.key[0]}, ConditionExpression="attribute_not_exists(#key)"
    )
    return requests.conflict("put_item", TableName=layout.table, Item=image, **absent)


def place_of(route: str, key: str) -> str:
    """Prefix of the names of an item's blobs: safe in every blob store."""
    return f"{route}/{sha256(key.encode('utf-8', 'surrogatepass')).hexdigest()[:32]}"


def places_of(layout: Layout, key: str) -> tuple[str, str]:
    """Where a row's blobs are: its own, and those of its confirmations (see
    `applications.postingest.confirmer.rows`)."""
    owner = "\0".join((layout.table, *(part["S"] for part in layout.key_image(key).values())))
    return place_of(
        layout.route, key
    ), f"confirmed/{sha256(owner.encode('utf-8', 'surrogatepass')).hexdigest()[:32]}"


def put_of(change: Change, content: Any, layout: Layout, values: Values, token: str) -> Image:
    """The complete row of a new item."""
    row = change.after
    place = place_of(row.route, row.key)
    image = {
        **layout.naming(row.key),
        **attributes(row, layout),
        "input": input_of(content, row.key, layout, values, place),
        "createToken": {"S": token},
        "trail": {"L": [values.encode_line(change.before.head, change.body, place)]},
        **column_values(content, layout),
    }
    if row.status is Status.QUEUED:
        image["firstQueued"] = image["lastQueued"] = {"S": iso(row.updated_at)}
    return image


def is_plain(outcome: Any) -> bool:
    is_done = isinstance(outcome, dict) and outcome.get("type") == "done"
    return (
        is_done and outcome.keys() <= {"type", "output", "by"} and outcome.get("output") is not None
    )


def records_offer(change: Change) -> bool:
    """Whether this write records that the stage was offered. The offer is then sent before the
    write."""
    if change.after.status is not Status.QUEUED:
        return False
    return change.line is None or change.line.reason not in NOTES


def was_written_before(change: Change, image: Image, values: Values) -> bool | None:
    """After a failed condition: is the row in this state because this same write succeeded earlier
    and its answer was lost? None: the row has changed since, so only the history can say."""
    after = change.after
    if change.line is None:
        if after.lease is not None and change.before.lease != after.lease:
            return image.get("lease") == {"S": after.lease}
        return (
            after.settled != change.before.settled
            and after.settled is not None
            and image.get("lastLease") == {"S": after.settled}
        )
    for link in links_of(image, values):
        if link.version == change.line.version:
            return link.body == change.body and link.previous == change.before.head
    return None if copied_of(image) >= change.line.version else False
