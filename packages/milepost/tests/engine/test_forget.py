"""Forget: what the engine removes beside the ledger's own rows, what stays and is named, and a call
that is cut off."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from tests.engine.events.recording_subscribers import RecordingSubscriber, refuses
from tests.engine.world import Faulty, Interrupted, dies
from tests.evidence.evidence_scene import ROUTE, SIGNED, Scene

from milepost.blobs.memory import MemoryBlobs
from milepost.core.errors import ActRefused, EventRefused, LedgerBusy, NotFound, UsageError
from milepost.core.status import TERMINAL, Status
from milepost.engine.act_log import all_acts, record, select
from milepost.engine.acts.bulk import act
from milepost.engine.acts.verbs import CancelVerb
from milepost.engine.context import Context
from milepost.engine.events.deliver import EventRelay
from milepost.engine.events.feed import FeedPlace, page
from milepost.engine.events.parked_events import parked_for
from milepost.engine.evidence import records_of
from milepost.engine.forget import ForgetReport, forget
from milepost.engine.heads.daily import all_heads, day_of, publish
from milepost.engine.intake import submit
from milepost.engine.lists.reconcile import submit_list
from milepost.engine.views.items import show
from milepost.engine.views.story import story
from milepost.evidence.heads import Heads
from milepost.evidence.record import FORGOTTEN_SCHEMA, SCHEMA, blob_name, differences
from milepost.evidence.verify import verify
from milepost.ports.documents import CURSOR
from milepost.ports.items import Timing
from milepost.ports.retention import DeliveredLines, PruneCriteria

KEY = "TNA-Jane-Roe"
DAMAGED = {"damaged": True, "name": "Jane Roe"}


@pytest.fixture(params=["memory", "sqlite"])
def scene(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Scene]:
    scene = Scene("memory:" if request.param == "memory" else f"sqlite:///{tmp_path}/ledger.db")
    yield scene
    scene.ledger.close()


@pytest.fixture
def archive() -> Iterator[Scene]:
    """In memory: for what does not depend on the ledger."""
    scene = Scene()
    yield scene
    scene.ledger.close()


def forgotten(scene: Scene, key: str = KEY, **options: Any) -> ForgetReport:
    return forget(scene.ctx, ROUTE, key, **SIGNED, **options)


def kept_blobs(scene: Scene) -> dict[str, bytes]:
    blobs = scene.ctx.blobs
    if isinstance(blobs, MemoryBlobs):
        return {name: body for name, body in blobs.held.items() if name.startswith("evidence/")}
    folder: Path = blobs.path  # type: ignore[attr-defined]
    return {
        str(file.relative_to(folder)): file.read_bytes() for file in folder.glob("evidence/*/*")
    }


def test_kept_evidence_loses_its_content_and_keeps_its_digests(
    scene: Scene, tmp_path: Path
) -> None:
    scene.through(KEY)
    scene.prune()
    [whole] = records_of(scene.ctx, ROUTE, KEY)
    assert any(KEY.encode() in body for body in kept_blobs(scene).values())
    report = forgotten(scene)
    assert (report.status, report.evidence, report.before) == ("COMPLETED", 1, False)
    assert not any(KEY.encode() in body for body in kept_blobs(scene).values())
    [found] = records_of(scene.ctx, ROUTE, KEY)
    assert found.record["schema"] == FORGOTTEN_SCHEMA
    assert differences(found.record) == []
    assert (found.record["head"], found.place) == (whole.record["chain"]["head"], whole.place)
    assert len(found.record["links"]) == len(whole.record["chain"]["lines"])
    assert (found.record["by"], found.record["reason"], found.record["key"]) == (
        "ops",
        "a test",
        report.name,
    )
    assert KEY not in scene.export(tmp_path / "e.jsonl").read_text()


def test_an_item_that_still_has_its_row_gets_a_record_without_content(scene: Scene) -> None:
    scene.through(KEY)
    heads = [line.digest.hex() for line in scene.ledger.history(ROUTE, KEY)]
    report = forgotten(scene)
    assert (report.lines, report.evidence) == (len(heads), 0)
    [found] = records_of(scene.ctx, ROUTE, KEY)
    assert found.record["links"] == heads
    assert found.record["by"] == "ops"


def test_an_export_says_content_removed_and_its_head_proves_the_digest(
    archive: Scene, tmp_path: Path
) -> None:
    archive.through(KEY, "other")
    archive.clock.advance("1d")
    publish(archive.ctx, None, day_of(archive.clock.now()), archive.clock.now() + 1)
    forgotten(archive)
    verdict = verify(archive.export(tmp_path / "e.jsonl"), None, Heads(all_heads(archive.ctx)))
    assert verdict.holds
    assert (verdict.records, verdict.forgotten, verdict.seals, verdict.under_heads) == (2, 1, 0, 1)
    [point] = verdict.unproved
    assert "its digest is under the head of" in point.what
    assert "what happened to 1 item: content removed, only digests are left" in verdict.not_proved


def test_heads_that_are_made_later_cover_the_digests_of_the_removed_lines(
    archive: Scene, tmp_path: Path
) -> None:
    archive.through(KEY, "other")
    forgotten(archive)
    archive.clock.advance("1d")
    publish(archive.ctx, None, day_of(archive.clock.now()), archive.clock.now() + 1)
    verdict = verify(archive.export(tmp_path / "e.jsonl"), None, Heads(all_heads(archive.ctx)))
    assert (verdict.holds, verdict.under_heads) == (True, 1)
    assert ["its digest is under the head of" in point.what for point in verdict.unproved] == [True]


def test_a_record_without_content_cannot_be_altered(archive: Scene) -> None:
    archive.through(KEY)
    forgotten(archive)
    [found] = records_of(archive.ctx, ROUTE, KEY)
    links = found.record["links"]
    for altered in (
        {"links": links[:-1]},
        {"head": links[0]},
        {"more": 1},
        {"links": ["00", *links]},
    ):
        assert differences({**found.record, **altered})


def test_all_lives_of_a_key_lose_their_content(scene: Scene, tmp_path: Path) -> None:
    scene.bring(KEY, **DAMAGED)
    scene.prune()
    submit(scene.ctx, ROUTE, [{"id": KEY}], by="ops", failed_again="repaired")
    scene.clock.advance("1h")
    act(scene.ctx, select(scene.ctx, ROUTE, keys=[KEY]), CancelVerb(), **SIGNED)
    scene.prune()
    assert [found.record["status"] for found in records_of(scene.ctx, ROUTE, KEY)] == [
        "CANCELLED",
        "REJECTED",
    ]
    assert forgotten(scene).evidence == 2
    records = [found.record for found in records_of(scene.ctx, ROUTE, KEY)]
    assert [(one["schema"], one["status"]) for one in records] == [
        (FORGOTTEN_SCHEMA, "CANCELLED"),
        (FORGOTTEN_SCHEMA, "REJECTED"),
    ]
    assert not any(KEY.encode() in body or b"Jane" in body for body in kept_blobs(scene).values())
    assert KEY not in scene.export(tmp_path / "e.jsonl").read_text()


def two_lives(scene: Scene) -> list[int]:
    """A key whose first item failed and left, and whose second was cancelled and left; returns the
    two lives, latest first."""
    scene.bring(KEY, **DAMAGED)
    scene.prune()
    submit(scene.ctx, ROUTE, [{"id": KEY}], by="ops", failed_again="repaired")
    scene.clock.advance("1h")
    act(scene.ctx, select(scene.ctx, ROUTE, keys=[KEY]), CancelVerb(), **SIGNED)
    scene.prune()
    [known] = scene.ledger.peek(ROUTE, [KEY])
    assert known is not None
    return [known.life, 0]


@pytest.mark.parametrize("nth", [0, 1], ids=["latest", "earlier"])
def test_a_damaged_record_is_removed_like_the_others(
    scene: Scene, nth: int, tmp_path: Path
) -> None:
    life = two_lives(scene)[nth]
    name = blob_name(ROUTE, KEY, life)
    scene.ctx.blobs.write(name, [b"{", *scene.ctx.blobs.read(name)])
    assert forgotten(scene).evidence == 2
    assert not any(KEY.encode() in body or b"Jane" in body for body in kept_blobs(scene).values())
    assert [one.finished_at is not None for one in all_acts(scene.ctx, verb="forget")] == [True]
    assert verify(scene.export(tmp_path / "e.jsonl")).holds


def test_a_missing_record_of_an_earlier_life_is_not_replaced_by_that_of_the_latest(
    scene: Scene, tmp_path: Path
) -> None:
    two_lives(scene)
    scene.ctx.blobs.remove(blob_name(ROUTE, KEY))
    forgotten(scene)
    assert [found.record["status"] for found in records_of(scene.ctx, ROUTE, KEY)] == ["CANCELLED"]
    assert verify(scene.export(tmp_path / "e.jsonl")).holds


def test_the_first_record_goes_although_the_record_that_names_it_is_lost(scene: Scene) -> None:
    latest, first = two_lives(scene)
    scene.ctx.blobs.remove(blob_name(ROUTE, KEY, latest))
    delivered = DeliveredLines(scene.ledger.last_seq())
    scene.ledger.prune(PruneCriteria(ROUTE, TERMINAL, scene.clock.now(), None, delivered, 100))
    assert scene.ledger.history(ROUTE, KEY) == []
    assert forgotten(scene).evidence == 1
    assert blob_name(ROUTE, KEY, first) not in kept_blobs(scene)


def test_a_key_that_comes_again_is_known_whatever_its_content(scene: Scene) -> None:
    scene.through(KEY)
    forgotten(scene)
    for content in ({"id": KEY}, {"id": KEY, "other": 1}):
        [receipt] = submit(scene.ctx, ROUTE, [content])
        assert (receipt.answer, receipt.status) == ("known", Status.COMPLETED)
    assert scene.ledger.get([(ROUTE, KEY)]) == [None]


def test_show_says_that_the_content_was_removed(scene: Scene) -> None:
    scene.through(KEY)
    forgotten(scene)
    shown, told = show(scene.ctx, ROUTE, KEY), story(scene.ctx, ROUTE, KEY)
    assert shown is not None
    assert told is not None
    assert (shown["sealed"], shown["forgotten"], shown["input_digest"], shown["history"]) == (
        True,
        True,
        None,
        [],
    )
    assert "Its content was removed by 'milepost forget'" in told.where


def test_a_live_item_an_unknown_key_and_a_head_are_refused(archive: Scene) -> None:
    archive.bring(KEY)
    with pytest.raises(ActRefused, match=r"it has not ended \(QUEUED\).*cancel it first"):
        forgotten(archive)
    with pytest.raises(NotFound, match="has never had an item with the key 'nobody'"):
        forgotten(archive, "nobody")
    with pytest.raises(UsageError, match="the daily heads cannot be forgotten"):
        forget(archive.ctx, "heads", "2033-01-01", **SIGNED)
    with pytest.raises(UsageError, match="a name and a reason"):
        archive.tape(KEY)
        forget(archive.ctx, ROUTE, KEY, by="", reason="")
    assert all_acts(archive.ctx, verb="forget") == []


def test_a_dry_run_changes_nothing_and_says_what_stays(scene: Scene) -> None:
    scene.through(KEY)
    item = scene.ledger.get([(ROUTE, KEY)])
    report = forget(scene.ctx, ROUTE, KEY, by="", reason="", dry_run=True)
    assert (report.dry_run, report.lines, report.name) == (True, 3, "")
    assert report.stays
    [before], [after] = item, scene.ledger.get([(ROUTE, KEY)])
    assert after is not None
    assert before is not None
    assert (after.row, after.content.input) == (before.row, before.content.input)  # type: ignore[union-attr]


def test_a_damaged_document_is_named_among_what_stays(tmp_path: Path) -> None:
    scene = Scene(f"sqlite:///{tmp_path}/ledger.db")
    scene.through(KEY)
    record(scene.ctx, "limit", ROUTE, "ops", "test", {})
    with closing(sqlite3.connect(tmp_path / "ledger.db", isolation_level=None)) as connection:
        connection.execute("UPDATE document SET value = '{' WHERE kind = 'act'")
    report = forgotten(scene)
    assert [
        what
        for what in report.stays
        if what.startswith("the document act/") and what.endswith("it cannot be searched")
    ]
    scene.ledger.close()


# Subscribers --------------------------------------------------------------------------------------
def test_an_absent_subscriber_is_named_and_gets_no_event_of_it(scene: Scene) -> None:
    ear = RecordingSubscriber()
    relay = EventRelay(scene.ctx, ear, "here")
    relay.run_once()
    scene.through(KEY)
    report = forgotten(scene)
    assert report.undelivered == {"ear": 3}
    scene.through("other")
    relay.run_once()
    assert {envelope["subject"] for envelope in ear.heard} == {"other"}
    assert {
        entry.event.key for entry in page(scene.ctx, FeedPlace(), 100, lambda event: True).events
    } == {"other"}


def test_a_parked_event_goes_with_its_error(scene: Scene) -> None:
    ear = RecordingSubscriber()
    ear.takes = refuses(KEY, error=EventRefused)
    scene.through(KEY, "other")
    relay = EventRelay(scene.ctx, ear, "here")
    relay.run_once()
    assert parked_for(scene.ctx, "ear")
    report = forgotten(scene)
    assert (report.undelivered, report.documents) == ({"ear": 3}, 1)
    assert not parked_for(scene.ctx, "ear")
    assert relay.run_once().parked == 0
    assert ear.of(KEY) == []


def test_a_subscribers_last_answer_that_names_the_key_is_named(archive: Scene) -> None:
    ear = RecordingSubscriber()
    ear.takes = lambda envelope: EventRefused(f"there is no {envelope['subject']}")
    archive.through(KEY)
    EventRelay(archive.ctx, ear, "here").run_once()
    cursor = archive.ledger.read(CURSOR)["ear"].value
    assert KEY in cursor["refusal"]
    assert "the document cursor/ear, which has the key within a text" in forgotten(archive).stays


# Documents ----------------------------------------------------------------------------------------
def test_documents_that_name_the_key_or_repeat_an_error_are_cleaned_and_others_are_named(
    archive: Scene,
) -> None:
    archive.bring(KEY, **DAMAGED)
    record(archive.ctx, "release", ROUTE, "ops", "tidy", {"subscriber": "ear", "key": KEY})
    record(archive.ctx, "note", ROUTE, "ops", f"about {KEY}", {"error": "its digest differs"})
    report = forgotten(archive)
    assert report.documents == 2
    acts = {one.verb: one for one in all_acts(archive.ctx)}
    assert acts["release"].filter["key"] == report.name
    assert acts["note"].filter["error"] == "(content removed)"
    assert [phrase for phrase in report.stays if "within a text" in phrase] == [
        f"the document act/{acts['note'].id}, which has the key within a text"
    ]
    assert acts["forget"].filter == {"key": report.name, "lives": [0]}


@pytest.mark.parametrize("key", ["release", ROUTE, "ops"])
def test_a_key_that_is_also_a_verb_a_route_or_a_name_changes_no_act(
    archive: Scene, key: str
) -> None:
    archive.bring(key, **DAMAGED)
    record(archive.ctx, "release", ROUTE, "ops", "tidy", {"subscriber": "ear", "key": key})
    report = forgotten(archive, key)
    [act_before] = [one for one in all_acts(archive.ctx) if one.reason == "tidy"]
    assert (act_before.verb, act_before.route, act_before.by) == ("release", ROUTE, "ops")
    assert act_before.filter["key"] == report.name


def test_the_example_of_an_error_whose_line_has_left_is_named(scene: Scene) -> None:
    scene.bring(KEY, **DAMAGED)
    scene.prune()
    delivered = DeliveredLines(scene.ledger.last_seq())
    scene.ledger.prune(PruneCriteria(ROUTE, TERMINAL, scene.clock.now(), None, delivered, 100))
    assert scene.ledger.history(ROUTE, KEY) == []
    report = forgotten(scene)
    assert [group.sample for group in scene.ledger.groups(ROUTE)] == ["its digest differs"]
    assert (
        f"examples of errors, if they are its own: its lines, which would tell, had left before ('milepost groups {ROUTE}')"
        in report.stays
    )


@pytest.mark.parametrize("act_id", [None, "act-1"])
def test_an_act_on_the_item_alone_keeps_no_digest_of_its_key(
    archive: Scene, act_id: str | None
) -> None:
    """A digest without a secret shows whoever guesses the key that it was this one."""
    archive.bring(KEY, **DAMAGED)
    assert (
        act(
            archive.ctx,
            select(archive.ctx, ROUTE, keys=[KEY]),
            CancelVerb(),
            act_id=act_id,
            **SIGNED,
        ).done
        == 1
    )
    forgotten(archive)
    [cancelled] = all_acts(archive.ctx, verb="cancel")
    assert sha256(KEY.encode()).hexdigest() not in str(cancelled)


def test_a_stored_list_with_the_key_is_named(archive: Scene, tmp_path: Path) -> None:
    for name, keys in (("march", [KEY, "a"]), ("april", ["a", "b"])):
        (tmp_path / f"{name}.txt").write_text("\n".join(keys))
        submit_list(archive.ctx, ROUTE, str(tmp_path / f"{name}.txt"))
    act(archive.ctx, select(archive.ctx, ROUTE, keys=[KEY]), CancelVerb(), **SIGNED)
    named = [phrase for phrase in forgotten(archive).stays if "list" in phrase]
    assert len(named) == 1
    assert "march.txt" in named[0]


# A call that is cut off ---------------------------------------------------------------------------
@pytest.mark.parametrize("verb", ["forget", "remove"])
def test_a_call_that_was_cut_off_is_continued(verb: str) -> None:
    scene = Scene()
    record(scene.ctx, "note", ROUTE, "ops", "seen", {"error": "its digest differs"})
    scene.bring(KEY, **DAMAGED)
    scene.prune()
    submit(scene.ctx, ROUTE, [{"id": KEY}], by="ops", failed_again="repaired")
    act(scene.ctx, select(scene.ctx, ROUTE, keys=[KEY]), CancelVerb(), **SIGNED)
    scene.prune()
    ledger = Faulty(scene.ledger)
    ctx = Context(ledger, scene.ctx.plans, scene.clock, scene.ctx.chance, scene.ctx.blobs)  # type: ignore[arg-type]
    if verb == "remove":
        blobs = Faulty(scene.ctx.blobs)  # type: ignore[arg-type]
        ctx.blobs = blobs  # type: ignore[assignment]
        blobs.after("remove", dies)
    else:
        ledger.after("forget", dies, when=lambda asked: not asked.dry_run)
    with pytest.raises(Interrupted):
        forget(ctx, ROUTE, KEY, **SIGNED)
    report = forgotten(scene)
    assert report.before
    assert not any(KEY.encode() in body or b"Jane" in body for body in kept_blobs(scene).values())
    assert [found.record["schema"] for found in records_of(scene.ctx, ROUTE, KEY)] == [
        FORGOTTEN_SCHEMA
    ] * 2
    [one] = all_acts(scene.ctx, verb="forget")
    assert one.finished_at is not None


def test_the_first_forget_waits_until_every_process_knows_the_secret(archive: Scene) -> None:
    archive.through(KEY)
    archive.ledger.timing = Timing(0, 0, notice_ms=10_000)  # type: ignore[misc]
    with pytest.raises(LedgerBusy, match="nothing was removed; run this again in 10 s"):
        forgotten(archive)
    assert records_of(archive.ctx, ROUTE, KEY)[0].record["schema"] == SCHEMA
    archive.clock.advance("10s")
    assert forgotten(archive).lines == 3
