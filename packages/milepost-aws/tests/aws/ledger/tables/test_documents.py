"""Control documents on DynamoDB: versions, conditions, and answers that were lost on the way."""

from __future__ import annotations

from threading import Barrier, Thread
from typing import Any

import pytest
from tests.aws.ledger.table_scene import Died, Process, Scene, writes

from milepost.ports.documents import BREAKER, Document
from milepost_aws.ledger.tables.documents import LAYOUT, Control


@pytest.fixture
def control(scene: Scene, process: Process) -> Control:
    """Its documents begin at 1, since no two of a name are made here within the test of that."""
    return Control(process, scene.names, lambda: 1)


def test_versions_rise_by_one(control: Control) -> None:
    assert control.read("hold") == {}
    assert control.read_one("hold", "parcels") is None
    for version in (1, 2, 3):
        assert control.write("hold", "parcels", {"n": version})
        assert control.read("hold") == {"parcels": Document({"n": version}, version)}
        assert control.read_one("hold", "parcels") == Document({"n": version}, version)


def test_a_document_made_anew_begins_above_the_one_that_was_removed(
    scene: Scene, process: Process
) -> None:
    control, seen = Control(process, scene.names), list[int]()
    for _ in range(3):
        first = control.put("hold", "a", 1, 0)
        assert first is not None
        assert control.read_one("hold", "a") == Document(1, first)
        assert control.put("hold", "a", 2, first) == first + 1
        assert control.put("hold", "a", 3, first) is None
        seen += [first, first + 1]
        assert control.write("hold", "a", None, expect=first + 1)
    assert seen == sorted(set(seen))


def test_kinds_and_names_are_kept_apart(control: Control) -> None:
    for kind, name, value in (("hold", "a", 1), ("hold", "b", 2), ("limit", "a", 3)):
        assert control.write(kind, name, value, expect=0)
    assert {name: document.value for name, document in control.read("hold").items()} == {
        "a": 1,
        "b": 2,
    }
    assert {name: document.value for name, document in control.read("limit").items()} == {"a": 3}


def test_a_write_that_expects_another_version_is_refused(control: Control) -> None:
    assert not control.write("cursor", "log", {"seq": 1}, expect=1)
    assert control.write("cursor", "log", {"seq": 1}, expect=0)
    assert not control.write("cursor", "log", {"seq": 2}, expect=0)
    assert control.write("cursor", "log", {"seq": 2}, expect=1)
    assert not control.write("cursor", "log", {"seq": 3}, expect=1)
    assert control.read("cursor")["log"] == Document({"seq": 2}, 2)


def test_none_removes_and_is_conditional_too(scene: Scene, control: Control) -> None:
    control.write("hold", "a", 1)
    assert not control.write("hold", "a", None, expect=7)
    assert not control.write("hold", "a", None, expect=0)
    assert control.write("hold", "a", None, expect=1)
    assert control.read("hold") == {}
    assert scene.rows(scene.names.control) == []
    assert control.write("hold", "a", None)
    assert control.write("hold", "a", None, expect=0)
    assert not control.write("hold", "a", None, expect=1)
    assert control.write("hold", "a", 2, expect=0)
    assert control.read_one("hold", "a") == Document(2, 1)
    assert control.write("hold", "a", None)
    assert scene.rows(scene.names.control) == []


