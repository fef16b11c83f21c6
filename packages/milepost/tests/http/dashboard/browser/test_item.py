"""An item's page in a real browser: its story, and everything that a person can do to it."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Locator, Page, expect
from tests.http.live_server import LiveServer

from milepost.evidence.verify import verify

Open = Callable[..., Page]
LARGE = "12345678901234567890123"


@pytest.fixture
def full(live_server: LiveServer) -> LiveServer:
    """One that is with the partner, one that failed."""
    live_server.milepost.submit("parcels", {"id": "P-1"}, {"id": "F-1", "weigh": "reject"})
    live_server.work()
    return live_server


def asked(page: Page, verb: str) -> Locator:
    """The dialog of a verb, once it has said what would be done."""
    page.get_by_role("button", name=f"{verb}…").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("1 of 1 would be done.")
    return dialog


def do(dialog: Locator, why: str) -> None:
    dialog.get_by_label("Reason").fill(why)
    dialog.get_by_role("button", name="Apply").click()
    expect(dialog).to_be_hidden()


def item(live_server: LiveServer, key: str) -> dict[str, Any]:
    found: dict[str, Any] = live_server.call("GET", f"/api/v1/routes/parcels/items/{key}").body
    return found


def test_an_item_is_found_with_two_keystrokes_and_tells_its_story(
    full: LiveServer, window: Open
) -> None:
    page = window()
    page.goto(full.url)
    page.keyboard.press("/")
    page.keyboard.type("F-1")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="F-1")).to_be_visible()
    expect(page.locator(".where")).to_contain_text("Ended at 'weigh'")
    expect(page.locator(".timeline")).to_contain_text("too heavy")
    expect(page.locator(".path .stuck")).to_have_text("weigh")
    expect(page.get_by_role("img", name="weigh: ")).to_be_visible()
    expect(page.locator(".value", has_text="Input").locator("pre")).to_contain_text('"id": "F-1"')


def test_one_is_confirmed_by_hand_with_what_it_gave_to_the_last_digit(
    full: LiveServer, window: Open
) -> None:
    page = window()
    page.goto(f"{full.url}/items/parcels/P-1")
    dialog = asked(page, "Confirm")
    expect(dialog.get_by_label("Error")).to_be_hidden()
    dialog.get_by_label("Output").fill("{broken")
    dialog.get_by_label("Reason").fill("seen at the door")
    expect(dialog).to_contain_text("The output is not JSON.")
    dialog.get_by_label("Output").fill(f'{{"signed": true, "n": {LARGE}}}')
    do(dialog, "seen at the door")
    expect(page.locator(".where")).to_contain_text("COMPLETED")
    assert item(full, "P-1")["results"]["deliver"] == {"signed": True, "n": int(LARGE)}


def test_one_is_confirmed_to_be_rejected_and_why(full: LiveServer, window: Open) -> None:
    page = window()
    page.goto(f"{full.url}/items/parcels/P-1")
    dialog = asked(page, "Confirm")
    dialog.get_by_label("Outcome").select_option("rejected, permanently")
    expect(dialog.get_by_label("Output")).to_be_hidden()
    dialog.get_by_label("Error").fill("nobody lives there")
    do(dialog, "the driver says so")
    expect(page.locator(".where")).to_contain_text("Ended at 'deliver'")
    line = item(full, "P-1")["history"][-1]
    assert (line["reason"], line["error_details"]["message"], line["why"]) == (
        "rejected",
        "nobody lives there",
        "the driver says so",
    )


def test_one_is_sent_back_and_another_is_retried_as_new_work(
    full: LiveServer, window: Open
) -> None:
    page = window()
    page.goto(f"{full.url}/items/parcels/P-1")
    dialog = asked(page, "Send back")
    dialog.get_by_label("To which stage?").select_option("weigh")
    do(dialog, "the scale was wrong")
    expect(page.locator(".path .at")).to_have_text("weigh")
    before = item(full, "F-1")["work_id"]
    page.goto(f"{full.url}/items/parcels/F-1")
    dialog = asked(page, "Retry")
    dialog.get_by_label("as new work").check()
    do(dialog, "it was packed anew")
    expect(page.locator(".path .at")).to_have_text("weigh")
    assert item(full, "F-1")["work_id"] != before


def test_another_like_it_is_handed_over(full: LiveServer, window: Open) -> None:
    page = window(trouble=True)
    page.goto(f"{full.url}/items/parcels/P-1")
    page.get_by_text("Submit another item like this").click()
    form = page.locator("[data-another]")
    content = form.get_by_label("The content, as JSON")
    expect(content).to_have_value(re.compile('"id": "P-1"'))
    content.fill('{"weigh": 1}')
    form.get_by_role("button", name="Submit").click()
    expect(form.get_by_role("status")).to_contain_text("'id'")
    content.fill(f'{{"id": "a/b", "n": {LARGE}}}')
    form.get_by_role("button", name="Submit").click()
    form.get_by_role("link", name="a/b").click()
    expect(page.get_by_role("heading", name="a/b")).to_be_visible()
    expect(page.locator(".value", has_text="Input").locator("pre")).to_contain_text(LARGE)


def test_its_evidence_is_downloaded_and_holds(
    full: LiveServer, window: Open, tmp_path: Path
) -> None:
    page = window()
    page.goto(f"{full.url}/items/parcels/F-1")
    with page.expect_download() as waiting:
        page.get_by_role("link", name="Download the evidence").click()
    assert waiting.value.suggested_filename == "parcels-F-1.evidence.jsonl"
    waiting.value.save_as(tmp_path / "one.jsonl")
    assert verify(tmp_path / "one.jsonl").holds


def test_what_is_copied_is_what_is_there(full: LiveServer, window: Open) -> None:
    page = window(permissions=["clipboard-read", "clipboard-write"])
    page.goto(f"{full.url}/items/parcels/F-1")
    page.get_by_role("button", name="Copy the digest").click()
    assert page.evaluate("navigator.clipboard.readText()") == item(full, "F-1")["chain"]["head"]


@pytest.mark.parametrize(("theme", "width"), [("light", 1280), ("dark", 360)])
def test_everybody_can_read_all_of_it(
    full: LiveServer, window: Open, theme: str, width: int
) -> None:
    """With everything unfolded, and the page of an item that is not there."""
    page = window(color_scheme=theme, viewport={"width": width, "height": 740}, trouble=True)
    for path in ("F-1", "P-1", "P-404"):
        page.goto(f"{full.url}/items/parcels/{path}")
        page.evaluate("document.querySelectorAll('details').forEach((part) => (part.open = true))")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        found = Axe().run(page)
        assert found.violations_count == 0, found.generate_report()
