"""Rules for the attributes of a row: what the write of a change sets and removes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct

from milepost.core.change import Change, keeps_lease
from milepost.core.history import attempt_to_public
from milepost.core.item import Put, Row
from milepost.core.status import FAILED, Status
from milepost_aws.ledger.names import iso
from milepost_aws.ledger.tables.conditional_write import Update, is_plain, place_of, records_offer
from milepost_aws.ledger.tables.item_rows import (
    Handle,
    attributes,
    column_values,
    input_of,
    packed_trail,
    retry_entry,
)
from milepost_aws.ledger.tables.keys import BY_ATTRIBUTE, CONFIRMED_BY, OWN, WAITING, Image, Layout
from milepost_aws.ledger.tables.values import Values

LONG_TRAIL, LONG_TRAIL_BYTES = 16, 65_536
"""The next write moves a trail into a blob if it has more lines and more bytes than this."""
RETRIES_SHOWN = 20
INDEX = ("dueShard", "dueAt")
"""The row's partition and time in the due index."""
LEASE_EXPIRY = (*INDEX, "lookAt", "leaseUntil")
"""Attributes that change when a worker extends its lease."""
_NO_HANDLE = Handle()


class RowWrite(Struct, frozen=True):
    """The write of one change, as the rules see it."""

    update: Update
    change: Change
    before: Row
    after: Row
    old: Image
    """The state of the row before, as attributes."""
    new: Image
    """The state of the row after, as attributes."""
    layout: Layout
    values: Values
    blobs: str
    """Prefix of the names of the item's blobs."""
    handle: Handle
    keeps_lease: bool
    """The item stays with its worker. Whether that has extended its lease since the read is not
    known."""
    copied: int | None
    """The version up to which the journal has all lines, if this write removes them."""


class AttributeRule(Struct, frozen=True):
    """One rule: when its condition holds, the write sets or removes the attributes it is named
    after."""

    name: str
    applies: Callable[[RowWrite], bool]
    write: Callable[[RowWrite], None]


def update_of(change: Change, layout: Layout, values: Values, copied: int | None = None) -> Update:
    """The single write of a change, under its precondition (see `core.change.holds`). `copied`: the
    journal has all lines up to this version, so that this write removes them from the row. Only the
    relay knows that."""
    before, after = change.before, change.after
    write = RowWrite(
        Update(layout, before.key),
        change,
        before,
        after,
        attributes(before, layout),
        attributes(after, layout),
        layout,
        values,
        place_of(before.route, before.key),
        before.handle if isinstance(before.handle, Handle) else _NO_HANDLE,
        keeps_lease(change),
        copied,
    )
    for rule in RULES:
        if rule.applies(write):
            rule.write(write)
    _require_unchanged(write)
    if change.expired_at is not None:
        _require_expiry(write.update, before)
    return write.update


# The state of the row -----------------------------------------------------------------------------
def _always(write: RowWrite) -> bool:
    return True


def _set_state(write: RowWrite) -> None:
    """Set the attributes that differ from the row as it was read, and remove those that it has no
    more."""
    old = dict(write.old)
    new = dict(write.new)
    for name in _unknown_by_now(write):
        old.pop(name, None)
    for name in _left_alone(write):
        old.pop(name, None)
        new.pop(name, None)
    write.update.replace(old, new)


def _unknown_by_now(write: RowWrite) -> tuple[str, ...]:
    """The attributes that may have changed since the row was read: they are set in any case. The
    row may be elsewhere in the index (paused, or its events not delivered yet), and its worker may
    have extended the lease."""
    return INDEX if write.before.lease is None else (*INDEX, "lookAt")


def _left_alone(write: RowWrite) -> tuple[str, ...]:
    """The attributes that this write leaves as they are on the row."""
    if write.keeps_lease:
        return LEASE_EXPIRY
    if write.after.terminal and write.after.status not in FAILED:
        # `finish` removes it from the index in the write that marks its lines as copied; doing so
        # here would cost one more write.
        return INDEX
    return ()


def _keeps_reported_lease(write: RowWrite) -> bool:
    """Whether the item was reported overdue, and stays with its worker."""
    before, after = write.before, write.after
    return write.keeps_lease and before.due_at != before.look_at == after.due_at


def _set_due_at_expiry(write: RowWrite) -> None:
    """The item is next due when the present lease expires."""
    write.update.move("lookAt", "dueAt")


def _loses_expiry(write: RowWrite) -> bool:
    """Whether a claim ends. A lease extension may have set its `lookAt` since the read."""
    if write.before.lease is None or write.keeps_lease:
        return False
    return "lookAt" not in write.new


