"""Paused items, failed items that have left, and items from the future, as pages show them on
screens of every width."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect
from tests.http.dashboard.browser.dialogs import at_leisure, say_why
from tests.http.guarded_server import GuardedServer, guarded_server
from tests.http.live_server import sample_route

import milepost as mp
from milepost.core.admission.breakers import BreakerRecord
from milepost.core.status import FAILED
from milepost.engine.acts.controls import pause
from milepost.engine.retention import prune
from milepost.ports.documents import BREAKER
from milepost_testing.clock import VirtualClock

Open = Callable[..., Page]
PAGES = (
    "/",
    "/system",
    "/system?doctor=1",
    "/items/parcels",
    "/items/parcels?status=failed",
    "/items/parcels?nearest=true",
    "/items/parcels/P-17",
    "/items/orders",
    "/acts",
)
BECAUSE = "parcels/deliver is paused by anna: the lift at the north depot is stuck until the engineer comes"


def orders() -> mp.Route:
    route = mp.Route("orders", key="id")
    route.stage("ship", lane=lambda content: content["lane"], breaker=mp.Breaker())(
        lambda item: mp.Done()
    )
    return route


@pytest.fixture
def at(tmp_path: Path) -> Iterator[GuardedServer]:
    """Parcels wait at a paused stage, two have failed, two more have failed and left, three are
    dated in the future; orders wait in a paused lane, and in one with an open breaker."""
    clock = VirtualClock()
    with guarded_server(
        f"sqlite:///{tmp_path}/ledger.db", [sample_route(), orders()], clock=clock
    ) as opened:
        post = opened.milepost
        post.submit("parcels", *({"id": f"left-{n}", "weigh": "reject"} for n in (1, 2)))
        opened.work()
        clock.advance("1h")
        prune(opened.ctx, "parcels", 0, by="ops", reason="a test", statuses=FAILED)
        items = [{"id": f"P-{n}"} for n in (1, 2, 3)] + [
            {"id": f"F-{n}", "weigh": "reject"} for n in (1, 2)
        ]
        post.submit("parcels", *items)
        opened.work()
        pause(opened.ctx, "parcels", "deliver", None, by="anna", reason=BECAUSE.partition(": ")[2])
        post.submit(
            "orders",
            *(
                {"id": f"{lane}-1", "lane": lane}
                for lane in ("shop@api.example.org:443", "north", "south")
            ),
        )
        pause(
            opened.ctx,
            "orders",
            "ship",
            "api.example.org:443",
            by="anna",
            reason="they move house",
            until="2h",
        )
        now = clock.now()
        record = BreakerRecord(
            opened_at=now, retry_at=now + 600_000, trips=2, error="HTTP 503: no disk left"
        )
        opened.ctx.ledger.write(BREAKER, "orders/ship/north", record)
        clock.advance("3d")
        post.submit("parcels", *({"id": f"ahead-{n}"} for n in (1, 2, 3)))
        clock.set_back("3d")
        yield opened


@pytest.mark.parametrize("width", [360, 768, 1440, 1920])
def test_the_pages_fit_screens_of_every_width_and_everybody_can_read_them(
    at: GuardedServer, window: Open, width: int
) -> None:
    for path in PAGES:
        page = window(viewport={"width": width, "height": 900}, trouble=path.endswith("P-17"))
        page.goto(at.url + path)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, path
        found = Axe().run(page)
        assert found.violations_count == 0, f"{path}: {found.generate_report()}"


def test_an_item_of_a_paused_lane_is_not_said_to_be_due(at: GuardedServer, window: Open) -> None:
    page = window()
    page.goto(f"{at.url}/items/parcels?prefix=P-")
    row = page.get_by_role("row").filter(has_text="P-1")
    expect(row).to_contain_text(BECAUSE)
    expect(row.get_by_text("paused", exact=True)).to_have_attribute("title", BECAUSE)
    expect(row.locator("time")).to_have_count(1)
    page.goto(f"{at.url}/items/orders")
    rows = page.get_by_role("row")
    expect(rows.filter(has_text="shop@api")).to_contain_text(
        "orders/ship/api.example.org:443 is paused by anna: they move house"
    )
    expect(rows.filter(has_text="north-1").get_by_text("breaker open", exact=True)).to_be_visible()
    expect(rows.filter(has_text="south-1")).to_contain_text("due")


def test_failed_items_that_have_left_are_named_and_listed(at: GuardedServer, window: Open) -> None:
    page = window()
    page.goto(at.url)
    expect(
        page.get_by_text("2 failed items have left the ledger; their seals say so")
    ).to_be_visible()
    page.get_by_role("link", name="show them").click()
    left = page.get_by_role("region", name="Failed, and their rows have left the ledger")
    expect(left.get_by_role("row")).to_have_count(3)
    left.get_by_role("link", name="left-1").click()
    expect(page.get_by_text("this is from its seal")).to_be_visible()


def test_items_from_the_future_are_redated_after_a_look_at_how_many(
    at: GuardedServer, window: Open
) -> None:
    page = window()
    at_leisure(page)
    page.goto(at.url)
    page.get_by_role("link", name="3 items of parcels are dated in the future.").click()
    expect(page.get_by_role("heading", name="Dated in the future")).to_be_in_viewport()
    page.get_by_role("button", name="Redate items of parcels").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("Dates items that are dated in the future as of now.")
    expect(dialog).to_contain_text("3 of 3 would be done.")
    expect(say_why(page, "the time server is back")).to_contain_text("3 of 3 dated as of now.")
    dialog.get_by_role("link", name="See the act").click()
    expect(page.get_by_role("main")).to_contain_text("the time server is back")
    [act] = at.call("GET", "/api/v1/acts?verb=redate").body["acts"]
    assert (act["done"], act["finished"], act["reason"]) == (3, True, "the time server is back")
    page.goto(f"{at.url}/system")
    expect(page.get_by_role("heading", name="Processes")).to_be_visible()
    expect(page.get_by_role("heading", name="Dated in the future")).to_have_count(0)
