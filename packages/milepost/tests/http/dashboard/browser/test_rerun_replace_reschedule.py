"""Run again, give other content, set for another time: an item's page in a real browser."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect
from tests.http.live_server import LiveServer, running_server

import milepost as mp

Open = Callable[..., Page]
LARGE = "12345678901234567890123"


def item(live_server: LiveServer, key: str) -> dict[str, Any]:
    found: dict[str, Any] = live_server.call("GET", f"/api/v1/routes/parcels/items/{key}").body
    return found


def test_other_content_is_written_compared_and_given(live_server: LiveServer, window: Open) -> None:
    live_server.milepost.submit("parcels", {"id": "F-1", "weigh": "reject"})
    live_server.work()
    page = window()
    page.goto(f"{live_server.url}/items/parcels/F-1")
    page.get_by_role("button", name="Replace…").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("it has this content already")
    expect(dialog.get_by_role("button", name="Apply")).to_be_disabled()
    content = dialog.get_by_label("New content")
    expect(content).to_have_value('{\n  "id": "F-1",\n  "weigh": "reject"\n}')
    content.fill(f'{{"id": "F-1", "grams": {LARGE}}}')
    content.blur()
    expect(dialog).to_contain_text("1 of 1 would be done.")
    expect(dialog).to_contain_text(f"+ grams: {LARGE}")
    expect(dialog).to_contain_text('- weigh: "reject"')
    dialog.get_by_label("Reason").fill("it was written down wrongly")
    dialog.get_by_role("button", name="Apply").click()
    expect(dialog).to_be_hidden()
    expect(page.locator(".timeline")).to_contain_text("content replaced")
    expect(page.locator(".value", has_text="replaced by local").locator("pre")).to_contain_text(
        '"weigh": "reject"'
    )
    assert item(live_server, "F-1")["status"] == "QUEUED"


def test_a_completed_item_is_run_again_and_one_for_later_is_started(
    live_server: LiveServer, window: Open
) -> None:
    live_server.milepost.submit("parcels", {"id": "P-1"})
    live_server.milepost.submit("parcels", {"id": "L-1"}, not_before="2h")
    live_server.work()
    live_server.milepost.confirm("parcels", "P-1", "deliver", by="partner")
    page = window()
    page.goto(f"{live_server.url}/items/parcels/P-1")
    page.get_by_role("button", name="Rerun…").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("From which stage on?").select_option("deliver")
    expect(dialog).to_contain_text("1 of 1 would be done.")
    dialog.get_by_label("Reason").fill("it was lost")
    dialog.get_by_role("button", name="Apply").click()
    expect(dialog).to_be_hidden()
    expect(page.locator(".timeline")).to_contain_text("run again from 'deliver'")
    page.goto(f"{live_server.url}/items/parcels/L-1")
    expect(page.locator(".story")).to_contain_text("Scheduled to start at 'weigh'")
    page.get_by_role("button", name="Reschedule…").click()
    expect(dialog).to_contain_text("1 of 1 would be done.")
    dialog.get_by_label("Reason").fill("it is urgent")
    dialog.get_by_role("button", name="Apply").click()
    expect(dialog).to_be_hidden()
    expect(page.locator(".story")).to_contain_text("Waiting for a worker")
    assert (item(live_server, "L-1")["status"], item(live_server, "P-1")["stage"]) == (
        "QUEUED",
        "deliver",
    )


def test_a_list_replaces_what_has_changed_after_a_look(
    live_server: LiveServer, window: Open
) -> None:
    live_server.milepost.submit("parcels", {"id": "P-1", "n": 1})
    page = window()
    page.goto(f"{live_server.url}/lists")
    page.get_by_label("File").set_input_files(
        {"name": "new.jsonl", "mimeType": "text/plain", "buffer": b'{"id": "P-1", "n": 2}\n'}
    )
    page.get_by_label("replace the content of known items").check()
    page.get_by_role("button", name="Preview").click()
    report = page.locator("[data-report]")
    expect(report).to_contain_text("would be replaced")
    expect(report).to_contain_text("~ n: 1 → 2")
    page.get_by_label("With replace: why?").fill("it was corrected")
    page.get_by_role("button", name="Submit (0 new, 1 replaced)").click()
    expect(report).to_contain_text("It is accepted.")
    assert item(live_server, "P-1")["input"]["n"] == 2
    assert item(live_server, "P-1")["history"][-1]["why"] == "it was corrected"


def covers(value: Any, payload: Any) -> bool:
    if not isinstance(value, dict) or "b.txt" not in value:
        raise ValueError("it covers 1 of 2 files; missing: b.txt")
    return True


def open_file(name: str) -> None:
    raise OSError(5, "Input/output error", name)


@pytest.fixture
def archive(tmp_path: Path) -> Iterator[LiveServer]:
    """One asset that waits for tape, and one whose handler raises."""
    assets = mp.Route("assets", key="id")

    @assets.stage("disk", retry=mp.Backoff(attempts=2, base="1h"))
    def disk(item: mp.Item) -> mp.Outcome:
        if item.key == "F-1":
            open_file("/archive/of/a/long/name/" + "deep/" * 30 + "asset.xml")
        return mp.Done()

    assets.external("tape", accepts=covers)
    with running_server(tmp_path, assets) as visitor:
        visitor.milepost.submit("assets", {"id": "A-1"}, {"id": "F-1"})
        visitor.work()
        yield visitor


def test_an_answer_that_does_not_cover_the_stage_is_confirmed_by_force_alone(
    archive: LiveServer, window: Open
) -> None:
    page = window(trouble=True)
    page.goto(f"{archive.url}/items/assets/A-1")
    page.get_by_role("button", name="Confirm…").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Output").fill('{"a.txt": ["L1"]}')
    dialog.get_by_label("Output").blur()
    expect(dialog).to_contain_text("missing: b.txt")
    expect(dialog.get_by_role("button", name="Apply")).to_be_disabled()
    dialog.get_by_label("Confirm with force").check()
    expect(dialog).to_contain_text("1 of 1 would be done.")
    dialog.get_by_label("Reason").fill("seen on the shelf")
    dialog.get_by_role("button", name="Apply").click()
    expect(dialog).to_be_hidden()
    expect(page.locator(".timeline")).to_contain_text("missing: b.txt")


@pytest.mark.parametrize("width", [1280, 400])
def test_a_traceback_is_folded_and_stays_within_the_page(
    archive: LiveServer, window: Open, width: int
) -> None:
    page = window(viewport={"width": width, "height": 800})
    page.goto(f"{archive.url}/items/assets/F-1")
    fold = page.locator(".timeline details", has_text="traceback")
    expect(fold.locator("pre")).to_be_hidden()
    fold.locator("summary").click()
    expect(fold.locator("pre")).to_contain_text("in open_file")
    expect(fold.locator("pre")).to_contain_text("Input/output error")
    assert page.evaluate(
        "document.documentElement.scrollWidth <= document.documentElement.clientWidth"
    )
