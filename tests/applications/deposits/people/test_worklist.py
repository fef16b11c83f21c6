"""Worklist of manual deposits: which DOIs are on it with which advice, and claims that two people never both hold."""

from __future__ import annotations

import csv
import io
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.applications.deposits.submit_scene import SubmitScene, submit_scene

import milepost as mp
from milepost.applications.deposits.acts import abandon, mark_deposited, requeue
from milepost.applications.deposits.people.claims import PREFIX, claim, claims, release
from milepost.applications.deposits.people.worklist import worklist, worklist_csv

REFUSED, UNKNOWN, GOOD = "10.1002/refused", "10.1002/unknown", "10.1002/good"
WHO = {"by": "ann", "reason": "seen"}


@pytest.fixture(params=["memory", "sqlite", "aws"])
def scene(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SubmitScene]:
    """One DOI that DSpace refuses, one whose submission has an unknown result, and one that is deposited."""
    with submit_scene(tmp_path, request.param, attempts=1) as made:
        made.dspace.fail("status", 422, where="POST */core/items", times=1)
        made.take_in(REFUSED)
        made.dspace.fail("status", 500, where="POST */core/items", times=1)
        made.take_in(UNKNOWN)
        made.take_in(GOOD)
        yield made


def test_the_list_has_each_failed_doi_with_error_and_advice_the_latest_first(scene: SubmitScene) -> None:
    found, total = worklist(scene.app)
    assert (total, [one.doi for one in found]) == (2, [UNKNOWN, REFUSED])
    unknown, refused = found
    assert (unknown.stage, unknown.title, unknown.search_first) == ("submit", f"On {UNKNOWN}", True)
    assert unknown.advice.startswith("Search DSpace for the DOI first")
    assert (refused.search_first, refused.advice) == (False, "Deposit it by hand.")
    assert "422" in refused.error
    assert [one.doi for one in worklist(scene.app, prefix="10.1002/ref")[0]] == [REFUSED]
    assert [one.doi for one in worklist(scene.app, most=1)[0]] == [UNKNOWN]


def test_the_export_is_a_table_with_all_of_it(scene: SubmitScene) -> None:
    claim(scene.app, REFUSED, name="=Ann")
    rows = list(csv.DictReader(io.StringIO(worklist_csv(worklist(scene.app)[0]).decode("utf-8-sig"))))
    assert [(row["doi"], row["search DSpace first"], row["claimed by"]) for row in rows] == [(UNKNOWN, "yes", ""), (REFUSED, "", "'=Ann")]


def test_a_claim_is_held_by_one_person_and_can_be_released(scene: SubmitScene) -> None:
    first = claim(scene.app, f"https://doi.org/{REFUSED.upper()}", name=" Ann  Lee ")
    assert (first.doi, first.name) == (REFUSED, "Ann Lee")
    assert claim(scene.app, REFUSED, name="Ann Lee") == first, "twice is once"
    with pytest.raises(mp.ActRefused, match="is claimed by Ann Lee, since "):
        claim(scene.app, REFUSED, name="Bob")
    assert {one.doi: one.claim for one in worklist(scene.app)[0]} == {UNKNOWN: None, REFUSED: first}
    assert release(scene.app, REFUSED)
    assert not release(scene.app, REFUSED)
    assert claim(scene.app, REFUSED, name="Bob").name == "Bob"


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
    assert {one.doi: one.claim for one in worklist(scene.app)[0]} == {UNKNOWN: None, REFUSED: None}, "it has failed anew"
    claim(scene.app, REFUSED, name="Bob")
    mark_deposited(scene.app, REFUSED, "1721.1/1", **WHO)
    claim(scene.app, UNKNOWN, name="Bob")
    assert [one.doi for one in claims(scene.app).values()] == [UNKNOWN], "claims of DOIs that left the list are removed"
    assert len(scene.app.documents.find(PREFIX)) == 1
    abandon(scene.app, [UNKNOWN], **WHO)
    assert worklist(scene.app) == ([], 0)


def test_of_people_who_claim_at_the_same_moment_one_holds_it(tmp_path: Path) -> None:
    with submit_scene(tmp_path, "sqlite", attempts=1) as scene:
        scene.dspace.fail("status", 422, where="POST */core/items", times=1)
        scene.take_in(REFUSED)
        held: list[str] = []
        refused: list[str] = []
        start = threading.Barrier(6)

        def person(name: str) -> None:
            start.wait()
            try:
                held.append(claim(scene.app, REFUSED, name=name).name)
            except mp.ActRefused:
                refused.append(name)

        people = [threading.Thread(target=person, args=(f"person {number}",)) for number in range(6)]
        for one in people:
            one.start()
        for one in people:
            one.join()
        assert (len(held), len(refused)) == (1, 5)
        assert [one.name for one in claims(scene.app).values()] == held


def test_a_claim_that_is_written_between_reading_and_writing_wins(scene: SubmitScene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the timing: the write is conditional on what was read."""
    app, read, bob = scene.app, mp.AppDocuments.get, []

    def slow(documents: mp.AppDocuments, name: str) -> object:
        found = read(documents, name)
        if not bob:
            bob.append(True)
            bob.append(claim(app, REFUSED, name="Bob"))
        return found

    monkeypatch.setattr(mp.AppDocuments, "get", slow)
    with pytest.raises(mp.ActRefused, match="claimed by Bob"):
        claim(app, REFUSED, name="Ann")
    assert [one.name for one in claims(app).values()] == ["Bob"]
