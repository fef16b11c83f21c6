"""A partner's rate limit: it pauses its stage and counts no try, for a week if need be; afterwards
each DOI is deposited once."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from tests.deposits.submit_scene import DSS, SubmitScene, submit_scene

import milepost as mp
import milepost.application as mpa
from milepost_deposits.commands import round_lines
from milepost_deposits.controls import (
    FIRST_S,
    LONGEST_S,
    PAUSED_BY,
    asks_to_slow_down,
    end_waits,
    partner_waits,
    pause_s,
)
from milepost_deposits.rounds import RoundReport, run_round
from milepost_deposits.standins.sources import CrossrefStandIn, PublisherStandIn
from milepost_testing.http_standin import HttpStandIn

DOIS = [f"10.1002/busy.{number}" for number in range(5)]
LEDGERS = ["sqlite", pytest.param("aws", marks=pytest.mark.slow)]
CASES = [
    ("crossref", "metadata", None, 429),
    ("publisher", "content", None, 429),
    ("publisher", "content", None, 503),
    ("dspace", "submit", None, 429),
    ("dspace", "submit", "GET */discover/*", 503),
    ("dspace", "submit", "POST */core/items", 503),
    ("dspace", "submit", "POST */bitstreams", 429),
]
"""The partner that is busy, its stage, the requests that it answers so (None: all), and its
status."""
NAMES = {"crossref": "Crossref", "publisher": "The publisher", "dspace": "DSpace"}


MakeSubmitScene = Callable[..., AbstractContextManager[SubmitScene]]


@pytest.fixture
def make_scene(
    tmp_path: Path, crossref: CrossrefStandIn, publisher: PublisherStandIn
) -> MakeSubmitScene:
    crossref.everything = publisher.everything = True
    (tmp_path / "inbox").mkdir()

    def make(kind: str, **settings: object) -> AbstractContextManager[SubmitScene]:
        given = {
            "crossref": crossref.url,
            "content": publisher.template,
            "inbox": str(tmp_path / "inbox"),
            "whole_route": True,
        }
        return submit_scene(tmp_path, kind, **(given | settings))

    return make


def partner(
    scene: SubmitScene, name: str, crossref: CrossrefStandIn, publisher: PublisherStandIn
) -> HttpStandIn:
    return {"crossref": crossref, "publisher": publisher, "dspace": scene.dspace}[name]


@pytest.mark.parametrize("kind", LEDGERS)
@pytest.mark.parametrize(("busy", "stage", "where", "status"), CASES)
def test_a_week_of_refusals_uses_no_try_in_continuous_mode(
    make_scene: MakeSubmitScene,
    crossref: CrossrefStandIn,
    publisher: PublisherStandIn,
    kind: str,
    busy: str,
    stage: str,
    where: str | None,
    status: int,
) -> None:
    with make_scene(kind) as scene:
        standin = partner(scene, busy, crossref, publisher)
        standin.fail("status", status, where=where, headers={"Retry-After": "7200"})
        scene.take_in(*DOIS)
        for _ in range(7 * 12):
            scene.work("2h")
        assert {scene.state(doi)[::2] for doi in DOIS} == {(stage, 0)}
        [wait] = partner_waits(scene.app)
        assert (wait.stage, wait.dois) == (stage, len(DOIS))
        # One pause for all of them: not each DOI finds out by itself that the partner is busy.
        assert standin.count(where or "*") < 7 * 12 * len(DOIS)
        standin.mend()
        for _ in range(10):
            scene.work("2h")
        scene.check_deposited_once(DOIS)
        assert scene.app.pauses("deposits") == []


def one_round(scene: SubmitScene) -> RoundReport:
    return run_round(
        scene.app, lambda: scene.work("1m"), lambda seconds: scene.clock.advance(seconds)
    )


@pytest.mark.parametrize("kind", LEDGERS)
@pytest.mark.parametrize(("busy", "stage", "where", "status"), CASES)
def test_a_week_of_refusals_uses_no_try_in_rounds(
    make_scene: MakeSubmitScene,
    crossref: CrossrefStandIn,
    publisher: PublisherStandIn,
    kind: str,
    busy: str,
    stage: str,
    where: str | None,
    status: int,
) -> None:
    with make_scene(kind, mode="rounds") as scene:
        standin = partner(scene, busy, crossref, publisher)
        standin.fail("status", status, where=where, headers={"Retry-After": "7200"})
        scene.ledger.submit("deposits", *({"doi": doi} for doi in DOIS))
        for _ in range(7):
            report = one_round(scene)
            # After a refused creation with 503 DSpace may have the item: a round then only searches
            # for it.
            assert len(report.waits) == 1 or where == "POST */core/items"
            assert all(
                wait.text.startswith(f"{NAMES[busy]} asks us to slow down; 5 DOIs wait until 20")
                for wait in report.waits
            )
            assert not report.needs_people
            assert report.counts["Processing"] == len(DOIS)
            scene.clock.advance(86_400 - 120)
        # A round asks a few at the same time, and then no more.
        assert standin.count(where or "*") <= 7 * 4 * len(DOIS)
        standin.mend()
        # Where the result of the last try is unknown, DSpace is searched twice, some time apart: in
        # two rounds.
        for _ in range(3):
            assert one_round(scene).waits == []
            scene.clock.advance(86_400)
        scene.check_deposited_once(DOIS)


def test_a_short_pause_is_waited_for_within_the_round(
    make_scene: MakeSubmitScene, publisher: PublisherStandIn
) -> None:
    with make_scene("sqlite", mode="rounds") as scene:
        publisher.fail("status", 429, times=1, headers={"Retry-After": "20"})
        scene.ledger.submit("deposits", *({"doi": doi} for doi in DOIS))
        report = one_round(scene)
        assert (report.waits, report.counts["Success"]) == ([], len(DOIS))
        scene.check_deposited_once(DOIS)


def test_a_round_waits_for_the_dois_whose_waits_end_after_the_pause(
    make_scene: MakeSubmitScene, publisher: PublisherStandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker records the outcome a moment after it has paused the stage, and a round works only
    until nothing is due."""
    with make_scene("sqlite", mode="rounds") as scene:
        pause = scene.controls.pause

        def pause_slowly(stage: str, seconds: float, reason: str) -> None:
            pause(stage, seconds, reason)
            scene.clock.advance(1.5)

        monkeypatch.setattr(scene.controls, "pause", pause_slowly)
        publisher.fail("status", 429, times=1, headers={"Retry-After": "20"})
        scene.ledger.submit("deposits", *({"doi": doi} for doi in DOIS))
        report = run_round(scene.app, lambda: scene.work("1s"), scene.clock.advance)
        assert (report.waits, report.counts["Success"]) == ([], len(DOIS))
        scene.check_deposited_once(DOIS)


