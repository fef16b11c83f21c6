"""Counters on DynamoDB agree with a fresh count after every kind of change, repair and renaming."""

from __future__ import annotations

import random
from threading import Barrier, Thread
from typing import Any

import msgspec
import pytest
from tests.aws.ledger.table_scene import Died, Process, Scene, writes

from milepost.core.change import Change
from milepost.core.counters import HOUR
from milepost.core.item import Failure, Row
from milepost.core.operators import cancel, move, retry, skip
from milepost.core.outcome import Done, NotYet, Outcome, Reject, Retry
from milepost.core.status import TERMINAL, Status
from milepost.ledgers.memory import MemoryLedger
from milepost.ledgers.memory.state import MemoryRecord
from milepost.ports.feed import Count, Group
from milepost.ports.items import Query
from milepost.ports.retention import DeliveredLines, PruneCriteria
from milepost_aws.ledger.names import iso
from milepost_aws.ledger.tables.counters import Counters, CounterTally, RowChange
from milepost_testing.contract.world import World, sample_route

NOW = 1_700_000_000_000
HERE = NOW // HOUR


@pytest.fixture
def counters(scene: Scene, process: Process) -> Counters:
    return Counters(process, scene.names)


def row(key: str = "p1", stage: str = "weigh", status: Status = Status.QUEUED, **more: Any) -> Row:
    more = {"route": "parcels", "version": 1, "entered_at": NOW, **more}
    return Row(
        key=key,
        stage=stage,
        status=status,
        head=b"",
        created_at=NOW,
        updated_at=NOW,
        correlation_id="c",
        input_digest=b"",
        **more,
    )


def new(*rows: Row) -> list[RowChange]:
    return [RowChange(msgspec.structs.replace(each, version=0, error=None), each) for each in rows]


def failure(message: str = "busy", at: int = NOW, group: str = "g1") -> Failure:
    return Failure("ERROR", message, at, group)


def counted(counters: Counters, route: str | None = "parcels") -> dict[tuple[str, str, int], int]:
    return {
        (count.stage, count.status.value, count.hour): count.n for count in counters.counts(route)
    }


# Against the ledger that counts afresh ------------------------------------------------------------
class Watched:
    """A memory ledger whose every change is kept, as two rows that share nothing, until it is
    counted."""

    def __init__(self) -> None:
        self.ledger = MemoryLedger()
        self.changes: list[RowChange] = []
        write = self.ledger._state.write

        def watched(record: MemoryRecord, change: Change) -> None:
            write(record, change)
            self.changes.append(RowChange(copied(change.before), copied(change.after)))

        self.ledger._state.write = watched  # type: ignore[method-assign]

    def rows(self, route: str) -> dict[str, Row]:
        return {item.key: item.row for item in self.ledger.find(Query(route=route)).items}

    def count(self, counters: Counters) -> None:
        counters.add(self.changes)
        self.changes.clear()


def copied(row: Row) -> Row:
    """The row as it comes out of a table: equal, but no part of it is the same object."""
    return msgspec.msgpack.decode(msgspec.msgpack.encode(row), type=Row)


def agree(counters: Counters, ledger: MemoryLedger) -> None:
    def sorted_groups(groups: list[Group]) -> list[Group]:
        return sorted(groups, key=lambda group: (group.route, group.stage, group.group))

    def sorted_counts(counts: list[Count]) -> list[Count]:
        return sorted(
            counts, key=lambda count: (count.route, count.stage, count.status, count.hour)
        )

    assert sorted_counts(counters.counts()) == sorted_counts(ledger.counts())
    assert sorted_groups(counters.groups()) == sorted_groups(ledger.groups())
    for route in ("parcels", "letters"):
        assert sorted_counts(counters.counts(route)) == sorted_counts(ledger.counts(route))
        assert sorted_groups(counters.groups(route)) == sorted_groups(ledger.groups(route))


