"""The format of the tables: pauses and rates get the route into their keys while processes of both
versions are at work."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.aws.ledger.table_scene import Died, Process, Scene

from milepost.core.errors import LedgerReadOnly, LedgerTooNew
from milepost.ports.documents import ACT, BREAKER, HOLD, Document
from milepost_aws.ledger.tables.documents import (
    BUCKET,
    FORMAT,
    FRESH_S,
    HOLDING,
    KNOWN_FORMAT,
    LAYOUT,
    TABLES,
    Control,
    kind_query,
)

LANE = "parcels/weigh/north"
MOVING = (HOLD, BUCKET, HOLDING)


class EarlierVersion:
    """What a process of the version before the formats does with documents: it knows only the kind
    as partition key."""

    def __init__(self, scene: Scene) -> None:
        self._process, self._table = scene.process(), scene.names.control

    def read(self, kind: str) -> dict[str, str]:
        return {
            image["name"]["S"]: image["value"]["S"]
            for image in self._process.query(self._table, **kind_query(kind))
            if "version" in image
        }

    def write(self, kind: str, name: str, value: str, version: int = 7) -> None:
        image = {
            "kind": {"S": kind},
            "name": {"S": name},
            "value": {"S": f'"{value}"'},
            "token": {"S": f"t{version}"},
            "version": {"N": str(version)},
        }
        self._process.call("dynamodb", "put_item", TableName=self._table, Item=image)

    def remove(self, kind: str, name: str) -> None:
        self._process.call(
            "dynamodb",
            "delete_item",
            TableName=self._table,
            Key={"kind": {"S": kind}, "name": {"S": name}},
        )


@pytest.fixture
def earlier(scene: Scene) -> EarlierVersion:
    return EarlierVersion(scene)


@pytest.fixture
def elapsed() -> list[float]:
    """Seconds by the monotonic clock of the processes of a test."""
    return [0.0]


@pytest.fixture
def open_control(
    scene: Scene, elapsed: list[float], monkeypatch: pytest.MonkeyPatch
) -> Callable[[], tuple[Control, Process]]:
    def opened() -> tuple[Control, Process]:
        process = scene.process()
        monkeypatch.setattr(process, "clock", lambda: elapsed[0])
        return Control(process, scene.names, lambda: 1), process

    return opened


@pytest.fixture
def control(open_control: Callable[[], tuple[Control, Process]]) -> Control:
    """A process of this version at tables that the earlier one made."""
    control, _ = open_control()
    control.write(LAYOUT, "parcels", {})
    return control


def partitions(scene: Scene) -> list[str]:
    return sorted(
        row["kind"]["S"] for row in scene.rows(scene.names.control) if row["name"]["S"] == LANE
    )


def test_tables_without_a_number_have_the_first_format_and_a_new_ledger_begins_with_the_newest(
    control: Control, open_control: Callable[[], tuple[Control, Process]]
) -> None:
    assert control.format() == 1
    control.begin_format()
    control.begin_format()
    assert (control.format(), open_control()[0].format()) == (KNOWN_FORMAT, KNOWN_FORMAT)


@pytest.mark.parametrize("kind", MOVING)
def test_before_the_number_is_raised_both_versions_see_what_the_other_writes(
    scene: Scene, control: Control, earlier: EarlierVersion, kind: str
) -> None:
    assert control.write(kind, LANE, "new", expect=0)
    assert partitions(scene) == [kind]
    assert earlier.read(kind) == {LANE: '"new"'}
    earlier.remove(kind, LANE)
    assert (control.read_one(kind, LANE), control.read(kind)) == (None, {})
    earlier.write(kind, LANE, "old")
    assert control.read_one(kind, LANE) == control.read(kind)[LANE] == Document("old", 7)
    assert control.write(kind, LANE, None, expect=7)
    assert earlier.read(kind) == {}


@pytest.mark.parametrize("kind", [BREAKER, *MOVING])
def test_raising_the_number_gives_documents_the_route_in_their_key_and_keeps_their_versions(
    scene: Scene, control: Control, earlier: EarlierVersion, kind: str
) -> None:
    earlier.write(kind, LANE, "old")
    assert control.old_documents() == 1
    assert [control.raise_format(), control.raise_format(), control.old_documents()] == [1, 0, 0]
    assert partitions(scene) == [f"{kind}#parcels"]
    assert (
        control.read_one(kind, LANE) == control.read(kind, ["parcels"])[LANE] == Document("old", 7)
    )
    assert control.write(kind, LANE, "new", expect=7)
    assert control.write(kind, LANE, None, expect=8)
    assert partitions(scene) == []


def test_a_pause_of_an_earlier_version_after_the_number_was_raised_holds_until_it_is_resumed(
    scene: Scene, control: Control, earlier: EarlierVersion
) -> None:
    control.raise_format()
    earlier.write(HOLD, LANE, "late")
    assert control.read(HOLD)[LANE] == control.read_one(HOLD, LANE) == Document("late", 7)
    assert control.old_documents() == 1
    assert control.write(HOLD, LANE, None, expect=7)
    assert (control.read(HOLD), control.read_one(HOLD, LANE)) == ({}, None)


def test_a_process_that_has_not_seen_the_raised_number_yet_loses_no_pause(
    control: Control, open_control: Callable[[], tuple[Control, Process]], elapsed: list[float]
) -> None:
    behind, _ = open_control()
    assert behind.write(HOLD, LANE, "first", expect=0)
    present = behind.read_one(HOLD, LANE)
    assert present is not None
    control.raise_format()
    assert behind.read(HOLD)[LANE].value == "first", (
        "read although the number that it goes by is old"
    )
    assert behind.write(HOLD, "parcels/stamp", "second", expect=0)
    assert set(control.read(HOLD)) == {LANE, "parcels/stamp"}
    assert not behind.write(HOLD, LANE, None, expect=present.version), (
        "after that it reads the number again"
    )
    assert behind.write(HOLD, LANE, None, expect=present.version)
    assert set(control.read(HOLD)) == {"parcels/stamp"}
    elapsed[0] += FRESH_S
    assert behind.format() == KNOWN_FORMAT


@pytest.mark.parametrize("nth", [1, 2])
def test_an_interrupted_raise_is_continued_and_no_document_is_lost_meanwhile(
    scene: Scene,
    control: Control,
    earlier: EarlierVersion,
    open_control: Callable[[], tuple[Control, Process]],
    nth: int,
) -> None:
    for number in range(3):
        earlier.write(HOLD, f"parcels/weigh/{number}", "old")
    names = {f"parcels/weigh/{number}" for number in range(3)}
    dying, process = open_control()
    for _ in range(nth - 1):
        process.at("transact_write_items", lambda: None)
    process.die_at("transact_write_items")
    with pytest.raises(Died):
        dying.raise_format()
    assert set(control.read(HOLD)) == names
    assert control.raise_format() == 4 - nth
    assert set(control.read(HOLD)) == names
    assert control.old_documents() == 0


def test_a_pause_that_is_resumed_while_it_is_moved_does_not_come_back(
    control: Control, earlier: EarlierVersion, open_control: Callable[[], tuple[Control, Process]]
) -> None:
    earlier.write(HOLD, LANE, "old")
    raising, process = open_control()
    process.at("transact_write_items", lambda: earlier.remove(HOLD, LANE))
    assert raising.raise_format() == 0
    assert control.read(HOLD) == {}


def test_a_pause_that_is_replaced_while_it_is_moved_is_moved_as_it_is_then(
    control: Control, earlier: EarlierVersion, open_control: Callable[[], tuple[Control, Process]]
) -> None:
    earlier.write(HOLD, LANE, "old")
    raising, process = open_control()
    process.at("transact_write_items", lambda: earlier.write(HOLD, LANE, "longer", 8))
    assert raising.raise_format() == 1
    assert control.read_one(HOLD, LANE) == Document("longer", 8)


def test_a_document_of_a_route_that_the_ledger_does_not_know_stays_where_it_is(
    control: Control, earlier: EarlierVersion
) -> None:
    earlier.write(HOLD, "letters/stamp", "old")
    assert (control.raise_format(), control.old_documents()) == (0, 0)
    assert control.read(HOLD, ["parcels"])["letters/stamp"].value == "old"


def test_a_newer_number_is_refused_also_by_a_process_that_runs(
    control: Control, open_control: Callable[[], tuple[Control, Process]], elapsed: list[float]
) -> None:
    running, _ = open_control()
    assert running.format() == 1
    control.write(FORMAT, TABLES, {"number": KNOWN_FORMAT + 1})
    for act in (
        open_control()[0].format,
        lambda: control.write(HOLD, LANE, "p", expect=0),
        lambda: control.raise_format(),
    ):
        elapsed[0] += FRESH_S
        with pytest.raises(
            LedgerTooNew,
            match=f"have format {KNOWN_FORMAT + 1}, and this Milepost knows formats up to {KNOWN_FORMAT}",
        ):
            act()
    with pytest.raises(LedgerTooNew):
        running.write(HOLD, LANE, "p", expect=0)


def test_a_role_that_may_not_write_the_shared_key_says_what_to_do(
    control: Control, open_control: Callable[[], tuple[Control, Process]]
) -> None:
    worker, process = open_control()
    process.faults.plan(("UpdateItem", 1), "denied")
    with pytest.raises(
        LedgerReadOnly,
        match="the tables have format 1: run 'milepost upgrade', or deploy the stack with --tables-format 1",
    ):
        worker.write(HOLD, LANE, "p", expect=0)
    control.raise_format()
    process.faults.plan(("UpdateItem", 2), "denied")
    assert worker.write(HOLD, LANE, "p", expect=0), "the number was raised meanwhile"
    assert control.read(HOLD)[LANE].value == "p"


def test_a_role_of_an_older_stack_works_with_the_first_format_alone(
    control: Control, open_control: Callable[[], tuple[Control, Process]], earlier: EarlierVersion
) -> None:
    earlier.write(HOLD, LANE, "old")
    older, process = open_control()
    process.faults.plan(("GetItem", 1), "denied")
    process.faults.plan(("GetItem", 2), "denied")
    process.faults.plan(("Query", 2), "denied")
    assert older.read_one(HOLD, LANE) == Document("old", 7)
    assert older.read(HOLD, ["parcels"])[LANE] == Document("old", 7)


def test_pauses_of_a_loaded_route_that_cannot_be_read_stop_the_process(
    control: Control, open_control: Callable[[], tuple[Control, Process]]
) -> None:
    control.raise_format()
    worker, process = open_control()
    process.faults.plan(("Query", 2), "denied")
    with pytest.raises(LedgerReadOnly):
        worker.read(HOLD, ["parcels"])


def test_an_act_of_a_program_has_its_route_in_its_key_and_all_others_have_none(
    scene: Scene, control: Control
) -> None:
    control.raise_format()
    ids = ("parcels:t1", "t2", "letters:t3")
    for act_id in ids:
        assert control.write(ACT, act_id, act_id, expect=0)
        assert not control.write(ACT, act_id, act_id, expect=0)
    found = {
        row["name"]["S"]: row["kind"]["S"]
        for row in scene.rows(scene.names.control)
        if row["kind"]["S"].startswith(ACT)
    }
    assert found == {"parcels:t1": "act#parcels", "t2": "act", "letters:t3": "act"}
    assert control.read(ACT).keys() == control.read(ACT, ["parcels"]).keys() == set(ids)
    for act_id in ids:
        present = control.read_one(ACT, act_id)
        assert present is not None
        assert control.write(ACT, act_id, None, expect=present.version)
    assert control.read(ACT) == {}
