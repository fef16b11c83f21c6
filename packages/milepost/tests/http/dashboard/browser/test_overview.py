"""The overview in a real browser, as operators use it."""

from __future__ import annotations

import re
from collections.abc import Callable

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect
from tests.http.dashboard.browser.dialogs import at_leisure, say_why
from tests.http.live_server import LiveServer

from milepost.engine.acts.controls import pause

Open = Callable[..., Page]
INDIA = re.compile(r"^(IST|GMT\+5:30)$")
"""The zone of India, as browsers name it in English."""


def do(page: Page, why: str, told: str) -> None:
    """Close the dialog when it says that it is done."""
    expect(say_why(page, why)).to_contain_text(told)
    page.keyboard.press("Escape")


def test_the_overview_says_how_everything_stands(full: LiveServer, window: Open) -> None:
    page = window()
    page.goto(full.url)
    route = page.get_by_role("region", name="parcels")
    expect(route).to_contain_text("5 items")
    expect(route.get_by_role("link", name="2 failed").first).to_be_visible()
    expect(route.get_by_role("listitem").filter(has_text="deliver").first).to_contain_text(
        "3 in progress"
    )
    expect(route.get_by_role("row").filter(has_text="too heavy")).to_contain_text("REJECTED")
    chart = route.get_by_role(
        "img", name="Ended in the last two days, by hour: 0 completed, 2 failed in all"
    )
    chart.locator(".fail").hover()
    expect(chart.get_by_text("0 completed, 2 failed").last).to_be_visible()
    route.get_by_text("The numbers").first.click()
    expect(
        route.get_by_role("table").first.get_by_role("cell", name="2", exact=True)
    ).to_be_visible()
    page.get_by_role("link", name="2 items of parcels failed.").click()
    expect(page.get_by_role("link", name="F-1")).to_be_visible()


def test_what_happens_is_seen_without_reloading(full: LiveServer, window: Open) -> None:
    page = window()
    page.goto(full.url)
    page.evaluate("window.stayed = true")
    expect(page.get_by_role("region", name="parcels")).to_contain_text("5 items")
    full.milepost.submit("parcels", {"id": "P-9"})
    expect(page.get_by_role("region", name="parcels")).to_contain_text("6 items")
    expect(page.get_by_role("region", name="Health")).to_contain_text(
        "No process is running, and 1 item waits for a worker."
    )
    assert page.evaluate("window.stayed")


def test_a_part_of_a_stages_bar_keeps_its_own_length_when_another_comes(
    full: LiveServer, window: Open
) -> None:
    page = window()
    page.goto(full.url)
    bar = page.get_by_role("listitem").filter(has_text="weigh").first.locator("svg.stack")
    bar.locator("rect.fail").evaluate("(one) => (window.failed = one)")
    full.milepost.submit("parcels", {"id": "P-9"})
    expect(bar.locator("rect.todo")).to_have_count(1)
    assert bar.locator("rect.fail").evaluate("(one) => window.failed === one")


def test_what_is_paused_is_seen_and_resumed(full: LiveServer, window: Open) -> None:
    pause(full.ctx, "parcels", "deliver", "a/b", by="ops", reason="the lift is stuck")
    page = window()
    at_leisure(page)
    page.goto(full.url)
    route = page.get_by_role("region", name="parcels")
    route.get_by_role("button", name="Pause weigh").click()
    do(page, "the scale is being mended", "Paused. 0 items wait here.")
    expect(page.get_by_text("Paused by local: the scale is being mended")).to_be_visible()
    route.get_by_role("button", name="Pause the route parcels").click()
    do(page, "a day off", "Paused.")
    expect(page.get_by_text("3 wait for the route, which is paused.")).to_be_visible()
    scopes = [
        hold["scope"] for hold in full.call("GET", "/api/v1/routes/parcels/holds").body["holds"]
    ]
    assert scopes == ["parcels", "parcels/deliver/a/b", "parcels/weigh"]
    for name in ("Resume the lane a/b of deliver", "Resume the route parcels", "Resume weigh"):
        route.get_by_role("button", name=name).click()
        do(page, "it is mended", "Resumed.")
        expect(route.get_by_role("button", name=name)).to_have_count(0)
    assert full.call("GET", "/api/v1/routes/parcels/holds").body["holds"] == []


def test_all_with_one_cause_are_retried_together(full: LiveServer, window: Open) -> None:
    page = window()
    at_leisure(page)
    page.goto(full.url)
    page.get_by_role("button", name="Retry all that failed with REJECTED at weigh").click()
    expect(page.get_by_role("dialog")).to_contain_text("2 of 2 would be done.")
    do(page, "the scale was mended", "2 of 2 restarted.")
    assert full.call("GET", "/api/v1/routes/parcels/counts").body["failed"] == 0


def test_nothing_jumps_while_items_move_and_all_is_in_reach_of_a_thumb(
    full: LiveServer, window: Open
) -> None:
    page = window(viewport={"width": 360, "height": 740})
    page.goto(full.url)
    route = page.get_by_role("region", name="parcels")
    expect(route.get_by_role("link", name="5 items")).to_be_visible()
    button = route.get_by_role("button", name="Retry all that failed with REJECTED at weigh")
    at = button.bounding_box()
    assert at is not None
    assert at["x"] + at["width"] <= 360
    tall = route.evaluate("(element) => element.offsetHeight")
    full.milepost.submit("parcels", {"id": "P-9"}, {"id": "P-10"})
    expect(route.get_by_role("link", name="7 items")).to_be_visible()
    assert route.evaluate("(element) => element.offsetHeight") == tall
    full.work()
    full.milepost.confirm("parcels", "P-9", "deliver", {"ok": True}, by="depot")
    expect(route).to_contain_text("1 completed")
    assert route.evaluate("(element) => element.offsetHeight") == tall


def test_what_is_late_and_what_comes_next_is_one_click_away(full: LiveServer, window: Open) -> None:
    page = window()
    page.goto(full.url)
    page.get_by_role("link", name="closest to completion").first.click()
    expect(page.get_by_role("row").filter(has_text="P-1")).to_contain_text(
        "offered; not confirmed yet"
    )
    # No stage of this route has a mark, so nothing of it can be late.
    expect(page.get_by_role("navigation", name="Which items").get_by_role("link")).to_have_text(
        ["All", "Closest to completion"]
    )


def test_everybody_can_read_it_with_all_that_it_can_hold(full: LiveServer, window: Open) -> None:
    """Notices, pauses and open numbers, which a quiet overview has not."""
    pause(full.ctx, "parcels", None, None, by="ops", reason="a day off")
    pause(full.ctx, "parcels", "weigh", "north", by="ops", reason="the lift is stuck")
    full.milepost.confirm("parcels", "P-1", "deliver", {"ok": True}, by="depot")
    for theme in ("light", "dark"):
        page = window(color_scheme=theme, viewport={"width": 360, "height": 740})
        page.goto(full.url)
        page.get_by_text("The numbers").first.click()
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        found = Axe().run(page)
        assert found.violations_count == 0, found.generate_report()


def test_charts_are_in_the_time_zone_of_the_browser(full: LiveServer, window: Open) -> None:
    page = window(timezone_id="Asia/Kolkata")
    page.goto(full.url)
    expect(page.get_by_role("region", name="parcels").get_by_text(INDIA).first).to_be_attached()
