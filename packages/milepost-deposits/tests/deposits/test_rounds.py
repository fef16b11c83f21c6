"""Rounds: each unfinished DOI is tried at most once per stage, a failure waits for the next round,
and the threshold ends it."""

from __future__ import annotations

import errno
import io
import os

import pytest
from tests.deposits.conftest import MakeScene
from tests.deposits.deposits_scene import DepositsScene

import milepost as mp
from milepost_deposits.files import Deposit
from milepost_deposits.people.doi_view import moments_of
from milepost_deposits.settings import AttemptSettings
from milepost_deposits.standins.sources import CrossrefStandIn, PublisherStandIn
from milepost_deposits.status_names import counts_by_word, word_of

DOI = "10.1/x"


@pytest.fixture
def scene(
    make_scene: MakeScene, ledger_url: str, crossref: CrossrefStandIn, publisher: PublisherStandIn
) -> DepositsScene:
    crossref.everything = True
    return make_scene(ledger_url)


def test_a_new_doi_goes_through_all_stages_in_one_round(
    scene: DepositsScene, publisher: PublisherStandIn
) -> None:
    publisher.put(DOI)
    scene.deliver("list.csv", f"{DOI}\n")
    report = scene.round()
    assert report.intake.new == 1
    assert report.counts == {
        "Processing": 0,
        "Success": 1,
        "Failed and will retry": 0,
        "Failed after too many attempts": 0,
    }
    assert not report.needs_people
    assert len(scene.archived()) == 1
    [deposit] = scene.submission.seen
    assert deposit.doi == DOI


def test_a_finished_doi_is_not_deposited_again(
    scene: DepositsScene, crossref: CrossrefStandIn, publisher: PublisherStandIn
) -> None:
    publisher.put(DOI)
    for name in ("first.csv", "second.csv"):
        scene.deliver(name, f"{DOI.upper()}\n")
        scene.round()
    assert len(scene.submission.seen) == 1
    assert (crossref.count("GET *"), publisher.count("GET *")) == (1, 1)
    assert len(scene.archived()) == 2


def test_a_failure_waits_for_the_next_round_and_keeps_its_attempts(
    scene: DepositsScene, publisher: PublisherStandIn
) -> None:
    scene.deliver("list.csv", f"{DOI}\n")
    scene.round()
    assert (scene.word(DOI), scene.row(DOI)["attempts"], publisher.count("GET *")) == (
        "Failed and will retry",
        1,
        1,
    )
    # Between rounds nothing falls due.
    scene.ledger.run(until_idle=0)
    assert publisher.count("GET *") == 1
    publisher.put(DOI)
    report = scene.round()
    assert report.tried_again == 1
    assert scene.word(DOI) == "Success"
    # The stage that had succeeded before is not repeated.
    assert scene.row(DOI)["total_attempts"] == 1


def test_a_pdf_that_never_comes_ends_at_the_threshold(
    scene: DepositsScene, publisher: PublisherStandIn, crossref: CrossrefStandIn
) -> None:
    scene.deliver("list.csv", f"{DOI}\n")
    reports = [scene.round() for _ in range(4)]
    assert [report.needs_people for report in reports] == [False, False, True, True]
    assert scene.word(DOI) == "Failed after too many attempts"
    assert publisher.count("GET *") == 3
    assert crossref.count("GET *") == 1
    # The master list comes again: it is neither tried nor reset.
    scene.deliver("again.csv", f"{DOI}\n")
    scene.round()
    assert (publisher.count("GET *"), scene.row(DOI)["attempts"]) == (3, 3)
    assert "a PDF could not be retrieved" in scene.row(DOI)["error"]["message"]


