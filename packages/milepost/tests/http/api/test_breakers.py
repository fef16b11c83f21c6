"""Circuit breakers over HTTP and on the dashboard."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.http.guarded_server import GuardedServer, guarded_server

import milepost as mp
from milepost.core.admission.breakers import BreakerRecord
from milepost.engine.act_log import all_acts
from milepost.ports.documents import BREAKER
from milepost_testing.clock import VirtualClock

BREAKERS = "/api/v1/routes/calls/breakers"
LANE = "partner/1"


@pytest.fixture
def at(tmp_path: Path) -> Iterator[GuardedServer]:
    """A route whose breaker is open for one lane, and only counts failures for another."""
    clock = VirtualClock()
    route = mp.Route("calls", key="id")
    route.stage("deliver", breaker=mp.Breaker(), lane=lambda content: str(content["to"]))(
        lambda item: mp.Done()
    )
    with guarded_server(f"sqlite:///{tmp_path}/ledger.db", [route], clock) as made:
        now = clock.now()
        opened = BreakerRecord(
            error="ERROR: no <answer>", opened_at=now - 5_000, retry_at=now + 25_000, trips=1
        )
        made.ctx.ledger.write(BREAKER, f"calls/deliver/{LANE}", opened)
        made.ctx.ledger.write(
            BREAKER, "calls/deliver/partner/2", BreakerRecord([now], "ERROR: once")
        )
        yield made


def test_open_breakers_are_listed_and_closed_ones_are_not(at: GuardedServer) -> None:
    [one] = at.call("GET", BREAKERS).body["breakers"]
    assert (one["scope"], one["stage"], one["lane"], one["state"]) == (
        f"calls/deliver/{LANE}",
        "deliver",
        LANE,
        "open",
    )
    assert (one["error"], one["trips"], one["probes"]) == ("ERROR: no <answer>", 1, [])
    assert one["since"] < one["retry_at"]
    assert at.call("GET", "/api/v1/routes/nope/breakers").status == 404


@pytest.mark.parametrize("path", ["deliver", "deliver/partner%2F1"])
def test_a_breaker_is_closed_with_name_and_reason(at: GuardedServer, path: str) -> None:
    assert at.call("DELETE", f"{BREAKERS}/{path}").status == 400
    assert at.call("DELETE", f"{BREAKERS}/nope?reason=x").status == 404
    told = at.call("DELETE", f"{BREAKERS}/{path}?reason=back&for=ops")
    assert told.body == {"closed": [f"calls/deliver/{LANE}"]}
    assert at.call("GET", BREAKERS).body == {"breakers": []}
    [act] = all_acts(at.ctx, "calls", "close-breaker")
    assert (act.by, act.reason) == ("local for ops", "back")
    assert at.call("DELETE", f"{BREAKERS}/{path}?reason=back").body == {"closed": []}


def test_the_system_page_shows_it_and_the_overview_warns(at: GuardedServer) -> None:
    page = at.call("GET", "/system").raw.decode()
    assert 'data-breaker="calls/breakers/deliver/partner%2F1"' in page
    assert "no &lt;answer&gt;" in page
    assert "The breaker of calls/deliver/partner/1 is open" in at.call("GET", "/").raw.decode()
    at.call("DELETE", f"{BREAKERS}/deliver?reason=back")
    assert "No breaker is open." in at.call("GET", "/system").raw.decode()


def test_metrics_have_it(at: GuardedServer) -> None:
    told = at.call("GET", "/metrics").raw.decode()
    assert 'milepost_breaker_open{route="calls",stage="deliver",lane="partner/1"} 1' in told
