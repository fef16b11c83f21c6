"""The tape check: confirmed only when every file of an asset is on tape, whatever else ScoutAM says
or fails to say."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

import pytest
from tests.postingest.tape_scene import QUICK, Scene, scene_of

import milepost as mp
import milepost_net as net
from milepost_postingest.scoutam.api import ScoutAM
from milepost_postingest.standins.scoutam import FILES, LOGIN
from milepost_postingest.tape import Tape
from milepost_testing import SeededChance, VirtualClock, assert_item, drain

ENVIRONMENT = {
    "SCOUTAM_URL": "http://127.0.0.1:1",
    "SCOUTAM_USERNAME": "u",
    "SCOUTAM_PASSWORD": "p",
    "MOUNT_ROOT": "/archive",
}


@pytest.fixture
def scene() -> Iterator[Scene]:
    with scene_of() as scene:
        yield scene


# Confirmed, or not --------------------------------------------------------------------------------
def test_all_files_on_tape_are_confirmed_with_their_volumes(scene: Scene) -> None:
    scene.standin.put("a", "L03721", "L03722")
    scene.standin.put("b/c", "L03723")
    assert scene.check("a", "b/c") == mp.Done({"a": ["L03721", "L03722"], "b/c": ["L03723"]})


def test_one_of_two_files_is_not_enough(scene: Scene) -> None:
    scene.on_tape("a")
    scene.standin.put("b", archdone=False)
    assert scene.check("a", "b") == mp.NotYet(note="1 of 2 files on tape; missing: b")
    assert scene.check("b", "a") == mp.NotYet(note="1 of 2 files on tape; missing: b"), (
        "in whatever order"
    )


@pytest.mark.parametrize(
    "state",
    [
        {"archdone": False, "copies": [{"copy": "3", "sections": [{"volume": "L1"}]}]},
        {"archdone": True, "copies": [{"copy": "1", "sections": [{"volume": "L1"}]}]},
        {"archdone": True, "copies": [{"copy": "3"}]},
        {"archdone": True, "copies": [{"copy": "3", "sections": []}]},
        {"archdone": True, "copies": [{"copy": "3", "sections": [{"volume": ""}]}]},
        {"archdone": True, "copies": []},
        {"archdone": True, "copies": None},
        {"archdone": True},
    ],
)
def test_a_file_that_is_not_archived_whole_is_not_on_tape(
    scene: Scene, state: dict[str, Any]
) -> None:
    scene.standin.files["/archive/a"] = state
    assert scene.check("a") == mp.NotYet(note="0 of 1 files on tape; missing: a")


def test_another_copy_may_be_the_required_one(scene: Scene) -> None:
    scene.standin.put("a", "L1", copy="2")
    assert scene.check("a") == mp.NotYet(note="0 of 1 files on tape; missing: a")
    assert Tape(scene.client, "/archive/", copy="2").check({"filePaths": ["a"]}) == mp.Done(
        {"a": ["L1"]}
    )


def test_a_file_that_scoutam_does_not_know_is_not_archived_yet(scene: Scene) -> None:
    scene.on_tape("a")
    assert scene.check("a", "b", "c") == mp.NotYet(
        note="1 of 3 files on tape, 2 not known to ScoutAM; missing: b, c"
    )
    assert scene.check("b") == mp.NotYet(
        note="0 of 1 files on tape, 1 not known to ScoutAM; missing: b"
    )


def test_chance_never_confirms_what_is_not_whole(scene: Scene) -> None:
    """Assets of random files in random states: confirmed exactly when each single one is on tape,
    with all of its volumes."""
    chance = random.Random(7)
    states = ["on", "on", "on", "on", "waiting", "other copy", "unknown"]
    confirmed = 0
    for asset in range(60):
        files = {
            f"{asset}/{number}": chance.choice(states) for number in range(chance.randint(1, 4))
        }
        for path, state in files.items():
            if state != "unknown":
                scene.standin.put(
                    path,
                    f"V{path}",
                    archdone=state != "waiting",
                    copy="2" if state == "other copy" else "3",
                )
        outcome = scene.check(*files)
        if set(files.values()) == {"on"}:
            assert outcome == mp.Done({path: [f"V{path}"] for path in files})
            confirmed += 1
        else:
            assert isinstance(outcome, mp.NotYet)
    assert 10 < confirmed < 50


def test_a_path_named_twice_is_one_file(scene: Scene) -> None:
    scene.on_tape("a")
    assert scene.check("a", "a") == mp.Done({"a": ["L00000"]})
    assert scene.standin.asked["/archive/a"] == 1


def test_names_in_any_script_are_asked_for_and_confirmed_to_the_letter(scene: Scene) -> None:
    names = [
        "aaa/v1/content/Ünïcode ñame.txt",
        "日本語/e\u0301",
        "日本語/\u00e9",
        "50% & more+less?.tif",
    ]
    scene.on_tape(*names)
    outcome = scene.check(*names)
    assert list(outcome.output) == names
    assert Tape(scene.client, "/archive").check(json.dumps({"filePaths": names})) == outcome


def test_an_asset_with_two_thousand_files(scene: Scene) -> None:
    names = [f"o/v1/content/{number}" for number in range(2000)]
    scene.on_tape(*names)
    scene.standin.fail("status", 404, where=f"/archive/{names[-1]}", times=1)
    assert scene.check(*names) == mp.NotYet(
        note="1,999 of 2,000 files on tape, 1 not known to ScoutAM; missing: 1999 (in o/v1/content)"
    )
    outcome = scene.check(*names)
    assert isinstance(outcome, mp.Done)
    assert len(outcome.output) == 2000


def test_of_a_large_asset_no_more_are_asked_for_once_many_were_not_there(scene: Scene) -> None:
    names = [f"{number}" for number in range(500)]
    scene.on_tape(*names[:30])
    for name in names[30:50]:
        scene.standin.put(name, archdone=False)
    missing = f"{', '.join(names[30:40])} and 90 more"
    note = f"at least 30 of 500 files on tape, at least 80 not known to ScoutAM; missing: {missing}"
    assert scene.check(*names) == mp.NotYet(note=note)
    assert sum(scene.standin.asked.values()) == 130
    assert "at least" not in str(scene.check(*names[:100])), "a hundred are all asked for"


# Payloads -----------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "payload",
    [
        None,
        "",
        "a",
        '{"filePaths": ',
        [],
        ["a"],
        {},
        {"preservationSystemId": "x"},
        {"filePaths": None},
        {"filePaths": "a"},
        {"filePaths": {"a": 1}},
        {"filePaths": []},
        '{"filePaths": []}',
        {"filePaths": ["a", 7]},
        {"filePaths": ["a", ""]},
        {"filePaths": ["../secret"]},
        {"filePaths": ["a/../../b"]},
        {"filePaths": ["/etc/passwd"]},
        {"filePaths": ["a//b"]},
        {"filePaths": ["a\x00b"]},
        {"filePaths": ["a\ud800"]},
    ],
)
def test_a_payload_of_another_kind_is_rejected_and_nobody_is_asked(payload: object) -> None:
    outcome = Tape.from_environment(ENVIRONMENT).check(payload)
    assert isinstance(outcome, mp.Reject)
    assert outcome.category == "WRONG_PAYLOAD"
    assert '{"filePaths": [' in outcome.error


def test_further_fields_of_a_payload_are_no_trouble(scene: Scene) -> None:
    scene.on_tape("a")
    assert scene.tape.check({"filePaths": ["a"], "version": "v3", "digests": {}}) == mp.Done(
        {"a": ["L00000"]}
    )


# What people are told -----------------------------------------------------------------------------
def test_a_damaged_copy_is_told_to_people(scene: Scene) -> None:
    scene.on_tape("a", "b")
    scene.standin.files["/archive/b"]["copies"][-1]["damaged"] = True
    outcome = scene.check("a", "b")
    assert isinstance(outcome, mp.Reject)
    assert (outcome.category, outcome.details) == (
        "DAMAGED_COPY",
        {"path": "b", "copy": "3", "volumes": ["L00001"]},
    )
    assert "copy 3 of b is marked as damaged" in outcome.error


def test_a_damaged_copy_that_is_not_the_required_one_does_not_matter(scene: Scene) -> None:
    scene.on_tape("a")
    scene.standin.files["/archive/a"]["copies"][0]["damaged"] = True
    assert isinstance(scene.check("a"), mp.Done)


def test_a_file_that_is_never_to_be_archived_is_told_to_people_unless_it_is_on_tape_all_the_same(
    scene: Scene,
) -> None:
    scene.standin.put("a", archdone=False, noarchive=True)
    outcome = scene.check("a")
    assert isinstance(outcome, mp.Reject)
    assert outcome.category == "NO_ARCHIVE"
    scene.standin.put("a", "L1", noarchive=True)
    assert scene.check("a") == mp.Done({"a": ["L1"]})


def test_a_wrong_mount_root_is_told_with_what_is_set(scene: Scene) -> None:
    scene.on_tape("a")
    outcome = Tape(scene.client, "/mnt/ocfl").check({"filePaths": ["a", "b"]})
    assert isinstance(outcome, mp.Retry)
    assert (outcome.category, outcome.after) == ("WRONG_MOUNT_ROOT", "10m")
    assert "MOUNT_ROOT itself, which is set to /mnt/ocfl" in outcome.error


def test_the_mount_root_is_asked_for_only_until_something_below_it_is_known(scene: Scene) -> None:
    for _ in range(3):
        assert scene.check("new") == mp.NotYet(
            note="0 of 1 files on tape, 1 not known to ScoutAM; missing: new"
        )
    assert scene.standin.asked["/archive"] == 1
    scene.on_tape("a")
    other = Tape(scene.client, "/archive")
    other.check({"filePaths": ["a", "new"]})
    other.check({"filePaths": ["new"]})
    assert scene.standin.asked["/archive"] == 1


# ScoutAM's own troubles ---------------------------------------------------------------------------
@pytest.mark.parametrize("where", [FILES, LOGIN])
@pytest.mark.parametrize(
    ("kind", "status", "note"),
    [
        ("status", 500, "ScoutAM does not answer: 500"),
        ("status", 503, "ScoutAM does not answer: 503"),
        ("status", 401, "ScoutAM refuses the login: Authentication failed with status code: 401"),
        ("hang", 200, "ScoutAM does not answer: 127.0.0.1:PORT: no whole answer within 0.25 s"),
        ("drip", 200, "ScoutAM does not answer: 127.0.0.1:PORT: no whole answer within 0.25 s"),
    ],
)
def test_an_outage_is_waited_for_and_not_counted(
    kind: Any, status: int, note: str, where: str | None
) -> None:
    with scene_of(client={"timeout": QUICK} if status == 200 else {}) as scene:
        scene.on_tape("a", "b")
        scene.standin.fail(kind, status, where=where)
        expected = note.replace("PORT", scene.standin.url.rpartition(":")[2])
        for _ in range(2):
            assert scene.check("a", "b") == mp.NotYet(note=expected), (
                "the same words while it is the same trouble"
            )
        scene.standin.mend()
        scene.client._client._timeouts = net.Timeouts(
            30, 30, 30
        )  # from now on only the partner is quick
        scene.hands.now += 60
        assert isinstance(scene.check("a", "b"), mp.Done)


def test_the_log_says_once_a_minute_that_scoutam_cannot_be_asked(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    tape = Tape(scene.client, "/archive", ticks=iter((0.0, 1.0, 59.0, 60.0)).__next__)
    scene.standin.fail("status", 401, where=LOGIN)
    for _ in range(4):
        tape.check({"filePaths": ["a"]})
    said = "assets wait until this is corrected: ScoutAM refuses the login: Authentication failed with status code: 401"
    assert [record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == [
        said
    ] * 2
    scene.standin.mend()
    scene.hands.now += 60
    tape.check({"filePaths": ["a"]})
    assert len(caplog.records) == 2


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        ("garbage", 200),
        ("html", 200),
        ("huge", 200),
        ("status", 302),
        ("status", 403),
        ("status", 400),
    ],
)
def test_an_answer_that_cannot_be_read_confirms_nothing(
    scene: Scene, kind: Any, status: int
) -> None:
    scene.on_tape("a", "b")
    scene.standin.fail(kind, status, where="/archive/b")
    outcome = scene.check("a", "b")
    assert isinstance(outcome, mp.NotYet)
    assert outcome.note is not None
    assert "answer" in outcome.note


def test_an_unreadable_login_is_waited_for(scene: Scene) -> None:
    scene.standin.fail("garbage", where=LOGIN)
    outcome = scene.check("a")
    assert isinstance(outcome, mp.NotYet)
    assert "Failed to parse authentication response" in str(outcome.note)


@pytest.mark.parametrize(("said", "after"), [("120", 120.0), ("1", 60.0)])
def test_an_asset_comes_back_when_scoutam_says_and_not_before_a_minute(
    scene: Scene, said: str, after: float
) -> None:
    scene.standin.fail("status", 503, headers={"Retry-After": said}, where=FILES)
    assert scene.check("a") == mp.NotYet(after=after, note="ScoutAM does not answer: 503")


def test_during_an_outage_a_thousand_assets_do_not_each_wait_for_an_answer(scene: Scene) -> None:
    scene.standin.fail("status", 503, where=FILES)
    assert {scene.check(f"{number}").note for number in range(1000)} == {
        "ScoutAM does not answer: 503"
    }
    assert sum(scene.standin.asked.values()) == 3


# Settings -----------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", sorted(ENVIRONMENT))
@pytest.mark.parametrize("value", [None, ""])
def test_each_setting_that_is_missing_is_named(name: str, value: str | None) -> None:
    env = {**ENVIRONMENT, name: value}
    with pytest.raises(mp.ConfigMistake, match=name):
        Tape.from_environment({name: value for name, value in env.items() if value is not None})


def test_settings_come_from_the_environment_and_nothing_is_contacted(scene: Scene) -> None:
    scene.standin.put("a", "L1", copy="4")
    env = {
        **ENVIRONMENT,
        "SCOUTAM_URL": scene.standin.url,
        "SCOUTAM_USERNAME": "milepost",
        "SCOUTAM_PASSWORD": "milepost",
    }
    tape = Tape.from_environment({**env, "SCOUTAM_COPY": "4"})
    assert scene.standin.connections == 0
    assert tape.check({"filePaths": ["a"]}) == mp.Done({"a": ["L1"]})
    tape.client.close()
    assert Tape.from_environment(env).copy == "3"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SCOUTAM_URL", "scoutam"),
        ("MOUNT_ROOT", "archive"),
        ("MOUNT_ROOT", "/a\x00"),
        ("SCOUTAM_COPY", ""),
    ],
)
def test_a_setting_that_cannot_be_is_named(name: str, value: str) -> None:
    with pytest.raises(mp.ConfigMistake, match=name):
        Tape.from_environment({**ENVIRONMENT, name: value})


def test_the_mount_root_may_be_everything() -> None:
    with scene_of(root="/") as scene:
        scene.on_tape("a")
        assert Tape(scene.client, "/").check({"filePaths": ["a"]}) == mp.Done({"a": ["L00000"]})
        outcome = Tape(scene.client, "/").check({"filePaths": ["b"]})
        assert outcome == mp.NotYet(note="0 of 1 files on tape, 1 not known to ScoutAM; missing: b")


# On a route ---------------------------------------------------------------------------------------
def test_through_a_week_of_outage_and_piece_by_piece_an_asset_gets_to_its_end(scene: Scene) -> None:
    """Not one attempt is used up, and the history has a line for what was new, not for each
    look."""
    clock, looks = VirtualClock(), 0
    began = clock.now()
    client = ScoutAM(scene.standin.url, "milepost", "milepost", ticks=lambda: clock.now() / 1000)
    tape = Tape(client, "/archive")
    names = ["a", "b", "c"]
    for name in names:
        scene.standin.put(name, archdone=False)
    scene.standin.fail("status", 503, where=FILES)
    route = mp.Route("assets", key="id")

    @route.stage("tape", retry=mp.Backoff(attempts=2), checks=mp.Checks(every="1m", up_to="3h"))
    def on_tape(item: mp.Item) -> mp.Outcome:
        nonlocal looks
        looks += 1
        days = (clock.now() - began) / 86_400_000
        if days > 7:
            scene.standin.mend()
            scene.on_tape(*names[: int(days - 7)])
        return tape(item)

    with client, mp.open("memory:", routes=[route], clock=clock, chance=SeededChance(1)) as archive:
        archive.submit("assets", {"id": "A", "filePaths": names})
        drain(archive, clock)
        item = assert_item(archive, "assets", "A", status=mp.Status.COMPLETED)
        assert item.results["tape"] == {"a": ["L00000"], "b": ["L00001"], "c": ["L00002"]}
        assert item.row.total_attempts == 0
        lines = [
            (written.line.reason.value, written.line.note)
            for written in archive.context.ledger.history("assets", "A")
        ]
    notes = [
        "ScoutAM does not answer: 503",
        *(
            f"{number} of 3 files on tape; missing: {', '.join(names[number:])}"
            for number in range(3)
        ),
    ]
    assert lines == [
        ("accepted", None),
        *(("not-yet", note) for note in notes),
        ("completed", None),
    ]
    assert looks > 60
