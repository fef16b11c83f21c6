"""Attribute rules: random changes make the same write as before there were rules, and the rules may
be in any order."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from milepost.blobs.memory import MemoryBlobs
from milepost.core.change import Change, keeps_lease
from milepost.core.history import Attempt, Line, attempt_to_public, encode_line
from milepost.core.item import Failure, Put, Row
from milepost.core.routes.plan import Plan
from milepost.core.routes.route import Route
from milepost.core.status import FAILED, TERMINAL, Reason, Status
from milepost_aws.ledger.names import iso
from milepost_aws.ledger.tables.attribute_rules import (
    LONG_TRAIL,
    LONG_TRAIL_BYTES,
    RETRIES_SHOWN,
    RULES,
    RowWrite,
    _is_long,
    _require_expiry,
    _require_unchanged,
    _set_passed_stages,
    update_of,
)
from milepost_aws.ledger.tables.conditional_write import Update, is_plain, place_of, records_offer
from milepost_aws.ledger.tables.item_rows import (
    Handle,
    attributes,
    column_values,
    input_of,
    packed_trail,
    retry_entry,
)
from milepost_aws.ledger.tables.keys import BY_ATTRIBUTE, CONFIRMED_BY, OWN, WAITING, Layout
from milepost_aws.ledger.tables.values import Values

VALUES = Values(MemoryBlobs())
STAGES = ["first", "second", "third"]


def layout_of(**options: Any) -> Layout:
    route = Route("parcels", key="id", **options)
    for stage in STAGES:
        route.external(stage)
    return Layout.of(Plan(route), "t-parcels")


LAYOUTS = [layout_of(), layout_of(columns=("retryHistory", "nextRetryAt", "depot"))]

MOMENT = st.integers(1_000, 1_003)
STAGE = st.sampled_from(STAGES)
CONTENT = st.sampled_from([{"id": "p1", "depot": "north"}, {"grams": 1}, "done", "done"])
PLAIN = st.builds(
    dict, type=st.just("done"), output=CONTENT, by=st.sampled_from(["", "depot", "attribute:x"])
)
OUTCOMES = PLAIN | st.just({"type": "rejected", "error": "no"})
FAILURE = Failure("BUSY", "the scale is busy", 1_000, "group")
LINE = b"x" * (LONG_TRAIL_BYTES // LONG_TRAIL)


@st.composite
def handles(draw: st.DrawFn) -> Handle | None:
    if draw(st.integers(0, 4)) == 0:
        return None
    lines = draw(st.sampled_from([0, 1, LONG_TRAIL + 1]))
    trail = tuple(VALUES.encode_line(bytes(32), b"%d" % nth, "x") for nth in range(lines))
    if draw(st.booleans()):
        trail = tuple({"B": entry["B"] + LINE} for entry in trail)
    return Handle(
        draw(st.sampled_from([None, {"S": "yes"}])),
        ({"M": {}},) * draw(st.sampled_from([0, RETRIES_SHOWN])),
        frozenset(draw(st.sets(STAGE))),
        trail,
    )


@st.composite
def row_fields(draw: st.DrawFn) -> dict[str, Any]:
    status = draw(st.sampled_from(Status))
    ended = status in TERMINAL
    return {
        "stage": draw(STAGE),
        "status": status,
        "updated_at": draw(MOMENT),
        "entered_at": draw(MOMENT),
        "look_at": None if ended else draw(st.none() | MOMENT),
        "overdue_at": None if ended else draw(st.none() | MOMENT),
        "lease": draw(st.sampled_from([None, "lease-1", "lease-2"])),
        "holder": draw(st.sampled_from([None, "worker"])),
        "attempts": draw(st.integers(0, 1)),
        "handed_over": draw(st.booleans()),
        "error": draw(st.sampled_from([None, FAILURE])),
        "kept": draw(st.dictionaries(STAGE, OUTCOMES, max_size=2)),
        "undecided": draw(st.sampled_from([None, None, {"type": "done"}, {"type": "retry"}])),
        "settled": draw(st.sampled_from([None, "digest"])),
    }


@st.composite
def puts(draw: st.DrawFn) -> tuple[Put, ...]:
    results = [
        Put("result", stage, draw(st.none() | CONTENT))
        for stage in draw(st.sets(STAGE, max_size=2))
    ]
    others = [
        Put(kind, "" if kind == "input" else draw(STAGE), draw(CONTENT))
        for kind in draw(st.sets(st.sampled_from(["payload", "input", "waiting"])))
    ]
    return (*results, *others)


@st.composite
def changes(draw: st.DrawFn) -> Change:
    before = Row(
        "parcels", "p1", "first", Status.PENDING, 3, bytes(32), 1_000, 0, 0, "p1", bytes(32)
    )
    before = replace(before, handle=draw(handles()), **draw(row_fields()))
    fields = draw(row_fields())
    unchanged = draw(st.sets(st.sampled_from(sorted(fields))))
    if draw(st.booleans()):
        unchanged |= {"lease", "look_at"}
    after = replace(before, **{name: fields[name] for name in fields.keys() - unchanged})
    line = None
    if draw(st.booleans()):
        after = replace(after, version=4, head=b"\x01" * 32)
        line = Line(4, 1_000, draw(st.sampled_from(Reason)), before.stage, after.status)
        if draw(st.booleans()):
            line = replace(line, attempt=Attempt(1, 1, FAILURE))
    body = b"" if line is None else encode_line(line)
    return Change(before, after, line, body, draw(puts()), draw(st.none() | MOMENT))


def update_without_rules(
    change: Change, layout: Layout, values: Values, copied: int | None
) -> Update:
    """`update_of` as it was before there were rules: the order of its steps matters."""
    before, after = change.before, change.after
    update = Update(layout, before.key)
    write = row_write(change, layout, copied, update)
    stored, wanted = attributes(before, layout), attributes(after, layout)
    for name in ("dueShard", "dueAt"):
        stored.pop(name, None)
    if keeps_lease(change):
        for name in ("dueShard", "dueAt", "lookAt", "leaseUntil"):
            wanted.pop(name, None)
            stored.pop(name, None)
        if before.due_at != before.look_at == after.due_at:
            update.move("lookAt", "dueAt")
    elif before.lease is not None:
        stored.pop("lookAt", None)
        if "lookAt" not in wanted:
            update.remove("lookAt")
    if after.terminal and after.status not in FAILED:
        wanted.pop("dueShard", None)
        wanted.pop("dueAt", None)
    update.replace(stored, wanted)
    if before.terminal and not after.terminal:
        update.remove("ttl")
    if before.stage != after.stage:
        update.remove("createToken")
    if before.kept != after.kept:
        waiting_outcomes_without_rules(write)
    if after.undecided is not None and after.undecided != before.undecided:
        update.set("undecided", values.encode(after.undecided, write.blobs))
    elif before.undecided is not None and after.undecided is None:
        update.remove("undecided")
    content_without_rules(write)
    if records_offer(change):
        update.set("lastQueued", {"S": iso(after.updated_at)})
        if before.stage != after.stage or before.status is Status.PENDING or before.terminal:
            update.set("firstQueued", {"S": iso(after.updated_at)})
    elif before.stage != after.stage and not after.terminal:
        update.remove("firstQueued", "lastQueued")
    handle = write.handle
    if change.line is not None:
        entry = values.encode_line(before.head, change.body, write.blobs)
        if copied is not None:
            update.set("trail", {"L": [entry]})
        elif _is_long(handle.trail):
            update.set("trail", {"L": [*packed_trail(handle.trail, values, write.blobs), entry]})
            update.only_if(
                f"size({update.name('trail')}) = {update.value({'N': str(len(handle.trail))})}"
            )
            update.only_if(f"{update.name('trail')}[0] = {update.value(handle.trail[0])}")
        else:
            update.append("trail", [entry])
        if change.line.attempt is not None:
            attempt = attempt_to_public(change.line.attempt, change.line.at, after.correlation_id)
            update.set(
                "retryHistory", {"L": [*handle.retries, retry_entry(attempt)][-RETRIES_SHOWN:]}
            )
    elif copied is not None:
        update.remove("trail")
    if copied is not None:
        update.set("copied", {"N": str(copied)})
    _require_unchanged(write)
    if change.expired_at is not None:
        _require_expiry(update, before)
    return update


def waiting_outcomes_without_rules(write: RowWrite) -> None:
    update, layout, values, place = write.update, write.layout, write.values, write.blobs
    before, after = write.before.kept, write.after.kept
    results = {put.stage for put in write.change.puts if put.kind == "result"}
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


def content_without_rules(write: RowWrite) -> None:
    update, change, layout = write.update, write.change, write.layout
    values, place, through = write.values, write.blobs, write.handle.through
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


def row_write(change: Change, layout: Layout, copied: int | None, update: Update) -> RowWrite:
    before, after = change.before, change.after
    return RowWrite(
        update,
        change,
        before,
        after,
        attributes(before, layout),
        attributes(after, layout),
        layout,
        VALUES,
        place_of(before.route, before.key),
        before.handle if isinstance(before.handle, Handle) else Handle(),
        keeps_lease(change),
        copied,
    )


COPIED = st.sampled_from([None, None, 2])


@settings(max_examples=250)
@given(changes(), st.sampled_from(LAYOUTS), COPIED)
def test_a_random_change_is_written_as_before(
    change: Change, layout: Layout, copied: int | None
) -> None:
    expected = update_without_rules(change, layout, VALUES, copied).params()
    assert update_of(change, layout, VALUES, copied).params() == expected


@given(changes(), st.sampled_from(LAYOUTS), COPIED, st.permutations(RULES))
def test_the_rules_may_be_in_any_order(
    change: Change, layout: Layout, copied: int | None, rules: Sequence[Any]
) -> None:
    in_order, shuffled = Update(layout, "p1"), Update(layout, "p1")
    for update, its_rules in ((in_order, RULES), (shuffled, rules)):
        write = row_write(change, layout, copied, update)
        for rule in its_rules:
            if rule.applies(write):
                rule.write(write)
    assert parts_of(shuffled) == parts_of(in_order)


def parts_of(update: Update) -> dict[str, list[str]]:
    """The parts of the expressions with the names and values in place of their numbers."""
    names = {number: name for name, number in update._names.items()}
    known: dict[str, Any] = {**names, **update._values}

    def resolved(part: str) -> str:
        return re.sub(r"[#:][nv]\d+", lambda number: repr(known[number[0]]), part)

    parts = {**update._parts, "condition": update._conditions}
    return {verb: sorted(map(resolved, texts)) for verb, texts in parts.items()}
