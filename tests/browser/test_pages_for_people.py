"""The pages in a real browser: what an operator sees, finds and does."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect
from tests.http.visitor import Visitor

from milepost.engine.keys import make_key

Open = Callable[..., Page]
MARKUP = '<img src=x onerror="document.title=1">'


@pytest.fixture
def full(door: Visitor) -> Visitor:
    """Three that are with the partner, two that failed."""
    items = [{"id": f"P-{number}"} for number in (1, 2, 3)] + [{"id": f"F-{number}", "weigh": "reject"} for number in (1, 2)]
    door.milepost.submit("parcels", *items)
    door.work()
    return door


def test_the_overview_says_how_everything_stands(full: Visitor, window: Open) -> None:
    page = window()
    page.goto(full.url)
    route = page.get_by_role("region", name="parcels")
    expect(route).to_contain_text("5 items")
    expect(route.get_by_role("link", name="2 failed").first).to_be_visible()
    expect(route.get_by_role("listitem").filter(has_text="deliver").first).to_contain_text("3 here")
    expect(route.get_by_role("row").filter(has_text="too heavy")).to_contain_text("REJECTED")
    expect(route.get_by_role("img", name="items that ended")).to_be_visible()


def test_what_happens_is_seen_without_reloading(full: Visitor, window: Open) -> None:
    page = window()
    page.goto(full.url)
    page.evaluate("window.stayed = true")
    expect(page.get_by_role("region", name="parcels")).to_contain_text("5 items")
    full.milepost.submit("parcels", {"id": "P-9"})
    expect(page.get_by_role("region", name="parcels")).to_contain_text("6 items")
    assert page.evaluate("window.stayed")


def test_an_item_is_found_with_two_keystrokes_and_tells_its_story(full: Visitor, window: Open) -> None:
    page = window()
    page.goto(full.url)
    page.keyboard.press("/")
    page.keyboard.type("F-1")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="F-1")).to_be_visible()
    expect(page.locator(".where")).to_contain_text("It ended at 'weigh'")
    expect(page.locator(".timeline")).to_contain_text("too heavy")
    expect(page.locator(".path .stuck")).to_have_text("weigh")
    expect(page.locator("h3:has-text('Input') + pre")).to_contain_text('"id": "F-1"')


def test_many_are_retried_after_a_look_at_how_many(full: Visitor, window: Open) -> None:
    page = window()
    page.goto(f"{full.url}/items/parcels?status=failed")
    page.get_by_role("button", name="choose all that match").click()
    page.get_by_role("button", name="Retry…").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("2 of 2 would be done.")
    dialog.get_by_role("button", name="Do it").click()
    expect(dialog).to_contain_text("Say why, please.")
    dialog.get_by_label("Why?").fill("the scale was mended")
    dialog.get_by_role("button", name="Do it").click()
    expect(dialog).to_contain_text("2 of 2 done.")
    dialog.get_by_role("button", name="Close").click()
    expect(page.get_by_text("Nothing matches.")).to_be_visible()
    history = [line for line in full.call("GET", "/api/v1/routes/parcels/items/F-1").body["history"] if line["reason"] == "operator-retry"]
    assert [(line["by"], line["why"]) for line in history] == [("local", "the scale was mended")]


def test_a_stage_is_paused_and_resumed(full: Visitor, window: Open) -> None:
    page = window()
    page.goto(full.url)
    page.get_by_role("region", name="parcels").get_by_role("button", name="Pause weigh").click()
    page.get_by_role("dialog").get_by_label("Why?").fill("the scale is being mended")
    page.get_by_role("dialog").get_by_role("button", name="Do it").click()
    expect(page.get_by_text("paused by local: the scale is being mended")).to_be_visible()
    assert [hold["scope"] for hold in full.call("GET", "/api/v1/routes/parcels/holds").body["holds"]] == ["parcels/weigh"]
    page.get_by_role("button", name="Resume weigh").click()
    page.get_by_role("dialog").get_by_label("Why?").fill("it is mended")
    page.get_by_role("dialog").get_by_role("button", name="Do it").click()
    expect(page.get_by_role("region", name="parcels").get_by_role("button", name="Pause weigh")).to_be_visible()
    assert full.call("GET", "/api/v1/routes/parcels/holds").body["holds"] == []


def test_one_is_confirmed_by_hand_with_a_reason(full: Visitor, window: Open) -> None:
    page = window()
    page.goto(f"{full.url}/items/parcels/P-1")
    page.get_by_role("button", name="Confirm…").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("1 of 1 would be done.")
    dialog.get_by_label("Why?").fill("seen at the door")
    dialog.get_by_label("What was confirmed").fill('{"signed": true}')
    dialog.get_by_role("button", name="Do it").click()
    expect(page.locator(".where")).to_contain_text("It is through")
    assert full.call("GET", "/api/v1/routes/parcels/items/P-1").body["results"]["deliver"] == {"signed": True}


def test_a_list_is_looked_at_and_then_taken_in(full: Visitor, window: Open, tmp_path: Path) -> None:
    file = tmp_path / "march.txt"
    file.write_text("P-1\nN-1\nN-2\n")
    page = window()
    page.goto(f"{full.url}/lists")
    page.get_by_label("File").set_input_files(file)
    page.get_by_role("button", name="Look first").click()
    expect(page.locator("[data-report]")).to_contain_text("It would be:")
    assert full.call("GET", "/api/v1/routes/parcels/items/N-1").status == 404
    page.get_by_role("button", name="Take it in").click()
    expect(page.get_by_role("row").filter(has_text="march.txt")).to_contain_text("2 new")
    assert full.call("GET", "/api/v1/routes/parcels/items/N-1").status == 200


def test_what_comes_next_and_what_is_late_is_one_click_away(full: Visitor, window: Open) -> None:
    page = window()
    page.goto(full.url)
    page.get_by_role("link", name="which come next?").first.click()
    expect(page.get_by_role("row").filter(has_text="P-1")).to_contain_text("offered; nobody has confirmed it")
    page.go_back()
    page.get_by_role("link", name="which are late?").first.click()
    expect(page.get_by_text("Nothing matches.")).to_be_visible()


def test_markup_in_a_key_and_in_an_error_stays_text(door: Visitor, window: Open) -> None:
    door.milepost.submit("parcels", {"id": MARKUP, "weigh": "reject"})
    door.work()
    page = window()
    for path in ("/", "/items/parcels", "/events"):
        page.goto(door.url + path)
        assert page.locator("main img").count() == 0
    page.get_by_role("link", name=MARKUP).first.click()
    expect(page.get_by_role("heading", name=MARKUP)).to_be_visible()
    assert page.title() != "1"


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_it_is_light_or_dark_as_the_reader_likes(full: Visitor, window: Open, theme: str) -> None:
    page = window(color_scheme=theme)
    page.goto(full.url)
    ground = "getComputedStyle(document.body).backgroundColor"
    before = page.evaluate(ground)
    dark = sum(map(int, before.removeprefix("rgb(").removesuffix(")").split(","))) < 200
    assert dark is (theme == "dark")
    page.get_by_role("button", name="Light or dark").click()
    assert page.evaluate(ground) != before
    page.reload()
    assert page.evaluate(ground) != before


@pytest.mark.parametrize("path", ["/", "/items/parcels", "/items/parcels/F-1", "/lists", "/events", "/api/docs"])
def test_nothing_is_wider_than_a_narrow_screen(full: Visitor, window: Open, path: str) -> None:
    page = window(viewport={"width": 360, "height": 740})
    page.goto(full.url + path)
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_the_keyboard_alone_is_enough(full: Visitor, window: Open) -> None:
    page = window()
    page.goto(f"{full.url}/items/parcels?status=failed")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="To the content")).to_be_focused()
    page.get_by_role("checkbox", name="F-1").focus()
    page.keyboard.press("Space")
    page.get_by_role("button", name="Retry…").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog")).to_contain_text("1 of 1 would be done.")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_be_hidden()


def test_who_has_no_key_is_led_to_the_log_in(full: Visitor, window: Open) -> None:
    _, text = make_key(full.ctx, "desk", ["read", "operate"], by="ops", reason="test")
    page = window()
    page.goto(full.url)
    expect(page).to_have_url(f"{full.url}/login")
    page.get_by_label("Your key").fill(text)
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("region", name="parcels")).to_contain_text("5 items")
    page.goto(f"{full.url}/items/parcels?status=failed")
    page.get_by_role("button", name="choose all that match").click()
    page.get_by_role("button", name="Cancel…").click()
    expect(page.get_by_role("dialog")).to_contain_text("would be")


def test_what_is_shown_can_be_taken_along(full: Visitor, window: Open) -> None:
    page = window()
    page.goto(f"{full.url}/items/parcels?status=failed")
    with page.expect_download() as waiting:
        page.get_by_role("link", name="JSON").click()
    assert [row["key"] for row in json.loads(Path(waiting.value.path()).read_text())] == ["F-1", "F-2"]


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("path", ["/", "/items/parcels", "/items/parcels/F-1", "/lists", "/events", "/login", "/api/docs"])
def test_everybody_can_read_it(full: Visitor, window: Open, path: str, theme: str) -> None:
    """Roles, labels and contrast, by the rules of axe."""
    page = window(color_scheme=theme)
    page.goto(full.url + path)
    found = Axe().run(page)
    assert found.violations_count == 0, found.generate_report()
