"""Questions by a part of a key of several fields, and by the volume that holds the files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cli.conftest import Shell

ROUTE = """
import milepost as mp

assets = mp.Route("assets", key=["assetId", "batchId"], evidence=True)


@assets.stage("copied", retry=mp.Backoff(attempts=1), checks=mp.Checks(overdue="1ms"))
def copied(item: mp.Item) -> mp.Outcome:
    if item.input.get("bad"):
        return mp.Reject("its digest differs", category="DAMAGED")
    return mp.NotYet("1h") if item.input.get("slow") else mp.Done({"filePaths": [item.key]})


assets.external("taped", medium="tape")
"""
SIGNED = ("--by", "ops", "--reason", "a test")


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Shell:
    """Two batches: of B-1 one asset is through, one failed, one is overdue; of B-2 one asset waits
    for its tape."""
    shell = Shell(tmp_path_factory.mktemp("shell"))
    shell.write("assets.py", ROUTE)
    shell.write("milepost.toml", 'routes = ["assets.py"]\n')
    items = [
        {"assetId": "A1", "batchId": "B-1"},
        {"assetId": "A2", "batchId": "B-1", "bad": True},
        {"assetId": "A3", "batchId": "B-1", "slow": True},
        {"assetId": "A1", "batchId": "B-2"},
    ]
    shell.ok(
        "submit",
        "assets",
        "-",
        "--format",
        "jsonl",
        stdin="".join(json.dumps(item) + "\n" for item in items),
    )
    shell.ok("work", "--until-idle", "0.2")
    output = '{"A1/page.tif": ["T1", "T2"], "A1/back.tif": ["T2"]}'
    shell.ok("confirm", "assets", "A1#B-1", "--stage", "taped", "--output", output, *SIGNED)
    return shell


def test_a_whole_batch_is_counted_exactly(shell: Shell) -> None:
    found = shell.ok("status", "assets", "--part", "batchId=B-1", "--json").json
    counted = {
        name: found[name]
        for name in ("total", "completed", "in_progress", "failed", "overdue", "left", "whole")
    }
    assert counted == {
        "total": 3,
        "completed": 1,
        "in_progress": 1,
        "failed": 1,
        "overdue": 1,
        "left": 0,
        "whole": False,
    }
    assert found["stages"] == {"copied": {"REJECTED": 1, "WAITING": 1}}
    told = shell.ok("status", "assets", "--part", "batchId=B-1").out
    assert "3 items: 1 completed, 1 in progress, 1 failed" in told
    assert "1 item overdue" in told
    assert (
        "No item of assets has batchId=B-9"
        in shell.ok("status", "assets", "--part", "batchId=B-9").out
    )


def test_items_are_listed_and_acted_on_by_a_part_of_their_key(shell: Shell) -> None:
    def keys(*options: str) -> list[str]:
        return sorted(
            item["key"] for item in shell.ok("list", "assets", *options, "--json").json["items"]
        )

    assert keys("--part", "batchId=B-1") == ["A1#B-1", "A2#B-1", "A3#B-1"]
    assert keys("--part", "assetId=A1") == ["A1#B-1", "A1#B-2"]
    assert keys("--part", "assetId=A1", "--part", "batchId=B-2") == ["A1#B-2"]
    assert keys("--part", "batchId=B-1", "--overdue") == ["A3#B-1"]
    preview = shell.ok(
        "retry", "assets", "--part", "batchId=B-1", "--status", "failed", "--dry-run", "--json"
    ).json
    assert preview["matched"] == 1, preview


def test_an_asset_is_shown_by_its_id_without_the_batch(shell: Shell) -> None:
    assert shell.ok("show", "assets", "A2", "--json").json["key"] == "A2#B-1"
    several = shell("show", "assets", "A1")
    assert several.code == 1
    assert "2 items of 'assets' begin with 'A1'; show one of them: A1#B-1, A1#B-2" in several.err
    assert "has never had an item with the key 'A9'" in shell("show", "assets", "A9").err


def test_a_part_that_the_key_has_not_is_refused_with_the_fields_it_has(shell: Shell) -> None:
    for part in ("batch=B-1", "batchId", "batchId="):
        answer = shell("list", "assets", "--part", part)
        assert answer.code == 2
        assert "a key field of 'assets': assetId, batchId" in answer.err
    assert shell("status", "--part", "batchId=B-1").code == 2


def test_all_items_on_a_volume_are_named_also_when_their_rows_have_left(
    shell: Shell, tmp_path: Path
) -> None:
    def on(volume: str) -> list[dict[str, object]]:
        return [
            json.loads(line)
            for line in shell.ok("volume", "assets", volume, "--json").out.splitlines()
        ]

    assert [(found["key"], found["files"], found["left"]) for found in on("T2")] == [
        ("A1#B-1", ["A1/page.tif", "A1/back.tif"], False)
    ]
    assert [found["files"] for found in on("T1")] == [["A1/page.tif"]]
    assert on("T9") == []
    told = shell.ok("volume", "assets", "T2")
    assert told.out == "A1#B-1  COMPLETED  2 files: A1/page.tif, A1/back.tif\n"
    assert "1 item of assets on T2, 2 files." in told.err
    shell.ok("submit", "assets", "--item", '{"assetId": "A9", "batchId": "B-9"}')
    shell.ok("heads", "publish")
    shell.ok("prune", "assets", "--older-than", "0s", *SIGNED)
    assert [(found["key"], found["left"]) for found in on("T1")] == [("A1#B-1", True)]
    assert shell.ok("status", "assets", "--part", "batchId=B-1", "--json").json["left"] >= 1
