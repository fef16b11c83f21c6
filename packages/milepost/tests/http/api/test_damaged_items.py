"""An item with a damaged row or content: API and page say so, and all other pages work."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from tests.http.dashboard.pages import seen, shown
from tests.http.guarded_server import guarded_server

DAMAGES = {
    "content": "UPDATE content SET body = x'7b' WHERE item = 1",
    "rest": "UPDATE item SET rest = x'7b' WHERE id = 1",
    "place": "UPDATE item SET place = 99 WHERE id = 1",
}


@pytest.mark.parametrize("what", DAMAGES)
def test_a_damaged_item_is_shown_as_far_as_it_can_be_read(tmp_path: Path, what: str) -> None:
    with guarded_server(f"sqlite:///{tmp_path}/ledger.db") as at:
        for key in ("bad", "good"):
            at.call("POST", "/api/v1/routes/parcels/items", {"id": key})
        connection = sqlite3.connect(tmp_path / "ledger.db")
        connection.execute(DAMAGES[what])
        connection.commit()
        connection.close()
        answered = at.call("GET", "/api/v1/routes/parcels/items/bad")
        assert answered.status == 200
        assert "damaged" in answered.body["damaged"]
        assert at.call("GET", "/api/v1/routes/parcels/items/good").body["damaged"] is None
        assert "cannot be read" in seen(shown(at, "/items/parcels/bad"))
        listed = at.call("GET", "/api/v1/routes/parcels/items").body
        by_row = what != "content"
        assert [item["key"] for item in listed["items"]] == (
            ["good"] if by_row else ["good", "bad"]
        )
        assert [one["key"] for one in listed["refused"]] == (["bad"] if by_row else [])
        if by_row:
            assert "damaged" in seen(shown(at, "/items/parcels"))
        for page in ("/", "/items/parcels", "/system", "/items/parcels/good"):
            shown(at, page)
