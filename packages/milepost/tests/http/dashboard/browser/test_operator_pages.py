"""Pages in a real browser, as operators use them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect
from tests.http.live_server import LiveServer

from milepost.engine.auth import make_key

Open = Callable[..., Page]
MARKUP = '<img src=x onerror="document.title=1">'


def test_markup_in_a_key_and_in_an_error_stays_text(live_server: LiveServer, window: Open) -> None:
    live_server.milepost.submit("parcels", {"id": MARKUP, "weigh": "reject"})
    live_server.work()
    page = window()
    for path in ("/", "/items/parcels", "/events"):
        page.goto(live_server.url + path)
        assert page.locator("main img").count() == 0
    page.get_by_role("link", name=MARKUP).first.click()
    expect(page.get_by_role("heading", name=MARKUP)).to_be_visible()
    assert page.title() != "1"


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_it_is_light_or_dark_as_the_reader_likes(
    full: LiveServer, window: Open, theme: str
) -> None:
    page = window(color_scheme=theme)
    page.goto(full.url)
    ground = "getComputedStyle(document.documentElement).backgroundColor"
    before = page.evaluate(ground)
    dark = sum(map(int, before.removeprefix("rgb(").removesuffix(")").split(","))) < 200
    assert dark is (theme == "dark")
    page.get_by_role("button", name="Light or dark").click()
    assert page.evaluate(ground) != before
    page.reload()
    assert page.evaluate(ground) != before


@pytest.mark.parametrize("path", ["/", "/items/parcels", "/events", "/lists", "/api/docs"])
def test_nothing_is_wider_than_a_narrow_screen(full: LiveServer, window: Open, path: str) -> None:
    page = window(viewport={"width": 360, "height": 740})
    page.goto(full.url + path)
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_who_has_no_key_is_led_to_the_log_in(full: LiveServer, window: Open) -> None:
    _, text = make_key(full.ctx, "state", ["read", "operate"], by="ops", reason="test")
    page = window()
    page.goto(full.url)
    expect(page).to_have_url(f"{full.url}/login")
    page.get_by_label("Your key").fill(text)
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("region", name="parcels")).to_contain_text("5 items")
    page.goto(f"{full.url}/items/parcels?status=failed")
    page.get_by_role("button", name="select all that match").click()
    page.get_by_role("button", name="Cancel…").click()
    expect(page.get_by_role("dialog")).to_contain_text("would be")


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("path", ["/", "/items/parcels", "/events", "/login", "/api/docs"])
def test_everybody_can_read_it(full: LiveServer, window: Open, path: str, theme: str) -> None:
    """Roles, labels and contrast, by the rules of axe."""
    page = window(color_scheme=theme)
    page.goto(full.url + path)
    found = Axe().run(page)
    assert found.violations_count == 0, found.generate_report()
