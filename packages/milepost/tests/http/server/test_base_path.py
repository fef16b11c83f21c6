"""Behind a proxy with a path prefix: every URL that the server sends begins with it, and both ways
in work."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from http.cookies import SimpleCookie
from pathlib import Path
from urllib.parse import urlencode

import pytest
from tests.http.live_server import LiveServer, running_server

from milepost.cli.work.listen import Where, listening
from milepost.core.errors import ConfigMistake
from milepost.engine.auth import make_key
from milepost.http.server.assembly import checked_base

FORM = {"Content-Type": "application/x-www-form-urlencoded"}


@pytest.fixture
def live_server(tmp_path: Path) -> Iterator[LiveServer]:
    with running_server(tmp_path, base="/milepost") as visitor:
        visitor.milepost.submit("parcels", {"id": "P-1"})
        yield visitor


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/items/parcels/P-1",
        "/events",
        "/api/docs",
        "/static/any/api.js",
        "/healthz",
        "/api/v1/routes/parcels/items/P-1",
    ],
)
def test_a_call_is_the_same_whether_the_proxy_takes_the_base_off_or_not(
    live_server: LiveServer, path: str
) -> None:
    assert (
        live_server.call("GET", f"/milepost{path}").status
        == live_server.call("GET", path).status
        == 200
    )


def test_the_base_alone_is_the_first_page_and_a_longer_word_is_nothing(
    live_server: LiveServer,
) -> None:
    assert b"Overview" in live_server.call("GET", "/milepost").raw
    assert live_server.call("GET", "/milepost2/events").status == 404


def test_every_link_of_a_page_begins_with_the_base(live_server: LiveServer) -> None:
    for path in (
        "/",
        "/items/parcels",
        "/items/parcels/P-1",
        "/lists",
        "/events",
        "/acts",
        "/system",
        "/api/docs",
        "/login",
    ):
        found = re.findall(
            r'(?:href|src|action)="(/[^"]*)"', live_server.call("GET", path).raw.decode()
        )
        assert found
        assert [link for link in found if not link.startswith("/milepost/")] == [], path


def test_a_search_leads_to_an_address_with_the_base(live_server: LiveServer) -> None:
    assert (
        live_server.call("GET", "/find?q=P-1").headers["location"] == "/milepost/items/parcels/P-1"
    )
    assert (
        live_server.call("GET", "/find?q=P").headers["location"]
        == "/milepost/items/parcels?prefix=P"
    )
    nothing = live_server.call("GET", "/find?q=X")
    assert (nothing.status, b'href="/milepost/items/parcels"' in nothing.raw) == (404, True)


def test_logging_in_and_out_stays_under_the_base(live_server: LiveServer) -> None:
    _, key = make_key(live_server.ctx, "state", ["read"], by="ops", reason="a test")
    asked = live_server.call("GET", "/milepost/items/parcels?prefix=P")
    assert asked.headers["location"] == "/milepost/login?then=/items/parcels%3Fprefix%3DP"
    answer = live_server.call(
        "POST",
        "/milepost/login",
        urlencode({"key": key, "then": "/items/parcels?prefix=P"}).encode(),
        headers=FORM,
    )
    assert (answer.status, answer.headers["location"]) == (303, "/milepost/items/parcels?prefix=P")
    cookie = SimpleCookie(answer.headers["set-cookie"])["mp_session"]
    assert cookie["path"] == "/milepost"
    page = live_server.call(
        "GET", "/milepost/", headers={"Cookie": f"mp_session={cookie.value}"}
    ).raw.decode()
    token = page.partition('name="csrf_token" value="')[2].partition('"')[0]
    out = live_server.call(
        "POST",
        "/logout",
        urlencode({"csrf_token": token}).encode(),
        headers=FORM | {"Cookie": f"mp_session={cookie.value}"},
    )
    assert out.headers["location"] == "/milepost/login"
    assert SimpleCookie(out.headers["set-cookie"])["mp_session"]["path"] == "/milepost"


def test_programs_are_told_of_the_base(live_server: LiveServer) -> None:
    assert live_server.call("GET", "/api/openapi.json").body["servers"] == [{"url": "/milepost"}]


@pytest.mark.parametrize(
    "text",
    ["milepost", "/milepost/", "/", "//host", "/a b", "/a?b", "/..", "/a/../b", "/api", "/items/x"],
)
def test_a_base_that_no_address_can_begin_with_is_refused(text: str) -> None:
    with pytest.raises(ConfigMistake, match="base_path is"):
        checked_base(text)


def test_a_base_may_be_deep_or_empty() -> None:
    assert (checked_base("/tools/milepost-1"), checked_base("")) == ("/tools/milepost-1", "")


def test_up_says_where_it_is_with_the_base(
    live_server: LiveServer, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    # As at a terminal, whatever log another test of this process has opened.
    caplog.set_level(logging.WARNING, "milepost.cli.work.foreground")
    with listening(live_server.ctx, Where("127.0.0.1", 0, asked=True), "/milepost"):
        pass
    assert "/milepost/api/docs" in capsys.readouterr().err
    with (
        pytest.raises(ConfigMistake, match="base_path is"),
        listening(live_server.ctx, Where("127.0.0.1", 0, asked=False), "milepost"),
    ):
        pass
