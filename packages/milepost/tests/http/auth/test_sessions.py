"""Browser sessions: log-in form, cookie, log-out, and checks of a request's origin."""

from __future__ import annotations

import re
from http.cookies import Morsel, SimpleCookie
from pathlib import Path
from urllib.parse import urlencode

import pytest
from tests.http.guarded_server import ITEMS, READ, GuardedServer, guarded_server
from tests.http.live_server import HttpAnswer

import milepost as mp
from milepost.engine.auth import MOST_SESSIONS, digest_of, make_key, open_session
from milepost.ports.documents import SESSION
from milepost_testing.clock import VirtualClock

FORM = {"Content-Type": "application/x-www-form-urlencoded"}


def send(at: GuardedServer, path: str, form: dict[str, str], **headers: str) -> HttpAnswer:
    return at.call(
        "POST",
        path,
        urlencode(form).encode(),
        headers=FORM | {name.replace("_", "-"): value for name, value in headers.items()},
    )


def cookie_in(answer: HttpAnswer) -> Morsel[str]:
    return SimpleCookie(answer.headers["set-cookie"])["mp_session"]


def log_in(at: GuardedServer, key: str) -> tuple[dict[str, str], str]:
    """The cookie as a header, and the token that the page has."""
    answer = send(at, "/login", {"key": key})
    assert (answer.status, answer.headers["location"]) == (303, "/")
    cookie = {"Cookie": f"mp_session={cookie_in(answer).value}"}
    return cookie, token_in(at.call("GET", "/login", headers=cookie))


def token_in(page: HttpAnswer) -> str:
    found = re.search(r'name="csrf_token" value="([^"]+)"', page.raw.decode())
    assert found is not None, page
    return found[1]


def test_a_cookie_opens_what_its_key_opens(at: GuardedServer) -> None:
    cookie, token = log_in(at, at.key("read"))
    assert at.call("GET", READ, headers=cookie).status == 200
    assert (
        at.call("POST", ITEMS, {"id": "b"}, headers=cookie | {"X-CSRF-Token": token}).status == 403
    )
    assert at.call("GET", READ).status == 401


def test_the_cookie_is_for_pages_of_this_server_alone(at: GuardedServer) -> None:
    key = at.key("read")
    cookie = cookie_in(send(at, "/login", {"key": key}))
    assert (cookie["httponly"], cookie["samesite"], cookie["path"], cookie["secure"]) == (
        True,
        "strict",
        "/",
        "",
    )
    assert int(cookie["max-age"]) == 12 * 3600
    assert cookie_in(send(at, "/login", {"key": key}, X_Forwarded_Proto="https"))["secure"] is True


def test_a_write_with_a_cookie_needs_the_token_of_the_page(at: GuardedServer) -> None:
    cookie, token = log_in(at, at.key("submit"))
    other, _ = log_in(at, at.key("submit", name="other"))

    def write(**more: str) -> int:
        return at.call(
            "POST",
            ITEMS,
            {"id": "b"},
            headers=cookie | {name.replace("_", "-"): value for name, value in more.items()},
        ).status

    assert write() == 403
    assert write(X_CSRF_Token="0" * 64) == 403
    assert write(X_CSRF_Token=token, Origin="https://elsewhere.example") == 403
    assert write(X_CSRF_Token=token, Sec_Fetch_Site="same-site") == 403
    assert (
        at.call("POST", ITEMS, {"id": "b"}, headers=other | {"X-CSRF-Token": token}).status == 403
    )
    assert at.milepost.show("parcels", "b") is None
    assert (
        write(
            X_CSRF_Token=token, Origin=f"http://127.0.0.1:{at.port}", Sec_Fetch_Site="same-origin"
        )
        == 201
    )


def test_what_is_done_by_cookie_is_done_in_the_keys_name(at: GuardedServer) -> None:
    cookie, token = log_in(at, at.key("submit", name="archive state"))
    at.call("POST", ITEMS, {"id": "b"}, headers=cookie | {"X-CSRF-Token": token})
    shown = at.milepost.show("parcels", "b")
    assert shown is not None
    assert shown["history"][0]["by"] == "archive state"


