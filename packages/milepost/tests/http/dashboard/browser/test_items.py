"""The items of a route in a real browser: choosing some, acting on them, keys, and views that are
kept."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, Route, expect
from tests.http.dashboard.browser.dialogs import say_why
from tests.http.live_server import LiveServer

Open = Callable[..., Page]


def history(live_server: LiveServer, key: str) -> list[dict[str, str]]:
    return list(live_server.call("GET", f"/api/v1/routes/parcels/items/{key}").body["history"])


def test_many_are_retried_after_a_look_at_how_many(full: LiveServer, window: Open) -> None:
    page = window()
    page.goto(f"{full.url}/items/parcels?status=failed")
    page.get_by_role("button", name="select all that match").click()
    page.get_by_role("button", name="Retry…").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("2 of 2 would be done.")
    expect(dialog).to_contain_text("Starts the stage again, with attempts counted from zero.")
    dialog.get_by_role("button", name="Apply").click()
    expect(dialog).to_contain_text("A reason is needed.")
    say_why(page, "the scale was mended")
    expect(dialog).to_contain_text("2 of 2 restarted.")
    act = dialog.get_by_role("link", name="See the act").get_attribute("href")
    dialog.get_by_role("button", name="Close").click()
    expect(page.get_by_text("No items match.")).to_be_visible()
    lines = [line for line in history(full, "F-1") if line["reason"] == "operator-retry"]
    assert [(line["by"], line["why"]) for line in lines] == [("local", "the scale was mended")]
    page.goto(f"{full.url}{act}")
    expect(page.get_by_role("main")).to_contain_text("the scale was mended")


def test_all_that_match_are_seen_to_be_chosen_and_let_go_and_nothing_moves(
    full: LiveServer, window: Open
) -> None:
    page = window()
    page.goto(f"{full.url}/items/parcels")
    place, chosen = page.locator(".items").bounding_box(), page.locator(".choice")
    page.get_by_role("button", name="select all that match").click()
    expect(chosen).to_contain_text("all 5 that match selected")
    assert all(box.is_checked() for box in page.get_by_role("checkbox").all())
    assert page.locator(".items").bounding_box() == place
    full.milepost.submit("parcels", {"id": "A-1"})
    expect(page.get_by_role("checkbox", name="A-1")).to_be_checked()
    expect(chosen).to_contain_text("all 6 that match selected")
    page.get_by_role("checkbox", name="P-1").uncheck()
    expect(chosen).to_contain_text("5 selected")
    page.get_by_role("button", name="select all that match").click()
    page.get_by_role("button", name="select none").click()
    expect(chosen).to_contain_text("0 selected")
    assert not any(box.is_checked() for box in page.get_by_role("checkbox").all())


def test_ticked_rows_stay_ticked_and_in_place_while_new_ones_arrive(
    full: LiveServer, window: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("milepost.http.dashboard.pages.items.SHOWN", 4)
    page = window()
    page.goto(f"{full.url}/items/parcels?status=failed")
    page.get_by_role("checkbox", name="F-1").check()
    page.get_by_role("checkbox", name="F-2").check()
    rows, chosen = page.locator("tbody tr"), page.locator(".choice")
    full.milepost.submit(
        "parcels", *({"id": f"N-{number}", "weigh": "reject"} for number in range(12))
    )
    full.work()
    news = page.get_by_role("button", name=re.compile("new ↑"))
    expect(news).to_have_text("4 new ↑")
    expect(chosen).to_contain_text("2 selected")
    assert [row.get_attribute("data-name") for row in rows.all()] == ["F-2", "F-1"]
    news.click()
    expect(rows).to_have_count(4)
    expect(page.get_by_role("checkbox", name="F-1")).to_have_count(0)
    expect(chosen).to_contain_text("2 (2 not on this page) selected")
    page.get_by_role("checkbox", name="N-11").check()
    page.get_by_role("button", name="Retry…").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("3 of 3 would be done.")
    say_why(page, "the scale was mended")
    expect(dialog).to_contain_text("3 of 3")
    dialog.get_by_role("button", name="Close").click()
    expect(chosen).to_contain_text("0 selected")
    retried = [
        key
        for key in ("F-1", "F-2", "N-11", "N-0")
        if history(full, key)[-1]["reason"] == "operator-retry"
    ]
    assert retried == ["F-1", "F-2", "N-11"]


def test_a_ticked_row_that_no_longer_matches_stays_and_is_marked(
    full: LiveServer, window: Open
) -> None:
    page = window()
    page.goto(f"{full.url}/items/parcels?status=failed")
    page.get_by_role("checkbox", name="F-1").check()
    full.call(
        "POST",
        "/api/v1/routes/parcels/acts",
        {"verb": "retry", "keys": ["F-1"], "reason": "mended"},
    )
    expect(page.locator('tr[data-name="F-1"]')).to_have_class("unmatched")
    expect(page.locator(".choice")).to_contain_text("1 selected")
    page.get_by_role("checkbox", name="F-1").click()
    expect(page.locator('tr[data-name="F-1"]')).to_have_count(0)


def test_one_line_is_enough_for_all_filters_and_their_button(
    full: LiveServer, window: Open
) -> None:
    full.call(
        "POST",
        "/api/v1/routes/parcels/items?name=march.txt",
        b"M-1\n",
        headers={"Content-Type": "text/plain"},
    )
    page = window()
    page.goto(f"{full.url}/items/parcels?status=failed")
    line = {
        round(one.bounding_box()["y"] / 20)
        for one in page.locator("[data-filters]").locator("input, select, button").all()
    }
    assert len(line) == 1
    page.get_by_label("Older than").fill("2d")
    colour = "(one, part) => getComputedStyle(one, part).color"
    field = page.get_by_label("Older than")
    assert (
        field.evaluate(colour, None)
        == page.locator("h1").evaluate(colour, None)
        != field.evaluate(colour, "::placeholder")
    )


def test_who_closes_the_dialog_while_an_act_goes_on_finds_the_next_one_untouched(
    full: LiveServer, window: Open
) -> None:
    page = window()
    held: list[Route] = []
    page.route(
        "**/acts",
        lambda route: (
            held.append(route) if "reason" in str(route.request.post_data) else route.continue_()
        ),
    )
    page.goto(f"{full.url}/items/parcels?status=failed")
    page.get_by_role("button", name="select all that match").click()
    page.get_by_role("button", name="Retry…").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("2 of 2 would be done.")
    say_why(page, "the scale was mended").get_by_role("button", name="Close (it continues)").click()
    expect(dialog).to_be_hidden()
    page.get_by_role("button", name="Skip…").click()
    expect(dialog).to_contain_text("2 of 2 would be done.")
    with page.expect_response("**/acts"):
        held[0].continue_()
    expect(page.get_by_role("row").filter(has_text="F-1")).to_be_attached()
    expect(dialog.get_by_role("button", name="Apply")).to_be_enabled()
    expect(dialog).not_to_contain_text("done. See the act")
    expect(dialog.get_by_role("button", name="Cancel", exact=True)).to_be_visible()


def test_how_long_it_is_here_takes_one_line_and_the_time_is_there_when_pointed_at(
    full: LiveServer, window: Open
) -> None:
    page = window(timezone_id="America/New_York", locale="en-GB")
    page.goto(f"{full.url}/items/parcels")
    since = full.call("GET", "/api/v1/routes/parcels/items/P-1").body["entered_at"]
    told = page.get_by_role("row").filter(has_text="P-1").locator(f"time[datetime='{since}']")
    expect(told).to_have_attribute("title", re.compile(rf"^\d.+; {re.escape(since)} \(UTC\)$"))
    expect(told).not_to_contain_text(":")


def test_some_are_sent_back_to_a_stage_as_new_work(full: LiveServer, window: Open) -> None:
    page = window()
    page.goto(f"{full.url}/items/parcels?stage=deliver")
    page.get_by_role("checkbox", name="P-2").check()
    page.get_by_role("button", name="Send back to…").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("To the stage").select_option("weigh")
    dialog.get_by_label("As new work").check()
    expect(dialog).to_contain_text("1 of 1 would be done.")
    before = full.call("GET", "/api/v1/routes/parcels/items/P-2").body
    say_why(page, "it was weighed with its pallet")
    expect(page.get_by_role("row").filter(has_text="P-2")).to_have_count(0)
    after = full.call("GET", "/api/v1/routes/parcels/items/P-2").body
    assert (before["stage"], after["stage"]) == ("deliver", "weigh")
    assert after["pass"] > before["pass"]


def test_an_act_on_the_whole_route_is_asked_about_twice(full: LiveServer, window: Open) -> None:
    page = window()
    page.goto(f"{full.url}/items/parcels")
    page.get_by_role("button", name="select all that match").click()
    page.get_by_role("button", name="Cancel…").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("3 of 3 would be done.")
    say_why(page, "the depot has closed")
    expect(dialog).to_contain_text("Type parcels to act on the whole route.")
    assert full.call("GET", "/api/v1/routes/parcels/counts").body["cancelled"] == 0
    dialog.get_by_label("There is no filter").fill("parcels")
    say_why(page, "the depot has closed")
    expect(dialog).to_contain_text("3 of 3 cancelled.")
    expect(dialog).not_to_contain_text("Type parcels")
    expect(dialog.get_by_label("Reason")).to_be_hidden()
    assert full.call("GET", "/api/v1/routes/parcels/counts").body["cancelled"] == 3


def test_the_keyboard_alone_is_enough(full: LiveServer, window: Open) -> None:
    page = window()
    page.goto(f"{full.url}/items/parcels?status=failed&oldest_first=true")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="To the content")).to_be_focused()
    page.keyboard.press("j")
    page.keyboard.press("j")
    expect(page.get_by_role("link", name="F-2")).to_be_focused()
    page.keyboard.press("x")
    page.keyboard.press("k")
    expect(page.get_by_role("link", name="F-1")).to_be_focused()
    expect(page.locator("[data-chosen]")).to_have_text("1")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keys")).to_contain_text("to the next item")
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Retry…").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog")).to_contain_text("1 of 1 would be done.")
    page.keyboard.press("j")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_be_hidden()
    page.get_by_label("Key begins with").press("j")
    expect(page.get_by_label("Key begins with")).to_have_value("j")
    page.get_by_role("button", name="Show").focus()
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="F-1")).to_be_visible()


def test_a_view_is_kept_by_its_name_until_it_is_forgotten(full: LiveServer, window: Open) -> None:
    page = window()
    page.goto(f"{full.url}/items/parcels")
    page.get_by_label("Status").select_option("failed")
    page.get_by_role("button", name="Show").click()
    page.wait_for_url(f"{full.url}/items/parcels?status=failed")
    page.get_by_text("Save this view").click()
    page.get_by_label("Name").fill("<b>mine</b>")
    page.get_by_role("button", name="Save").click()
    page.goto(f"{full.url}/items/parcels")
    page.get_by_role("list", name="Saved views").get_by_role("link", name="<b>mine</b>").click()
    expect(page.get_by_role("checkbox", name="F-1")).to_be_visible()
    expect(page.get_by_role("checkbox", name="P-1")).to_have_count(0)
    page.goto(f"{full.url}/items/letters")
    expect(page.get_by_role("list", name="Saved views")).to_be_hidden()
    page.goto(f"{full.url}/items/parcels")
    page.get_by_role("button", name="Forget the view <b>mine</b>").click()
    page.reload()
    expect(page.get_by_role("list", name="Saved views")).to_be_hidden()


def test_what_is_shown_can_be_taken_along(full: LiveServer, window: Open) -> None:
    page = window()
    page.goto(f"{full.url}/items/parcels?status=failed")
    with page.expect_download() as waiting:
        page.get_by_role("link", name="JSON").click()
    assert [row["key"] for row in json.loads(Path(waiting.value.path()).read_text())] == [
        "F-1",
        "F-2",
    ]


def test_everybody_can_read_what_is_wrong_with_a_filter(full: LiveServer, window: Open) -> None:
    for theme in ("light", "dark"):
        page = window(trouble=True, color_scheme=theme, viewport={"width": 360, "height": 740})
        page.goto(f"{full.url}/items/parcels?older_than=banana&status=failed")
        expect(page.get_by_label("Older than")).to_have_accessible_description(
            "Write a span of time, such as 30m, 6h or 2d."
        )
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        found = Axe().run(page)
        assert found.violations_count == 0, found.generate_report()
