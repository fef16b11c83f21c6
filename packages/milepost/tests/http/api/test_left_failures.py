"""Failed items whose rows have left are named by the API's status, its lists, the overview and the
page of items."""

from __future__ import annotations

import pytest
from tests.http.live_server import LiveServer
from tests.http.page_text import text_of

from milepost.core.status import FAILED
from milepost.engine.retention import prune

ITEMS = "/api/v1/routes/parcels/items"
SENTENCE = "2 failed items have left the ledger; their seals say so"


@pytest.fixture
def left(live_server: LiveServer) -> LiveServer:
    """`a` and `b` have failed, and their rows have left; `fine` is at `deliver`."""
    live_server.milepost.submit(
        "parcels", *({"id": key, "weigh": "reject"} for key in "ab"), {"id": "fine"}
    )
    live_server.work()
    prune(live_server.ctx, "parcels", 0, by="ops", reason="a test", statuses=FAILED)
    return live_server


def test_status_and_counts_name_them_as_of_a_moment(left: LiveServer) -> None:
    routes = left.call("GET", "/api/v1/status").body["routes"]
    named = routes["parcels"]["left_failed"]
    assert (named["count"], named["more"], named["known"]) == (2, False, True)
    assert named["as_of"].endswith("Z")
    assert "left_failed" not in routes["letters"]
    assert left.call("GET", "/api/v1/routes/parcels/counts").body["left_failed"] == named
    assert left.call("GET", "/api/v1/routes/letters/counts").body["left_failed"] is None


def test_a_list_of_failed_items_ends_with_their_seals(left: LiveServer) -> None:
    page = left.call("GET", f"{ITEMS}?status=failed").body
    assert (page["items"], page["more_left"], page["all_left_known"]) == ([], False, True)
    assert [(seal["key"], seal["stage"], seal["status"]) for seal in page["left"]] == [
        ("a", "weigh", "REJECTED"),
        ("b", "weigh", "REJECTED"),
    ]
    assert [
        seal["key"] for seal in left.call("GET", f"{ITEMS}?status=failed&prefix=b").body["left"]
    ] == ["b"]
    short = left.call("GET", f"{ITEMS}?status=failed&limit=1").body
    assert (len(short["left"]), short["more_left"]) == (1, True)
    assert left.call("GET", ITEMS).body["left"] == []


def test_the_pages_name_and_list_them(left: LiveServer) -> None:
    assert f"{SENTENCE}: show them as of" in text_of(left.call("GET", "/"))
    page = left.call("GET", "/items/parcels?status=failed")
    assert "Failed, and their rows have left the ledger" in text_of(page)
    assert "No row matches." in text_of(page)
    assert 'href="/items/parcels/a"' in page.raw.decode()
    assert "have left" not in text_of(left.call("GET", "/items/letters?status=failed"))


def test_the_pages_of_a_ledger_without_any_are_silent(live_server: LiveServer) -> None:
    live_server.milepost.submit("parcels", {"id": "a", "weigh": "reject"})
    live_server.work()
    assert "left the ledger" not in text_of(live_server.call("GET", "/"))
    assert "left the ledger" not in text_of(live_server.call("GET", "/items/parcels?status=failed"))