def step(world: World, dice: random.Random) -> None:
    """Something that happens to items: they come, are worked on, and people interfere."""
    rows = list(world.ledger.find(Query(route=world.plan.name)).items)
    kind = dice.randrange(5)
    if kind == 0 or not rows:
        world.add(*(f"p{dice.randrange(10**9)}" for _ in range(dice.randrange(1, 5))))
    elif kind < 4:
        for item in world.claim(dice.choice(["weigh", "stamp"]), want=5).items:
            errors = [f"scale {dice.randrange(9)} is busy", "no such parcel", "out of paper"]
            outcomes: list[Outcome] = [
                Done(),
                NotYet(),
                Retry(dice.choice(errors)),
                Retry(dice.choice(errors)),
                Reject(dice.choice(errors)),
            ]
            world.settle(item, dice.choice(outcomes))
    else:
        item = world.item(dice.choice(rows).key)
        act = dice.randrange(4)
        if act == 0:
            change = move(item, world.plan, dice.choice(["weigh", "stamp"]), world.now, by="ops")
        else:
            change = (retry, skip, cancel)[act - 1](item, world.plan, world.now, by="ops")
        if isinstance(change, Change):
            world.apply(change)
    world.clock.advance(dice.choice([0, 1, 60, 3600]))


@pytest.mark.parametrize("seed", range(3))
def test_they_say_what_a_count_afresh_says(counters: Counters, seed: int) -> None:
    dice, watched = random.Random(seed), Watched()
    parcels = World(watched.ledger)
    letters = World(watched.ledger, sample_route("letters"), clock=parcels.clock)
    for number in range(60):
        step(dice.choice([parcels, letters]), dice)
        if number % 6 == 5:
            watched.count(counters)
            agree(counters, watched.ledger)
    assert watched.ledger.groups("parcels")
    before = watched.rows("parcels")
    watched.ledger.prune(
        PruneCriteria(
            "parcels",
            TERMINAL,
            parcels.now + 1,
            None,
            DeliveredLines(watched.ledger.last_seq()),
            1000,
        )
    )
    pruned = [row for key, row in before.items() if key not in watched.rows("parcels")]
    assert pruned
    counters.add([RowChange(row, None) for row in pruned])
    agree(counters, watched.ledger)


# Error groups -------------------------------------------------------------------------------------
def test_an_error_replaced_by_its_like_is_one_more_and_the_same_item(counters: Counters) -> None:
    first = row(error=failure("scale 1 is busy"), total_attempts=1)
    second = row(error=failure("scale 2 is busy", NOW + 5), total_attempts=2)
    counters.add(new(first))
    counters.add([RowChange(first, second)])
    assert counters.groups("parcels") == [
        Group("parcels", "weigh", "g1", "ERROR", "scale 1 is busy", 1, 2, NOW, NOW + 5)
    ]


def test_an_error_that_stays_while_the_row_changes_is_not_counted_again(counters: Counters) -> None:
    failed = row(error=failure(), total_attempts=1, status=Status.RETRY_SCHEDULED)
    counters.add(new(failed))
    counters.add(
        [RowChange(failed, copied(msgspec.structs.replace(failed, status=Status.PROCESSING)))]
    )
    assert [(group.now, group.total) for group in counters.groups("parcels")] == [(1, 1)]


def test_the_same_error_of_a_new_try_in_the_same_moment_is_counted(counters: Counters) -> None:
    failed = row(error=failure(), total_attempts=1)
    counters.add(
        [*new(failed), RowChange(failed, msgspec.structs.replace(copied(failed), total_attempts=2))]
    )
    assert [(group.now, group.total) for group in counters.groups("parcels")] == [(1, 2)]


def test_an_error_that_is_cleared_stays_in_the_groups_past(counters: Counters) -> None:
    failed = row(error=failure())
    counters.add(new(failed))
    counters.add([RowChange(failed, row(status=Status.COMPLETED))])
    assert counters.groups("parcels") == [
        Group("parcels", "weigh", "g1", "ERROR", "busy", 0, 1, NOW, NOW)
    ]


def test_an_item_that_is_moved_takes_its_error_along(counters: Counters) -> None:
    failed = row(error=failure())
    counters.add(new(failed))
    counters.add([RowChange(failed, copied(msgspec.structs.replace(failed, stage="stamp")))])
    found = {(group.stage, group.now, group.total) for group in counters.groups("parcels")}
    assert found == {("weigh", 0, 1), ("stamp", 1, 0)}


def test_an_error_that_comes_late_is_counted_and_the_newest_time_stays(counters: Counters) -> None:
    counters.add(new(row("p1", error=failure("late", NOW + 500))))
    counters.add(new(row("p2", error=failure("early", NOW))))
    assert counters.groups("parcels") == [
        Group("parcels", "weigh", "g1", "ERROR", "late", 2, 2, NOW + 500, NOW + 500)
    ]


def test_a_sample_is_cut(counters: Counters) -> None:
    counters.add(new(row(error=failure("x" * 1000))))
    assert [group.sample for group in counters.groups("parcels")] == ["x" * 300]