def test_a_page_of_names_asks_for_no_empty_key(
    process: Process, control: Control, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DynamoDB refuses a condition on a key with an empty text."""
    for name in ("\x1fforgotten", "a", "b"):
        control.write("left#parcels", name, {})
    query, asked = process.query, list[dict[str, Any]]()

    def noted(table: str, **params: Any) -> Any:
        asked.append(params)
        return query(table, **params)

    monkeypatch.setattr(process, "query", noted)
    assert control.page_of_names("left#parcels", "", None, 2) == ["\x1fforgotten", "a"]
    assert control.page_of_names("left#parcels", "", "a", 2) == ["b"]
    assert all(
        value["S"] for params in asked for value in params["ExpressionAttributeValues"].values()
    )


@pytest.mark.parametrize("value", [False, 0, "", [], {"ä": ["☃", None, 1.5, 10**18]}])
def test_any_value_comes_back_as_a_copy(control: Control, value: Any) -> None:
    assert control.write("act", "a", value)
    first = control.read("act")["a"].value
    assert first == value
    if isinstance(first, list):
        first.append("mine")
    assert control.read("act")["a"].value == value


def test_more_documents_than_fit_on_a_page_are_all_read(control: Control) -> None:
    for n in range(12):
        control.write("list", f"l{n:02d}", "x" * 100_000)
    assert sorted(control.read("list")) == [f"l{n:02d}" for n in range(12)]


def test_a_name_longer_than_a_key_may_be_is_kept_whole(control: Control) -> None:
    names = ["p/" + "ü" * 600 + end for end in "ab"]
    for number, name in enumerate(names):
        assert control.write("parked", name, number, expect=0)
    assert {name: document.value for name, document in control.read("parked").items()} == {
        names[0]: 0,
        names[1]: 1,
    }
    assert control.read_one("parked", names[1]) == Document(1, 1)
    assert control.write("parked", names[0], None, expect=1)
    assert list(control.read("parked")) == [names[1]]


@pytest.mark.parametrize(
    "fault", ["timeout_after", "twice", "timeout_before", "throttle", "conflict"]
)
@pytest.mark.parametrize("expect", [None, 1])
def test_a_write_counts_once_whatever_happens_to_its_answer(
    control: Control, process: Process, expect: int | None, fault: str
) -> None:
    control.write("cursor", "log", "old")
    process.faults.clear()
    process.faults.plan("UpdateItem", fault)
    assert control.write("cursor", "log", "new", expect=expect)
    assert len(process.faults.fired) == 1
    assert control.read_one("cursor", "log") == Document("new", 2)


@pytest.mark.parametrize("fault", ["timeout_after", "twice"])
def test_a_first_write_is_recognised_too(control: Control, process: Process, fault: str) -> None:
    process.faults.plan("UpdateItem", fault)
    assert control.write("cursor", "log", "new", expect=0)
    assert control.read_one("cursor", "log") == Document("new", 1)


@pytest.mark.parametrize("operation", ["UpdateItem", "DeleteItem"])
@pytest.mark.parametrize("fault", ["timeout_after", "twice"])
def test_a_removal_whose_answer_was_lost_is_recognised(
    control: Control, process: Process, scene: Scene, operation: str, fault: str
) -> None:
    control.write("hold", "a", 1)
    process.faults.clear()
    process.faults.plan(operation, fault)
    assert control.write("hold", "a", None, expect=1)
    assert len(process.faults.fired) == 1
    assert scene.rows(scene.names.control) == []


def test_a_removal_that_died_half_way_has_removed(control: Control, process: Process) -> None:
    control.write("hold", "a", 1)
    process.die_at("delete_item")
    with pytest.raises(Died):
        control.write("hold", "a", None, expect=1)
    assert control.read("hold") == {}
    assert control.read_one("hold", "a") is None
    assert not control.write("hold", "a", 2, expect=1)
    assert control.write("hold", "a", None, expect=0)
    assert control.write("hold", "a", 2, expect=0)
    assert control.read("hold") == {"a": Document(2, 1)}


def test_a_removal_never_takes_what_was_written_anew(
    scene: Scene, control: Control, process: Process
) -> None:
    other = Control(scene.process(), scene.names, lambda: 1)
    control.write("hold", "a", 1)
    process.at("delete_item", lambda: other.write("hold", "a", 2, expect=0))
    assert control.write("hold", "a", None, expect=1)
    assert control.read_one("hold", "a") == Document(2, 1)


def test_of_many_writers_one_wins(scene: Scene) -> None:
    start, won = Barrier(8), []

    def race(number: int) -> None:
        control = Control(scene.process(), scene.names, lambda: 1)
        start.wait()
        if control.write("cursor", "log", number, expect=0):
            won.append(number)

    threads = [Thread(target=race, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1
    assert Control(scene.process(), scene.names).read_one("cursor", "log") == Document(won[0], 1)


def test_what_it_costs(control: Control, process: Process) -> None:
    process.measure = True
    control.write("limit", "a", {"by": "ops"})
    assert writes(process) == 1
    control.write("limit", "a", {"by": "desk"}, expect=1)
    assert writes(process) == 2
    control.write("limit", "a", None, expect=2)
    assert writes(process) == 4
    process.counts.clear()
    control.read("limit")
    assert sum(process.counts.values()) == 1


# Kinds with the route in their key ----------------------------------------------------------------
LANE = "parcels/weigh/north"


def put_old(scene: Scene, value: str, version: int) -> None:
    """A document as version 0.1.0 wrote it: its kind alone is the partition key."""
    image = {
        "kind": {"S": BREAKER},
        "name": {"S": LANE},
        "value": {"S": f'"{value}"'},
        "token": {"S": "t"},
        "version": {"N": str(version)},
    }
    scene.process().call("dynamodb", "put_item", TableName=scene.names.control, Item=image)


def kinds(scene: Scene) -> list[str]:
    return sorted(
        row["kind"]["S"] for row in scene.rows(scene.names.control) if row["name"]["S"] == LANE
    )


def test_a_breaker_has_its_route_in_its_partition_key(scene: Scene, control: Control) -> None:
    control.write(LAYOUT, "parcels", {})
    assert control.write(BREAKER, LANE, "open", expect=0)
    assert kinds(scene) == ["breaker#parcels"]
    assert [
        document.value
        for document in (control.read(BREAKER)[LANE], control.read(BREAKER, ["parcels"])[LANE])
    ] == ["open"] * 2
    assert control.read(BREAKER, ["letters"]) == {}
    assert control.write(BREAKER, LANE, None, expect=control.read(BREAKER)[LANE].version)
    assert (kinds(scene), control.read_one(BREAKER, LANE)) == ([], None)


def test_a_breaker_of_an_older_version_is_read_until_it_is_written(
    scene: Scene, control: Control
) -> None:
    control.write(LAYOUT, "parcels", {})
    put_old(scene, "open", 7)
    assert control.read_one(BREAKER, LANE) == control.read(BREAKER)[LANE] == Document("open", 7)
    assert not control.write(BREAKER, LANE, "half-open", expect=6)
    assert control.write(BREAKER, LANE, "half-open", expect=7)
    assert not control.write(BREAKER, LANE, "half-open", expect=7)
    assert (
        control.read_one(BREAKER, LANE) == control.read(BREAKER)[LANE] == Document("half-open", 8)
    )
    assert control.write(BREAKER, LANE, None, expect=8)
    assert (control.read_one(BREAKER, LANE), control.read(BREAKER)) == (None, {}), (
        "the old one does not come back"
    )
    assert control.write(BREAKER, LANE, "open", expect=0)
    assert control.read(BREAKER)[LANE].value == "open"


def test_a_breaker_of_an_older_version_can_be_removed_at_once(
    scene: Scene, control: Control
) -> None:
    control.write(LAYOUT, "parcels", {})
    put_old(scene, "open", 7)
    assert not control.write(BREAKER, LANE, None, expect=6)
    assert control.write(BREAKER, LANE, None, expect=7)
    assert (control.read_one(BREAKER, LANE), control.read(BREAKER)) == (None, {})
    assert not control.write(BREAKER, LANE, None, expect=7)


def test_breakers_of_a_route_that_the_role_may_not_read_are_left_out(
    scene: Scene, control: Control, process: Process, caplog: pytest.LogCaptureFixture
) -> None:
    """The stack has no such route any more, or is older than this version."""
    control.write(LAYOUT, "parcels", {})
    control.write(BREAKER, LANE, "open", expect=0)
    process.faults.clear()
    # Each read asks for the documents without a route first, then for those of the route.
    process.faults.plan(("Query", 2), "denied")
    process.faults.plan(("Query", 4), "denied")
    assert [control.read(BREAKER, ["parcels"]) for _ in range(2)] == [{}, {}]
    assert list(control.read(BREAKER, ["parcels"])) == [LANE]
    assert [record.message.partition(":")[0] for record in caplog.records] == [
        "documents 'breaker' of route 'parcels' are left out"
    ]