def test_a_session_is_known_to_every_process_and_after_a_restart(
    at: GuardedServer, url: str, clock: VirtualClock
) -> None:
    key = at.key("read")
    with guarded_server(url, clock=clock) as other:
        assert (
            other.call("GET", READ, key=key).status == 200
        )  # it has read the sessions that there were
        cookie, _ = log_in(at, key)
        assert other.call("GET", READ, headers=cookie).status == 200
    with guarded_server(url, clock=clock) as later:
        assert later.call("GET", READ, headers=cookie).status == 200


def test_the_token_of_a_session_is_not_in_the_ledger(at: GuardedServer) -> None:
    cookie, token = log_in(at, at.key("read"))
    kept = str(at.ctx.ledger.read(SESSION))
    assert len(at.ctx.ledger.read(SESSION)) == 1
    assert cookie["Cookie"].partition("=")[2] not in kept
    assert token not in kept


def test_logging_out_ends_the_session_everywhere(
    at: GuardedServer, url: str, clock: VirtualClock
) -> None:
    cookie, token = log_in(at, at.key("read"))
    with guarded_server(url, clock=clock) as other:
        assert other.call("GET", READ, headers=cookie).status == 200
        assert send(at, "/logout", {}, **cookie).status == 403
        assert at.call("GET", READ, headers=cookie).status == 200
        answer = send(at, "/logout", {"csrf_token": token}, **cookie)
        assert (answer.status, answer.headers["location"], cookie_in(answer).value) == (
            303,
            "/login",
            "",
        )
        at.ticks.now += 5
        other.ticks.now += 5
        assert (
            at.call("GET", READ, headers=cookie).status,
            other.call("GET", READ, headers=cookie).status,
        ) == (401, 401)
    assert send(at, "/logout", {}).status == 303


def test_a_session_ends_after_twelve_hours(at: GuardedServer, clock: VirtualClock) -> None:
    cookie, _ = log_in(at, at.key("read"))
    clock.advance("11h")
    assert at.call("GET", READ, headers=cookie).status == 200
    clock.advance("1h")
    assert at.call("GET", READ, headers=cookie).status == 401


def test_a_session_ends_with_its_key(at: GuardedServer) -> None:
    cookie, _ = log_in(at, at.key("read"))
    at.revoke()
    at.ticks.now += 5
    assert at.call("GET", READ, headers=cookie).status == 401
    at.key("read")  # a new key of the same name is another key
    at.ticks.now += 5
    assert at.call("GET", READ, headers=cookie).status == 401


def test_a_stale_cookie_is_answered_401_however_often_it_comes(at: GuardedServer) -> None:
    at.key("read")
    stale = {"Cookie": "mp_session=made-up"}
    assert {at.call("GET", READ, headers=stale).status for _ in range(15)} == {401}


def test_wrong_keys_are_shown_on_the_page_and_slowed_down(at: GuardedServer) -> None:
    at.key("read")
    tries = [send(at, "/login", {"key": "<b>no"}) for _ in range(11)]
    assert [answer.status for answer in tries] == [401] * 10 + [429]
    assert "set-cookie" not in tries[0].headers
    assert "not known" in tries[0].raw.decode()
    assert "<b>no" not in tries[0].raw.decode()
    assert int(tries[-1].headers["retry-after"]) > 0


def test_nobody_is_logged_in_by_another_sites_page(at: GuardedServer) -> None:
    key = at.key("read")
    assert send(at, "/login", {"key": key}, Origin="https://elsewhere.example").status == 403
    assert send(at, "/login", {"key": key}, Sec_Fetch_Site="cross-site").status == 403


def test_a_form_that_is_too_large_is_refused(at: GuardedServer) -> None:
    at.key("read")
    assert send(at, "/login", {"key": "x" * 70_000}).status == 413


def test_names_are_shown_as_text(at: GuardedServer) -> None:
    cookie, _ = log_in(at, at.key("read", name="<script>alert(1)</script>"))
    page = at.call("GET", "/login", headers=cookie).raw.decode()
    assert "&lt;script&gt;" in page
    assert "<script>alert" not in page