# Cells --------------------------------------------------------------------------------------------
def test_a_batch_is_one_write_for_each_cell_that_it_changes(
    counters: Counters, process: Process
) -> None:
    before = [row(f"p{n}") for n in range(100)]
    counters.add(new(*before))
    process.measure = True
    process.counts.clear()
    changes = [
        RowChange(each, msgspec.structs.replace(each, status=Status.PROCESSING)) for each in before
    ]
    counters.add(changes)
    assert process.counts == {("dynamodb", "update_item"): 2}
    assert writes(process) == 2
    assert counted(counters) == {("weigh", "PROCESSING", HERE): 100}
    counters.add(
        [RowChange(change.after, change.before) for change in changes if change.after is not None]
        + changes
    )
    assert process.counts["dynamodb", "update_item"] == 2, "what cancels out is not written"


def test_routes_are_told_one_by_one_or_all_together(counters: Counters, process: Process) -> None:
    counters.add(new(row("p1"), row("l1", route="letters"), row("l2", route="letters")))
    assert {count.route: count.n for count in counters.counts()} == {"parcels": 1, "letters": 2}
    process.counts.clear()
    assert [count.n for count in counters.counts("letters")] == [2]
    assert process.counts == {("dynamodb", "query"): 1}
    assert counters.counts("nowhere") == []
    assert counters.groups("nowhere") == []


@pytest.mark.parametrize("fault", ["timeout_after", "twice", "throttle", "timeout_before"])
def test_a_lost_answer_is_not_counted_twice(
    counters: Counters, process: Process, fault: str
) -> None:
    counters.add(new(row("p1", error=failure())))
    process.faults.clear()
    process.faults.plan("UpdateItem", fault, times=2)
    counters.add(new(row("p2", error=failure("busy", NOW + 1))))
    assert len(process.faults.fired) == 2
    assert counted(counters) == {("weigh", "QUEUED", HERE): 2}
    assert [(group.now, group.total, group.last_at) for group in counters.groups("parcels")] == [
        (2, 2, NOW + 1)
    ]


