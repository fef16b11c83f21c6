"""The pages of deposits in a real browser: runs and digests, one DOI, and manual deposits by a
librarian without a terminal."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote
from urllib.request import urlopen

import pytest
from axe_playwright_python.sync_playwright import Axe
from msgspec import to_builtins
from msgspec.structs import replace
from playwright.sync_api import Page, expect
from tests.deposits.deposits_service import (
    DEPOSITED,
    NO_PDF,
    NO_RECORD,
    UNKNOWN,
    DepositsService,
    deposits_service,
    with_manual_deposits,
)

from milepost_deposits.people import pages
from milepost_deposits.people.worklist import claim
from milepost_deposits.runs import RunJournal, begun, this_process
from milepost_deposits.status_names import word_counts

Open = Callable[..., Page]


@pytest.fixture
def at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[DepositsService]:
    with deposits_service(tmp_path, monkeypatch) as service:
        with_manual_deposits(service)
        yield service


def requests_json(url: str) -> Any:
    with urlopen(url, timeout=60) as answer:
        return json.load(answer)


def doi_url(at: DepositsService, doi: str) -> str:
    return f"{at.url}/deposits/dois/{quote(doi, safe='')}"


def test_the_overview_shows_runs_digests_and_how_many_need_people(
    at: DepositsService, window: Open
) -> None:
    page = window()
    page.goto(f"{at.url}/deposits")
    expect(page.get_by_role("link", name="3 DOIs need a manual deposit")).to_be_visible()
    rows = page.get_by_role("region", name="Runs").get_by_role("row")
    expect(rows).to_have_count(3)
    assert rows.nth(2).get_by_role("cell").all_inner_texts()[1:6] == [
        "list.csv",
        "3",
        "0",
        "1",
        "2",
    ]
    digests = page.get_by_role("region", name="Digests")
    expect(digests.get_by_text("mailed", exact=True)).to_have_count(2)
    digests.get_by_role("link", name="Deposits: 2 need a manual deposit, 1 deposited").click()
    expect(page.get_by_role("region", name="Mail mailed")).to_contain_text("librarian@example.org")
    expect(page.get_by_role("region", name="Needs a manual deposit")).to_contain_text(
        "Fetch the PDF from the publisher by hand"
    )
    expect(page.get_by_role("region", name="Deposited")).to_contain_text(DEPOSITED)


def test_a_run_whose_process_is_gone_is_shown_as_interrupted_and_one_that_runs_as_running(
    at: DepositsService, window: Open
) -> None:
    counts = word_counts(at.app)
    gone = begun("gone", at.app.now(), replace(this_process(), started="0"), counts)
    at.app.documents.put("run/gone", to_builtins(replace(gone, step="working on DOIs")))
    page = window()
    with RunJournal(at.app, lambda: counts) as journal:
        journal.note(step="taking in lists")
        page.goto(f"{at.url}/deposits")
        rows = page.get_by_role("region", name="Runs").get_by_role("row")
        expect(rows.filter(has_text="running")).to_contain_text("It is taking in lists")
        expect(rows.filter(has_text="interrupted")).to_contain_text(
            "ended while it was working on DOIs. The next run reports what it did."
        )
        states = [one["state"] for one in requests_json(f"{at.url}/api/v1/deposits/runs")["runs"]]
        assert sorted(states) == ["finished", "finished", "interrupted", "running"]
    at.round()
    page.reload()
    expect(rows.filter(has_text="interrupted")).to_contain_text("The next run has reported it.")


def test_a_deposited_doi_shows_its_metadata_files_and_links(
    at: DepositsService, window: Open
) -> None:
    page = window()
    page.goto(f"{at.url}/deposits")
    page.get_by_label("DOI", exact=True).fill(f"https://doi.org/{DEPOSITED.upper()}")
    page.get_by_role("button", name="Show").click()
    expect(page.get_by_role("heading", name="Success")).to_be_visible()
    [item] = at.dspace.having(DEPOSITED)
    expect(page.get_by_role("link", name=item.handle)).to_have_attribute(
        "href", f"https://dspace.example.org/handle/{item.handle}"
    )
    expect(page.get_by_role("link", name=DEPOSITED)).to_have_attribute(
        "href", f"https://doi.org/{DEPOSITED}"
    )
    expect(page.get_by_role("region", name="Metadata")).to_contain_text("Okafor, Ada")
    expect(page.get_by_role("region", name="Files")).to_contain_text("10.1002-abc.1.pdf")
    happened = (
        page.get_by_role("region", name="What happened").get_by_role("listitem").all_inner_texts()
    )
    assert [text.splitlines()[-1] for text in happened[1:]] == ["Metadata fetched from Crossref", "PDF fetched from the publisher", "Deposited in DSpace"]  # fmt: skip
    expect(page.get_by_role("button", name="It is deposited")).to_have_count(0)


def test_a_librarian_claims_a_doi_and_enters_its_handle_with_the_keyboard_alone(
    at: DepositsService, window: Open
) -> None:
    page = window()
    page.goto(f"{at.url}/deposits/worklist")
    mine = page.get_by_role("article", name=NO_PDF)
    expect(mine).to_contain_text("Fetch the PDF from the publisher by hand")
    mine.get_by_label("Your name").focus()
    page.keyboard.type("Ann Lee")
    with page.expect_navigation():
        page.keyboard.press("Enter")
    expect(mine).to_contain_text("Ann Lee does this one")
    mine.get_by_text("Enter its handle, requeue or abandon").focus()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    page.keyboard.type("https://hdl.handle.net/1721.1/400778")
    with page.expect_navigation():
        page.keyboard.press("Enter")
    expect(page.get_by_role("article", name=NO_RECORD)).to_be_visible()
    expect(mine).to_have_count(0)
    view = at.milepost.show("deposits", NO_PDF)
    assert view is not None
    assert (view["status"], view["results"]["submit"]["handle"]) == ("COMPLETED", "1721.1/400778")
    page.goto(doi_url(at, NO_PDF))
    expect(page.get_by_role("region", name="What happened")).to_contain_text("deposited by hand")


def test_a_claim_of_another_person_is_refused_on_an_old_page(
    at: DepositsService, window: Open
) -> None:
    page = window(trouble=True)
    page.goto(doi_url(at, NO_PDF))
    claim(at.app, NO_PDF, name="Bob")
    page.get_by_label("Your name").fill("Ann")
    with page.expect_navigation():
        page.get_by_role("button", name="I do this one").click()
    expect(page.get_by_role("alert")).to_contain_text("is claimed by Bob")
    page.get_by_label("Your name").fill("Ann")
    with page.expect_navigation():
        page.get_by_role("button", name="Release").click()
    expect(page.get_by_role("button", name="I do this one")).to_be_visible()


def test_a_wrong_handle_is_said_and_stays_in_the_form(at: DepositsService, window: Open) -> None:
    page = window(trouble=True)
    page.goto(doi_url(at, UNKNOWN))
    expect(page.get_by_text("Search DSpace first")).to_be_visible()
    expect(page.get_by_role("link", name="search it for the DOI")).to_have_attribute(
        "href", f"https://dspace.example.org/search?query=%22{UNKNOWN}%22"
    )
    page.get_by_label("Handle of the item in DSpace").fill("see DSpace")
    with page.expect_navigation():
        page.get_by_role("button", name=f"Mark {UNKNOWN} as deposited").click()
    expect(page.get_by_role("alert")).to_contain_text("is not a handle")
    expect(page.get_by_label("Handle of the item in DSpace")).to_have_value("see DSpace")


def test_dois_are_requeued_and_abandoned_with_a_reason(at: DepositsService, window: Open) -> None:
    page = window()
    page.goto(doi_url(at, UNKNOWN))
    page.get_by_label("Try it again because").fill("DSpace is back")
    with page.expect_navigation():
        page.get_by_role("button", name="Requeue").click()
    expect(page.get_by_role("heading", name="Processing")).to_be_visible()
    page.goto(doi_url(at, NO_RECORD))
    page.get_by_label("It is not deposited at all because").fill("a thesis, not ours")
    with page.expect_navigation():
        page.get_by_role("button", name="Abandon").click()
    expect(page.get_by_role("region", name="What happened")).to_contain_text("a thesis, not ours")
    page.goto(f"{at.url}/deposits/worklist")
    expect(page.get_by_role("article")).to_have_count(1)


def test_the_worklist_is_exported_as_a_table(at: DepositsService, window: Open) -> None:
    page = window()
    page.goto(f"{at.url}/deposits/worklist")
    page.get_by_label("DOI, or a part of it").fill(f"https://doi.org/{NO_PDF.upper()}")
    page.get_by_role("button", name="Find").click()
    expect(page.get_by_role("article")).to_have_count(1)
    expect(page.get_by_role("heading", name="3 DOIs need a manual deposit")).to_be_visible()
    with page.expect_download() as download:
        page.get_by_role("link", name="Export it as CSV").click()
    assert download.value.suggested_filename == "manual-deposits.csv"
    rows = csv.DictReader(io.StringIO(Path(download.value.path()).read_text("utf-8-sig")))
    assert [row["doi"] for row in rows] == [NO_PDF]


def test_the_worklist_has_pages_and_a_form_returns_to_its_own(
    at: DepositsService, window: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "SHOWN_WORK", 1)
    page = window()
    page.goto(f"{at.url}/deposits/worklist")
    seen = []
    for place in ("1 to 1 of 3", "2 to 2 of 3", "3 to 3 of 3"):
        expect(page.locator(".pager")).to_contain_text(place)
        seen.append(page.get_by_role("article").get_attribute("aria-label"))
        if place != "3 to 3 of 3":
            page.get_by_role("link", name="Next").click()
    assert sorted(str(doi) for doi in seen) == sorted([NO_PDF, NO_RECORD, UNKNOWN])
    page.get_by_role("link", name="Previous").click()
    expect(page.get_by_role("article", name=seen[1])).to_be_visible()
    page.get_by_label("Your name").fill("Ann Lee")
    with page.expect_navigation():
        page.get_by_role("button", name="I do this one").click()
    expect(page.get_by_role("article", name=seen[1])).to_contain_text("Ann Lee does this one")
    page.get_by_label("Your name").fill("Carl")
    with page.expect_navigation():
        page.get_by_role("button", name="Release").click()
    expect(page.get_by_role("button", name=f"I do this one: {seen[1]}")).to_be_visible()
    page.goto(doi_url(at, str(seen[1])))
    happened = page.get_by_role("region", name="What happened")
    expect(happened).to_contain_text("Ann Lee does this one")
    expect(happened).to_contain_text("by local for Carl")


def test_the_worklist_over_http(at: DepositsService) -> None:
    first = requests_json(f"{at.url}/api/v1/deposits/worklist?limit=2")
    second = requests_json(
        f"{at.url}/api/v1/deposits/worklist?limit=2&after={quote(first['after'])}"
    )
    assert (first["waiting"], len(first["deposits"]), len(second["deposits"]), second["after"]) == (
        3,
        2,
        1,
        None,
    )
    back = requests_json(
        f"{at.url}/api/v1/deposits/worklist?limit=2&before={quote(second['before'])}"
    )
    assert back == first
    assert (
        requests_json(f"{at.url}/api/v1/deposits/worklist?search=NO-PDF")["deposits"][0]["doi"]
        == NO_PDF
    )


@pytest.mark.parametrize(
    "look", [{"color_scheme": "light"}, {"color_scheme": "dark"}], ids=["light", "dark"]
)
def test_every_page_is_readable_for_all_and_fits_a_phone(
    at: DepositsService, window: Open, look: dict[str, str]
) -> None:
    claim(at.app, NO_PDF, name="Ann Lee")
    [key, *_] = [row["key"] for row in at.milepost.items("deposits-digests")]
    page = window(viewport={"width": 360, "height": 800}, **look)
    for path in (
        "",
        "/worklist",
        f"/digests/{key}",
        f"/dois/{quote(DEPOSITED, safe='')}",
        f"/dois/{quote(UNKNOWN, safe='')}",
    ):
        page.goto(f"{at.url}/deposits{path}")
        assert page.evaluate("document.documentElement.scrollWidth") == 360, path
        found = Axe().run(page)
        assert found.violations_count == 0, f"{path}: {found.generate_report()}"


def test_an_act_is_signed_by_the_person_who_has_claimed_the_doi(
    at: DepositsService, window: Open
) -> None:
    claim(at.app, NO_PDF, name="Bob")
    page = window(trouble=True)
    page.goto(doi_url(at, NO_PDF))
    expect(page.get_by_text("Bob has claimed it.").first).to_be_visible()
    expect(page.get_by_label("Done by").first).to_have_value("Bob")
    page.get_by_label("Try it again because").fill("the publisher has it now")
    with page.expect_navigation():
        page.get_by_role("button", name=f"Requeue {NO_PDF}").click()
    view = at.milepost.show("deposits", NO_PDF)
    assert view is not None
    assert view["history"][-1]["by"].endswith(" for Bob")
