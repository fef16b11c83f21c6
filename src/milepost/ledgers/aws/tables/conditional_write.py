"""A change as one conditional write: what is set and removed, under which condition, and how a lost answer is recognised."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

import msgspec

from milepost.core.change import Change, keeps_lease
from milepost.core.history import attempt_to_public
from milepost.core.item import Row
from milepost.core.status import FAILED, NOTES, Status
from milepost.ledgers.aws.names import iso
from milepost.ledgers.aws.tables.item_rows import Handle, attributes, copied_of, input_of, links_of, packed_trail
from milepost.ledgers.aws.tables.keys import WAITING, Image, Layout
from milepost.ledgers.aws.tables.values import Values

LONG_TRAIL, LONG_TRAIL_BYTES = 16, 65_536
"""A trail of more lines than this, that take more room than this, is moved into a blob by the next write."""
RETRIES_SHOWN = 20
RETRY_ENTRY = 1024
_encode = msgspec.json.Encoder().encode
_NO_HANDLE = Handle()


class Update:
    """One UpdateItem in the making; names and values are numbered, so that no attribute's name can be a reserved word."""

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
        self._parts["SET"].append(f"{name} = list_append(if_not_exists({name}, {self.value({'L': []})}), {self.value({'L': entries})})")

    def set_or(self, attribute: str, source: str, value: dict[str, Any]) -> None:
        """Set it to what `source` is on the row, or, where that is absent, to the value."""
        self._parts["SET"].append(f"{self.name(attribute)} = if_not_exists({self.name(source)}, {self.value(value)})")

    def move(self, attribute: str, to: str) -> None:
        """The attribute's present value, if it has one, becomes the other's."""
        self._parts["SET"].append(f"{self.name(to)} = if_not_exists({self.name(attribute)}, {self.name(to)})")
        self.remove(attribute)

    def remove(self, attribute: str) -> None:
        self._parts["REMOVE"].append(self.name(attribute))

    def remove_at(self, attribute: str, place: int) -> None:
        """Take one entry off a list."""
        self._parts["REMOVE"].append(f"{self.name(attribute)}[{place}]")

    def add(self, attribute: str, value: dict[str, Any]) -> None:
        self._parts["ADD"].append(f"{self.name(attribute)} {self.value(value)}")

    def delete(self, attribute: str, value: dict[str, Any]) -> None:
        self._parts["DELETE"].append(f"{self.name(attribute)} {self.value(value)}")

    def replace(self, before: Image, after: Image) -> None:
        """Set what differs, remove what is gone."""
        for attribute, value in after.items():
            if before.get(attribute) != value:
                self.set(attribute, value)
        for attribute in before.keys() - after.keys():
            self.remove(attribute)

    def equal(self, attribute: str, value: dict[str, Any] | None) -> None:
        """The row must have this value there, or, with None, have no such attribute."""
        if value is None:
            self._conditions.append(f"attribute_not_exists({self.name(attribute)})")
        else:
            self._conditions.append(f"{self.name(attribute)} = {self.value(value)}")

    def only_if(self, condition: str) -> None:
        self._conditions.append(condition)

    def params(self) -> dict[str, Any]:
        """The request's parameters. Without a condition it would make a ghost of a row that is gone, so there always is one."""
        expression = " ".join(f"{verb} {', '.join(parts)}" for verb, parts in self._parts.items() if parts)
        params: dict[str, Any] = {
            "TableName": self.layout.table,
            "Key": self.layout.key_image(self.key),
            "UpdateExpression": expression,
            "ConditionExpression": " AND ".join(self._conditions) or f"attribute_exists({self.name(self.layout.key[0])})",
            "ExpressionAttributeNames": {placeholder: name for name, placeholder in self._names.items()},
            "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
        }
        if self._values:
            params["ExpressionAttributeValues"] = self._values
        return params


def place_of(route: str, key: str) -> str:
    """Where an item's blobs are: a name that any store takes."""
    return f"{route}/{sha256(key.encode('utf-8', 'surrogatepass')).hexdigest()[:32]}"


def put_of(change: Change, content: Any, layout: Layout, values: Values, token: str) -> Image:
    """The row of a new item."""
    row = change.after
    place = place_of(row.route, row.key)
    image = {
        **layout.naming(row.key),
        **attributes(row, layout),
        "input": input_of(content, row.key, layout, values, place),
        "createToken": {"S": token},
        "trail": {"L": [values.encode_line(change.before.head, change.body, place)]},
    }
    if row.status is Status.QUEUED:
        image["firstQueued"] = image["lastQueued"] = {"S": iso(row.updated_at)}
    return image


