"""The pages of notifications in a real browser: what an operator sees and does there, and that
everybody can read them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from urllib.parse import quote

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect
from tests.notifications.partners import Partner, Service, answers, key_of, message, service

Open = Callable[..., Page]
PAGES = ("", "/destinations/crm", "/destinations/erp", "/messages", "/dead-letters", "/replay")


@pytest.fixture
def at() -> Iterator[Service]:
    """A partner that answers, one that is down, one in an outage, and an unregistered one that
    refuses."""
    with (
        Partner(answers((200, b'{"ok": true}'))) as good,
        Partner(answers((503, b"no disk left"))) as down,
        Partner(answers(422)) as other,
    ):
        settings = {
            "crm": {"url": f"{good.url}crm/"},
            "erp": {"url": down.url, "breaker": {"failures": 3, "cooldown": "1h"}},
            "billing": {"url": f"{good.url}billing/", "rate": "5/s"},
        }
        with service(destinations=settings, retry={"attempts": 1}) as at:
            at.app.pause(
                "notifications",
                "deliver",
                "billing",
                by="anna",
                reason="they move house",
                until="2h",
                drain="5/s",
            )
            for number in range(8):
                at.post(
                    message(
                        f"{good.url}crm/{number}",
                        messageId=f"paid-{number}",
                        headers={"Authorization": "Bearer top-secret"},
                    )
                )
            for number in range(3):
                at.post(
                    message(
                        f"{down.url}{number}", messageId=f"stock-{number}", senderId="warehouse"
                    )
                )
            for number in range(3):
                at.post(message(f"{good.url}billing/{number}", messageId=f"bill-{number}"))
            at.milepost.run(until_idle=0)
            at.post(message(f"{down.url}3", messageId="stock-3", senderId="warehouse"))
            at.post(message(f"{other.url}hook", messageId="lead-1", senderId="web"))
            at.post({"senderId": "web"})
            at.milepost.run(until_idle=0)
            at.state.collector.turn(at.app)
            yield at


def test_the_overview_shows_destinations_senders_and_dead_letters(
    at: Service, window: Open
) -> None:
    page = window()
    page.goto(f"{at.url}/notifications")
    rows = page.get_by_role("region", name="Destinations").get_by_role("row")
    expect(rows.filter(has_text="crm")).to_contain_text("healthy")
    expect(rows.filter(has_text="crm")).to_contain_text("100%")
    expect(rows.filter(has_text="erp")).to_contain_text("breaker open")
    expect(rows.filter(has_text="erp")).to_contain_text("HTTP 503")
    expect(rows.filter(has_text="billing")).to_contain_text("they move house")
    expect(rows.filter(has_text="unregistered")).to_contain_text("failing")
    expect(rows.filter(has_text="unregistered")).to_contain_text("HTTP 4")
    web = page.get_by_role("region", name="Senders").get_by_role("row").filter(has_text="web")
    expect(web).to_be_visible()
    assert web.get_by_role("cell").all_inner_texts()[:5] == ["web", "1", "0", "1", "1"]
    expect(page.get_by_role("link", name="4 messages were not delivered")).to_be_visible()


def test_an_outage_is_begun_and_ended_with_the_keyboard_alone(at: Service, window: Open) -> None:
    page = window()
    page.goto(f"{at.url}/notifications/destinations/crm")
    page.get_by_label("The partner is down because").focus()
    page.keyboard.type("crm is being moved")
    page.keyboard.press("Tab")
    page.keyboard.type("2h")
    page.keyboard.press("Tab")
    page.keyboard.type("10/s")
    with page.expect_navigation():
        page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Outage")).to_be_visible()
    expect(page.get_by_text("crm is being moved")).to_be_visible()
    page.goto(f"{at.url}/")
    expect(page.get_by_text("crm is being moved").first).to_be_visible()
    page.goto(f"{at.url}/notifications/destinations/crm")
    page.get_by_label("Resume it because").fill("it is back")
    with page.expect_navigation():
        page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Healthy")).to_be_visible()


def test_a_time_of_day_is_in_the_time_zone_of_the_browser_and_the_reason_is_on_every_page(
    at: Service, window: Open
) -> None:
    page = window(timezone_id="Asia/Tokyo")
    page.goto(f"{at.url}/notifications/destinations/crm")
    expect(page.get_by_text("your time zone (Asia/Tokyo)")).to_be_visible()
    page.get_by_label("The partner is down because").fill("crm is being moved")
    page.get_by_label("until", exact=True).fill("18:00")
    with page.expect_navigation():
        page.get_by_role("button", name="Begin the outage").click()
    [lane] = [one for one in at.app.lanes("notifications", "deliver", ["crm"]) if one.lane == "crm"]
    assert lane.paused is not None
    assert str(lane.paused.until).endswith("T09:00:00.000Z"), "18:00 in Tokyo"
    waiting = message(f"{at.state.destinations.settings_of('crm').url}new", messageId="new")
    at.post(waiting)
    for path in (
        "",
        "/destinations/crm",
        "/messages",
        "/messages?destination=crm",
        f"/messages/{quote(key_of(waiting), safe='')}",
    ):
        page.goto(f"{at.url}/notifications{path}")
        expect(page.get_by_text("crm is being moved").first).to_be_visible()


def test_a_long_list_has_a_next_page_and_two_orders(at: Service, window: Open) -> None:
    for number in range(120):
        at.post(
            message(
                "http://127.0.0.1:9/", messageId=f"late-{number}", deliverAt="2199-01-01T00:00:00Z"
            )
        )
    page = window()
    page.goto(f"{at.url}/notifications/messages")
    expect(page.get_by_role("heading", name="100+ messages newest first")).to_be_visible()
    expect(page.get_by_role("row").nth(1)).to_contain_text("late-119")
    page.get_by_role("link", name="Next page").click()
    expect(page.get_by_role("row").nth(1)).to_contain_text("late-19")
    expect(page.get_by_role("link", name="Next page")).to_have_count(0)
    page.get_by_role("link", name="Back to the first page").click()
    expect(page.get_by_role("row").nth(1)).to_contain_text("late-119")
    page.get_by_role("link", name="Oldest first").click()
    expect(page.get_by_role("row").nth(1)).to_contain_text("paid-0")
    page.goto(f"{at.url}/notifications/messages?from=soon")
    expect(page.get_by_role("alert")).to_contain_text("From is 'soon'")


def test_a_wrong_time_is_said_and_nothing_is_paused(at: Service, window: Open) -> None:
    page = window(trouble=True)
    page.goto(f"{at.url}/notifications/destinations/crm")
    page.get_by_label("The partner is down because").fill("x")
    page.get_by_label("until", exact=True).fill("soon")
    with page.expect_navigation():
        page.get_by_role("button", name="Begin the outage").click()
    expect(page.get_by_role("alert")).to_contain_text("Until is 'soon'; it must be a time such as")
    expect(page.get_by_label("The partner is down because")).to_have_value("x")
    expect(page.get_by_label("until", exact=True)).to_be_focused()
    assert [one.lane for one in at.app.lanes("notifications", "deliver") if one.paused] == [
        "billing"
    ]


def test_a_message_shows_every_try_with_request_and_answer_and_no_secret(
    at: Service, window: Open
) -> None:
    page = window()
    page.goto(f"{at.url}/notifications/messages?status=COMPLETED")
    page.get_by_role("link", name="paid-0").click()
    expect(page.get_by_role("heading", name="COMPLETED")).to_be_visible()
    request = page.get_by_role("region", name="Request")
    expect(request).to_contain_text("POST http://127.0.0.1")
    expect(request).to_contain_text('{"paid":true}')
    timeline = page.get_by_role("region", name="What happened")
    timeline.get_by_text("Answer: 200 OK").click()
    expect(timeline).to_contain_text('{"ok": true}')
    assert "top-secret" not in page.content()
    page.goto(f"{at.url}/notifications/messages?status=live&sender=warehouse")
    page.get_by_role("link", name="stock-3").click()
    expect(page.get_by_text("Its breaker is open since")).to_be_visible()
    page.goto(f"{at.url}/notifications/messages?status=failed&sender=warehouse")
    page.get_by_role("link", name="stock-").first.click()
    expect(page.get_by_role("region", name="What happened")).to_contain_text(
        "Try 1: HTTP 503 Service Unavailable"
    )
    expect(page.get_by_role("region", name="What happened")).to_contain_text(
        re.compile(r"\(took \d+ ms\)")
    )


def test_a_dead_letter_is_sent_again_with_another_body(at: Service, window: Open) -> None:
    page = window()
    [found] = at.call("GET", "/api/v1/notifications/messages?status=failed&sender=web").body[
        "messages"
    ]
    page.goto(f"{at.url}/notifications/messages/{quote(found['key'], safe='')}")
    page.get_by_label("Send it again because").fill("a typing mistake")
    page.get_by_text("With another body").click()
    page.get_by_label("Send this body instead").check()
    page.get_by_label("Body", exact=True).fill('{"paid": 2}')
    with page.expect_navigation():
        page.get_by_role("button", name="Send again").click()
    expect(page.get_by_role("heading", name="QUEUED")).to_be_visible()
    expect(page.get_by_role("region", name="Request")).to_contain_text('{"paid": 2}')
    expect(page.get_by_role("region", name="What happened")).to_contain_text(
        "Sent again with other content"
    )
    expect(page.get_by_role("button", name="Cancel")).to_have_count(0)  # it has had a try
    expect(page.get_by_role("region", name="What happened")).to_contain_text(
        "by local: a typing mistake"
    )


def test_dead_letters_are_sent_again_by_cause_after_a_preview(at: Service, window: Open) -> None:
    page = window()
    page.goto(f"{at.url}/notifications/dead-letters")
    refused = page.get_by_role("region", name="Refused or not reached")
    refused.get_by_role("row").filter(has_text="SERVER_ERROR").get_by_role(
        "link", name="Send again"
    ).click()
    expect(page.get_by_role("heading", name="Send 3 dead letters again")).to_be_visible()
    expect(page.get_by_role("region", name="By destination")).to_contain_text("erp")
    page.get_by_label("Because").fill("erp is up again")
    with page.expect_navigation():
        page.get_by_role("button", name="Send 3 again").click()
    expect(page.get_by_role("heading", name="Messages", exact=True)).to_be_visible()
    page.goto(f"{at.url}/notifications/dead-letters")
    expect(page.get_by_role("link", name="Send all 1 again")).to_be_visible()


def test_a_message_that_waits_is_taken_back(at: Service, window: Open) -> None:
    page = window()
    page.goto(f"{at.url}/notifications/messages?destination=billing")
    page.get_by_role("link", name="bill-0").click()
    expect(page.get_by_text("they move house")).to_be_visible()
    page.get_by_label("Take it back because").fill("it was a mistake")
    with page.expect_navigation():
        page.get_by_role("button", name="Cancel").click()
    expect(page.get_by_role("heading", name="CANCELLED")).to_be_visible()


def test_a_message_that_waits_for_its_next_try_is_sent_now_or_given_up(
    at: Service, window: Open
) -> None:
    page = window()
    with Partner(answers((429, b"", "Retry-After: 3000"))) as busy:
        at.call(
            "PUT",
            "/api/v1/notifications/destinations/busy",
            {"url": busy.url, "retry": {"attempts": 5}},
        )
        for one in ("now", "never"):
            at.post(message(busy.url, messageId=one, senderId="patient"))
        at.milepost.run(until_idle=0)
        for one, because, button, then in (
            ("now", "Send it now because", "Send now", "QUEUED"),
            ("never", "Give it up because", "Give up", "CANCELLED"),
        ):
            page.goto(
                f"{at.url}/notifications/messages/{quote(key_of(message(busy.url, messageId=one, senderId='patient')), safe='')}"
            )
            expect(page.get_by_role("heading", name="RETRY_SCHEDULED")).to_be_visible()
            assert Axe().run(page).violations_count == 0
            page.get_by_label(because).fill("they say it is quicker")
            with page.expect_navigation():
                page.get_by_role("button", name=button).click()
            expect(page.get_by_role("heading", name=then)).to_be_visible()
            expect(page.get_by_role("region", name="What happened")).to_contain_text(
                "by local: they say it is quicker"
            )


def test_a_scheduled_message_that_was_cancelled_is_sent_again_and_then_now(
    at: Service, window: Open
) -> None:
    page = window()
    sent = message(
        f"{at.state.destinations.settings_of('crm').url}later",
        messageId="later",
        deliverAt="2199-01-01T00:00:00Z",
    )
    at.post(sent)
    page.goto(f"{at.url}/notifications/messages/{quote(key_of(sent), safe='')}")
    for because, button, then in (
        ("Take it back because", "Cancel", "CANCELLED"),
        ("Send it again because", "Send again", "PENDING"),
        ("Send it now because", "Send now", "QUEUED"),
    ):
        page.get_by_label(because).fill("a test")
        with page.expect_navigation():
            page.get_by_role("button", name=button).click()
        expect(page.get_by_role("heading", name=then)).to_be_visible()
    at.milepost.run(until_idle=0)
    expect(page.get_by_role("heading", name="COMPLETED")).to_be_visible()


def test_the_page_is_live(at: Service, window: Open) -> None:
    page = window()
    page.goto(f"{at.url}/notifications")
    row = page.get_by_role("region", name="Destinations").get_by_role("row").filter(has_text="crm")
    expect(row).to_contain_text("healthy")
    at.call(
        "POST",
        "/api/v1/notifications/destinations/crm/outage",
        {"until": "2h", "reason": "a pipe burst"},
    )
    at.post(message(f"{at.state.destinations.settings_of('crm').url}9", messageId="paid-9"))
    expect(row).to_contain_text("a pipe burst")


@pytest.mark.parametrize(("theme", "width"), [("light", 1280), ("dark", 360)])
def test_everybody_can_read_the_pages(at: Service, window: Open, theme: str, width: int) -> None:
    one = at.call("GET", "/api/v1/notifications/messages?status=failed&sender=web").body[
        "messages"
    ][0]
    page = window(color_scheme=theme, viewport={"width": width, "height": 800})
    for path in (*PAGES, f"/messages/{quote(one['key'], safe='')}"):
        page.goto(f"{at.url}/notifications{path}")
        assert page.evaluate("document.documentElement.scrollWidth") <= width, path
        found = Axe().run(page)
        assert found.violations_count == 0, (path, found.generate_report())


def test_a_reader_is_offered_no_acts(at: Service, window: Open) -> None:
    from milepost.engine.auth import make_key

    key = make_key(at.ctx, "reader", ["read"], by="ops", reason="a test")[1]
    page = window(extra_http_headers={"Authorization": f"Bearer {key}"})
    page.goto(f"{at.url}/notifications/destinations/crm")
    expect(page.get_by_role("heading", name="Healthy")).to_be_visible()
    expect(page.get_by_role("button", name="Begin the outage")).to_have_count(0)
    sent = message("http://127.0.0.1:1/", messageId="nope")
    assert (
        at.call("GET", f"/notifications/messages/{quote(key_of(sent), safe='')}", key=key).status
        == 404
    )
