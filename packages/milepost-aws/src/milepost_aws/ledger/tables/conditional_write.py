"""Conditional write of a row: attributes to set and remove, the condition, and how a lost answer is
recognised."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import Any

from milepost.core.change import Change, keeps_lease
from milepost.core.history import attempt_to_public
from milepost.core.item import Row
from milepost.core.status import FAILED, NOTES, Status
from milepost_aws.ledger.names import iso
from milepost_aws.ledger.requests.client import Requests, expressions
from milepost_aws.ledger.tables.item_rows import (
    Handle,
    attributes,
    column_values,
    copied_of,
    input_of,
    links_of,
    packed_trail,
    retry_entry,
)
from milepost_aws.ledger.tables.keys import BY_ATTRIBUTE, CONFIRMED_BY, OWN, WAITING, Image, Layout
from milepost_aws.ledger.tables.values import Values

LONG_TRAIL, LONG_TRAIL_BYTES = 16, 65_536
"""The next write moves a trail into a blob if it has more lines and more bytes than this."""
RETRIES_SHOWN = 20
_NO_HANDLE = Handle()


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


def update_of(change: Change, layout: Layout, values: Values, copied: int | None = None) -> Update:
    """The single write of a change, under its precondition (see `core.change.holds`). `copied`: the
    journal has all lines up to this version, so that this write removes them from the row. Only the
    relay knows that."""
    before, after = change.before, change.after
    update = Update(layout, before.key)
    handle = before.handle if isinstance(before.handle, Handle) else _NO_HANDLE
    place = place_of(before.route, before.key)
    stored = attributes(before, layout)
    wanted = attributes(after, layout)
    for name in ("dueShard", "dueAt"):
        # Always set: the row may be elsewhere in the index now (paused, or its events not delivered
        # yet).
        stored.pop(name, None)
    if keeps_lease(change):
        _keep_expiry(update, change, stored, wanted)
    elif before.lease is not None:
        # Always removed too: a lease extension may have set it since the read.
        stored.pop("lookAt", None)
        if "lookAt" not in wanted:
            update.remove("lookAt")
    if after.terminal and after.status not in FAILED:
        # `finish` removes it from the index in the write that marks its lines as copied; doing so
        # here would cost one more write.
        wanted.pop("dueShard", None)
        wanted.pop("dueAt", None)
    update.replace(stored, wanted)
    if before.terminal and not after.terminal:
        update.remove("ttl")
    if before.stage != after.stage:
        # A put is not retried for that long after a lost answer, and every byte counts on a row of
        # almost 1 KB.
        update.remove("createToken")
    _set_waiting_outcomes(update, change, layout, values, place)
    if after.undecided is not None and after.undecided != before.undecided:
        update.set("undecided", values.encode(after.undecided, place))
    elif before.undecided is not None and after.undecided is None:
        update.remove("undecided")
    _set_content(update, change, layout, values, place, handle.through)
    _set_queued_times(update, change)
    if change.line is not None:
        entry = values.encode_line(before.head, change.body, place)
        if copied is not None:
            update.set("trail", {"L": [entry]})
        elif _is_long(handle.trail):
            update.set("trail", {"L": [*packed_trail(handle.trail, values, place), entry]})
            # If the relay has copied lines in the meantime, they are no longer in the trail.
            update.only_if(
                f"size({update.name('trail')}) = {update.value({'N': str(len(handle.trail))})}"
            )
            update.only_if(f"{update.name('trail')}[0] = {update.value(handle.trail[0])}")
        else:
            update.append("trail", [entry])
        if change.line.attempt is not None:
            entry = retry_entry(
                attempt_to_public(change.line.attempt, change.line.at, after.correlation_id)
            )
            update.set("retryHistory", {"L": [*handle.retries, entry][-RETRIES_SHOWN:]})
    elif copied is not None:
        update.remove("trail")
    if copied is not None:
        update.set("copied", {"N": str(copied)})
    _require_unchanged(update, before, handle, layout)
    if change.expired_at is not None:
        _require_expiry(update, before)
    return update


def _keep_expiry(update: Update, change: Change, stored: Image, wanted: Image) -> None:
    """Keep the row's present lease expiry, because the worker may have extended it since the read.
    After the item was reported overdue, it is due when the lease expires."""
    reported = change.before.due_at != change.before.look_at == change.after.due_at
    for name in ("dueShard", "dueAt", "lookAt", "leaseUntil"):
        wanted.pop(name, None)
        stored.pop(name, None)
    if reported:
        update.move("lookAt", "dueAt")


def _require_expiry(update: Update, before: Row) -> None:
    """Condition: the lease expiry is the one that was read: `lookAt`, or `dueAt` where the row has
    no `lookAt` (see `row_of`)."""
    look, due, expiry = (
        update.name("lookAt"),
        update.name("dueAt"),
        update.value({"S": iso(before.look_at or 0)}),
    )
    update.only_if(f"({look} = {expiry} OR (attribute_not_exists({look}) AND {due} = {expiry}))")


def _is_long(trail: Sequence[dict[str, Any]]) -> bool:
    """Whether the lines waiting on a row are large enough to be moved into a blob."""
    return (
        len(trail) > LONG_TRAIL
        and sum(len(entry.get("B", b"")) for entry in trail) > LONG_TRAIL_BYTES
    )


def _require_unchanged(update: Update, before: Row, handle: Handle, layout: Layout) -> None:
    """Condition: the row is unchanged since the read, and its stage has no new confirmation."""
    update.equal("version", {"N": str(before.version)})
    update.equal("head", {"B": before.head})
    update.equal("status", {"S": before.status.value})
    update.equal("queue", {"S": before.stage})
    update.equal("lease", None if before.lease is None else {"S": before.lease})
    update.equal(layout.prefix + before.stage, handle.confirmation)


def _set_waiting_outcomes(
    update: Update, change: Change, layout: Layout, values: Values, place: str
) -> None:
    """Write the outcomes that wait for their stage. A plain confirmation is the stage's own
    attribute, as a partner would set it."""
    before, after = change.before.kept, change.after.kept
    if before == after:
        return
    results = {put.stage for put in change.puts if put.kind == "result"}
    for stage, outcome in after.items():
        if before.get(stage) != outcome and is_plain(outcome):
            update.set(layout.prefix + stage, values.encode(outcome.get("output"), place))
            if outcome.get("by"):
                update.set(CONFIRMED_BY + stage, {"S": outcome["by"]})
    for stage in before.keys() - after.keys():
        if not (before[stage].get("by") or BY_ATTRIBUTE).startswith(BY_ATTRIBUTE):
            update.remove(CONFIRMED_BY + stage)
        if is_plain(before[stage]) and stage not in results:
            update.remove(layout.prefix + stage)
    others = [
        {stage: outcome for stage, outcome in kept.items() if not is_plain(outcome)}
        for kept in (before, after)
    ]
    if others[1]:
        update.set("kept", values.encode(others[1], place))
    elif others[0]:
        update.remove("kept")


def is_plain(outcome: Any) -> bool:
    is_done = isinstance(outcome, dict) and outcome.get("type") == "done"
    return (
        is_done and outcome.keys() <= {"type", "output", "by"} and outcome.get("output") is not None
    )


def _set_content(
    update: Update,
    change: Change,
    layout: Layout,
    values: Values,
    place: str,
    through: frozenset[str],
) -> None:
    """Write results and payloads. A payload that equals a result is stored as a reference to it.

    A stage that the item enters again has to answer again: its earlier answer leaves the row,
    otherwise the new one would count as a contradiction."""
    results = {put.stage: put.value for put in change.puts if put.kind == "result"}
    to = change.after.stage
    again = (
        to in through
        and (to != change.before.stage or change.before.terminal)
        and not change.after.terminal
    )
    passed = {stage for stage, value in results.items() if value is not None}
    undone = results.keys() - passed | ({to} if again else set())
    _set_passed_stages(update, through, passed, undone)
    update.remove(*(layout.prefix + stage for stage in sorted(undone)))
    for stage, value in results.items():
        kept = change.before.kept.get(stage)
        if value is not None and not (
            kept is not None and is_plain(kept) and kept["output"] == value
        ):
            update.set(layout.prefix + stage, values.encode(value, place))
    for put in change.puts:
        if put.kind == "payload":
            of = next((stage for stage, value in results.items() if value is put.value), None)
            payload = values.encode(put.value, place) if of is None else {"M": {"of": {"S": of}}}
            update.set(f"payload_{put.stage}", payload)
        elif put.kind == "input":
            update.set("input", input_of(put.value, change.after.key, layout, values, place))
            columns = column_values(put.value, layout)
            update.set_all({name: value for name, value in columns.items() if name not in OWN})
        elif put.kind == "waiting":
            update.remove(WAITING + put.stage)


def _set_passed_stages(
    update: Update, through: frozenset[str], passed: set[str], undone: set[str]
) -> None:
    """Stages that were passed, and those whose result is taken back. DynamoDB takes one change of
    an attribute in an update."""
    if passed and undone:
        rest = sorted((through | passed) - undone)
        if rest:
            update.set("through", {"SS": rest})
        else:
            update.remove("through")
    elif passed:
        update.add("through", {"SS": sorted(passed)})
    elif undone:
        update.delete("through", {"SS": sorted(undone)})


def _set_queued_times(update: Update, change: Change) -> None:
    before, after = change.before, change.after
    if records_offer(change):
        update.set("lastQueued", {"S": iso(after.updated_at)})
        if before.stage != after.stage or before.status is Status.PENDING or before.terminal:
            update.set("firstQueued", {"S": iso(after.updated_at)})
    elif before.stage != after.stage and not after.terminal:
        update.remove("firstQueued", "lastQueued")


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