def update_of(change: Change, layout: Layout, values: Values, copied: int | None = None) -> Update:
    """The one write of a change, under its precondition (see `core.change.holds`). `copied`: up to which version all lines are
    known to be in the history table; they leave the row with this write. Only the relay knows that."""
    before, after = change.before, change.after
    update = Update(layout, before.key)
    handle = before.handle if isinstance(before.handle, Handle) else _NO_HANDLE
    place = place_of(before.route, before.key)
    stored = attributes(before, layout)
    wanted = attributes(after, layout)
    for name in ("dueShard", "dueAt"):
        # Set in any case: the row may stand elsewhere in the index just now (held, or late in being told).
        stored.pop(name, None)
    if keeps_lease(change):
        _leave_expiry(update, change, stored, wanted)
    elif before.lease is not None:
        # In any case too: an extension may have put it on the row since.
        stored.pop("lookAt", None)
        if "lookAt" not in wanted:
            update.remove("lookAt")
    if after.terminal and after.status not in FAILED:
        # `finish` takes it out of the index with the write that marks its lines as copied out; here that would be one write more.
        wanted.pop("dueShard", None)
        wanted.pop("dueAt", None)
    update.replace(stored, wanted)
    if before.terminal and not after.terminal:
        update.remove("ttl")
    if before.stage != after.stage:
        # A put whose answer was lost is not repeated for so long; and every byte counts on a row of nearly 1 KB.
        update.remove("createToken")
    _keep(update, change, layout, values, place)
    if after.undecided is not None and after.undecided != before.undecided:
        update.set("undecided", values.encode(after.undecided, place))
    elif before.undecided is not None and after.undecided is None:
        update.remove("undecided")
    _put(update, change, layout, values, place, handle.through)
    _queued(update, change)
    if change.line is not None:
        entry = values.encode_line(before.head, change.body, place)
        if copied is not None:
            update.set("trail", {"L": [entry]})
        elif is_long(handle.trail):
            update.set("trail", {"L": [*packed_trail(handle.trail, values, place), entry]})
            # The relay may have copied lines out since: then they have left the trail.
            update.only_if(f"size({update.name('trail')}) = {update.value({'N': str(len(handle.trail))})}")
            update.only_if(f"{update.name('trail')}[0] = {update.value(handle.trail[0])}")
        else:
            update.append("trail", [entry])
        if change.line.attempt is not None:
            told = _encode(attempt_to_public(change.line.attempt, change.line.at, after.correlation_id))[:RETRY_ENTRY]
            update.set("retryHistory", {"L": [*handle.retries, {"S": told.decode(errors="ignore")}][-RETRIES_SHOWN:]})
    elif copied is not None:
        update.remove("trail")
    if copied is not None:
        update.set("copied", {"N": str(copied)})
    require(update, before, handle, layout)
    if change.expired_at is not None:
        _require_expiry(update, before)
    return update


def _leave_expiry(update: Update, change: Change, stored: Image, wanted: Image) -> None:
    """The worker may have extended its lease since: the row keeps its present expiry. Once the item has been reported overdue, the
    expiry alone says when it is due."""
    told = change.before.due_at != change.before.look_at == change.after.due_at
    for name in ("dueShard", "dueAt", "lookAt", "leaseUntil"):
        wanted.pop(name, None)
        stored.pop(name, None)
    if told:
        update.move("lookAt", "dueAt")


def _require_expiry(update: Update, before: Row) -> None:
    """The lease runs out when it did, as it was read: at `lookAt`, or, where the row has none, at `dueAt` (see `image.row_of`)."""
    look, due, expiry = update.name("lookAt"), update.name("dueAt"), update.value({"S": iso(before.look_at or 0)})
    update.only_if(f"({look} = {expiry} OR (attribute_not_exists({look}) AND {due} = {expiry}))")


def is_long(trail: Sequence[dict[str, Any]]) -> bool:
    """Do the lines that wait on a row take so much room that they are to be moved apart?"""
    return len(trail) > LONG_TRAIL and sum(len(entry.get("B", b"")) for entry in trail) > LONG_TRAIL_BYTES


def require(update: Update, before: Row, handle: Handle, layout: Layout) -> None:
    """The row is still the one that was read, and nobody has confirmed its stage since."""
    update.equal("version", {"N": str(before.version)})
    update.equal("head", attributes(before, layout)["head"])
    update.equal("status", {"S": before.status.value})
    update.equal("queue", {"S": before.stage})
    update.equal("lease", None if before.lease is None else {"S": before.lease})
    update.equal(layout.prefix + before.stage, handle.confirmation)


