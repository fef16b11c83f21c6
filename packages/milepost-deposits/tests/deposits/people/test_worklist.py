"""Worklist of manual deposits: which DOIs are on it with which advice, and claims that two people
never both hold."""

from __future__ import annotations

import csv
import io
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.deposits.submit_scene import SubmitScene, submit_scene

import milepost as mp
import milepost.application as mpa
from milepost_deposits.acts import abandon, mark_deposited, requeue
from milepost_deposits.digest.mail import advice_of
from milepost_deposits.people.doi_view import moments_of
from milepost_deposits.people.worklist import (
    claim,
    page_bounds,
    release,
    whole_worklist,
    worklist_csv,
    worklist_page,
)

REFUSED, UNKNOWN, GOOD = "10.1002/refused", "10.1002/unknown", "10.1002/good"
WHO = {"by": "ann", "reason": "seen"}


@pytest.fixture(params=["memory", "sqlite", "aws"])
def scene(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SubmitScene]:
    """One DOI that DSpace refuses, one whose submission has an unknown result, and one that is
    deposited."""
    with submit_scene(tmp_path, request.param, attempts=1) as made:
        made.dspace.fail("status", 422, where="POST */core/items", times=1)
        made.take_in(REFUSED)
        made.dspace.fail("status", 500, where="POST */core/items", times=1)
        made.take_in(UNKNOWN)
        made.take_in(GOOD)
        yield made


def held(scene: SubmitScene) -> dict[str, str | None]:
    return {one.doi: one.claim and one.claim.name for one in whole_worklist(scene.app)}


def noted(scene: SubmitScene, doi: str) -> list[tuple[str, str]]:
    """The notes of a DOI, each with its author."""
    return [
        (line["note"]["text"], line["by"])
        for line in scene.view(doi)["history"]
        if line["reason"] == "noted"
    ]


def test_the_list_has_each_failed_doi_with_error_and_advice_the_latest_first(
    scene: SubmitScene,
) -> None:
    page = worklist_page(scene.app)
    assert (page.waiting, page.found, page.first, [one.doi for one in page.deposits]) == (
        2,
        2,
        1,
        [UNKNOWN, REFUSED],
    )
    unknown, refused = page.deposits
    assert (unknown.stage, unknown.title, unknown.search_first) == ("submit", f"On {UNKNOWN}", True)
    assert unknown.advice == (
        "When DSpace answers again, requeue it. To deposit it by hand instead, search DSpace for the DOI first: a try may have succeeded."
    )
    assert (refused.search_first, refused.advice) == (False, "Deposit it by hand.")
    assert "422" in refused.error
    searched = worklist_page(scene.app, search=f"https://doi.org/{REFUSED.upper()}")
    assert (searched.waiting, searched.found, [one.doi for one in searched.deposits]) == (
        2,
        1,
        [REFUSED],
    )
    assert worklist_page(scene.app, search="002/unk").found == 1
    assert worklist_page(scene.app, search="nothing").deposits == []


@pytest.mark.parametrize(
    ("category", "stage", "advice"),
    [
        (
            "DSPACE_LOGIN",
            "submit",
            "When the user and password that Milepost has for DSpace are right, requeue it. To deposit it by hand instead, search",
        ),
        (
            "NO_COLLECTION",
            "submit",
            "When the collection in Milepost's settings is right, requeue it. Or deposit it by hand.",
        ),
        (
            "CHECKSUM_MISMATCH",
            "submit",
            "Search DSpace for the DOI first: the last try may have succeeded.",
        ),
        ("INCOMPLETE_ITEM", "submit", "Correct the item in DSpace as the error says"),
        ("DSPACE_UNAVAILABLE", "content", "Fetch the PDF from the publisher by hand"),
    ],
)
def test_a_doi_that_is_not_at_fault_is_requeued_when_the_cause_is_mended(
    category: str, stage: str, advice: str
) -> None:
    assert advice_of({"category": category, "message": "no"}, stage).startswith(advice)


