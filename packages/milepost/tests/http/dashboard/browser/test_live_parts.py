"""Live parts of pages: updates appear in place and keep focus, selection and open parts."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, Route, expect
from tests.http.live_server import LiveServer

from milepost.engine.act_log import select
from milepost.engine.acts.bulk import act
from milepost.engine.acts.verbs import RetryVerb

Open = Callable[..., Page]


def until(page: Page, holds: Callable[[], bool]) -> None:
    while not holds():
        page.wait_for_timeout(20)


def test_what_is_unchanged_is_not_touched_and_the_focus_stays(
    live_server: LiveServer, window: Open
) -> None:
    live_server.milepost.submit("parcels", {"id": "P-1"})
    page = window()
    page.goto(live_server.url)
    region = page.get_by_role("region", name="parcels")
    button = region.get_by_role("button", name="Pause weigh")
    button.focus()
    button.evaluate("(one) => (window.same = one)")
    live_server.milepost.submit("parcels", {"id": "P-2"})
    expect(region).to_contain_text("2 items")
    expect(button).to_be_focused()
    assert button.evaluate("(one) => window.same === one")


def test_ticks_and_open_details_outlive_a_change(live_server: LiveServer, window: Open) -> None:
    live_server.milepost.submit("parcels", {"id": "F-1", "weigh": "retry"}, {"id": "P-1"})
    live_server.work()
    page = window()
    page.goto(f"{live_server.url}/items/parcels")
    page.get_by_role("checkbox", name="P-1").check()
    live_server.milepost.submit("parcels", {"id": "A-1"})
    page.get_by_role("button", name="1 new ↑").click()
    expect(page.get_by_role("link", name="A-1", exact=True)).to_be_visible()
    assert page.get_by_role("checkbox", name="P-1").is_checked()
    assert not page.get_by_role("checkbox", name="A-1").is_checked()
    page.goto(f"{live_server.url}/items/parcels/F-1")
    page.get_by_text("Submit another item like this").click()
    shown = page.get_by_label("The content, as JSON")
    shown.fill('{"half": "written')
    act(
        live_server.ctx,
        select(live_server.ctx, "parcels", keys=["F-1"]),
        RetryVerb(),
        by="ops",
        reason="once more",
    )
    expect(page.locator(".timeline")).to_contain_text("once more")
    expect(shown).to_have_value('{"half": "written')


def test_a_page_says_when_its_server_has_gone_and_goes_on_when_it_is_back(
    live_server: LiveServer, window: Open
) -> None:
    page = window(trouble=True)
    page.goto(f"{live_server.url}/items/parcels")
    place, told = page.locator(".items").bounding_box(), page.get_by_role("status")
    page.route("**/*", lambda route: route.abort())
    live_server.milepost.submit("parcels", {"id": "P-1"})
    expect(told).to_contain_text("The server does not answer; trying again. This is as of")
    expect(told).to_be_in_viewport(ratio=1)
    assert page.locator(".items").bounding_box() == place
    assert Axe().run(page).violations_count == 0
    page.unroute("**/*")
    page.route("**/items/parcels", lambda route: route.fulfill(status=502, body="bad gateway"))
    live_server.milepost.submit("parcels", {"id": "P-2"})
    with page.expect_response("**/items/parcels"):
        live_server.milepost.submit("parcels", {"id": "P-3"})
    expect(told).to_contain_text("The server does not answer")
    page.unroute("**/items/parcels")
    live_server.milepost.submit("parcels", {"id": "P-4"})
    expect(page.get_by_role("link", name="P-4")).to_be_visible()
    expect(told).to_be_empty()


def test_a_page_says_that_its_server_hangs_within_15_seconds(
    live_server: LiveServer, window: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("milepost.http.dashboard.pages.live.HEARTBEAT_S", 0.1)
    page = window(trouble=True)
    page.clock.install()
    with page.expect_request("**/live"):
        page.goto(f"{live_server.url}/items/parcels")
    live_server.milepost.submit("parcels", {"id": "P-1"})
    expect(page.get_by_role("link", name="P-1")).to_be_visible()
    told, hangs = page.get_by_role("status"), threading.Event()
    loop = live_server.opened.state.feed._loop
    assert loop is not None
    loop.call_soon_threadsafe(hangs.wait)
    try:
        page.clock.run_for(15_000)
        expect(told).to_contain_text("The server does not answer; trying again. This is as of")
    finally:
        hangs.set()
    expect(told).to_be_empty()


def test_a_page_listens_again_after_somebody_else_has_answered_for_its_server(
    live_server: LiveServer, window: Open
) -> None:
    page = window(trouble=True)
    page.route("**/live", lambda route: route.fulfill(status=502, body="bad gateway"))
    with page.expect_response("**/live") as refused:
        page.goto(live_server.url)
    assert refused.value.status == 502
    with page.expect_response(lambda answer: answer.url.endswith("/live") and answer.status == 200):
        page.unroute("**/live")
    live_server.milepost.submit("parcels", {"id": "P-1"})
    expect(page.get_by_role("region", name="parcels")).to_contain_text("1 item")


def test_what_is_pressed_before_the_modules_have_come_is_done_when_they_are_there(
    full: LiveServer, window: Open
) -> None:
    page = window()
    held: list[Route] = []
    page.route("**/static/*/overview.js", lambda route: held.append(route))
    page.goto(full.url, wait_until="commit")
    button = page.get_by_role("region", name="parcels").get_by_role("button", name="Pause weigh")
    button.click()
    button.click()
    expect(page.get_by_role("dialog")).to_be_hidden()
    until(page, lambda: bool(held))
    held[0].continue_()
    expect(page.get_by_role("dialog")).to_contain_text("weigh")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_be_hidden()


def test_a_form_that_is_sent_before_its_module_has_come_is_sent_by_it(
    full: LiveServer, window: Open
) -> None:
    page = window()
    held: list[Route] = []
    page.route("**/static/*/item.js", lambda route: held.append(route))
    page.goto(f"{full.url}/items/parcels/P-1", wait_until="commit")
    page.get_by_text("Submit another item like this").click()
    page.get_by_label("The content, as JSON").fill('{"id": "P-9"}')
    page.get_by_role("button", name="Submit").click()
    until(page, lambda: bool(held))
    held[0].continue_()
    expect(page.get_by_text("P-9 is accepted.")).to_be_visible()
