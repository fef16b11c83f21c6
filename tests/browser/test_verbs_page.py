"""Run again, give other content, set for another time: an item's page in a real browser."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from playwright.sync_api import Page, expect
from tests.http.visitor import Visitor

Open = Callable[..., Page]
LARGE = "12345678901234567890123"


def item(door: Visitor, key: str) -> dict[str, Any]:
    found: dict[str, Any] = door.call("GET", f"/api/v1/routes/parcels/items/{key}").body
    return found


def test_other_content_is_written_compared_and_given(door: Visitor, window: Open) -> None:
    door.milepost.submit("parcels", {"id": "F-1", "weigh": "reject"})
    door.work()
    page = window()
    page.goto(f"{door.url}/items/parcels/F-1")
    page.get_by_role("button", name="Replace…").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("it has this content already")
    expect(dialog.get_by_role("button", name="Do it")).to_be_disabled()
    content = dialog.get_by_label("Its content from now on")
    expect(content).to_have_value('{\n  "id": "F-1",\n  "weigh": "reject"\n}')
    content.fill(f'{{"id": "F-1", "grams": {LARGE}}}')
    content.blur()
    expect(dialog).to_contain_text("1 of 1 would be done.")
    expect(dialog).to_contain_text(f"+ grams: {LARGE}")
    expect(dialog).to_contain_text('- weigh: "reject"')
    dialog.get_by_label("Why?").fill("it was written down wrongly")
    dialog.get_by_role("button", name="Do it").click()
    expect(dialog).to_be_hidden()
    expect(page.locator(".timeline")).to_contain_text("given other content")
    expect(page.locator(".value", has_text="replaced by local").locator("pre")).to_contain_text('"weigh": "reject"')
    assert item(door, "F-1")["status"] == "QUEUED"


def test_a_completed_item_is_run_again_and_one_for_later_is_started(door: Visitor, window: Open) -> None:
    door.milepost.submit("parcels", {"id": "P-1"})
    door.milepost.submit("parcels", {"id": "L-1"}, not_before="2h")
    door.work()
    door.milepost.confirm("parcels", "P-1", "deliver", by="partner")
    page = window()
    page.goto(f"{door.url}/items/parcels/P-1")
    page.get_by_role("button", name="Rerun…").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("From which stage on?").select_option("deliver")
    expect(dialog).to_contain_text("1 of 1 would be done.")
    dialog.get_by_label("Why?").fill("it was lost")
    dialog.get_by_role("button", name="Do it").click()
    expect(dialog).to_be_hidden()
    expect(page.locator(".timeline")).to_contain_text("run again from 'deliver'")
    page.goto(f"{door.url}/items/parcels/L-1")
    expect(page.locator(".story")).to_contain_text("It is to start at 'weigh'")
    page.get_by_role("button", name="Reschedule…").click()
    expect(dialog).to_contain_text("1 of 1 would be done.")
    dialog.get_by_label("Why?").fill("it is urgent")
    dialog.get_by_role("button", name="Do it").click()
    expect(dialog).to_be_hidden()
    expect(page.locator(".story")).to_contain_text("It waits for a worker")
    assert (item(door, "L-1")["status"], item(door, "P-1")["stage"]) == ("QUEUED", "deliver")


def test_a_list_replaces_what_has_changed_after_a_look(door: Visitor, window: Open) -> None:
    door.milepost.submit("parcels", {"id": "P-1", "n": 1})
    page = window()
    page.goto(f"{door.url}/lists")
    page.get_by_label("File").set_input_files({"name": "new.jsonl", "mimeType": "text/plain", "buffer": b'{"id": "P-1", "n": 2}\n'})
    page.get_by_label("replace: give items").check()
    page.get_by_role("button", name="Look first").click()
    report = page.locator("[data-report]")
    expect(report).to_contain_text("would be replaced")
    expect(report).to_contain_text("~ n: 1 → 2")
    page.get_by_label("With replace: why?").fill("it was corrected")
    page.get_by_role("button", name="Take it in (0 new, 1 replaced)").click()
    expect(report).to_contain_text("It is taken in.")
    assert item(door, "P-1")["input"]["n"] == 2
    assert item(door, "P-1")["history"][-1]["why"] == "it was corrected"