def test_pages_follow_each_other_and_a_doi_that_leaves_moves_no_other_past_them(
    scene: SubmitScene,
) -> None:
    first = worklist_page(scene.app, most=1)
    assert ([one.doi for one in first.deposits], first.before) == ([UNKNOWN], None)
    mark_deposited(scene.app, UNKNOWN, "1721.1/1", **WHO)
    assert first.after is not None
    second = worklist_page(scene.app, after=first.after, most=1)
    assert ([one.doi for one in second.deposits], second.first, second.after) == (
        [REFUSED],
        1,
        None,
    )
    mark_deposited(scene.app, REFUSED, "1721.1/2", **WHO)
    empty = worklist_page(scene.app, after=first.after, most=1)
    assert (empty.waiting, empty.first, empty.deposits, empty.before, empty.after) == (
        0,
        0,
        [],
        None,
        None,
    )


def test_the_bounds_of_pages_cover_every_place_once() -> None:
    places = sorted(
        ((f"2026-11-{day:02}", f"10.1/{name}") for day in range(1, 4) for name in "abc"),
        reverse=True,
    )
    for most in (1, 2, 4, 9, 20):
        seen: list[tuple[str, str]] = []
        start, end = page_bounds(places, None, None, most)
        while True:
            seen += places[start:end]
            if end == len(places):
                break
            if start:
                back = page_bounds(places, None, places[start], most)
                assert back[1] - back[0] == most
                assert back[1] == start or back == (0, most), (
                    "the page before ends where this one begins"
                )
            start, end = page_bounds(places, places[end - 1], None, most)
        assert seen == places
    assert page_bounds(places, ("2026-01-01", ""), None, 4) == (5, 9), (
        "nothing is left after the place: the last page"
    )
    assert page_bounds(places, None, ("2027-01-01", ""), 4) == (0, 4)
    assert page_bounds([], ("2026-01-01", ""), None, 4) == (0, 0)


def test_the_export_is_a_table_with_all_of_it(scene: SubmitScene) -> None:
    claim(scene.app, REFUSED, name="=Ann")
    rows = list(
        csv.DictReader(io.StringIO(worklist_csv(whole_worklist(scene.app)).decode("utf-8-sig")))
    )
    assert [(row["doi"], row["search DSpace first"], row["claimed by"]) for row in rows] == [
        (UNKNOWN, "yes", ""),
        (REFUSED, "", "'=Ann"),
    ]


def test_a_claim_is_held_by_one_person_can_be_released_and_is_in_the_history(
    scene: SubmitScene,
) -> None:
    first = claim(scene.app, f"https://doi.org/{REFUSED.upper()}", name=" Ann  Lee ")
    assert (first.doi, first.name) == (REFUSED, "Ann Lee")
    assert claim(scene.app, REFUSED, name="Ann Lee") == first, "twice is once"
    with pytest.raises(mp.ActRefused, match="is claimed by Ann Lee, since "):
        claim(scene.app, REFUSED, name="Bob")
    assert held(scene) == {UNKNOWN: None, REFUSED: "Ann Lee"}
    assert release(scene.app, REFUSED, by="Carl") == first
    assert release(scene.app, REFUSED, by="Carl") is None
    assert claim(scene.app, REFUSED, name="Bob", by="desk for Bob").name == "Bob"
    assert noted(scene, REFUSED) == [
        ("manual deposit claimed by Ann Lee", "Ann Lee"),
        ("manual deposit released: it was claimed by Ann Lee", "Carl"),
        ("manual deposit claimed by Bob", "desk for Bob"),
    ]
    view = scene.view(REFUSED)
    assert view["verified"] or view["chain"]["verified"], "the claims are part of the chain"
    assert [(one.what, one.by) for one in moments_of(view)][-2:] == [
        ("Released: Ann Lee does not do this one", "Carl"),
        ("Bob does this one", "desk for Bob"),
    ]


def test_only_what_needs_a_manual_deposit_can_be_claimed(scene: SubmitScene) -> None:
    with pytest.raises(mp.ActRefused, match="needs no manual deposit: its status is Success"):
        claim(scene.app, GOOD, name="Ann")
    with pytest.raises(mp.ActRefused, match="not known"):
        claim(scene.app, "10.1/never", name="Ann")
    with pytest.raises(mp.UsageError, match="name of the person"):
        claim(scene.app, REFUSED, name="  ")


