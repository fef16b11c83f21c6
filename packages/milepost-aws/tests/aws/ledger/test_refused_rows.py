"""Rows that DynamoDB refuses, and limits on the growth of rows: a failure of one item, never of a
stage or shard."""

from __future__ import annotations

from typing import Any

import pytest
from tests.aws.ledger.synchronous_ledger import SynchronousLedger, fill_row

from milepost.blobs.memory import MemoryBlobs
from milepost.core.change import change
from milepost.core.outcome import Done, NotYet, Retry
from milepost.core.status import Reason, Status
from milepost.engine.context import Context
from milepost.engine.work.settle import settle
from milepost.ports.runner import JobResult
from milepost_aws.ledger.tables.attribute_rules import LONG_TRAIL, LONG_TRAIL_BYTES
from milepost_aws.ledger.tables.conditional_write import Update
from milepost_aws.ledger.tables.journal import BLOCK, LARGEST_BLOCK, encode_refs, portions
from milepost_testing.clock import SeededChance
from milepost_testing.contract.world import World


def fill(ledger: SynchronousLedger, key: str, name: str) -> None:
    """Fill the row until there is no room left, as a careless hand does, or an earlier version of
    Milepost did."""
    fill_row(ledger.store, "parcels", key, name)


def image(ledger: SynchronousLedger, key: str) -> dict[str, Any]:
    found: dict[str, Any] = ledger.store.images("parcels", [key])[key]
    return found


def trail_bytes(row: dict[str, Any]) -> int:
    return sum(len(str(entry)) for entry in row.get("trail", {}).get("L", ()))


def say(world: World, key: str, number: int, length: int) -> None:
    """One more line, such as a stage makes that says something new at every look."""
    row = world.row(key)
    note = f"{number} blocks are written; " + "v" * length
    assert world.ledger.apply(
        [change(row, Reason.NOTED, world.now, row.status, {"note": note[:2000]}, note=note)],
        world.now,
    ) == [None]


# The trail ----------------------------------------------------------------------------------------
def test_lines_that_are_in_the_journal_leave_their_row(ledger: SynchronousLedger) -> None:
    world = World(ledger)
    world.add("a")
    for number in range(4 * LONG_TRAIL):
        say(world, "a", number, 60)
        assert len(image(ledger, "a")["trail"]["L"]) <= LONG_TRAIL + 1
    assert len(world.lines("a")) == 4 * LONG_TRAIL + 1
    seqs = [(written.key, written.line.version) for written in ledger.feed(0, 1000)]
    assert len(seqs) == len(set(seqs)) == 4 * LONG_TRAIL + 1, "each line is in the feed once"
    world.audit()


def test_a_row_stays_small_while_nobody_reads_the_stream(ledger: SynchronousLedger) -> None:
    world = World(ledger)
    world.add("a")
    lines = 150
    for number in range(lines):
        row = world.row("a")
        note = f"{number} blocks are written; " + "v" * 1500
        noted = change(row, Reason.NOTED, world.now, row.status, {"note": note}, note=note)
        assert ledger.ledger.apply([noted], world.now) == [None], (
            "the relay is down: nothing follows"
        )
        if number % 10 == 0:
            assert trail_bytes(image(ledger, "a")) < LONG_TRAIL_BYTES + 3 * 2200
    assert len(world.lines("a")) == lines + 1, "the history is whole before it is copied out"
    ledger.follower.follow(world.now)
    versions = [written.line.version for written in ledger.feed(0, 1000)]
    assert versions == list(range(1, lines + 2)), "each line is told once, in order"
    say(world, "a", lines, 60)
    assert len(image(ledger, "a")["trail"]["L"]) <= LONG_TRAIL + 1, (
        "what has been copied out leaves the row"
    )
    world.audit()


# A row that is full -------------------------------------------------------------------------------
def test_a_full_row_is_a_counted_failure_at_its_claim_and_the_others_are_claimed(
    ledger: SynchronousLedger,
) -> None:
    world = World(ledger)
    world.add("a", "bad", "c")
    fill(ledger, "bad", "note")
    claimed = [world.claim() for _ in range(3)]
    assert {item.key for answer in claimed for item in answer.items} == {"a", "c"}
    assert [refused.key for answer in claimed for refused in answer.refused] == ["bad"]
    row = world.row("bad")
    assert (row.status, row.attempts, row.note) == (Status.RETRY_SCHEDULED, 1, None)
    assert row.error is not None
    assert row.error.category == "CANNOT_BE_STORED"
    world.clock.advance("1h")
    again = [item for _ in range(3) for item in world.claim().items if item.key == "bad"]
    assert len(again) == 1, "without the note it fits: it is tried again"
    assert world.settle(again[0], Done()) is None
    world.audit()


