"""Completed assets are checked again on a schedule, and people hear of it when something is
gone."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import milepost as mp
from milepost.composition import open_context
from milepost.core.status import Status
from milepost.core.values.durations import iso
from milepost.engine.events.follow_ups import follow_up_routes, follow_ups
from milepost.engine.evidence import evidence_of, on_volume
from milepost.engine.views.story import story
from milepost.evidence.premis import premis
from milepost_postingest import postingest
from milepost_postingest.custodial_copy import CustodialCopy
from milepost_testing.clock import SeededChance, VirtualClock
from milepost_testing.drive import run_until_rest

QUEUES = [
    {"queueAlias": "CC", "queueOrder": 1, "worker": "ocfl"},
    {"queueAlias": "Scout", "queueOrder": 2, "worker": "scoutam"},
]
KEY = "a%231#b"
ON_DISK = {"filePaths": ["p/1"], "digests": {"p/1": "sha512:0a"}, "sizes": {"p/1": 11}}


class Shelf:
    """Stands where a worker looks: holds what it is said to hold."""

    def __init__(self, output: Any) -> None:
        self.output = output
        self.there = True
        self.away = False
        self.payloads: list[Any] = []

    def __call__(self, item: mp.Item) -> mp.Outcome:
        return self.check(item.payload)

    def check(self, payload: Any, absent: Any = lambda note: mp.NotYet(note=note)) -> mp.Outcome:
        self.payloads.append(payload)
        if self.away:
            return mp.NotYet(note="it does not answer")
        return mp.Done(self.output) if self.there else absent("not in the repository yet")


class Scene:
    def __init__(self, url: str) -> None:
        self.clock = VirtualClock()
        self.disk, self.tape = Shelf(ON_DISK), Shelf({"p/1": ["V1"]})
        self.route = postingest(QUEUES, workers={"CC": self.disk, "Scout": self.tape}, recheck="1y")
        routes = [self.route, *follow_up_routes([self.route])]
        self.ctx = open_context(url, routes, clock=self.clock, chance=SeededChance(1))
        self.told: list[dict[str, Any]] = []

    def run(self) -> None:
        """Do all that is due within the hour, and no more."""
        run_until_rest(
            self.ctx,
            self.clock,
            follow_ups(self.ctx, self.ctx.plans),
            self.clock.now() + 3_600_000,
            1,
        )

    def item(self, route: str = "postingest-recheck") -> mp.Item:
        [item] = self.ctx.ledger.get([(route, KEY)])
        assert isinstance(item, mp.Item)
        return item


@pytest.fixture(params=["memory", "sqlite"])
def scene(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Scene]:
    from milepost.engine.intake import submit

    scene = Scene("memory:" if request.param == "memory" else f"sqlite:///{tmp_path}/m.db")
    submit(
        scene.ctx,
        "postingest",
        [{"assetId": "a#1", "batchId": "b", "input": {"preservationSystemId": "p"}}],
    )
    scene.run()
    assert scene.item("postingest").status is Status.COMPLETED
    yield scene
    scene.ctx.ledger.close()


def advance(scene: Scene, span: str) -> None:
    scene.clock.advance(span)
    scene.run()


def test_a_completed_asset_is_checked_again_every_year_and_not_earlier(scene: Scene) -> None:
    item = scene.item()
    assert (item.status, item.key_parts) == (Status.PENDING, ["a#1", "b"])
    assert item.input["payloads"] == {
        "CC": {"preservationSystemId": "p"},
        "Scout": {"filePaths": ["p/1"]},
    }
    assert item.input["confirmed"] == {"CC": ON_DISK, "Scout": {"p/1": ["V1"]}}
    looks = len(scene.disk.payloads)
    advance(scene, "360d")
    assert len(scene.disk.payloads) == looks
    advance(scene, "6d")
    assert (len(scene.disk.payloads), scene.item().status) == (looks + 1, Status.WAITING)
    assert (scene.item().row.note or "").startswith("every file was there on ")
    advance(scene, "366d")
    assert len(scene.disk.payloads) == looks + 2


@pytest.mark.parametrize("shelf", ["disk", "tape"])
def test_what_is_gone_is_rejected_and_goes_on_after_a_retry(scene: Scene, shelf: str) -> None:
    from milepost.engine.act_log import select
    from milepost.engine.acts.bulk import act
    from milepost.engine.acts.verbs import RetryVerb

    getattr(scene, shelf).there = False
    advance(scene, "366d")
    row = scene.item().row
    assert (row.status, row.error and row.error.category) == (Status.REJECTED, "GONE")
    assert row.error is not None
    assert "not in the repository; restore it, then retry this item" in row.error.message
    getattr(scene, shelf).there = True
    act(
        scene.ctx,
        select(scene.ctx, "postingest-recheck", keys=[KEY]),
        RetryVerb(),
        by="ops",
        reason="restored",
    )
    scene.run()
    assert scene.item().status is Status.WAITING


def test_a_partner_that_does_not_answer_is_no_loss(scene: Scene) -> None:
    scene.tape.away = True
    advance(scene, "366d")
    assert (scene.item().status, scene.item().row.note) == (Status.WAITING, "it does not answer")
    scene.tape.away = False
    advance(scene, "1d")
    assert (scene.item().row.note or "").startswith("every file was there on ")


def test_an_event_that_comes_again_makes_no_second_item(scene: Scene) -> None:
    from milepost.core.events import cloud_event
    from milepost.engine.events.feed import feed_events

    [subscriber] = follow_ups(scene.ctx, scene.ctx.plans)
    envelopes = [
        cloud_event(entry.event)
        for entry in feed_events(scene.ctx.ledger.history("postingest", KEY))
    ]
    assert set(subscriber.tell(envelopes)) == {None}
    assert len(scene.ctx.ledger.history("postingest-recheck", KEY)) == 1


def test_a_row_that_has_left_is_refused_with_the_reason(scene: Scene) -> None:
    from msgspec.structs import replace

    from milepost.core.events import Envelope, cloud_event
    from milepost.engine.events.feed import feed_events

    [subscriber] = follow_ups(scene.ctx, scene.ctx.plans)
    written = scene.ctx.ledger.history("postingest", KEY)[-1]
    event = replace(feed_events([written])[0].event, key="gone#b")
    answers: Sequence[Exception | None] = subscriber.tell([Envelope(cloud_event(event), event)])
    assert isinstance(answers[0], mp.EventRefused)


def test_recheck_needs_a_stage_with_a_worker_of_ours() -> None:
    with pytest.raises(mp.ConfigMistake, match="worker 'ocfl' or 'scoutam'"):
        postingest(recheck="1y")
    route = postingest(QUEUES, recheck=timedelta(days=30), environment={})
    assert route.follow_up is not None
    assert route.follow_up.target.name == "postingest-recheck"


# What is compared ---------------------------------------------------------------------------------
def lines(scene: Scene) -> list[tuple[str, Any]]:
    return [
        (entry.line.reason.value, entry.line.note)
        for entry in scene.ctx.ledger.history("postingest-recheck", KEY)
    ][1:]


def test_a_good_check_is_recorded_as_a_success_by_the_ledgers_clock(scene: Scene) -> None:
    advance(scene, "366d")
    day = (iso(scene.item().row.updated_at) or "")[:10]
    same = "CC: 1 confirmed file, same digests, same sizes; Scout: 1 confirmed file, same volumes"
    assert lines(scene) == [("checked", f"every file was there on {day}; {same}")]
    told = story(scene.ctx, "postingest-recheck", KEY)
    assert told is not None
    assert "WAITING for its next check. The last fixity check was successful" in told.where
    assert told.why == [
        f"The last check found everything well (every file was there on {day}; {same})."
    ]


def test_a_healthy_asset_is_never_overdue_and_one_that_is_not_checked_is(scene: Scene) -> None:
    for _ in range(4):
        advance(scene, "366d")
    assert [reason for reason, _ in lines(scene)] == ["checked"] * 4
    scene.tape.away = True
    advance(scene, "366d")
    advance(scene, "28d")
    assert "overdue" not in [reason for reason, _ in lines(scene)]
    advance(scene, "4d")
    assert "overdue" in [reason for reason, _ in lines(scene)]
    scene.tape.away = False
    advance(scene, "2d")
    row = scene.item().row
    assert (row.checked, row.overdue_at) == (True, row.entered_at + (365 + 30) * 86_400_000)


@pytest.mark.parametrize(
    ("present", "category", "message"),
    [
        (
            {"filePaths": ["p/2"]},
            "GONE",
            "CC had confirmed it; now it is gone or incomplete: 1 of 1 files missing: 1 (in p)",
        ),
        (
            ON_DISK | {"digests": {"p/1": "sha512:0b"}},
            "DAMAGED",
            "CC had confirmed other content: p/1 has sha512:0b, not sha512:0a",
        ),
        (
            ON_DISK | {"sizes": {"p/1": 12}},
            "DAMAGED",
            "CC had confirmed other content: p/1 has 12 bytes, not 11",
        ),
    ],
)
def test_other_content_than_was_confirmed_is_rejected(
    scene: Scene, present: Any, category: str, message: str
) -> None:
    scene.disk.output = present
    advance(scene, "366d")
    row = scene.item().row
    assert row.error is not None
    assert (row.status, row.error.category) == (Status.REJECTED, category)
    assert row.error.message.startswith(message)
    assert row.error.message.endswith("restore it, then retry this item")


def test_new_versions_may_add_files(scene: Scene) -> None:
    scene.disk.output = {
        "filePaths": ["p/1", "p/2"],
        "digests": {"p/1": "sha512:0A", "p/2": "sha512:0c"},
        "sizes": {"p/1": 11, "p/2": 5},
    }
    advance(scene, "366d")
    [(reason, note)] = lines(scene)
    assert reason == "checked"
    assert "CC: 1 confirmed file, same digests, same sizes, 1 added since;" in note


def test_files_on_other_volumes_are_recorded_and_found_by_volume(scene: Scene) -> None:
    scene.tape.output = {"p/1": ["V2"]}
    advance(scene, "366d")
    [(reason, note)] = lines(scene)
    assert reason == "checked"
    assert note.endswith("Scout: 1 confirmed file, 1 on other volumes: p/1 on V2 (was V1)")
    assert scene.item().results == {"recheck": {"stages": {"Scout": {"p/1": ["V2"]}}}}
    assert [found.files for found in on_volume(scene.ctx, "postingest", "V2")] == [["p/1"]]
    assert list(on_volume(scene.ctx, "postingest", "V1")) == []
    advance(scene, "366d")
    assert lines(scene)[-1][1].endswith("Scout: 1 confirmed file, same volumes"), (
        "compared with the volumes found last"
    )
    assert scene.item().results == {"recheck": {"stages": {"Scout": {"p/1": ["V2"]}}}}


def test_an_item_without_the_confirmed_output_says_what_it_compares_with(scene: Scene) -> None:
    handler = scene.ctx.plan("postingest-recheck").first.handler
    assert handler is not None
    item = scene.item()
    item.content.input.pop("confirmed")
    outcome = handler(item)
    assert isinstance(outcome, mp.Checked)
    unknown = (
        "compared with the inventory only, because it is not recorded which files were confirmed"
    )
    assert outcome.note == f"every file was there; CC: {unknown}; Scout: {unknown}"


def test_a_good_check_is_a_successful_fixity_check_in_premis_and_in_evidence(scene: Scene) -> None:
    scene.tape.output = {"p/1": ["V2"]}
    advance(scene, "366d")
    found = evidence_of(scene.ctx, "postingest-recheck", KEY)
    assert found is not None
    assert found.faults == []
    [stage] = found.record["stages"]
    assert (stage["how"], stage["output"]) == ("checked", {"stages": {"Scout": {"p/1": ["V2"]}}})
    document = "".join(premis(lambda: [found.record], {"route": "postingest-recheck"}))
    [event] = [event for event in document.split("<event>") if "fixity check</eventType>" in event]
    assert "<eventOutcome>success</eventOutcome>" in event
    assert "<eventOutcomeDetailNote>every file was there on " in event
    assert "not-yet" not in document
    assert (
        f" (milepost {mp.__version__}, recheck)</agentName><agentType>software</agentType><agentVersion>{mp.__version__}<"
        in document
    )


# Against a repository on disk ---------------------------------------------------------------------
def sha512(content: bytes) -> str:
    return hashlib.sha512(content).hexdigest()


def write_object(root: Path, *versions: dict[str, bytes]) -> None:
    """The object p-1, of these versions; each has the files that differ from the one before, and
    all of that one."""
    name = hashlib.sha256(b"p-1").hexdigest()
    place = root / name[:3] / name[3:6] / name[6:9] / name
    shutil.rmtree(place, ignore_errors=True)
    manifest: dict[str, list[str]] = {}
    state: dict[str, bytes] = {}
    states: dict[str, Any] = {}
    for number, files in enumerate(versions, 1):
        folder = place / f"v{number}"
        state = state | files
        for logical, content in files.items():
            (folder / "content" / logical).parent.mkdir(parents=True, exist_ok=True)
            (folder / "content" / logical).write_bytes(content)
            manifest.setdefault(sha512(content), []).append(f"v{number}/content/{logical}")
        held = {sha512(content): [logical] for logical, content in state.items()}
        states[f"v{number}"] = {"created": "2026-01-01T00:00:00Z", "state": held}
        inventory = {
            "id": "p-1",
            "type": "https://ocfl.io/1.1/spec/#inventory",
            "digestAlgorithm": "sha512",
            "head": f"v{number}",
            "manifest": manifest,
            "versions": states,
        }
        text = json.dumps(inventory).encode()
        for where in (place, folder):
            (where / "inventory.json").write_bytes(text)
            (where / "inventory.json.sha512").write_text(f"{sha512(text)} inventory.json\n")
    (place / "0=ocfl_object_1.1").write_text("ocfl_object_1.1\n")


@pytest.mark.parametrize(
    ("later", "category"),
    [
        (
            [
                {"IO_Metadata.xml": b"<io/>", "letter.txt": b"Dear reader"},
                {"letter.txt": b"Dear readers"},
            ],
            None,
        ),
        ([{"other.txt": b"something else"}], "GONE"),
        ([{"IO_Metadata.xml": b"<io/>", "letter.txt": b"Dear nobody"}], "DAMAGED"),
    ],
    ids=["a later version", "another object", "another content"],
)
def test_an_object_is_compared_with_what_was_confirmed(
    tmp_path: Path, later: list[dict[str, bytes]], category: str | None
) -> None:
    root = tmp_path / "repository"
    root.mkdir()
    (root / "0=ocfl_1.1").write_text("ocfl_1.1\n")
    (root / "ocfl_layout.json").write_text(
        json.dumps({"extension": "0004-hashed-n-tuple-storage-layout", "description": "x"})
    )
    write_object(root, {"IO_Metadata.xml": b"<io/>", "letter.txt": b"Dear reader"})
    clock = VirtualClock()
    route = postingest(
        QUEUES[:1], workers={"CC": CustodialCopy(root, fixity=True, settled=0)}, recheck="1d"
    )
    with mp.open("memory:", routes=[route], clock=clock, chance=SeededChance(1)) as post:
        post.submit(
            "postingest",
            {"assetId": "a-1", "batchId": "b", "input": {"preservationSystemId": "p-1"}},
        )
        authors: list[str] = []
        for _ in range(2):
            run_until_rest(
                post.context,
                clock,
                follow_ups(post.context, post.context.plans),
                clock.now() + 60_000,
            )
            write_object(root, *later)
            authors += [line["by"] for line in post.show("postingest", "a-1#b")["history"][1:]]
            clock.advance("25h")
        shown = post.show("postingest-recheck", "a-1#b")
    assert authors[0].endswith(f" (milepost {mp.__version__}, ocfl)"), "host, program and version"
    assert (shown["error"] or {}).get("category") == category
    if category is None:
        assert "CC: 2 confirmed files, same digests, same sizes, 1 added since" in shown["note"]