def test_a_claim_ends_with_the_failure_that_it_belongs_to(scene: SubmitScene) -> None:
    claim(scene.app, REFUSED, name="Ann")
    requeue(scene.app, [REFUSED], **WHO)
    scene.dspace.fail("status", 422, where="POST */core/items", times=1)
    scene.work()
    assert held(scene) == {UNKNOWN: None, REFUSED: None}, "it has failed anew"
    claim(scene.app, REFUSED, name="Bob")
    mark_deposited(scene.app, REFUSED, "1721.1/1", **WHO)
    assert held(scene) == {UNKNOWN: None}
    assert [text for text, _ in noted(scene, REFUSED)] == [
        "manual deposit claimed by Ann",
        "manual deposit claimed by Bob",
    ]
    with pytest.raises(mp.ActRefused, match="needs no manual deposit"):
        release(scene.app, REFUSED, by="Bob")
    abandon(scene.app, [UNKNOWN], **WHO)
    assert worklist_page(scene.app).waiting == 0


def test_a_line_that_changes_no_status_ends_no_claim(scene: SubmitScene) -> None:
    claim(scene.app, REFUSED, name="Ann")
    scene.app.note("deposits", REFUSED, "the author sends the PDF", by="Ann")
    assert held(scene)[REFUSED] == "Ann"
    assert moments_of(scene.view(REFUSED))[-1].what == "Noted: the author sends the PDF"


def test_a_doi_whose_row_was_pruned_cannot_be_claimed(tmp_path: Path) -> None:
    with submit_scene(tmp_path, "sqlite", attempts=1) as scene:
        scene.dspace.fail("status", 422, where="POST */core/items", times=1)
        scene.take_in(REFUSED)
        scene.clock.advance(86_400)
        assert scene.ledger.prune("deposits", "1h", statuses=["failed"], **WHO).items == 1
        for act in (
            lambda: claim(scene.app, REFUSED, name="Ann"),
            lambda: release(scene.app, REFUSED, by="Ann"),
        ):
            with pytest.raises(mp.ActRefused, match="it was pruned"):
                act()


def test_of_people_who_claim_at_the_same_moment_one_holds_it_and_the_others_read_who(
    tmp_path: Path,
) -> None:
    with submit_scene(tmp_path, "sqlite", attempts=1) as scene:
        scene.dspace.fail("status", 422, where="POST */core/items", times=1)
        scene.take_in(REFUSED)
        holders: list[str] = []
        refused: list[str] = []
        start = threading.Barrier(6)

        def person(name: str) -> None:
            start.wait()
            try:
                holders.append(claim(scene.app, REFUSED, name=name).name)
            except mp.ActRefused as refusal:
                refused.append(str(refusal))

        people = [
            threading.Thread(target=person, args=(f"person {number}",)) for number in range(6)
        ]
        for one in people:
            one.start()
        for one in people:
            one.join()
        assert (len(holders), len(refused)) == (1, 5)
        assert held(scene) == {REFUSED: holders[0]}
        assert all(f"is claimed by {holders[0]}, since" in why for why in refused)
        assert len(noted(scene, REFUSED)) == 1


def test_a_claim_that_is_written_between_reading_and_writing_wins(
    scene: SubmitScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the timing: the write is conditional on what was read."""
    app, write, bob = scene.app, mpa.AppContext.note, []

    def slow(context: mpa.AppContext[Any], *given: Any, **more: Any) -> object:
        if not bob:
            bob.append(True)
            bob.append(claim(app, REFUSED, name="Bob"))
        return write(context, *given, **more)

    monkeypatch.setattr(mpa.AppContext, "note", slow)
    with pytest.raises(mp.ActRefused, match="claimed by Bob"):
        claim(app, REFUSED, name="Ann")
    assert noted(scene, REFUSED) == [("manual deposit claimed by Bob", "Bob")]