def test_a_row_that_others_have_filled_is_set_aside_and_stays_visible(
    ledger: SynchronousLedger,
) -> None:
    world = World(ledger)
    world.add("a", "bad", "c")
    fill(ledger, "bad", "scans")
    assert {item.key for _ in range(3) for item in world.claim().items} == {"a", "c"}
    asides, _ = ledger.quarantine.entries(10)
    [aside] = [aside for aside in asides if aside.kind == "row"]
    assert "cannot be claimed" in aside.reason
    assert aside.content["row"]["id"] == "bad"
    assert "dueShard" not in image(ledger, "bad"), (
        "it is not due, or it would be met again and again"
    )
    world.clock.advance("15d")
    assert "bad" not in {item.key for _ in range(3) for item in world.claim().items}
    assert len([aside for aside in ledger.quarantine.entries(10)[0] if aside.kind == "row"]) == 1, (
        "it is set aside once"
    )
    layout = ledger.store.layout("parcels")
    assert layout is not None
    mend = Update(layout, "bad")
    mend.remove("scans")
    ledger.store.requests.call("dynamodb", "update_item", **mend.params())
    [answer] = ledger.quarantine.replay(
        {"parcels": world.plan}, [aside.id], world.now, by="ops", why="the scans are elsewhere now"
    )
    assert answer.done, answer.why
    ledger.follower.follow(world.now)
    world.clock.advance("1h")
    assert "bad" in {item.key for _ in range(3) for item in world.claim().items}


def test_an_outcome_that_does_not_fit_is_a_counted_try_of_its_item_alone(
    ledger: SynchronousLedger,
) -> None:
    world = World(ledger)
    world.add("a", "bad")
    items = {item.key: item for item in world.claim().items}
    fill(ledger, "bad", "scans")
    ctx = Context(ledger, {"parcels": world.plan}, world.clock, SeededChance(), MemoryBlobs())  # type: ignore[arg-type]
    long = NotYet(after="1h", note="x" * 2000)
    settle(ctx, [JobResult(items["a"], long, 5), JobResult(items["bad"], long, 5)])
    assert world.row("a").status is Status.WAITING
    bad = world.row("bad")
    counted = (
        bad.status is Status.RETRY_SCHEDULED
        and bad.error is not None
        and bad.error.category == "CANNOT_BE_STORED"
    )
    assert counted or "dueShard" not in image(ledger, "bad"), "it is counted, or it is set aside"


def test_a_long_undecided_outcome_is_kept_apart(ledger: SynchronousLedger) -> None:
    world = World(ledger)
    world.add("a")
    item = world.take("a")
    told = {"type": "done", "output": "x" * 500_000}
    kept = change(
        item.row,
        Reason.UNDECIDED,
        world.now,
        item.row.status,
        {"undecided": told, "look_at": world.now, "lease": None},
    )
    assert ledger.apply([kept], world.now) == [None]
    assert "blob" in image(ledger, "a")["undecided"]["M"]
    assert world.row("a").undecided == told


# Blocks -------------------------------------------------------------------------------------------
@pytest.mark.parametrize("character", ["x", "é", "\u20ac", '"'])
def test_blocks_are_cut_by_bytes(character: str) -> None:
    refs = [("mail", f"{number}" + character * 1990, 1) for number in range(1000)]
    lengths = portions(refs, BLOCK)
    assert sum(lengths) == len(refs)
    assert max(lengths) <= BLOCK
    first = 0
    for length in lengths:
        assert len(encode_refs(refs[first : first + length]).encode()) <= LARGEST_BLOCK + 1000
        first += length
    assert portions([("mail", "short", 1)] * 250, BLOCK) == [100, 100, 50]


def test_a_batch_of_long_keys_is_told_whole(ledger: SynchronousLedger) -> None:
    world = World(ledger)
    keys = [f"{number:03d}" + "\u20ac" * 660 for number in range(230)]
    assert world.add(*keys) == [None] * len(keys)
    told = [written.key for written in ledger.feed(0, 1000)]
    assert sorted(told[: len(keys)]) == sorted(keys)
    assert world.settle(world.claim(want=1).items[0], Retry("busy")) is None
