"""Rounds after an error whose result is unknown: "Failed and will retry" right after it, and one
try in each round."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.deposits.submit_scene import DSS, SubmitScene, submit_scene

from milepost_deposits.dss.results import ResultListener
from milepost_deposits.rounds import RoundReport, run_round
from milepost_deposits.stuck import find_late_deposits
from milepost_deposits.twins import find_twins

DOI = "10.1002/words.1"
PROCESSING, SUCCESS, RETRIES, FAILED = (
    "Processing",
    "Success",
    "Failed and will retry",
    "Failed after too many attempts",
)


def one_round(scene: SubmitScene, monkeypatch: pytest.MonkeyPatch) -> RoundReport:
    """A round, with the partners of the scene."""

    def apply(app: Any) -> None:
        if scene.settings.submit.dss is not None:
            ResultListener(app, scene.sqs).turn()
        find_late_deposits(app, scene.submission.dspace)
        find_twins(app, scene.submission.dspace)

    with monkeypatch.context() as patch:
        patch.setattr("milepost_deposits.rounds.apply_results", apply)
        return run_round(scene.app, lambda: scene.work("1s"), lambda seconds: None)


def word(report: RoundReport) -> str:
    """The word of the only DOI."""
    return next(word for word, count in report.counts.items() if count)


@pytest.fixture
def direct(tmp_path: Path) -> Iterator[SubmitScene]:
    with submit_scene(tmp_path, "memory", mode="rounds", inbox=str(tmp_path)) as scene:
        scene.ledger.submit("deposits", {"doi": DOI})
        yield scene


@pytest.fixture
def served(tmp_path: Path) -> Iterator[SubmitScene]:
    with submit_scene(tmp_path, "memory", dss=DSS, mode="rounds", inbox=str(tmp_path)) as scene:
        scene.ledger.submit("deposits", {"doi": DOI})
        yield scene


def test_each_daily_round_makes_one_try_and_the_threshold_comes_with_the_third(
    direct: SubmitScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    direct.dspace.fail("status", 500, where="POST */core/items")
    words = []
    for _ in range(3):
        words.append(word(one_round(direct, monkeypatch)))
        direct.clock.advance("1d")
    assert words == [RETRIES, RETRIES, FAILED]
    assert direct.dspace.count("POST */core/items") == 3


def test_a_round_right_after_an_error_leaves_the_doi_as_it_is(
    direct: SubmitScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    direct.dspace.fail("status", 500, where="POST */core/items", times=1)
    assert word(one_round(direct, monkeypatch)) == RETRIES
    report = one_round(direct, monkeypatch)
    assert (word(report), report.tried_again) == (RETRIES, 0)
    direct.clock.advance("1d")
    report = one_round(direct, monkeypatch)
    assert (word(report), report.tried_again) == (SUCCESS, 1)


def test_an_item_that_dspace_shows_at_once_is_completed_in_the_same_try(
    direct: SubmitScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    direct.dspace.fail("reset", where="POST */core/items", times=1, acted=True)
    assert word(one_round(direct, monkeypatch)) == SUCCESS
    assert direct.view(DOI)["total_attempts"] == 0
    [item] = direct.dspace.having(DOI)
    assert item.discoverable


def test_an_error_of_the_service_is_followed_by_the_next_message_in_the_round_that_reads_it(
    served: SubmitScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    served.plan(DOI, "no-item", "no-item", "no-item")
    words = []
    for _ in range(4):
        words.append(word(one_round(served, monkeypatch)))
        served.service.run()
        served.clock.advance("90m")
    assert words == [PROCESSING, PROCESSING, PROCESSING, FAILED], "it is with the service"
    assert served.service.received == [DOI] * 3


def test_an_error_that_the_service_has_just_reported_is_failed_and_will_retry(
    served: SubmitScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    served.plan(DOI, "no-item")
    one_round(served, monkeypatch)
    served.service.run()
    assert word(one_round(served, monkeypatch)) == RETRIES
    served.clock.advance("1d")
    assert word(one_round(served, monkeypatch)) == PROCESSING
    served.service.run()
    assert word(one_round(served, monkeypatch)) == SUCCESS


def test_an_item_that_the_service_has_left_is_found_in_the_round_that_reads_the_error(
    served: SubmitScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    served.dspace.index_lag = 0
    served.plan(DOI, "no-item-made")
    one_round(served, monkeypatch)
    served.service.run()
    [item] = served.dspace.having(DOI)
    item.add_file("a.pdf", b"%PDF-1.4")
    assert word(one_round(served, monkeypatch)) == SUCCESS