def test_a_partner_that_refuses_again_and_again_ends_the_round(
    make_scene: MakeSubmitScene, publisher: PublisherStandIn
) -> None:
    """It says no time: the pauses grow, and the round does not wait for long ones."""
    with make_scene("sqlite", mode="rounds") as scene:
        publisher.fail("status", 429)
        scene.ledger.submit("deposits", *({"doi": doi} for doi in DOIS))
        began = scene.clock.now()
        report = one_round(scene)
        [wait] = report.waits
        assert wait.partner == "the publisher"
        assert wait.text in list(round_lines(scene.app, report)), "the command prints it"
        assert scene.clock.now() - began < 3_600_000
        assert scene.view(DOIS[0])["total_attempts"] == 0


def test_a_search_that_is_refused_before_a_repeat_counts_no_try_and_stays_unknown(
    make_scene: MakeSubmitScene,
) -> None:
    """`verify` meets the rate limit: the result of the try before stays unknown, and no second item
    is made."""
    with make_scene("sqlite") as scene:
        # With an item in the index, DSpace's own list, which is never behind, is not read.
        scene.take_in("10.1002/first")
        scene.work("5m")
        scene.dspace.fail("reset", where="POST */core/items", times=1, acted=True)
        scene.take_in(DOIS[0])
        assert scene.state(DOIS[0]) == ("submit", "RETRY_SCHEDULED", 1)
        scene.dspace.fail(
            "status", 429, where="GET */discover/*", times=3, headers={"Retry-After": "600"}
        )
        for _ in range(6):
            scene.work("1h")
        assert scene.state(DOIS[0])[1] == "COMPLETED"
        assert scene.view(DOIS[0])["total_attempts"] == 1
        assert len(scene.dspace.having(DOIS[0])) == 1


