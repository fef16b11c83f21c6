"""Submitting a list in a real browser: the preview first, then the submission, and a message for
each mistake in a file."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Locator, Page, expect
from tests.http.live_server import LiveServer, running_server

import milepost as mp

Open = Callable[..., Page]
MARKUP = '<img src=x onerror="document.title=1">'
DROP = """([name, text]) => {
  const held = new DataTransfer();
  held.items.add(new File([text], name));
  document.querySelector("[data-upload] p").dispatchEvent(new DragEvent("drop", { dataTransfer: held, bubbles: true, cancelable: true }));
}"""


@pytest.fixture
def page(live_server: LiveServer, window: Open) -> Page:
    """Two parcels were in the last full list."""
    body = b"id\nP-1\nP-2\n"
    live_server.call(
        "POST",
        "/api/v1/routes/parcels/items?name=march.csv&full=true",
        body,
        headers={"Content-Type": "text/csv"},
    )
    opened = window(trouble=True)
    opened.goto(f"{live_server.url}/lists")
    return opened


def counts(page: Page) -> dict[str, str]:
    """The report as a reader sees it."""
    found = page.locator("[data-report] tr[data-word]")
    expect(found.first).to_be_visible()
    return {
        row.get_by_role("rowheader").inner_text(): row.locator(".num").inner_text()
        for row in found.all()
    }


def report(page: Page) -> Locator:
    return page.locator("[data-report]")


def test_a_list_is_looked_at_and_then_taken_in(
    live_server: LiveServer, page: Page, tmp_path: Path
) -> None:
    file = tmp_path / "april.csv"
    file.write_text("id,n\nP-1,1\nN-1,2\nN-2,3\nN-2,3\n,4\n")
    page.get_by_label("File").set_input_files(file)
    page.get_by_label("it is the whole master list").check()
    expect(page.get_by_role("button", name="Submit")).to_be_disabled()
    page.get_by_role("button", name="Preview").click()
    expect(report(page)).to_contain_text("This is a preview; nothing was accepted yet.")
    told = {"new": "2", "changed": "1", "repeated": "1", "malformed": "1", "vanished": "1"}
    assert {word: n for word, n in counts(page).items() if n != "0"} == told
    expect(
        report(page).get_by_role("row").filter(has_text="the field 'id' is empty")
    ).to_contain_text("6")
    expect(report(page).get_by_role("listitem").filter(has_text="line 2")).to_contain_text("P-1")
    expect(report(page).get_by_role("link", name="P-2")).to_be_visible()
    assert live_server.call("GET", "/api/v1/routes/parcels/items/N-1").status == 404
    page.get_by_role("button", name="Submit (2 new)").click()
    expect(report(page)).to_contain_text("It is accepted.")
    expect(page.get_by_role("row").filter(has_text="april.csv")).to_contain_text("2 new")
    expect(page.get_by_role("button", name="Submit")).to_be_disabled()
    assert live_server.call("GET", "/api/v1/routes/parcels/items/N-1").status == 200
    report(page).get_by_role("link", name="The list").click()
    expect(page.get_by_role("heading", name="april.csv")).to_be_visible()


def test_a_file_that_is_dropped_is_looked_at_and_its_form_is_found_out(
    live_server: LiveServer, page: Page
) -> None:
    page.evaluate(DROP, ["export", '{"id": "J-1"}\n{"id": "J-2"}\n'])
    expect(report(page)).to_contain_text("export for parcels: 2 lines.")
    page.get_by_role("button", name="Submit (2 new)").click()
    expect(report(page)).to_contain_text("It is accepted.")
    assert live_server.call("GET", "/api/v1/routes/parcels/items/J-2").body["input"] == {
        "id": "J-2"
    }


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("none.txt", "", "none.txt is empty."),
        ("all.json", '[{"id": "A"}]', "all.json is one JSON array. Make it one object a line"),
        ("sheet.csv", "PK\u0003\u0004", "a zip archive or a spreadsheet; save it as CSV UTF-8"),
    ],
)
def test_what_is_no_list_is_named_for_what_it_is(
    page: Page, name: str, text: str, said: str
) -> None:
    page.evaluate(DROP, [name, text])
    expect(page.get_by_role("alert")).to_contain_text(said)
    expect(page.get_by_role("button", name="Submit")).to_be_disabled()


def test_another_choice_is_looked_at_anew(page: Page) -> None:
    page.evaluate(DROP, ["two.txt", "A\nB\n"])
    expect(page.get_by_role("button", name="Submit (2 new)")).to_be_enabled()
    page.get_by_label("Route").select_option("letters")
    expect(page.get_by_role("button", name="Submit")).to_be_disabled()
    expect(report(page)).to_be_empty()


def test_how_far_it_is_can_be_seen_while_it_is_taken_in(tmp_path: Path, window: Open) -> None:
    """The last line is slow, as with a list that takes minutes."""
    free = threading.Event()
    free.set()

    def slow(content: dict[str, Any]) -> str:
        assert content["value"] != "last" or free.wait(30)
        return str(content["value"])

    route = mp.Route("parcels", key=slow)
    route.external("deliver")
    with running_server(tmp_path, route) as live_server:
        page = window()
        page.goto(f"{live_server.url}/lists")
        page.evaluate(DROP, ["two.txt", "first\nlast\n"])
        expect(page.get_by_role("button", name="Submit (2 new)")).to_be_enabled()
        free.clear()
        page.get_by_role("button", name="Submit (2 new)").click()
        expect(page.get_by_text("The file is received, and is being accepted.")).to_be_visible()
        expect(page.get_by_label("Route")).to_be_disabled()
        live_server.milepost.submit("parcels", {"value": "beside it"})
        expect(page.get_by_text("About 1 of 2 new items are in.")).to_be_visible()
        free.set()
        expect(report(page)).to_contain_text("It is accepted.")
        expect(page.get_by_label("Route")).to_be_enabled()
        # Away from the server before it is closed, so that the page does not complain of that.
        page.goto("about:blank")


def test_one_that_is_cut_off_says_what_to_do(page: Page) -> None:
    page.evaluate(DROP, ["two.txt", "A\nB\n"])
    page.route("**/api/v1/routes/parcels/items?*dry_run=false*", lambda route: route.abort())
    page.get_by_role("button", name="Submit (2 new)").click()
    expect(page.get_by_role("alert")).to_contain_text(
        "The connection was cut off. Items that were accepted stay. Submit the same file again"
    )
    expect(page.get_by_label("Route")).to_be_enabled()


def test_markup_in_a_files_name_and_lines_stays_text(page: Page) -> None:
    page.evaluate(DROP, [f"{MARKUP}.csv", f"id,n\nP-1\n{MARKUP},1\n"])
    expect(report(page)).to_contain_text(f"{MARKUP}.csv for parcels")
    page.get_by_role("button", name="Submit (1 new)").click()
    expect(page.get_by_role("row").filter(has_text=MARKUP).first).to_be_visible()
    assert page.locator("main img").count() == 0
    assert page.title() != "1"


@pytest.mark.parametrize(("theme", "width"), [("light", 1280), ("dark", 360)])
def test_everybody_can_read_the_report_and_the_lists(
    live_server: LiveServer, window: Open, theme: str, width: int
) -> None:
    page = window(color_scheme=theme, viewport={"width": width, "height": 740})
    page.goto(f"{live_server.url}/lists")
    page.evaluate(DROP, ["mixed.csv", "id,n\nP-1,1\nP-1,1\n,2\nonly-one\n"])
    page.get_by_role("button", name="Submit (1 new)").click()
    expect(report(page)).to_contain_text("It is accepted.")
    for number in range(2):
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        found = Axe().run(page)
        assert found.violations_count == 0, found.generate_report()
        if not number:
            report(page).get_by_role("link", name="The list").click()
            expect(page.get_by_role("heading", name="mixed.csv")).to_be_visible()
