"""Evidence as csv and as PREMIS 3."""

from __future__ import annotations

import csv
import io
from typing import Any
from xml.etree import ElementTree

import pytest
from tests.evidence.evidence_scene import ROUTE, SIGNED, Scene
from tests.evidence.premis_check import NAMESPACE, faults

from milepost.engine.act_log import select
from milepost.engine.acts.bulk import act
from milepost.engine.acts.verbs import CancelVerb, RetryVerb
from milepost.evidence.premis import premis
from milepost.evidence.record import seal_record
from milepost.evidence.reported_files import reported_files
from milepost.evidence.views import CSV_COLUMNS, csv_rows

P = f"{{{NAMESPACE}}}"


@pytest.fixture
def records(archive: Scene) -> list[dict[str, Any]]:
    archive.through("a1")
    archive.bring("bad", damaged=True)
    act(archive.ctx, select(archive.ctx, ROUTE, keys=["bad"]), CancelVerb(), **SIGNED)
    act(
        archive.ctx,
        select(archive.ctx, ROUTE, keys=["bad"]),
        RetryVerb(),
        by="ops",
        reason="<again> & \x07 again",
    )
    return [
        archive.record("a1"),
        archive.record("bad"),
        seal_record(ROUTE, "old", "COMPLETED", "Scout", b"\1" * 32, 0, b"\2" * 32),
    ]


def test_csv_has_a_row_for_each_event_with_the_same_columns_every_time(
    records: list[dict[str, Any]],
) -> None:
    text = "".join(csv_rows(lambda: records))
    rows = list(csv.DictReader(io.StringIO(text)))
    assert text.splitlines()[0] == ",".join(CSV_COLUMNS)
    told = [row["event_id"] for row in rows if row["key"] == "a1"]
    assert told == records[0]["events"]
    taped = next(row for row in rows if row["event_id"] == "assets/a1/3/confirmed")
    assert (taped["stage"], taped["by"], taped["round"], taped["status"]) == (
        "Scout",
        "tape library",
        "1",
        "COMPLETED",
    )
    assert "V1" in taped["output"]
    again = next(row for row in rows if row["reason"] == "operator-retry")
    assert (again["why"], again["round"]) == ("<again> & \x07 again", "2")
    assert [(row["key"], row["reason"], row["status"]) for row in rows][-1] == (
        "old",
        "sealed",
        "COMPLETED",
    )


def test_premis_is_as_the_schema_has_it(records: list[dict[str, Any]]) -> None:
    assert faults("".join(premis(lambda: records))) == []


def test_premis_has_the_medium_of_each_stage_and_the_archives_own_identifiers(
    archive: Scene,
) -> None:
    archive.through("a1")
    about = {
        "route": ROUTE,
        "made_at": "2033-11-14",
        "choice": {"keys": ["a1--b"]},
        "media": {"CC": "disk", "Scout": "tape"},
    }
    record = {**archive.record("a1"), "key": "a%231#B 7"}
    text = "".join(premis(lambda: [record], {**about, "key_fields": ["assetId", "batchId"]}))
    assert faults(text) == []
    assert f"<!-- a selection from route '{ROUTE}', as of 2033-11-14: keys a1- -b -->" in text
    root = ElementTree.fromstring(text)
    item, file, *_ = root.findall(f"{P}object")
    names = [
        (one.findtext(f"{P}objectIdentifierType"), one.findtext(f"{P}objectIdentifierValue"))
        for one in item.findall(f"{P}objectIdentifier")
    ]
    assert names[1:] == [("assetId", "a#1"), ("batchId", "B 7")]
    places = [
        (
            place.findtext(f"{P}contentLocation/{P}contentLocationType"),
            place.findtext(f"{P}storageMedium"),
        )
        for place in file.findall(f"{P}storage")
    ]
    assert places == [("path", "disk"), ("volume", "tape"), ("volume", "tape")]


