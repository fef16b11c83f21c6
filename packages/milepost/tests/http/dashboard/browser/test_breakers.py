"""Open circuit breakers in a real browser: an operator sees why a lane is closed, and opens it
again with a reason."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect
from tests.http.dashboard.browser.dialogs import say_why
from tests.http.live_server import LiveServer, running_server

import milepost as mp
from milepost.core.admission.breakers import BreakerRecord
from milepost.engine.act_log import all_acts
from milepost.ports.documents import BREAKER

Open = Callable[..., Page]
LANE = "calls/deliver/crm/eu"


@pytest.fixture
def live_server(tmp_path: Path) -> Iterator[LiveServer]:
    route = mp.Route("calls", key="id")
    route.stage("deliver", breaker=mp.Breaker(), lane=lambda content: str(content["to"]))(
        lambda item: mp.Done()
    )
    with running_server(tmp_path, route, base="/milepost") as live_server:
        now = live_server.ctx.clock.now()
        record = BreakerRecord(
            error="ERROR: connection refused", opened_at=now, retry_at=now + 3_600_000, trips=1
        )
        live_server.ctx.ledger.write(BREAKER, LANE, record)
        yield live_server


def test_a_breaker_is_closed_on_the_system_page(live_server: LiveServer, window: Open) -> None:
    page = window()
    page.goto(f"{live_server.url}/system")
    expect(page.get_by_role("region", name="Open breakers")).to_contain_text(f"{LANE} is open")
    expect(page.get_by_role("region", name="Open breakers")).to_contain_text("connection refused")
    page.get_by_role("button", name=f"Close the breaker of {LANE}").click()
    with page.expect_navigation():
        say_why(page, "the partner is back")
    expect(page.get_by_text("No breaker is open.")).to_be_visible()
    assert live_server.ctx.ledger.read(BREAKER) == {}
    [act] = all_acts(live_server.ctx, "calls", "close-breaker")
    assert (act.by, act.reason) == ("local", "the partner is back")