def test_a_doi_that_was_handed_over_is_not_sent_again(
    scene: DepositsScene, publisher: PublisherStandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[str] = []

    def hand_over(deposit: Deposit, item: mp.Item) -> mp.Outcome:
        sent.append(deposit.doi)
        return mp.HandedOver(within="2d")

    monkeypatch.setattr(scene.submission, "submit", hand_over)
    publisher.put(DOI)
    for name in ("first.csv", "second.csv"):
        scene.deliver(name, f"{DOI}\n")
        scene.round()
    assert sent == [DOI]
    assert scene.word(DOI) == "Processing"


def test_each_stage_has_its_own_threshold(
    make_scene: MakeScene, crossref: CrossrefStandIn, publisher: PublisherStandIn
) -> None:
    scene = make_scene(attempts=AttemptSettings(metadata=1, content=2))
    crossref.put("10.1/with-record")
    scene.ledger.submit("deposits", {"doi": "10.1/with-record"}, {"doi": "10.1/without"})
    scene.round()
    assert scene.word("10.1/without") == "Failed after too many attempts"
    assert scene.word("10.1/with-record") == "Failed and will retry"
    scene.round()
    assert scene.word("10.1/with-record") == "Failed after too many attempts"


def test_in_continuous_mode_a_failure_is_tried_again_by_itself(
    make_scene: MakeScene, crossref: CrossrefStandIn
) -> None:
    scene = make_scene(mode="continuous")
    scene.ledger.submit("deposits", {"doi": DOI})
    scene.ledger.run(until_idle=0)
    row = scene.row(DOI)
    assert row["status"] == "RETRY_SCHEDULED"
    assert row["due_at"] < "2036"


def test_a_file_that_was_just_written_is_waited_for_once(
    make_scene: MakeScene, crossref: CrossrefStandIn, publisher: PublisherStandIn
) -> None:
    from milepost_deposits.rounds import run_round

    scene = make_scene(inbox_quiet="30s")
    scene.deliver("list.csv", "10.1/a\n", age_s=0)
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        scene.deliver("list.csv", "10.1/a\n10.1/b\n", age_s=60)

    report = run_round(scene.app, lambda: None, sleep)
    assert slept == [30]
    assert (report.intake.new, report.intake.growing) == (2, [])


@pytest.mark.parametrize("status", list(mp.Status))
def test_every_status_has_a_word_of_the_document(status: mp.Status) -> None:
    words = {
        "Processing",
        "Success",
        "Failed and will retry",
        "Failed after too many attempts",
        "Abandoned",
    }
    assert word_of(status) in words
    assert counts_by_word({status: 3})[word_of(status)] == 3


def test_a_store_that_takes_no_file_uses_no_try_and_asks_no_partner_for_more(
    scene: DepositsScene, crossref: CrossrefStandIn, publisher: PublisherStandIn
) -> None:
    publisher.everything = True
    dois = [f"10.1/{number}" for number in range(30)]
    scene.files.write_text("a file where the folder of files should be")
    scene.deliver("list.csv", "".join(f"{doi}\n" for doi in dois))
    report = scene.round()
    assert report.needs_people
    assert report.store_fault.startswith(f"{scene.files} takes no file: ")
    assert report.counts["Processing"] == len(dois)
    assert crossref.count("GET *") <= 3, (
        "those that were asked at the same time; after them the store is looked at first"
    )
    assert {scene.row(doi)["total_attempts"] for doi in dois} == {0}
    assert moments_of(scene.row(dois[0]))[-1].what.startswith(f"Waits: {scene.files} takes no file")
    assert scene.round().store_fault, "still"
    scene.files.unlink()
    report = scene.round()
    assert (report.counts["Success"], report.store_fault, report.needs_people) == (
        len(dois),
        "",
        False,
    )
    assert {scene.row(doi)["total_attempts"] for doi in dois} == {0}
    assert not list(scene.files.glob("probe-*"))


def test_a_full_folder_of_temporary_files_uses_no_try(
    scene: DepositsScene, publisher: PublisherStandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    publisher.put(DOI)
    scene.deliver("list.csv", f"{DOI}\n")

    class FullFile(io.BytesIO):
        def write(self, content: object) -> int:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr("milepost_deposits.fetch.content.TemporaryFile", lambda **_: FullFile())
        assert "temporary files takes no file: No space left" in scene.round().store_fault
    assert scene.row(DOI)["total_attempts"] == 0
    assert scene.round().counts["Success"] == 1