def test_premis_has_each_file_with_its_digest_and_its_tapes(records: list[dict[str, Any]]) -> None:
    root = ElementTree.fromstring("".join(premis(lambda: records)))
    objects = {
        element.findtext(f"{P}objectIdentifier/{P}objectIdentifierValue"): element
        for element in root.findall(f"{P}object")
    }
    path = "a1/v1/content/été & <1>.tif"
    file = objects[f"assets/a1/{path}"]
    assert file.findtext(f"{P}originalName") == path
    assert (
        file.findtext(f"{P}objectCharacteristics/{P}fixity/{P}messageDigestAlgorithm") == "sha512"
    )
    assert file.findtext(f"{P}objectCharacteristics/{P}fixity/{P}messageDigest") == f"{1:0128x}"
    assert [place.text for place in file.iter(f"{P}contentLocationValue")] == ["V1", "Va1"]
    item = objects["assets/a1"]
    assert [place.text for place in item.iter(f"{P}relatedObjectIdentifierValue")] == [
        f"assets/a1/{name}" for name in reported_files(records[0]["stages"])
    ]


def test_premis_links_every_event_to_an_agent_and_an_object_that_are_there(
    records: list[dict[str, Any]],
) -> None:
    root = ElementTree.fromstring("".join(premis(lambda: records)))
    objects = {element.text for element in root.iter(f"{P}objectIdentifierValue")}
    agents = {element.text: element for element in root.iter(f"{P}agentIdentifierValue")}
    events = root.findall(f"{P}event")
    identifiers = [
        event.findtext(f"{P}eventIdentifier/{P}eventIdentifierValue") for event in events
    ]
    assert (
        len(set(identifiers))
        == len(identifiers)
        == sum(len(record["chain"]["lines"]) for record in records[:2])
    )
    for event in events:
        assert event.findtext(f"{P}linkingAgentIdentifier/{P}linkingAgentIdentifierValue") in agents
        linked = [place.text for place in event.iter(f"{P}linkingObjectIdentifierValue")]
        assert linked
        assert set(linked) <= objects
    kinds = {
        agent.findtext(f"{P}agentName"): agent.findtext(f"{P}agentType")
        for agent in root.findall(f"{P}agent")
    }
    assert (kinds["ops"], kinds["tape library"]) == ("person", "software")


@pytest.mark.parametrize(
    ("wrong", "fault"),
    [
        (("<eventType>", "<eventKind>", "</eventType>", "</eventKind>"), "event has"),
        (('xsi:type="file"', 'xsi:type="tape"', "", ""), "object:tape"),
        (('version="3.0"', 'version="2.2"', "", ""), "version 2.2"),
        (("<messageDigestAlgorithm>sha512</messageDigestAlgorithm>", "", "", ""), "fixity has 0"),
    ],
)
def test_the_check_of_the_schema_finds_what_is_wrong(
    records: list[dict[str, Any]], wrong: tuple[str, ...], fault: str
) -> None:
    text = "".join(premis(lambda: records)).replace(wrong[0], wrong[1])
    text = text.replace(wrong[2], wrong[3]) if wrong[2] else text
    assert any(fault in found for found in faults(text))


def test_files_are_found_in_each_form_that_an_output_may_have() -> None:
    outputs: list[Any] = [
        {"files": [{"path": "x", "digest": "md5:ab", "bytes": 3}, {"path": 7}, "y"]},
        {"filePaths": ["x", 8], "digests": {"x": "sha512:cd", "z": 9}},
        {"x": ["V1"], "y": ["V1", "V2"]},
        {"x": ["V1"], "y": "not a list"},
        "text",
    ]
    files = reported_files([{"stage": "s", "output": output} for output in outputs] + [{}])
    assert (files["x"].digests, files["x"].size, files["x"].volumes) == (
        {"md5": "ab", "sha512": "cd"},
        3,
        {"s": ["V1"]},
    )
    assert files["y"].volumes == {"s": ["V1", "V2"]}
    assert list(files) == ["x", "z", "y"]
    assert (
        reported_files([{"stage": "s", "output": {"filePaths": ["x"], "sizes": {"x": 4}}}])[
            "x"
        ].size
        == 4
    )