def test_the_page_has_nothing_inline(at: GuardedServer) -> None:
    assert "No log-in is needed" in at.call("GET", "/login").raw.decode()
    at.key("read")
    at.ticks.now += 5
    page = at.call("GET", "/login")
    assert (page.status, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert not re.search(
        r"<script(?![^>]*\bsrc=)|<style|\sstyle=|\son\w+=|javascript:", page.raw.decode()
    )
    assert 'name="key"' in page.raw.decode()


def test_sessions_that_are_over_are_cleared_away_and_no_key_has_too_many() -> None:
    clock = VirtualClock()
    with mp.open("memory:", clock=clock) as milepost:
        ctx = milepost.context
        key, _ = make_key(ctx, "loader", ["read"], by="ops", reason="a test")
        tokens = []
        for _ in range(MOST_SESSIONS + 3):
            tokens.append(open_session(ctx, key))
            clock.advance("1s")
        assert set(ctx.ledger.read(SESSION)) == {digest_of(token) for token in tokens[3:]}
        clock.advance("12h")
        open_session(ctx, key)
        assert len(ctx.ledger.read(SESSION)) == 1


def test_who_has_logged_in_lands_where_they_wanted_to_go(at: GuardedServer) -> None:
    key = at.key("read")
    led = at.call("GET", "/items/parcels/a%23%25?x=%2F").headers["location"]
    assert led == "/login?then=/items/parcels/a%2523%2525%3Fx%3D%252F"
    form = at.call("GET", led).raw.decode()
    then = "/items/parcels/a%23%25?x=%2F"
    assert f'name="then" value="{then}"' in form
    refused = send(at, "/login", {"key": "mp_wrong", "then": then})
    assert refused.status == 401
    assert f'name="then" value="{then}"' in refused.raw.decode()
    assert send(at, "/login", {"key": key, "then": then}).headers["location"] == then
    assert at.call("GET", "/").headers["location"] == "/login"


@pytest.mark.parametrize(
    "then",
    ["//elsewhere.example", "/\\elsewhere.example", "\\\\elsewhere.example", "https://elsewhere.example/", "javascript:alert(1)", "elsewhere",
     "/\t/elsewhere.example", "/\n/elsewhere.example", " //elsewhere.example", "/é", "@elsewhere.example", ""],
)  # fmt: skip
def test_nobody_is_led_to_another_server_after_logging_in(at: GuardedServer, then: str) -> None:
    key = at.key("read")
    assert "elsewhere" not in at.call("GET", f"/login?{urlencode({'then': then})}").raw.decode()
    assert send(at, "/login", {"key": key, "then": then}).headers["location"] == "/"


def test_every_page_says_who_has_logged_in_and_lets_them_out(at: GuardedServer) -> None:
    at.milepost.submit("parcels", {"id": "b"})
    cookie = {"Cookie": "mp_session=made-up"}
    assert "Log out" not in at.call("GET", "/lists").raw.decode()
    assert (
        "Log out" not in at.call("GET", "/lists", headers=cookie).raw.decode()
    )  # without keys there is nothing to log out of
    cookie, token = log_in(at, at.key("read", name="archive state"))
    page = at.call("GET", "/lists", headers=cookie)
    assert "archive state" in page.raw.decode()
    lost = at.call("GET", "/items/nowhere", headers=cookie)
    assert lost.status == 404
    assert "archive state" in lost.raw.decode()
    assert token_in(page) == token
    assert (
        send(at, "/logout", {"csrf_token": token_in(page)}, **cookie).headers["location"]
        == "/login"
    )
    at.ticks.now += 5
    assert at.call("GET", "/lists", headers=cookie).status == 303


def test_where_the_ledger_is_is_told_only_to_those_who_see_all_of_it(
    at: GuardedServer, tmp_path: Path
) -> None:
    all_of_it, part = at.key("read"), at.key("read", name="part", routes=["parcels"])
    assert str(tmp_path) in at.call("GET", "/lists", key=all_of_it).raw.decode()
    assert str(tmp_path) not in at.call("GET", "/lists", key=part).raw.decode()
    assert str(tmp_path) not in at.call("GET", "/login").raw.decode()