def test_through_the_service_a_busy_dspace_holds_back_messages_and_counts_no_try(
    make_scene: MakeSubmitScene,
) -> None:
    with make_scene("sqlite", dss=DSS) as scene:
        scene.dspace.fail("status", 429, where="GET */discover/*", headers={"Retry-After": "7200"})
        scene.take_in(*DOIS)
        for _ in range(5):
            scene.work("2h")
        assert scene.messages() == 0
        scene.dspace.mend()
        for _ in range(12):
            if scene.messages() < len(DOIS):
                scene.work("15m")
        assert scene.messages() == len(DOIS)
        scene.service.run()
        assert scene.apply().deposited == len(DOIS)
        scene.check_deposited_once(DOIS)


def test_a_pause_by_a_person_is_neither_replaced_nor_ended(
    make_scene: MakeSubmitScene, publisher: PublisherStandIn
) -> None:
    with make_scene("sqlite", mode="rounds") as scene:
        scene.ledger.submit("deposits", {"doi": DOIS[0]})
        scene.ledger.pause("deposits", "content", by="ann", reason="the publisher moves house")
        scene.controls.pause("content", 60, "The publisher asks us to slow down")
        report = one_round(scene)
        assert (report.waits, publisher.count("*")) == ([], 0)
        scene.clock.advance(86_400)
        one_round(scene)
        [held] = scene.app.pauses("deposits")
        assert (held.by, held.until) == ("ann", None)


def test_a_pause_by_a_person_at_the_same_moment_stays(
    make_scene: MakeSubmitScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The person pauses the stage between the look at its pauses and the write."""
    with make_scene("sqlite", mode="rounds") as scene:
        pauses = scene.app.pauses

        def pauses_then_person(route: str) -> list[Any]:
            found = pauses(route)
            scene.ledger.pause("deposits", "content", by="ann", reason="the publisher moves house")
            return found

        for busy_first in (False, True):
            if busy_first:
                scene.controls.pause("content", 60, "The publisher asks us to slow down")
                scene.clock.advance(61)
            with monkeypatch.context() as patch:
                patch.setattr(mpa.AppContext, "pauses", lambda _, route: pauses_then_person(route))
                if busy_first:
                    end_waits(scene.app)
                else:
                    scene.controls.pause("content", 60, "The publisher asks us to slow down")
            [held] = scene.app.pauses("deposits")
            assert (held.by, held.until) == ("ann", None)
            scene.ledger.resume("deposits", "content", by="ann", reason="it has moved")


def test_a_longer_pause_of_another_process_stays(make_scene: MakeSubmitScene) -> None:
    with make_scene("sqlite") as scene:
        scene.controls.pause("content", 600, "busy")
        [first] = scene.app.pauses("deposits")
        scene.controls.pause("content", 60, "busy")
        assert scene.app.pauses("deposits") == [first]
        assert (first.scope, first.by) == ("deposits/content", PAUSED_BY)
        scene.controls.pause("content", 6_000, "busy")
        assert scene.app.pauses("deposits") != [first]


@pytest.mark.parametrize(
    ("outcome", "slow"),
    [
        (mp.Retry("busy", http_status=429), True),
        (mp.Retry("busy", http_status=429, after=60), True),
        (mp.Retry("busy", http_status=503, after=60), True),
        (mp.Retry("down", http_status=503), False),
        (mp.Retry("down", http_status=500, after=60), False),
        (mp.Retry("no route", after=60), False),
        (mp.Reject("no", http_status=429), False),
        (mp.Done(), False),
    ],
)
def test_only_a_wish_for_fewer_requests_is_not_counted(outcome: mp.Outcome, slow: bool) -> None:
    assert asks_to_slow_down(outcome) is slow


def test_a_pause_is_as_long_as_the_partner_asks_and_grows_up_to_a_limit() -> None:
    assert pause_s(None, 0) == FIRST_S
    assert pause_s(600, 0) == 600
    assert [pause_s(None, before) / FIRST_S for before in range(4)] == [1, 2, 4, 8]
    assert pause_s(1e9, 0) == pause_s(None, 10_000) == LONGEST_S
