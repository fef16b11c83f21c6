"""The record of one item: its content, all of it derived from history lines."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
from tests.evidence.evidence_scene import ROUTE, SIGNED, Scene

from milepost.engine.act_log import select
from milepost.engine.acts.bulk import act
from milepost.engine.acts.verbs import RetryVerb, SkipVerb
from milepost.evidence.record import SCHEMA, differences, evidence, seal_record

Record = dict[str, Any]


@pytest.fixture
def record(archive: Scene) -> Record:
    archive.through("a1")
    return archive.record("a1")


def test_it_tells_each_stage_with_who_when_and_what_came_of_it(archive: Scene) -> None:
    archive.through("a1")
    record = archive.record("a1")
    [item] = archive.ledger.get([(ROUTE, "a1")])
    assert item is not None
    assert (record["schema"], record["route"], record["key"], record["status"]) == (
        SCHEMA,
        ROUTE,
        "a1",
        "COMPLETED",
    )
    assert record["input_digest"] == item.row.input_digest.hex()
    assert record["correlation_id"] == item.correlation_id
    checked, taped = record["stages"]
    assert (checked["stage"], checked["how"], checked["output"]) == (
        "CC",
        "advanced",
        item.results["CC"],
    )
    assert (taped["stage"], taped["how"], taped["by"], taped["round"]) == (
        "Scout",
        "confirmed",
        "tape library",
        1,
    )
    assert taped["output"] == {path: ["V1", "Va1"] for path in item.results["CC"]["filePaths"]}
    assert record["events"] == [
        "assets/a1/1/accepted",
        "assets/a1/2/advanced",
        "assets/a1/2/offered",
        "assets/a1/3/confirmed",
    ]
    assert record["ended_at"] == taped["at"]
    assert record["acts"] == []
    assert differences(record) == []


def test_it_tells_what_people_did_and_in_which_round(archive: Scene) -> None:
    archive.bring("a1", damaged=True)
    for _ in range(2):
        act(archive.ctx, select(archive.ctx, ROUTE, keys=["a1"]), RetryVerb(), **SIGNED)
    act(
        archive.ctx,
        select(archive.ctx, ROUTE, keys=["a1"]),
        SkipVerb(),
        by="ops",
        reason="seen by eye",
    )
    record = archive.record("a1")
    assert [(act["act"], act["by"], act["why"]) for act in record["acts"]] == [
        ("operator-retry", "ops", "a test"),
        ("operator-retry", "ops", "a test"),
        ("skipped", "ops", "seen by eye"),
    ]
    assert [(stage["stage"], stage["how"], stage["round"]) for stage in record["stages"]] == [
        ("CC", "skipped", 3)
    ]
    assert differences(record) == []


def test_an_item_on_its_way_has_a_record_as_of_its_last_line(archive: Scene) -> None:
    archive.bring("a1")
    record = archive.record("a1")
    assert (record["status"], record["stage"], record["ended_at"]) == ("QUEUED", "Scout", None)
    assert differences(record) == []


CHANGES: dict[str, Callable[[Record], Any]] = {
    "a key": lambda record: record.update(key="a2"),
    "the input digest": lambda record: record.update(input_digest="00" * 32),
    "a status": lambda record: record.update(status="CANCELLED"),
    "the end": lambda record: record.update(ended_at="2020-01-01T00:00:00.000Z"),
    "who confirmed": lambda record: record["stages"][1].update(by="somebody else"),
    "an output": lambda record: record["stages"][1]["output"].update(more=["V9"]),
    "an output and its digest": lambda record: record["stages"][1].update(output={}, output_digest="44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"),
    "a stage taken out": lambda record: record["stages"].pop(),
    "an event made up": lambda record: record["events"].append("assets/a1/9/completed"),
    "an act made up": lambda record: record["acts"].append({}),
    "a line": lambda record: record["chain"]["lines"].__setitem__(0, record["chain"]["lines"][0].replace("CC", "XX")),
    "a line taken out": lambda record: record["chain"]["lines"].pop(),
    "lines in another order": lambda record: record["chain"]["lines"].reverse(),
    "the head": lambda record: record["chain"].update(head="00" * 32),
    "the origin": lambda record: record["chain"].update(origin="00" * 32),
    "a field made up": lambda record: record.update(approved=True),
    "no lines": lambda record: record["chain"].update(lines=[]),
    "a time that never was": lambda record: record["chain"]["lines"].__setitem__(
        0, '{"version":1,"at":999999999999999999,"reason":"accepted","stage":"CC","status":"QUEUED"}'
    ),
    "another schema": lambda record: record.update(schema="milepost.evidence/2"),
    "no chain": lambda record: record.pop("chain"),
    "a line that is no text": lambda record: record["chain"]["lines"].append(None),
}  # fmt: skip


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_whatever_is_changed_is_found(record: Record, change: Callable[[Record], Any]) -> None:
    changed = deepcopy(record)
    change(changed)
    assert differences(changed) != []
    assert differences(record) == []


def test_what_is_no_record_at_all_is_said_to_be_none() -> None:
    for value in (None, [], {}, {"schema": SCHEMA}, "text"):
        [(field, what)] = differences(value)
        assert field == "record"
        assert "not a record" in what


def bodies(scene: Scene, key: str) -> list[bytes]:
    return [written.body for written in scene.ledger.history(ROUTE, key)]


def test_a_result_that_was_changed_in_the_ledger_is_shown_and_found(archive: Scene) -> None:
    archive.through("a1")
    [item] = archive.ledger.get([(ROUTE, "a1")])
    assert item is not None
    row = item.row
    record = evidence(
        ROUTE,
        "a1",
        row.input_digest,
        "c",
        row.head,
        bodies(archive, "a1"),
        {**item.results, "Scout": {"x": ["V9"]}},
    )
    assert [field for field, _ in differences(record)] == ["stages[Scout].output"]


def test_a_result_is_found_under_its_stages_new_name_and_left_out_where_it_is_gone(
    archive: Scene,
) -> None:
    archive.through("a1")
    [item] = archive.ledger.get([(ROUTE, "a1")])
    assert item is not None
    row = item.row
    record = evidence(
        ROUTE,
        "a1",
        row.input_digest,
        "c",
        row.head,
        bodies(archive, "a1"),
        {"Copied": item.results["CC"]},
    )
    checked, taped = record["stages"]
    assert checked["output"] == item.results["CC"]
    assert "output" not in taped
    assert differences(record) == []


def test_a_seal_has_its_own_fields_and_no_others() -> None:
    seal = seal_record(ROUTE, "a1", "COMPLETED", "Scout", b"\1" * 32, 0, b"\2" * 32)
    assert differences(seal) == []
    assert differences({**seal, "approved": True}) != []
