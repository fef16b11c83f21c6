"""Items of a paused lane, or with an open breaker, say so in the API's list, on the page of items
and in its exports."""

from __future__ import annotations

import csv
import io

import pytest
from tests.http.live_server import LiveServer
from tests.http.page_text import text_of

from milepost.core.admission.breakers import BreakerRecord
from milepost.engine.acts.controls import pause
from milepost.ports.documents import BREAKER

ITEMS = "/api/v1/routes/parcels/items"
BECAUSE = "parcels/deliver is paused by ops: the lift is stuck"


@pytest.fixture
def at(live_server: LiveServer) -> LiveServer:
    """`waits` is at `deliver`, which is paused; `torn` has failed at `weigh`."""
    live_server.milepost.submit("parcels", {"id": "waits"}, {"id": "torn", "weigh": "reject"})
    live_server.work()
    pause(live_server.ctx, "parcels", "deliver", None, by="ops", reason="the lift is stuck")
    return live_server


def test_the_list_and_the_single_item_name_the_pause(at: LiveServer) -> None:
    listed = {item["key"]: item for item in at.call("GET", ITEMS).body["items"]}
    single = at.call("GET", f"{ITEMS}/waits").body
    for view in (listed["waits"], single):
        assert (view["blocked"], view["blocked_because"]) == ("paused", BECAUSE)
        assert [named["scope"] for named in view["pauses"]] == ["parcels/deliver"]
    assert (listed["torn"]["blocked"], listed["torn"]["pauses"]) == (None, [])
    for question in ("nearest=true", "status=live", "prefix=wai"):
        [item] = at.call("GET", f"{ITEMS}?{question}").body["items"]
        assert item["blocked"] == "paused"


def test_the_page_says_paused_where_it_said_due(at: LiveServer) -> None:
    page = at.call("GET", "/items/parcels")
    text = text_of(page)
    assert f"paused {BECAUSE}" in text
    assert f'title="{BECAUSE}"' in page.raw.decode()
    row = page.raw.decode().partition('data-name="waits"')[2].partition("</tr>")[0]
    assert row.count("<time") == 1, "how long it is at its stage, and no due time"
    assert "waits queued at deliver paused" in text_of(at.call("GET", "/items/parcels/waitx"))


def test_the_exports_say_it_too(at: LiveServer) -> None:
    rows = list(csv.DictReader(io.StringIO(at.call("GET", "/export/parcels.csv").raw.decode())))
    assert {row["key"]: row["blocked_because"] for row in rows} == {"waits": BECAUSE, "torn": ""}
    exported = {
        item["key"]: item["blocked"] for item in at.call("GET", "/export/parcels.json").body
    }
    assert exported == {"waits": "paused", "torn": None}


def test_an_open_breaker_is_named_while_the_stage_declares_one(at: LiveServer) -> None:
    """The routes here declare none: a record that is left over from an earlier route file blocks
    nothing."""
    now = at.ctx.clock.now()
    at.ctx.ledger.write(
        BREAKER,
        "parcels/deliver/",
        BreakerRecord(opened_at=now, retry_at=now + 60_000, error="HTTP 503"),
    )
    at.call("DELETE", "/api/v1/routes/parcels/holds/deliver?reason=x")
    [item] = at.call("GET", f"{ITEMS}?prefix=wai").body["items"]
    assert (item["blocked"], item["breaker"]) == (None, None)
