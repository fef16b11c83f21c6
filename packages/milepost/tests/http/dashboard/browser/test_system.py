"""Events, acts and the system page in a real browser: use by operators, and accessibility."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect
from tests.http.dashboard.browser.dialogs import at_leisure, say_why
from tests.http.live_server import LiveServer, running_server

from milepost.core.errors import EventRefused
from milepost.engine.acts.controls import limit, pause
from milepost.engine.auth import make_key
from milepost.ports.documents import ACT, CURSOR, LIMIT, PARKED, PROCESS, Act, Process
from milepost.station import Station
from milepost.subscribers import CallSubscriber

Open = Callable[..., Page]
OUTSIDE = """[...document.querySelectorAll("header a, main button")]
  .filter((one) => one.getBoundingClientRect().right > innerWidth).map((one) => one.textContent)"""
"""What could be pressed, but is beyond the right edge of the screen."""
SIGNED = {"by": "ops", "reason": "the tape library is being moved"}


class Hook:
    """A subscriber that does not take the events of some items."""

    def __init__(self) -> None:
        self.refused: set[str] = {"F-1", "F-2"}
        self.told: list[str] = []

    def __call__(self, event: dict[str, str]) -> None:
        if event["subject"] in self.refused:
            raise EventRefused(
                "HTTP 410: nobody is here any more at https://hooks.example/a/long/address/that/goes/on/and/on"
            )
        self.told.append(event["id"])


@pytest.fixture
def hook() -> Hook:
    return Hook()


@pytest.fixture
def full(tmp_path: Path, hook: Hook) -> Iterator[LiveServer]:
    """Two items that a subscriber does not take; a pause, a limit, an act that was cut off, and a
    process of each kind. Behind a proxy that gives us a part of its own."""
    with running_server(tmp_path, base="/milepost") as live_server:
        live_server.milepost.submit(
            "parcels", {"id": "P-1"}, *({"id": f"F-{n}", "weigh": "reject"} for n in (1, 2))
        )
        tell(live_server, hook)
        now = live_server.ctx.clock.now()
        pause(live_server.ctx, "letters", "weigh", None, **SIGNED)
        limit(live_server.ctx, "letters", "weigh", rate="10/m", **SIGNED)
        chosen = {"query": {"route": "parcels", "prefix": "F-"}}
        cut = Act(
            "cut",
            "retry",
            "parcels",
            "ops",
            "the scale is back",
            now,
            chosen,
            expected=2,
            moved_at=now - 120_000,
        )
        live_server.ctx.ledger.write(ACT, cut.id, cut)
        slow = [{"route": "parcels", "stage": "weigh", "key": "P-3", "seconds": 4_321}]
        for process in (
            Process(
                "state-1", "archive-1", 1, now, now + 60_000, {"worker": now}, 3, slow, ["letters"]
            ),
            Process(
                "state-2", "archive-2", 2, now - 900_000, now - 600_000, {"resender": now - 600_000}
            ),
        ):
            live_server.ctx.ledger.write(PROCESS, process.holder, msgspec.to_builtins(process))
        yield live_server


def tell(live_server: LiveServer, hook: Hook) -> None:
    Station(live_server.ctx, subscribers=[CallSubscriber(hook, name="catalogue")]).run(
        until_idle_s=0
    )


def done(page: Page, why: str) -> None:
    """Say why, and wait for the page that shows what came of it."""
    with page.expect_navigation():
        say_why(page, why)


def acts(live_server: LiveServer, verb: str) -> list[tuple[str, str]]:
    found = live_server.call("GET", "/api/v1/acts").body["acts"]
    return [(act["by"], act["reason"]) for act in found if act["verb"] == verb]


def test_a_parked_item_is_released_and_everything_is_told_again(
    full: LiveServer, hook: Hook, window: Open
) -> None:
    page = window(trouble=True)
    page.goto(f"{full.url}/events")
    subscriber = page.get_by_role("article", name="catalogue")
    expect(subscriber).to_contain_text("2 parked")
    expect(subscriber.get_by_role("row").filter(has_text="F-1")).to_contain_text(
        "no attempt until it is released"
    )
    hook.refused = set()
    subscriber.get_by_role("button", name="Release F-1 for catalogue").click()
    done(page, "they have moved")
    tell(full, hook)
    page.reload()
    expect(subscriber).to_contain_text("1 parked")
    assert acts(full, "release") == [("local", "they have moved")]
    assert list(full.ctx.ledger.read(PARKED)) == ["catalogue/parcels/F-2"]
    subscriber.get_by_role("button", name="Replay for catalogue").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("About 6 lines, from")
    expect(dialog.get_by_label("Since when?")).to_be_hidden()
    dialog.get_by_label("Send all events again since").select_option(label="another time")
    expect(dialog).to_contain_text("Give a start.")
    expect(dialog.get_by_role("button", name="Apply")).to_be_disabled()
    before = full.ctx.ledger.read(CURSOR)["catalogue"].value["seq"]
    dialog.get_by_label("Since when?").fill("rubbish 5")
    dialog.get_by_label("Reason").fill("their copy was lost")
    expect(dialog).to_contain_text(
        "since is 'rubbish 5'; write how long ago, such as '6h' or '2d', or a time such as"
    )
    dialog.get_by_label("Reason").press("Escape")
    assert full.ctx.ledger.read(CURSOR)["catalogue"].value["seq"] == before
    subscriber.get_by_role("button", name="Replay for catalogue").click()
    dialog.get_by_label("Send all events again since").select_option(label="another time")
    dialog.get_by_label("Since when?").fill("2020-03-01 12:00")
    dialog.get_by_label("Reason").focus()
    expect(dialog).to_contain_text("About 6 lines, from")
    told = len(hook.told)
    done(page, "their copy was lost")
    assert full.ctx.ledger.read(CURSOR)["catalogue"].value["seq"] == 0
    tell(full, hook)
    assert hook.told[told:].count("parcels/P-1/1/accepted") == 1
    assert hook.told.count("parcels/P-1/1/accepted") == 2


def test_a_subscriber_is_forgotten(full: LiveServer, window: Open) -> None:
    page = window()
    page.goto(f"{full.url}/events")
    page.get_by_role("button", name="Forget catalogue").click()
    done(page, "it is switched off")
    expect(page.get_by_text("There are no subscribers.")).to_be_visible()


def test_what_happens_is_seen_as_it_happens_and_the_filter_is_in_the_address(
    full: LiveServer, window: Open
) -> None:
    page = window()
    page.goto(f"{full.url}/events")
    page.get_by_label("Kind").select_option("accepted")
    page.get_by_role("button", name="Show").click()
    expect(page).to_have_url(f"{full.url}/events?route=&kind=accepted")
    feed = page.get_by_role("region", name="Latest events")
    expect(feed.get_by_role("listitem")).to_have_count(3)
    page.evaluate("window.stayed = true")
    full.milepost.submit("parcels", {"id": "P-9"})
    expect(feed.get_by_role("listitem").first).to_contain_text("parcels / P-9")
    expect(feed.get_by_role("listitem")).to_have_count(4)
    assert page.evaluate("window.stayed")


def test_an_act_that_was_cut_off_is_gone_on_with(full: LiveServer, window: Open) -> None:
    page = window()
    at_leisure(page)
    page.goto(f"{full.url}/acts")
    page.get_by_role("link", name="retry").click()
    expect(page.get_by_text("It was for items with keys that begin with F-")).to_be_visible()
    page.get_by_role("button", name="Continue…").click()
    expect(page.get_by_role("dialog")).to_contain_text("About 2 items are left.")
    expect(say_why(page, "once more")).to_contain_text("2 of 2 restarted.")
    page.keyboard.press("Escape")
    expect(page.get_by_text("2 restarted", exact=True)).to_be_visible()
    expect(page.get_by_text("not finished")).to_be_hidden()
    history = full.call("GET", "/api/v1/routes/parcels/items/F-1").body["history"]
    assert [line["act"] for line in history if line["reason"] == "operator-retry"] == ["cut"]


def test_limits_are_set_and_cleared_and_what_is_paused_goes_on(
    full: LiveServer, window: Open
) -> None:
    page = window()
    page.goto(f"{full.url}/system")
    page.get_by_role("button", name="Limit parcels/weigh").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Calls at a time").fill("many")
    expect(say_why(page, "the scale is slow")).to_contain_text("is a whole number")
    dialog.get_by_label("Calls at a time").fill("2")
    dialog.get_by_label("Calls for the whole ledger").fill("1/s")
    done(page, "the scale is slow")
    limits = page.get_by_role("region", name="Limits")
    expect(limits.get_by_role("row").filter(has_text="parcels/weigh")).to_contain_text(
        "2 at a time, 1/s by local"
    )
    page.get_by_role("button", name="Clear the limits of letters/weigh").click()
    done(page, "it is mended")
    expect(limits.get_by_role("row").filter(has_text="letters/weigh")).to_contain_text("none")
    assert list(full.ctx.ledger.read(LIMIT)) == ["parcels/weigh"]
    page.get_by_role("button", name="Resume letters/weigh").click()
    done(page, "it is mended")
    expect(page.get_by_text("Nothing is paused.")).to_be_visible()


def test_who_logs_in_lands_where_they_wanted_to_go_and_can_log_out_anywhere(
    full: LiveServer, window: Open
) -> None:
    _, key = make_key(full.ctx, "archive state", ["read"], by="ops", reason="a test")
    page = window()
    page.goto(f"{full.url}/items/parcels?status=failed")
    page.get_by_label("Your key").fill(key)
    page.get_by_role("button", name="Log in").click()
    expect(page).to_have_url(f"{full.url}/items/parcels?status=failed")
    expect(page.get_by_role("banner")).to_contain_text("archive state")
    page.get_by_role("button", name="Log out").click()
    expect(page).to_have_url(f"{full.url}/login")
    expect(page.get_by_label("Your key")).to_be_visible()


def test_a_page_that_is_open_when_the_session_ends_leads_to_the_log_in(
    full: LiveServer, window: Open
) -> None:
    _, key = make_key(full.ctx, "archive state", ["read"], by="ops", reason="a test")
    page = window()
    page.goto(f"{full.url}/login?then=/events%3Fkind%3Daccepted")
    page.get_by_label("Your key").fill(key)
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("heading", name="Events", exact=True)).to_be_visible()
    full.milepost.submit("parcels", {"id": "P-8"})
    expect(page.get_by_text("parcels / P-8")).to_be_visible()
    page.context.clear_cookies()
    full.milepost.submit("parcels", {"id": "P-9"})
    expect(page).to_have_url(f"{full.url}/login?then=/events%3Fkind%3Daccepted")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_everybody_can_read_the_system_on_any_screen(
    full: LiveServer, window: Open, theme: str
) -> None:
    """Roles, labels and contrast, by the rules of axe; and nothing is wider than a narrow
    screen."""
    make_key(
        full.ctx,
        "a key with a name that is rather long for its purpose",
        ["read"],
        by="ops",
        reason="a test",
    )
    _, key = make_key(full.ctx, "head state", ["admin"], by="ops", reason="a test")
    page = window(color_scheme=theme)
    page.goto(f"{full.url}/login?then=/system%3Fdoctor%3D1")
    page.get_by_label("Your key").fill(key)
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("heading", name="Some things need attention")).to_be_visible()
    for path in ("/system?doctor=1", "/events", "/acts", "/acts/cut"):
        page.set_viewport_size({"width": 1280, "height": 800})
        page.goto(full.url + path)
        found = Axe().run(page)
        assert found.violations_count == 0, f"{path}: {found.generate_report()}"
        page.set_viewport_size({"width": 360, "height": 740})
        assert page.evaluate("document.documentElement.scrollWidth") <= 360, path
        assert page.evaluate(OUTSIDE) == [], path
