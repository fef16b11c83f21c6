"""The first key closes an open server at once, whichever process makes the key."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.http.event_listener import Listener
from tests.http.live_server import LiveServer, running_server

from milepost.composition import open_context
from milepost.engine.auth import make_key

ROUTES = "/api/v1/routes/parcels/counts"


def first_key(visitor: LiveServer) -> str:
    """Made by another process, as `milepost keys new` does."""
    other = open_context(visitor.ctx.ledger.url, [])
    try:
        return make_key(other, "admin", ["admin"], by="ops", reason="others can reach it now")[1]
    finally:
        other.ledger.close()


def test_a_key_made_by_another_process_closes_the_door_for_the_next_call(tmp_path: Path) -> None:
    with running_server(tmp_path) as visitor:
        assert visitor.call("GET", ROUTES).status == 200
        assert visitor.call("GET", "/").status == 200
        key = first_key(visitor)
        assert visitor.call("GET", ROUTES).status == 401
        assert visitor.call("POST", "/api/v1/routes/parcels/items", {"id": "late"}).status == 401
        assert visitor.call("GET", "/").status != 200
        assert visitor.call("GET", ROUTES, key=key).status == 200


def test_a_stream_that_was_opened_without_a_key_says_nothing_more(tmp_path: Path) -> None:
    with running_server(tmp_path) as visitor:
        listener = Listener(visitor)
        visitor.milepost.submit("parcels", {"id": "before"})
        assert listener.next().data["subject"] == "before"
        first_key(visitor)
        visitor.milepost.submit("parcels", {"id": "after"})
        with pytest.raises(AssertionError, match="the stream has ended"):
            listener.next()
        listener.close()