def _is_unfinished_again(write: RowWrite) -> bool:
    return write.before.terminal and not write.after.terminal


def _changes_stage(write: RowWrite) -> bool:
    return write.before.stage != write.after.stage


# Outcomes and content -----------------------------------------------------------------------------
def _changes_waiting_outcomes(write: RowWrite) -> bool:
    return write.before.kept != write.after.kept


def _set_waiting_outcomes(write: RowWrite) -> None:
    """Write the outcomes that wait for their stage. A plain confirmation is the stage's own
    attribute, as a partner would set it."""
    update, layout, values = write.update, write.layout, write.values
    before, after = write.before.kept, write.after.kept
    results = {put.stage for put in write.change.puts if put.kind == "result"}
    for stage, outcome in after.items():
        if before.get(stage) != outcome and is_plain(outcome):
            update.set(layout.prefix + stage, values.encode(outcome.get("output"), write.blobs))
            if outcome.get("by"):
                update.set(CONFIRMED_BY + stage, {"S": outcome["by"]})
    for stage in before.keys() - after.keys():
        if not (before[stage].get("by") or BY_ATTRIBUTE).startswith(BY_ATTRIBUTE):
            update.remove(CONFIRMED_BY + stage)
        if is_plain(before[stage]) and stage not in results:
            update.remove(layout.prefix + stage)
    others = {stage: outcome for stage, outcome in after.items() if not is_plain(outcome)}
    if others:
        update.set("kept", values.encode(others, write.blobs))
    elif not all(map(is_plain, before.values())):
        update.remove("kept")


def _changes_undecided(write: RowWrite) -> bool:
    return bool(write.before.undecided != write.after.undecided)


def _set_undecided(write: RowWrite) -> None:
    if write.after.undecided is None:
        write.update.remove("undecided")
    else:
        write.update.set("undecided", write.values.encode(write.after.undecided, write.blobs))


def _enters_passed_stage(write: RowWrite) -> bool:
    """Whether the item enters a stage again that it had passed."""
    if write.after.terminal or write.after.stage not in write.handle.through:
        return False
    return _changes_stage(write) or write.before.terminal


def _has_content(write: RowWrite) -> bool:
    return bool(write.change.puts) or _enters_passed_stage(write)


def _set_content(write: RowWrite) -> None:
    """Write results and payloads. A payload that equals a result is stored as a reference to it.

    A stage that the item enters again has to answer again: its earlier answer leaves the row,
    otherwise the new one would count as a contradiction."""
    results = {put.stage: put.value for put in write.change.puts if put.kind == "result"}
    passed = {stage for stage, value in results.items() if value is not None}
    undone = results.keys() - passed
    if _enters_passed_stage(write):
        undone = undone | {write.after.stage}
    _set_passed_stages(write.update, write.handle.through, passed, undone)
    write.update.remove(*(write.layout.prefix + stage for stage in sorted(undone)))
    _set_results(write, results)
    for put in write.change.puts:
        if put.kind == "payload":
            _set_payload(write, put, results)
        elif put.kind == "input":
            _set_input(write, put.value)
        elif put.kind == "waiting":
            write.update.remove(WAITING + put.stage)


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


def _set_results(write: RowWrite, results: dict[str, Any]) -> None:
    """Set the results, except those that are on the row already: as plain confirmations."""
    for stage, value in results.items():
        kept = write.before.kept.get(stage)
        is_on_row = kept is not None and is_plain(kept) and kept["output"] == value
        if value is None or is_on_row:
            continue
        write.update.set(write.layout.prefix + stage, write.values.encode(value, write.blobs))


def _set_payload(write: RowWrite, put: Put, results: dict[str, Any]) -> None:
    source = next((stage for stage, value in results.items() if value is put.value), None)
    if source is None:
        payload = write.values.encode(put.value, write.blobs)
    else:
        payload = {"M": {"of": {"S": source}}}
    write.update.set(f"payload_{put.stage}", payload)


def _set_input(write: RowWrite, content: Any) -> None:
    layout = write.layout
    write.update.set("input", input_of(content, write.after.key, layout, write.values, write.blobs))
    columns = column_values(content, layout)
    write.update.set_all({name: value for name, value in columns.items() if name not in OWN})


# Times of the offer -------------------------------------------------------------------------------
def _is_offered(write: RowWrite) -> bool:
    return records_offer(write.change)


def _set_queued_times(write: RowWrite) -> None:
    before, after = write.before, write.after
    write.update.set("lastQueued", {"S": iso(after.updated_at)})
    if before.stage != after.stage or before.status is Status.PENDING or before.terminal:
        write.update.set("firstQueued", {"S": iso(after.updated_at)})