def test_many_count_at_once(scene: Scene, counters: Counters) -> None:
    start = Barrier(4)

    def work(name: str) -> None:
        mine = Counters(scene.process(), scene.names)
        start.wait()
        for n in range(10):
            mine.add(new(row(f"{name}{n}", error=failure("busy", NOW + n))))

    threads = [Thread(target=work, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counted(counters) == {("weigh", "QUEUED", HERE): 40}
    assert [(group.now, group.total, group.last_at) for group in counters.groups("parcels")] == [
        (40, 40, NOW + 9)
    ]


def compared_at(scene: Scene) -> list[Any]:
    """When the cells of each route were last compared with its rows."""
    return [
        cell.get("asOf")
        for cell in scene.rows(scene.names.control)
        if cell["kind"] == {"S": "counted"}
    ]


# Repair -------------------------------------------------------------------------------------------
def truth(*rows: Row) -> CounterTally:
    tally = CounterTally()
    for each in rows:
        tally.present(each)
    return tally


def test_a_repair_sets_every_wrong_cell_right(scene: Scene, counters: Counters) -> None:
    right, wrong, missing = (
        row("p1"),
        row("p2", stage="stamp", error=failure()),
        row("p3", stage="stamp", error=failure(group="g2")),
    )
    counters.add(new(right, wrong, row("never", "delivered")))
    assert compared_at(scene) == [None]
    assert counters.replace("parcels", truth(right, missing), NOW) == 3
    assert counted(counters) == {("weigh", "QUEUED", HERE): 1, ("stamp", "QUEUED", HERE): 1}
    assert {(group.group, group.now, group.total) for group in counters.groups("parcels")} == {
        ("g1", 0, 1),
        ("g2", 1, 1),
    }
    assert compared_at(scene) == [{"S": iso(NOW)}]
    assert counters.replace("parcels", truth(right, missing), NOW + 1) == 0
    assert compared_at(scene) == [{"S": iso(NOW + 1)}]
    assert not [
        cell
        for cell in scene.rows(scene.names.control)
        if cell.get("n") == {"N": "0"} and cell["kind"]["S"].startswith("count")
    ]


def test_a_repair_takes_empty_cells_away(scene: Scene, counters: Counters) -> None:
    first = row()
    counters.add(new(first))
    counters.add([RowChange(first, row(status=Status.PROCESSING))])
    assert counters.replace("parcels", truth(row(status=Status.PROCESSING)), NOW) == 0
    cells = [
        cell["name"]["S"]
        for cell in scene.rows(scene.names.control)
        if cell["kind"]["S"] == "count#parcels"
    ]
    assert cells == [f"weigh#PROCESSING#{HERE}"]


def test_a_repair_leaves_what_was_counted_while_it_looked(counters: Counters) -> None:
    counters.add(new(row("p1"), row("p2", "stamp"), row("never", "stamp")))
    since = counters.snapshot("parcels")
    counters.add(new(row("p3"), row("p4", "delivered")))
    assert counters.replace("parcels", truth(row("p1"), row("p2", "stamp")), NOW, since) == 1
    hours = {
        (stage, "QUEUED", HERE): n for stage, n in (("weigh", 2), ("stamp", 1), ("delivered", 1))
    }
    assert counted(counters) == hours


def test_a_repair_never_writes_over_what_is_counted_just_then(
    scene: Scene, counters: Counters, process: Process
) -> None:
    counters.add(new(row("p1"), row("p2")))
    other = Counters(scene.process(), scene.names)
    process.at("put_item", lambda: other.add(new(row("p3"))))
    assert counters.replace("parcels", truth(row("p1")), NOW) == 0
    assert counted(counters) == {("weigh", "QUEUED", HERE): 3}


def test_a_repair_of_one_route_leaves_the_others(counters: Counters) -> None:
    counters.add(new(row("p1"), row("l1", route="letters")))
    counters.replace("parcels", truth(row("l1", route="letters")), NOW)
    assert {count.route: count.n for count in counters.counts()} == {"letters": 1}


# Renaming -----------------------------------------------------------------------------------------
def test_a_renamed_stage_takes_its_cells_along(counters: Counters) -> None:
    counters.add(
        new(
            row("p1", "stamp", error=failure()),
            row("p2", "stamping"),
            row("p3", "stamp", route="letters"),
        )
    )
    counters.rename("parcels", "stamp", "frank")
    assert counted(counters) == {("frank", "QUEUED", HERE): 1, ("stamping", "QUEUED", HERE): 1}
    assert [(group.stage, group.now) for group in counters.groups("parcels")] == [("frank", 1)]
    assert counted(counters, "letters") == {("stamp", "QUEUED", HERE): 1}
    counters.rename("parcels", "frank", "frank")
    counters.rename("nowhere", "a", "b")
    assert len(counters.counts()) == 3


def test_renaming_onto_a_stage_puts_both_together(counters: Counters) -> None:
    counters.add(
        new(
            row("p1", "weigh", error=failure("first", NOW - 9)),
            row("p2", "stamp", error=failure("second")),
        )
    )
    counters.add(new(row("p3", "weigh", error=failure("third", NOW + 9))))
    counters.rename("parcels", "weigh", "stamp")
    assert counted(counters) == {("stamp", "QUEUED", HERE): 3}
    assert counters.groups("parcels") == [
        Group("parcels", "stamp", "g1", "ERROR", "second", 3, 3, NOW - 9, NOW + 9)
    ]


def test_what_is_counted_during_a_renaming_is_not_lost(
    scene: Scene, counters: Counters, process: Process
) -> None:
    counters.add(new(row("p1"), row("p2", "stamp")))
    other = Counters(scene.process(), scene.names)
    process.at("transact_write_items", lambda: other.add(new(row("p3"), row("p4", "stamp"))))
    counters.rename("parcels", "weigh", "stamp")
    assert counted(counters) == {("stamp", "QUEUED", HERE): 4}


@pytest.mark.parametrize("fault", ["timeout_after", "conflict"])
def test_a_renaming_whose_answer_was_lost_counts_once(
    counters: Counters, process: Process, fault: str
) -> None:
    counters.add(new(row("p1"), row("p2", "stamp")))
    process.faults.plan("TransactWriteItems", fault)
    counters.rename("parcels", "weigh", "stamp")
    assert len(process.faults.fired) == 1
    assert counted(counters) == {("stamp", "QUEUED", HERE): 2}


def test_a_renaming_that_died_is_finished_by_the_next(counters: Counters, process: Process) -> None:
    counters.add(new(row("p1"), row("p2", status=Status.PROCESSING)))
    process.die_at("transact_write_items")
    with pytest.raises(Died):
        counters.rename("parcels", "weigh", "stamp")
    assert sum(counted(counters).values()) == 2
    counters.rename("parcels", "weigh", "stamp")
    assert counted(counters) == {("stamp", "QUEUED", HERE): 1, ("stamp", "PROCESSING", HERE): 1}
