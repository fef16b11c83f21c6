"""The configuration of the queues: every mistake has a sentence of its own, and nothing is made of
a list that has one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import milepost as mp
from milepost_postingest import postingest

SEED = [
    {
        "queueAlias": "CC",
        "queueOrder": 1,
        "queueUrl": "https://sqs.eu-west-2.amazonaws.com/1/intg-dr2-custodial-copy-confirmer",
    },
    {
        "queueAlias": "Scout",
        "queueOrder": 2,
        "queueUrl": "https://sqs.eu-west-2.amazonaws.com/2/intg-dr2-scout-am-confirmer",
    },
]


def shape(route: mp.Route) -> list[tuple[str, str | None, bool]]:
    return [(stage.name, stage.queue, stage.external) for stage in route.stages]


def queue(alias: str, order: int, **more: Any) -> dict[str, Any]:
    return {"queueAlias": alias, "queueOrder": order, **more}


def test_the_documents_own_configuration_makes_the_route(tmp_path: Path) -> None:
    file = tmp_path / "queues.json"
    file.write_text(json.dumps(SEED), encoding="utf-8")
    expected = [("CC", SEED[0]["queueUrl"], True), ("Scout", SEED[1]["queueUrl"], True)]
    for given in (SEED, json.dumps(SEED), str(file), file, list(reversed(SEED))):
        assert shape(postingest(given)) == expected


@pytest.mark.parametrize(
    ("dialect", "aliases"), [("seed", ["CC", "Scout"]), ("today", ["CC", "TC"])]
)
def test_without_a_configuration_there_are_the_two_usual_stages(
    dialect: str, aliases: list[str]
) -> None:
    route = postingest(dialect=dialect)
    assert shape(route) == [(alias, None, True) for alias in aliases]
    assert route.key == ("assetId", "batchId")


def test_a_third_stage_is_a_line_of_configuration() -> None:
    third = queue(
        "Offsite", 3, statusText="Tapes are off site.", resendAfter="30d", checks={"overdue": "60d"}
    )
    stage = postingest([*SEED, third]).stages[2]
    assert (stage.name, stage.announce, stage.resend_after_ms, stage.overdue_ms) == (
        "Offsite",
        "Tapes are off site.",
        30 * 86_400_000,
        60 * 86_400_000,
    )


def test_a_worker_of_ours_is_a_stage_with_a_handler_and_only_looks() -> None:
    def there(item: mp.Item) -> mp.Outcome:
        return mp.Done()

    given = [
        queue(
            "CC", 1, worker="ocfl", checks={"every": "5m", "upTo": "1d"}, rate="10/s", concurrency=3
        ),
        queue("Scout", 2),
    ]
    stage = postingest(given, workers={"CC": there}).stages[0]
    assert (stage.handler, stage.claims, stage.rate, stage.concurrency) == (there, False, 10.0, 3)
    assert (stage.checks.every, stage.checks.up_to) == ("5m", "1d")


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("[{", "Unable to decode queues from the configuration"),
        ("{}", "Unable to decode queues from the configuration"),
        (
            [{"queueAlias": "CC"}],
            "Unable to decode queues from the configuration: Object missing required field `queueOrder`",
        ),
        (
            [queue("CC", "1")],
            "Unable to decode queues from the configuration: Expected `int`, got `str`",
        ),  # type: ignore[arg-type]
        (
            [queue("CC", 1, queueURL="x")],
            "Unable to decode queues from the configuration: Object contains unknown field `queueURL`",
        ),
        ([queue("CC", 1), queue("OC", 2)], "Unsupported queue, 'OC' found in the configuration."),
        (
            [queue("CC", 1, worker="fax")],
            "queue 'CC' has the worker 'fax'; there are external, ocfl, scoutam",
        ),
        ([], "No queues found in the configuration"),
        ([queue("CC", 2), queue("Scout", 3)], "Config does not have a queue with queueOrder 1"),
        (
            [queue("CC", 1), queue("Scout", 1)],
            "Config has more than 1 queue with the same queueOrder",
        ),
        ([queue("CC", 1), queue("Scout", 3)], "Config does not have queues in sequential order"),
        (
            [queue("CC", 1, queueUrl="u"), queue("Scout", 2, queueUrl="u")],
            "The values in each queue should be unique but there is more than 1 queue with:\nProperty: queueUrl, Value: u",
        ),
        (
            [queue("CC", 1), queue("CC", 2)],
            "The values in each queue should be unique but there is more than 1 queue with:\nProperty: queueAlias, Value: CC",
        ),
        (
            [queue("CC", 1, statusText="t"), queue("Scout", 2, statusText="t")],
            "The values in each queue should be unique but there is more than 1 queue with:\nProperty: statusText, Value: t",
        ),
    ],
)
def test_each_mistake_has_its_own_sentence(given: Any, told: str) -> None:
    with pytest.raises(mp.ConfigMistake) as raised:
        postingest(given)
    assert str(raised.value).startswith(told)


def test_a_file_that_is_not_there_is_named() -> None:
    with pytest.raises(mp.ConfigMistake, match=r"no-such-file\.json cannot be read"):
        postingest("no-such-file.json")


def test_a_bad_stage_name_and_a_bad_schedule_are_told_too() -> None:
    with pytest.raises(mp.RouteMistake):
        postingest([queue("C C", 1, statusText="t")])
    with pytest.raises(mp.MilepostError, match="overdue"):
        postingest([queue("CC", 1, checks={"overdue": "soon"})])
    with pytest.raises(mp.ConfigMistake, match="dialect"):
        postingest(dialect="tomorrow")


@pytest.mark.parametrize(
    ("worker", "missing"), [("ocfl", "OCFL_REPO_DIR"), ("scoutam", "SCOUTAM_URL")]
)
def test_who_only_submits_and_looks_needs_no_settings_of_a_worker(
    worker: str, missing: str
) -> None:
    route = postingest([queue("CC", 1, worker=worker)], environment={})
    with mp.open("memory:", routes=[route]) as desk:
        assert (
            desk.submit(
                "postingest",
                {"assetId": "a", "batchId": "b", "input": {"preservationSystemId": "x"}},
            )[0].answer
            == "new"
        )
        with pytest.raises(mp.ConfigMistake, match=missing):
            desk.run(until_idle=0)
        shown = desk.show("postingest", "a#b")
    assert shown is not None
    assert (shown["status"], shown["attempts"]) == ("QUEUED", 0)