def _waits_for_offer(write: RowWrite) -> bool:
    """Whether the item enters a stage without being offered to it."""
    if write.after.terminal or not _changes_stage(write):
        return False
    return not records_offer(write.change)


# History lines ------------------------------------------------------------------------------------
def _changes_trail(write: RowWrite) -> bool:
    return write.change.line is not None or write.copied is not None


def _set_trail(write: RowWrite) -> None:
    """Add the change's line, if it makes one, to those that wait on the row; remove those that are
    copied."""
    update, waiting = write.update, write.handle.trail
    if write.change.line is None:
        update.remove("trail")
        return
    entry = write.values.encode_line(write.before.head, write.change.body, write.blobs)
    if write.copied is not None:
        update.set("trail", {"L": [entry]})
    elif _is_long(waiting):
        update.set("trail", {"L": [*packed_trail(waiting, write.values, write.blobs), entry]})
        # If the relay has copied lines in the meantime, they are no longer in the trail.
        update.only_if(f"size({update.name('trail')}) = {update.value({'N': str(len(waiting))})}")
        update.only_if(f"{update.name('trail')}[0] = {update.value(waiting[0])}")
    else:
        update.append("trail", [entry])


def _is_long(trail: Sequence[dict[str, Any]]) -> bool:
    """Whether the lines waiting on a row are large enough to be moved into a blob."""
    return (
        len(trail) > LONG_TRAIL
        and sum(len(entry.get("B", b"")) for entry in trail) > LONG_TRAIL_BYTES
    )


def _records_attempt(write: RowWrite) -> bool:
    return write.change.line is not None and write.change.line.attempt is not None


def _set_retry_history(write: RowWrite) -> None:
    line = write.change.line
    assert line is not None
    assert line.attempt is not None
    attempt = attempt_to_public(line.attempt, line.at, write.after.correlation_id)
    entries = [*write.handle.retries, retry_entry(attempt)]
    write.update.set("retryHistory", {"L": entries[-RETRIES_SHOWN:]})


def _removes_copied_lines(write: RowWrite) -> bool:
    return write.copied is not None


def _set_copied(write: RowWrite) -> None:
    write.update.set("copied", {"N": str(write.copied)})


# Order: only that of the parts in the expression, and so of the numbers of names and values. No rule
# reads what another has written, and no two write the same attribute: any order makes the same row.
RULES = (
    AttributeRule("dueAt, lookAt", _keeps_reported_lease, _set_due_at_expiry),
    AttributeRule("lookAt", _loses_expiry, lambda write: write.update.remove("lookAt")),
    AttributeRule("state", _always, _set_state),
    AttributeRule("ttl", _is_unfinished_again, lambda write: write.update.remove("ttl")),
    # A put is not retried for that long after a lost answer, and every byte counts on a row of
    # almost 1 KB.
    AttributeRule("createToken", _changes_stage, lambda write: write.update.remove("createToken")),
    AttributeRule("waiting outcomes", _changes_waiting_outcomes, _set_waiting_outcomes),
    AttributeRule("undecided", _changes_undecided, _set_undecided),
    AttributeRule("through, results, payloads, input", _has_content, _set_content),
    AttributeRule("lastQueued, firstQueued", _is_offered, _set_queued_times),
    AttributeRule(
        "firstQueued, lastQueued",
        _waits_for_offer,
        lambda write: write.update.remove("firstQueued", "lastQueued"),
    ),
    AttributeRule("trail", _changes_trail, _set_trail),
    AttributeRule("retryHistory", _records_attempt, _set_retry_history),
    AttributeRule("copied", _removes_copied_lines, _set_copied),
)


# The precondition ---------------------------------------------------------------------------------
def _require_unchanged(write: RowWrite) -> None:
    """Condition: the row is unchanged since the read, and its stage has no new confirmation."""
    update, before = write.update, write.before
    update.equal("version", {"N": str(before.version)})
    update.equal("head", {"B": before.head})
    update.equal("status", {"S": before.status.value})
    update.equal("queue", {"S": before.stage})
    update.equal("lease", None if before.lease is None else {"S": before.lease})
    update.equal(write.layout.prefix + before.stage, write.handle.confirmation)


def _require_expiry(update: Update, before: Row) -> None:
    """Condition: the lease expiry is the one that was read: `lookAt`, or `dueAt` where the row has
    no `lookAt` (see `row_of`)."""
    look = update.name("lookAt")
    due = update.name("dueAt")
    expiry = update.value({"S": iso(before.look_at or 0)})
    update.only_if(f"({look} = {expiry} OR (attribute_not_exists({look}) AND {due} = {expiry}))")
