"""Redaction: stored errors hold no secrets and are otherwise unchanged."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.item_lives import START, make_plan, new_item

import milepost as mp
from milepost.core.decide import late
from milepost.core.failures import MESSAGE_LIMIT
from milepost.core.values.redaction import (
    hidden_url,
    hidden_urls,
    is_secret,
    redacted,
    redacted_text,
    restored,
    secrets_of_url,
    url_in_key,
)
from milepost.engine.events.parked_events import error_text


@pytest.mark.parametrize(
    "name",
    [
        "password",
        "PASSWORD",
        "db_password",
        "passwd",
        "token",
        "X-Auth-Token",
        "accessToken",
        "Authorization",
        "secret",
        "clientSecret",
        "api_key",
        "apikey",
        "X-Api-Key",
        "private_key",
        "aws_secret_access_key",
        "Set-Cookie",
        "credentials",
    ],
)
def test_names_of_secrets_are_known(name: str) -> None:
    assert is_secret(name)


@pytest.mark.parametrize(
    "name",
    [
        "key",
        "asset_key",
        "token_count",
        "tokens_left",
        "password_hint",
        "author",
        "secretary",
        "host",
        "broken",
        "a-1/content/cookie",
    ],
)
def test_other_names_are_left_alone(name: str) -> None:
    assert not is_secret(name)


def test_details_are_redacted_at_any_depth() -> None:
    details = {
        "url": "https://u:pw1@host/a",
        "headers": [{"Authorization": "Bearer pw2", "Accept": "*/*"}],
        "n": 3,
        "password": None,
    }
    assert redacted(details) == {
        "url": "https://u:…@host/a",
        "headers": [{"Authorization": "…", "Accept": "*/*"}],
        "n": 3,
        "password": None,
    }
    assert redacted({"nested": {"token": {"a": "b"}}}) == {"nested": {"token": "…"}}


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("GET /a?password=hunter2&x=1 failed", "GET /a?password=…&x=1 failed"),
        ("Authorization: Bearer abc.def-ghi was refused", "Authorization: Bearer … was refused"),
        ("password: hunter2 is wrong", "password: … is wrong"),
        ("sent 'Basic QWxhZGRpbjpvcGVu'", "sent 'Basic …'"),
        ('{"api_key": "abc", "a": 1}', '{"api_key": "…", "a": 1}'),
        ("access_token=abc expired", "access_token=… expired"),
        ("postgres://app:hunter2@db/x", "postgres://app:…@db/x"),
        ("key mp_0123456789ab_AbC-d_ef", "key …"),
    ],
)
def test_secrets_in_a_text_are_taken_out(text: str, left: str) -> None:
    assert redacted_text(text) == left


@pytest.mark.parametrize(
    "text",
    [
        "the token: expired",
        "wrong password",
        "no credentials: set a profile",
        "https://host:8080/a@b",
        "basic checks failed",
        "Basic chemistry of a cell",
        "the password: the variable CRM is not set",
        "destinations.crm.signing_secret: a webhook secret is whsec_ and base64",
        "KeyError: 'colour'",
        "ops@example.org was told",
    ],
)
def test_a_text_without_secrets_stays_as_it_is(text: str) -> None:
    assert redacted_text(text) == text


def _failed(outcome: mp.Outcome) -> str:
    """All that the ledger tells of an item whose handler said this."""
    route = mp.Route("parcels", key="id")

    @route.stage("weigh")
    def weigh(item: mp.Item) -> mp.Outcome:
        return outcome

    with mp.open("memory:", routes=[route]) as milepost:
        milepost.submit("parcels", {"id": "a"})
        milepost.run(until_idle=0)
        written = milepost.context.ledger.history("parcels", "a")
        return f"{milepost.show('parcels', 'a')} {[entry.line for entry in written]}"


@pytest.mark.parametrize("kind", [mp.Retry, mp.Reject])
def test_neither_row_nor_history_holds_the_secrets_of_a_failed_try(
    kind: type[mp.Retry] | type[mp.Reject],
) -> None:
    told = _failed(
        kind(
            "401 for https://u:hunter2@host/",
            details={"request": {"authorization": "hunter2", "path": "/seen"}},
        )
    )
    assert "/seen" in told
    assert "hunter2" not in told


def test_a_secret_at_the_place_where_a_long_message_is_cut_is_taken_out() -> None:
    before = "x" * (MESSAGE_LIMIT - 20)
    told = _failed(mp.Reject(f"{before} https://u:hunter2hunter2@host/"))
    assert before in told
    assert "hunter2" not in told


def test_what_is_noted_of_a_late_outcome_is_redacted() -> None:
    item = new_item(make_plan())
    change = late(item.row, mp.Retry("401 for https://u:hunter2@host/"), START, by="w1")
    assert change.line is not None
    assert change.line.note == {"refused": "Retry", "error": "401 for https://u:…@host/"}


def test_what_is_kept_of_a_subscribers_error_is_redacted() -> None:
    assert (
        error_text(ValueError("POST https://host/hook?token=abc: 500"))
        == "ValueError: POST https://host/hook?token=… 500"
    )


def test_an_edited_copy_of_what_was_shown_gets_the_hidden_values_back() -> None:
    stored = {
        "headers": {"Authorization": "Bearer abc", "n": 1},
        "hooks": [{"url": "https://u:hunter2@host/", "on": True}],
        "token": {"a": "b"},
    }
    shown = redacted(stored)
    assert restored(shown, stored) == stored
    edited = {**shown, "headers": {**shown["headers"], "n": True}, "token": "other", "new": "…"}
    assert restored(edited, stored) == {
        **stored,
        "headers": {"Authorization": "Bearer abc", "n": True},
        "token": "other",
        "new": "…",
    }
    assert restored(edited, stored)["headers"]["n"] is True, (
        "not the stored 1, which is equal to it"
    )
    assert restored({**shown, "hooks": []}, stored)["hooks"] == []


def test_a_note_is_stored_without_its_secrets() -> None:
    told = _failed(mp.NotYet(note="https://u:hunter2@host/ has 3 of 5 files"))
    assert "https://u:…@host/ has 3 of 5 files" in told
    assert "hunter2" not in told


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        (
            "https://hooks.slack.com/services/T0A1B2C3D/B0A1B2C3D/" + "x" * 24,
            "https://hooks.slack.com/services/…/…/…",
        ),
        (
            "https://hooks.zapier.com/hooks/catch/1234567/b1q2w3e/",
            "https://hooks.zapier.com/hooks/catch/1234567/…/",
        ),
        ("http://partner/a/500?token=urlsecret123&x=1", "http://partner/a/500?token=…&x=…"),
        ("https://crm.example/v2/people?bob", "https://crm.example/v2/people?…"),
        ("https://crm.example/v2/people", "https://crm.example/v2/people"),
        (
            "m-1#shop#2026-01-31T08:00:00.000Z#https://crm.example:8443/",
            "m-1#shop#2026-01-31T08:00:00.000Z#https://crm.example:8443/",
        ),
        ("no address at all ?a=b", "no address at all ?a=b"),
    ],
)
def test_what_may_be_secret_in_a_url_is_hidden(url: str, shown: str) -> None:
    assert hidden_urls(url) == shown
    assert hidden_urls(f"failed: {url}") == f"failed: {shown}"
    assert hidden_urls(shown) == shown


@pytest.mark.parametrize(
    ("url", "hidden", "secrets"),
    [
        ("https://ops:hunter2@crm.example/", "https://…@crm.example/", ["ops:hunter2"]),
        (
            "https://crm.example/people#access_token=abc",
            "https://crm.example/people#…",
            ["access_token=abc"],
        ),
        (
            "https://hooks.zapier.com/hooks/catch/1234567/bdfkqz",
            "https://hooks.zapier.com/hooks/catch/1234567/…",
            ["bdfkqz"],
        ),
        ("https://crm.example/hooks/orders", "https://crm.example/hooks/orders", []),
        ("https://crm.example/a;token=hunter/b", "https://crm.example/a;token=…/b", ["hunter"]),
        ("https://crm.example/a'b/x1y2z3'<\">", "https://crm.example/a'b/…", ["x1y2z3'<\">"]),
        (
            "HTTPS://crm.example?kind=invoice&api_key=k&q=a1b2c3",
            "HTTPS://crm.example?kind=…&api_key=…&q=…",
            ["k", "a1b2c3"],
        ),
        ("mailto:ops@crm.example", "mailto:ops@crm.example", []),
    ],
)
def test_parts_of_a_url_that_are_hidden(url: str, hidden: str, secrets: list[str]) -> None:
    assert (hidden_url(url), secrets_of_url(url)) == (hidden, secrets)


NAMES = st.text("abcdefgh", min_size=1, max_size=5)
TOKENS = st.text(
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.~%!$'()*+,:@<>\"",
    min_size=20,
    max_size=40,
)


@st.composite
def urls_with_a_secret(draw: st.DrawFn) -> tuple[str, str]:
    """A URL, and the secret in it."""
    token, names = draw(TOKENS), draw(st.lists(NAMES, max_size=4))
    place = draw(st.sampled_from(["path", "value", "bare", "fragment"]))
    if place == "path":
        names.insert(draw(st.integers(0, len(names))), token)
    path = "/".join(names)
    end = {
        "path": "",
        "value": f"?{draw(NAMES)}={token}&x=1",
        "bare": f"?{token}",
        "fragment": f"#{token}",
    }[place]
    return f"https://{draw(NAMES)}.example:8443/{path}{end}", token


@given(urls_with_a_secret())
def test_no_form_of_a_url_holds_a_secret_of_it(given_url: tuple[str, str]) -> None:
    url, token = given_url
    in_key = url_in_key(url)
    assert token not in hidden_url(url)
    assert token not in in_key
    assert token in secrets_of_url(url)
    assert re.fullmatch(r".*…[^~]*~[0-9a-f]{16}", in_key)
    assert (url_in_key(in_key), hidden_url(in_key), hidden_urls(in_key)) == (in_key, in_key, in_key)
    assert hidden_url(hidden_url(url)) == hidden_url(url)


@given(urls_with_a_secret(), urls_with_a_secret())
def test_two_urls_are_two_parts_of_keys(one: tuple[str, str], other: tuple[str, str]) -> None:
    assert (url_in_key(one[0]) == url_in_key(other[0])) == (one[0] == other[0])


@given(st.lists(NAMES, max_size=5))
def test_a_url_with_nothing_to_hide_is_its_part_of_the_key(names: list[str]) -> None:
    url = f"https://crm.example/{'/'.join(names)}"
    assert (url_in_key(url), hidden_url(url), secrets_of_url(url)) == (url, url, [])


def test_a_text_that_only_looks_like_a_hidden_url_hides_nothing_from_the_rule() -> None:
    made_up = f"https://crm.example/{'x' * 24}/…~{'0' * 16}"
    assert "xxx" not in url_in_key(made_up)