def _keep(update: Update, change: Change, layout: Layout, values: Values, place: str) -> None:
    """Outside outcomes that wait: a plain confirmation is the stage's own attribute, as an outsider would set it."""
    before, after = change.before.kept, change.after.kept
    if before == after:
        return
    results = {put.stage for put in change.puts if put.kind == "result"}
    for stage, told in after.items():
        if before.get(stage) != told and is_plain(told):
            update.set(layout.prefix + stage, values.encode(told.get("output"), place))
    for stage in before.keys() - after.keys():
        if is_plain(before[stage]) and stage not in results:
            update.remove(layout.prefix + stage)
    others = [{stage: told for stage, told in kept.items() if not is_plain(told)} for kept in (before, after)]
    if others[1]:
        update.set("kept", values.encode(others[1], place))
    elif others[0]:
        update.remove("kept")


def is_plain(told: Any) -> bool:
    return isinstance(told, dict) and told.get("type") == "done" and told.keys() <= {"type", "output"} and told.get("output") is not None


def _put(update: Update, change: Change, layout: Layout, values: Values, place: str, through: frozenset[str]) -> None:
    """Results and payloads. A payload that is the result before it is only referred to.

    A stage that the item comes to again (sent back, or after that) is to answer anew: what it answered before leaves the row, or
    the new answer would be taken for a quarrel with it."""
    results = {put.stage: put.value for put in change.puts if put.kind == "result"}
    to = change.after.stage
    again = to in through and (to != change.before.stage or change.before.terminal) and not change.after.terminal
    if again:
        rest = (through | {stage for stage, value in results.items() if value is not None}) - {to}
        rest -= {stage for stage, value in results.items() if value is None}
        update.remove(layout.prefix + to)
        if rest:
            update.set("through", {"SS": sorted(rest)})
        else:
            update.remove("through")
    else:
        _pass(update, through, results)
    for stage, value in results.items():
        name = layout.prefix + stage
        kept = change.before.kept.get(stage)
        if value is None:
            if not (again and stage == to):
                update.remove(name)
            continue
        if not (kept is not None and is_plain(kept) and kept["output"] == value):
            update.set(name, values.encode(value, place))
    for put in change.puts:
        if put.kind == "payload":
            of = next((stage for stage, value in results.items() if value is put.value), None)
            told = values.encode(put.value, place) if of is None else {"M": {"of": {"S": of}}}
            update.set(f"payload_{put.stage}", told)
        elif put.kind == "input":
            update.set("input", input_of(put.value, change.after.key, layout, values, place))
        elif put.kind == "waiting":
            update.remove(WAITING + put.stage)


def _pass(update: Update, through: frozenset[str], results: Mapping[str, Any]) -> None:
    """Stages that were passed, and those whose result is taken back. DynamoDB takes one change of an attribute in an update."""
    passed = sorted(stage for stage, value in results.items() if value is not None)
    undone = sorted(stage for stage, value in results.items() if value is None)
    if passed and undone:
        update.set("through", {"SS": sorted((through | {*passed}) - {*undone})})
    elif passed:
        update.add("through", {"SS": passed})
    elif undone:
        update.delete("through", {"SS": undone})


def _queued(update: Update, change: Change) -> None:
    before, after = change.before, change.after
    if offers(change):
        update.set("lastQueued", {"S": iso(after.updated_at)})
        if before.stage != after.stage or before.status is Status.PENDING or before.terminal:
            update.set("firstQueued", {"S": iso(after.updated_at)})
    elif before.stage != after.stage and not after.terminal:
        update.remove("firstQueued")
        update.remove("lastQueued")


def offers(change: Change) -> bool:
    """Does this write say that the stage has been told? Then it must be told first."""
    if change.after.status is not Status.QUEUED:
        return False
    return change.line is None or change.line.reason not in NOTES


def was_ours(change: Change, image: Image, values: Values) -> bool | None:
    """Our condition failed: is the row as it is because this very write was carried out before, and its answer lost?
    None: it has moved on since, and only the history can tell."""
    after = change.after
    if change.line is None:
        if after.lease is not None and change.before.lease != after.lease:
            return image.get("lease") == {"S": after.lease}
        return after.settled != change.before.settled and after.settled is not None and image.get("lastLease") == {"S": after.settled}
    for link in links_of(image, values):
        if link.version == change.line.version:
            return link.body == change.body and link.previous == change.before.head
    return None if copied_of(image) >= change.line.version else False
