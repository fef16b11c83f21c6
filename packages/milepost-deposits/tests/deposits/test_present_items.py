"""DOIs that DSpace has already: nothing is fetched for them, and people hear with which file it has
them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.deposits.conftest import MakeScene
from tests.deposits.submit_scene import pdf_of, submit_scene

from milepost_deposits.digest.mail import (
    digests_of,
    entry_of,
    latest_lines,
    present_text,
    subject_of,
    text_of,
)
from milepost_deposits.dspace.errors import DSpaceUnavailable
from milepost_deposits.dspace.submission import Present
from milepost_deposits.people.doi_view import moments_of
from milepost_deposits.people.pages import _doi_page
from milepost_deposits.standins.sources import CrossrefStandIn, PublisherStandIn

DOI = "10.1002/there.1"
OUTPUT: dict[str, Any] = {
    "handle": "1/2", "uuid": "u", "files": [{"name": "other.pdf"}], "found": True, "same_file": None, "others": ["1/3"],
}  # fmt: skip


def test_nothing_is_fetched_for_a_doi_that_dspace_has(
    make_scene: MakeScene, crossref: CrossrefStandIn, publisher: PublisherStandIn
) -> None:
    scene = make_scene()
    scene.submission.had[DOI] = Present(OUTPUT, "On foam")
    scene.deliver("list.csv", f"{DOI}\n")
    assert scene.round().counts["Success"] == 1
    assert (crossref.requests, publisher.requests, scene.submission.seen) == ([], [], [])
    view = scene.row(DOI)
    assert view["results"]["submit"]["handle"] == "1/2"
    assert _doi_page(scene.app, DOI).status == 200
    assert [moment.what for moment in moments_of(view)][1:3] == [
        "Found in DSpace before anything was fetched",
        "No PDF was fetched",
    ]


def test_it_is_reported_apart_with_its_file_and_further_items(make_scene: MakeScene) -> None:
    scene = make_scene()
    scene.submission.had[DOI] = Present(OUTPUT, "On foam")
    scene.deliver("list.csv", f"{DOI}\n")
    scene.round()
    [line] = latest_lines(
        (entry.public() for entry in scene.ledger.feed(0, 100)), "deposits"
    ).values()
    entry = entry_of(line, scene.row(DOI), rounds=True)
    assert entry is not None
    [digest] = digests_of([entry], "d", ("a@example.org",), {}, {"Success": 1})
    assert subject_of(digest) == "Deposits: 1 was in DSpace already"
    text = text_of(digest)
    assert (
        "WERE IN DSPACE ALREADY\n  10.1002/there.1  https://hdl.handle.net/1/2\n    It has other.pdf; further items of this DOI: 1/3"
        in text
    )
    assert "DEPOSITED" not in text


@pytest.mark.parametrize(
    ("result", "attempts", "said"),
    [
        ({"handle": "1/2"}, 0, ""),
        ({"found": True, "same_file": True, "others": [], "files": []}, 1, ""),
        (
            {"found": True, "same_file": True, "others": [], "files": []},
            0,
            "It has the publisher's PDF",
        ),
        (
            {"found": True, "same_file": False, "others": [], "files": [{"name": "a.pdf"}]},
            0,
            "It has another file than the publisher's PDF: a.pdf",
        ),
        (
            {"found": True, "same_file": True, "others": ["1/3"], "files": []},
            1,
            "It has the publisher's PDF; further items of this DOI: 1/3",
        ),
    ],
)
def test_what_is_said_of_a_found_item(result: dict[str, Any], attempts: int, said: str) -> None:
    assert present_text({"results": {"submit": result}, "total_attempts": attempts}) == said


def test_dspace_itself_is_asked_first(tmp_path: Path) -> None:
    with submit_scene(tmp_path, "memory") as scene:
        item = scene.dspace.put(
            {"dc.title": [{"value": "On foam"}], "dc.identifier.doi": [{"value": DOI}]}
        )
        assert scene.submission.present(DOI) is None, (
            "an item without a file is for the submit stage to judge"
        )
        item.add_file("other.pdf", pdf_of("other"))
        present = scene.submission.present(DOI)
        assert present is not None
        assert (present.title, present.output["handle"], present.output["same_file"]) == (
            "On foam",
            item.handle,
            None,
        )
        item.discoverable = False
        assert scene.submission.present(DOI) is None


def test_a_dspace_that_does_not_answer_stops_no_fetch(
    make_scene: MakeScene,
    crossref: CrossrefStandIn,
    publisher: PublisherStandIn,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    crossref.everything = publisher.everything = True
    scene = make_scene()
    asked: list[str] = []

    def silent(doi: str) -> None:
        asked.append(doi)
        raise DSpaceUnavailable("DSpace: no answer in time")

    monkeypatch.setattr(scene.submission, "present", silent)
    scene.deliver("list.csv", "".join(f"10.1/{number}\n" for number in range(20)))
    assert scene.round().counts["Success"] == 20
    assert len(asked) <= 3, (
        "those that were asked at the same time; then DSpace is left alone for a while"
    )
