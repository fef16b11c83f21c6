"""The Custodial Copy's confirmer: what it says of an asset, as a plain check and as a stage of a
route."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.postingest.ocfl.ocfl_scene import (
    ASSET,
    FILES,
    HASHED,
    Scene,
    commit,
    hashed,
    problems,
    stage,
)

import milepost as mp
from milepost_postingest.custodial_copy import CustodialCopy
from milepost_testing import VirtualClock, assert_item, drain

OTHER = "00000000-0000-4000-8000-000000000002"
PAYLOAD = {"preservationSystemId": ASSET}


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def done(outcome: mp.Outcome) -> mp.Done:
    assert isinstance(outcome, mp.Done), outcome
    return outcome


# What it says -------------------------------------------------------------------------------------
@pytest.mark.parametrize("fixity", [False, True], ids=["seen", "read"])
@pytest.mark.parametrize(
    "payload",
    [PAYLOAD, json.dumps(PAYLOAD), {**PAYLOAD, "more": 1}],
    ids=["object", "text", "more"],
)
def test_an_asset_in_the_repository_is_confirmed_with_its_evidence(
    scene: Scene, payload: Any, fixity: bool
) -> None:
    scene.build()
    outcome = done(CustodialCopy(scene.root, fixity=fixity).check(payload))
    expected = sorted(f"{hashed(ASSET)}/v1/content/{name}" for name in FILES)
    assert outcome.payload == {"filePaths": expected}
    assert outcome.output == {
        "filePaths": expected,
        "digests": {
            f"{hashed(ASSET)}/v1/content/{name}": f"sha512:{hashlib.sha512(text.encode()).hexdigest()}"
            for name, text in FILES.items()
        },
        "sizes": {
            f"{hashed(ASSET)}/v1/content/{name}": len(text.encode()) for name, text in FILES.items()
        },
        "version": "v1",
        "objectId": ASSET,
        "fixity": fixity,
        "bytes": sum(map(len, FILES.values())),
    }


def test_shared_content_is_listed_and_counted_once(scene: Scene) -> None:
    scene.build({"a": "same", "b": "same", "c": "other"})
    output = done(CustodialCopy(scene.root).check(PAYLOAD)).output
    assert (len(output["filePaths"]), len(output["digests"]), output["bytes"]) == (2, 2, 9)


def test_an_asset_that_is_not_there_is_not_there_yet(scene: Scene) -> None:
    assert CustodialCopy(scene.root).check(PAYLOAD) == mp.NotYet(note="not in the repository yet")


def test_a_staged_asset_is_confirmed_once_it_is_committed(scene: Scene) -> None:
    path = scene.build({"old.txt": "old"})
    stage(path, "new.txt", "new")
    look = CustodialCopy(scene.root).check
    assert look(PAYLOAD) == mp.NotYet(note="it has staged changes")
    commit(path)
    assert problems(path) == []
    digest = hashlib.sha256(ASSET.encode()).hexdigest()
    place = f"{digest[:3]}/{digest[3:6]}/{digest[6:9]}/{digest}"
    assert done(look(PAYLOAD)).payload == {
        "filePaths": [f"{place}/v1/content/old.txt", f"{place}/v2/content/r1/new.txt"]
    }


def test_an_asset_without_files_is_not_there_yet(scene: Scene) -> None:
    scene.build({"a": "1"}, {})
    assert CustodialCopy(scene.root).check(PAYLOAD) == mp.NotYet(
        note="its head version has no files"
    )


def test_a_damaged_asset_is_told_to_people_and_never_confirmed(scene: Scene) -> None:
    path = scene.build()
    (path / "v1/content/IO_Metadata.xml").write_text("<oi/>")
    assert isinstance(CustodialCopy(scene.root).check(PAYLOAD), mp.Done), "not read, not seen"
    outcome = CustodialCopy(scene.root, fixity=True, settled=0).check(PAYLOAD)
    assert isinstance(outcome, mp.Reject)
    assert outcome.category == "DAMAGED"
    where = f"{hashed(ASSET)}/v1/content/IO_Metadata.xml"
    assert where in outcome.error
    assert "sha512 digest" in outcome.error
    assert (outcome.details["objectId"], outcome.details["where"]) == (ASSET, where)


@pytest.mark.parametrize(
    "payload",
    [
        None,
        17,
        "",
        "input",
        "\ud800",
        "[]",
        [],
        {},
        {"filePaths": ["a"]},
        {"preservationSystemId": None},
        {"preservationSystemId": ""},
        {"preservationSystemId": ASSET + "\n"},
        json.dumps({"preservationSystemId": 1}),
    ],
)
def test_a_payload_that_names_no_asset_is_rejected(scene: Scene, payload: Any) -> None:
    outcome = CustodialCopy(scene.root).check(payload)
    assert isinstance(outcome, mp.Reject)
    assert outcome.category == "WRONG_PAYLOAD"
    assert 'expected {"preservationSystemId": "…"}' in outcome.error


def test_what_looks_damaged_and_was_just_touched_may_still_be_on_its_way(scene: Scene) -> None:
    path = scene.build()
    (path / "v1/content/IO_Metadata.xml").unlink()
    (path / "inventory.json").touch()
    now = path.stat().st_mtime
    clock = [now + 899]
    look = CustodialCopy(scene.root, clock=lambda: clock[0]).check
    waits = look(PAYLOAD)
    assert isinstance(waits, mp.NotYet)
    assert waits.note is not None
    assert waits.note.startswith("it is being written, or damaged: ")
    clock[0] = now + 900
    assert isinstance(look(PAYLOAD), mp.Reject)


def test_a_repository_that_goes_away_is_waited_for(scene: Scene) -> None:
    scene.build()
    look = CustodialCopy(scene.root).check
    done(look(PAYLOAD))
    scene.root.rename(scene.root.with_name("away"))
    outcome = look(PAYLOAD)
    assert isinstance(outcome, mp.NotYet)
    assert "is the repository mounted?" in (outcome.note or "")
    never = CustodialCopy(scene.root).check(PAYLOAD)
    assert isinstance(never, mp.NotYet)
    assert "is not a folder" in (never.note or "")
    scene.root.with_name("away").rename(scene.root)
    done(look(PAYLOAD))


def test_an_object_that_alone_cannot_be_read_is_a_counted_try(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.build()
    look = CustodialCopy(scene.root).check
    done(look(PAYLOAD))
    opened = os.open

    def fails(path: Any, *args: Any, **more: Any) -> int:
        if isinstance(path, str) and path.endswith(hashed(ASSET)):
            raise OSError(errno.EIO, "bad sector", path)
        return opened(path, *args, **more)

    monkeypatch.setattr(os, "open", fails)
    outcome = look(PAYLOAD)
    assert isinstance(outcome, mp.Retry)
    assert outcome.category == "UNREACHABLE"


def test_an_asset_of_two_thousand_files_is_confirmed(scene: Scene) -> None:
    names = [f"Preservation_1/{number:04}.txt" for number in range(2000)]
    scene.build({name: name for name in names})
    output = done(CustodialCopy(scene.root, fixity=True).check(PAYLOAD)).output
    assert output["filePaths"] == [f"{hashed(ASSET)}/v1/content/{name}" for name in names]


# How it is set up ---------------------------------------------------------------------------------
def test_it_is_set_up_from_the_environment(tmp_path: Path) -> None:
    scene = Scene(tmp_path, layout=None)
    scene.build()
    env = {"OCFL_REPO_DIR": str(scene.root), "OCFL_LAYOUT": HASHED, "OCFL_FIXITY": "1"}
    assert done(CustodialCopy.from_environment(env).check(PAYLOAD)).output["fixity"] is True
    assert (
        done(CustodialCopy.from_environment({**env, "OCFL_FIXITY": "0"}).check(PAYLOAD)).output[
            "fixity"
        ]
        is False
    )


@pytest.mark.parametrize(
    ("env", "said"),
    [
        ({}, "OCFL_REPO_DIR is not set"),
        ({"OCFL_REPO_DIR": ""}, "OCFL_REPO_DIR is not set"),
        (
            {"OCFL_REPO_DIR": "/somewhere", "OCFL_FIXITY": "sometimes"},
            "OCFL_FIXITY is 'sometimes'; expected 1 or 0",
        ),
    ],
)
def test_a_setting_that_is_missing_or_wrong_is_a_mistake(env: dict[str, str], said: str) -> None:
    with pytest.raises(mp.ConfigMistake, match=said):
        CustodialCopy.from_environment(env)


def test_it_can_be_made_before_the_repository_is_mounted(tmp_path: Path) -> None:
    mount = tmp_path / "repository"
    look = CustodialCopy(mount).check
    waits = look(PAYLOAD)
    assert isinstance(waits, mp.NotYet)
    assert "is it mounted" in (waits.note or "")
    Scene(tmp_path).build()
    done(look(PAYLOAD))


def test_threads_that_come_first_together_open_one_repository(scene: Scene) -> None:
    scene.build()
    confirmer, gate = CustodialCopy(scene.root), threading.Barrier(8)

    def look(_: int) -> tuple[mp.Outcome, int]:
        gate.wait()
        return confirmer.check(PAYLOAD), id(confirmer._repository())

    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(look, range(8)))
    assert all(isinstance(outcome, mp.Done) for outcome, _ in found)
    assert len({repository for _, repository in found}) == 1


# On a route ---------------------------------------------------------------------------------------
def test_on_a_route_one_asset_arrives_and_another_waits_until_it_is_there(scene: Scene) -> None:
    scene.build({"naïve cafe\u0301.txt": "text"})
    route = mp.Route("assets", key="id")
    route.stage("CC", claims=False, checks=mp.Checks(every="1m", up_to="1h"))(
        CustodialCopy(scene.root)
    )
    given: list[Any] = []

    @route.stage("TC")
    def tape(item: mp.Item) -> mp.Outcome:
        given.append(item.payload)
        return mp.Done()

    clock = VirtualClock()
    with mp.open("memory:", routes=[route], clock=clock) as post:
        post.submit("assets", {"id": "a", **PAYLOAD}, {"id": "b", "preservationSystemId": OTHER})
        with pytest.raises(AssertionError, match="not idle"):
            drain(post, clock, at_most="1d")
        assert_item(post, "assets", "a", status=mp.Status.COMPLETED)
        assert_item(post, "assets", "b", stage="CC", status=mp.Status.WAITING)
        assert given == [{"filePaths": [f"{hashed(ASSET)}/v1/content/naïve cafe\u0301.txt"]}]
        scene.build(object_id=OTHER)
        drain(post, clock)
        assert_item(post, "assets", "b", status=mp.Status.COMPLETED)


def test_on_a_route_a_repository_that_is_away_uses_up_no_tries(scene: Scene) -> None:
    scene.build()
    confirmer, away = CustodialCopy(scene.root), scene.root.with_name("away")
    route = mp.Route("assets", key="id")
    looks: list[mp.Outcome] = []

    @route.stage("CC", retry=mp.Backoff(attempts=1))
    def on_disk(item: mp.Item) -> mp.Outcome:
        looks.append(confirmer(item))
        if len(looks) == 2:
            away.rename(scene.root)
        return looks[-1]

    clock = VirtualClock()
    with mp.open("memory:", routes=[route], clock=clock) as post:
        done(confirmer.check(PAYLOAD))
        scene.root.rename(away)
        post.submit("assets", {"id": "a", **PAYLOAD})
        drain(post, clock)
        assert_item(post, "assets", "a", status=mp.Status.COMPLETED)
    assert [type(outcome) for outcome in looks] == [mp.NotYet, mp.NotYet, mp.Done]
