"""`milepost init --application`: the written application runs unchanged."""

from __future__ import annotations

import pytest
from tests.http.live_server import LiveServer
from tests.http.page_text import text_of

import milepost as mp
from milepost.http.server.assembly import HttpServer
from milepost.route_files import load_application


def test_what_it_writes_runs_at_once(bare) -> None:
    told = bare.ok("init", "--application", "book-desk").out
    assert "milepost book-desk ask A-1 'is it working?'" in told
    assert bare.ok("book-desk", "ask", "A-1", "is it working?").out == "A-1: new\n"
    bare.ok("work", "--until-idle", "0")
    assert bare.ok("show", "book-desk", "A-1", "--json").json["results"]["answer"] == {
        "answer": "IS IT WORKING?"
    }
    [found] = [
        found
        for found in bare.ok("doctor", "--json").json["findings"]
        if found["about"] == "book-desk"
    ]
    assert (found["level"], found["what"]) == ("ok", "requests may have 100 characters")


def test_its_endpoint_page_and_metrics_are_served(bare, monkeypatch: pytest.MonkeyPatch) -> None:
    bare.ok("init", "--application", "served-desk")
    application = load_application(f"{bare.folder}/served_desk.py").configured({"longest": 100})
    with mp.open("memory:", applications=[application]) as desk:
        server = HttpServer(desk.context, "127.0.0.1", 0, applications=[application])
        server.open()
        try:
            at = LiveServer(desk, server)
            answer = at.call("POST", "/served-desk", {"id": "B-1", "text": "hello"})
            assert (answer.status, answer.body) == (202, {"id": "B-1", "answer": "new"})
            assert "1 requests so far; each may have 100 characters." in text_of(
                at.call("GET", "/served-desk")
            )
            assert "milepost_served_desk_requests 1" in at.call("GET", "/metrics").raw.decode()
            assert at.call("GET", "/items/served-desk").status == 200
        finally:
            server.close()


@pytest.mark.parametrize("name", ["status", "Books", "ledger"])
def test_a_name_that_cannot_be_is_told(bare, name: str) -> None:
    answer = bare("init", "--application", name)
    assert (answer.code, f"an application cannot be called {name!r}" in answer.err) == (2, True)
    assert list(bare.folder.iterdir()) == []


def test_nothing_is_overwritten(bare) -> None:
    bare.ok("init", "--application", "books")
    answer = bare("init", "--application", "books")
    assert answer.code == 1
    assert "books.py, templates/books.html, milepost.toml already exist in" in answer.err
