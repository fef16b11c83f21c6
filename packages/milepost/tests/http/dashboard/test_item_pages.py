"""The item page as the server renders it: attempts, acts, notes, evidence and permitted actions."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from tests.http.dashboard.pages import MARKUP, seen, shown
from tests.http.live_server import LiveServer, running_server

import milepost as mp
from milepost.engine.auth import make_key
from milepost.engine.retention import prune

ACTS = "/api/v1/routes/assets/acts"


def assets() -> mp.Route:
    """`fetch` fails as an item's `fetch` says, `disk` is outside."""
    route = mp.Route("assets", key="id")

    @route.stage("fetch", retry=mp.Backoff(attempts=3, base="1h", jitter=0))
    def fetch(item: mp.Item) -> mp.Outcome:
        if "fetch" in item.input:
            return mp.Retry(
                item.input["fetch"],
                category="HTTP_5XX",
                http_status=503,
                details={"body": item.input["fetch"]},
            )
        return mp.Done({"bytes": 98765432109876543210})

    route.external("disk")
    return route


@pytest.fixture
def store(tmp_path: Path) -> Iterator[LiveServer]:
    others = mp.Route("others", key="id")
    others.external("look")
    with running_server(tmp_path, assets(), others) as visitor:
        yield visitor


def test_a_try_is_shown_with_its_error_its_answer_and_the_time_of_the_next(
    store: LiveServer,
) -> None:
    store.milepost.submit("assets", {"id": "A", "fetch": "come again"})
    store.work()
    page = shown(store, "/items/assets/A")
    assert "attempt 1 at 'fetch' failed HTTP_5XX HTTP 503 come again" in seen(page)
    assert "retry after 1 h" in seen(page)
    line = store.call("GET", "/api/v1/routes/assets/items/A").body["history"][-1]
    assert f'next attempt <time datetime="{line["next_retry_timestamp"]}">' in page
    assert '{ "body": "come again" }' in seen(page)


def test_the_moments_in_its_story_are_shown_in_the_readers_own_time(store: LiveServer) -> None:
    store.milepost.submit("assets", {"id": "A", "fetch": "2026-03-01T12:00:00.000Z & <b>"})
    store.work()
    page = shown(store, "/items/assets/A")
    one = store.call("GET", "/api/v1/routes/assets/items/A").body
    assert f'(<time datetime="{one["entered_at"]}">{one["entered_at"]}</time>).</p>' in page
    assert f'Retried in 60 min (<time datetime="{one["due_at"]}">' in page
    assert (
        '<time datetime="2026-03-01T12:00:00.000Z">2026-03-01T12:00:00.000Z</time> &amp; &lt;b&gt;'
        in page
    )


def test_an_act_on_several_is_named_with_who_and_why_and_led_to(store: LiveServer) -> None:
    store.milepost.submit("assets", {"id": "A"}, {"id": "B"})
    store.work()
    done = {"type": "done", "output": {"volume": "disk-7"}}
    told = store.call(
        "POST",
        ACTS,
        {
            "verb": "confirm",
            "keys": ["A", "B"],
            "stage": "disk",
            "outcome": done,
            "reason": "seen on disk",
        },
    )
    page = shown(store, "/items/assets/A")
    assert "'disk' confirmed, the last stage, by local: seen on disk" in seen(page)
    assert f'href="/acts/{told.body["id"]}"' in page
    assert 'answer { "volume": "disk-7" }' in seen(page)


def test_a_confirmation_is_shown_with_what_it_said_and_so_is_one_that_came_second(
    store: LiveServer,
) -> None:
    store.milepost.submit("assets", {"id": "A"})
    store.work()
    store.call(
        "POST",
        "/api/v1/routes/assets/confirmations",
        {"key": "A", "stage": "disk", "value": {"volume": "first"}},
    )
    assert (
        store.call(
            "POST",
            "/api/v1/routes/assets/confirmations",
            {"key": "A", "stage": "disk", "value": {"volume": "second"}},
        ).status
        == 409
    )
    text = seen(shown(store, "/items/assets/A"))
    assert 'by local answer { "volume": "first" }' in text
    assert (
        'noted, by local answer { "for": "disk", "differs": { "type": "done", "output": { "volume": "second" } } }'
        in text
    )
    told = store.call("GET", "/api/v1/routes/assets/story/A").body["happened"][-1]["text"]
    assert told.startswith('noted: {"for":"disk","differs":')


def test_what_a_confirmation_said_is_not_taken_from_a_later_one(tmp_path: Path) -> None:
    route = mp.Route("assets", key="id")
    route.external("disk")
    route.external("tape")
    with running_server(tmp_path, route) as store:
        store.milepost.submit("assets", {"id": "A"})
        confirmations = "/api/v1/routes/assets/confirmations"
        store.call(
            "POST", confirmations, {"key": "A", "stage": "disk", "value": {"volume": "first"}}
        )
        store.call(
            "POST", ACTS, {"verb": "retry", "keys": ["A"], "stage": "disk", "reason": "it was lost"}
        )
        store.call(
            "POST", confirmations, {"key": "A", "stage": "disk", "value": {"volume": "second"}}
        )
        text = seen(shown(store, "/items/assets/A"))
    happened = text.partition("What happened")[2].partition("Content")[0]
    assert happened.count("'disk' confirmed") == 2
    assert happened.count('{ "volume": "second" }') == 1


def test_large_numbers_keep_their_digits(store: LiveServer) -> None:
    body = b'{"id": "A", "n": 12345678901234567890123}'
    assert (
        store.call(
            "POST",
            "/api/v1/routes/assets/items",
            body,
            headers={"Content-Type": "application/json"},
        ).status
        == 201
    )
    store.work()
    page = seen(shown(store, "/items/assets/A"))
    assert page.count('"n": 12345678901234567890123') == 2, (
        "as its input, and in the form for another like it"
    )
    assert '"bytes": 98765432109876543210' in page


def test_what_a_stage_works_on_is_shown_where_it_is_nothing_else(tmp_path: Path) -> None:
    route = mp.Route("assets", key="id")
    route.stage("split")(lambda item: mp.Done({"parts": 2}, payload={"part": 1}))
    route.external("disk")
    with running_server(tmp_path, route) as store:
        store.milepost.submit("assets", {"id": "A"})
        assert "works on" not in seen(shown(store, "/items/assets/A")), "it works on its input"
        store.work()
        assert 'What disk works on { "part": 1 }' in seen(shown(store, "/items/assets/A"))


@pytest.mark.parametrize(
    ("scopes", "verbs", "another"),
    [
        (["read"], [], False),
        (["read", "operate"], ["resend", "confirm", "skip", "cancel", "replace", "back"], False),
        (["read", "submit"], [], True),
    ],
)
def test_nobody_is_offered_what_their_key_does_not_allow(
    store: LiveServer, scopes: list[str], verbs: list[str], another: bool
) -> None:
    store.milepost.submit("assets", {"id": "A"})
    store.work()
    _, key = make_key(store.ctx, "state", scopes, by="ops", reason="a test")
    page = shown(store, "/items/assets/A", key=key)
    assert re.findall(r'data-verb="(\w+)"', page) == verbs
    assert (
        "Resend… Offers the stage again now: to its partner, or to Milepost's own workers"
        in seen(page)
    ) is ("resend" in verbs)
    assert ("data-another" in page) is another


def test_what_is_through_can_neither_be_sent_back_nor_confirmed(store: LiveServer) -> None:
    store.milepost.submit("assets", {"id": "A"})
    store.work()
    store.call(
        "POST", "/api/v1/routes/assets/confirmations", {"key": "A", "stage": "disk", "value": True}
    )
    page = shown(store, "/items/assets/A")
    assert re.findall(r'data-verb="(\w+)"', page) == ["rerun"]


def test_the_list_it_came_from_is_one_click_away(store: LiveServer) -> None:
    report = store.call(
        "POST",
        "/api/v1/routes/assets/items?name=march.txt",
        b"A\n",
        headers={"Content-Type": "text/plain"},
    ).body
    assert f'<a href="/lists/{report["id"]}">march.txt</a>' in shown(store, "/items/assets/A")


def test_a_history_that_was_changed_is_said_to_be_broken_and_where(
    store: LiveServer, tmp_path: Path
) -> None:
    store.milepost.submit("assets", {"id": "A"})
    store.work()
    with sqlite3.connect(tmp_path / "ledger.db") as connection:
        connection.execute(
            "UPDATE history SET body = CAST(replace(CAST(body AS TEXT), 'advanced', 'confirmed') AS BLOB)"
        )
    text = seen(shown(store, "/items/assets/A"))
    assert "broken the history has been changed: the chain is broken" in text
    assert "whole" not in text


def test_a_forgotten_item_is_shown_without_a_digest_of_its_input(store: LiveServer) -> None:
    store.milepost.submit("assets", {"id": "a/b"})
    store.call(
        "POST",
        "/api/v1/routes/assets/acts",
        {"verb": "cancel", "keys": ["a/b"], "reason": "asked by letter"},
    )
    store.milepost.forget("assets", "a/b", by="ops", reason="asked by letter")
    text = seen(shown(store, "/items/assets/a%2Fb"))
    assert "Its content was removed by 'milepost forget'" in text
    assert "Digest of its input" not in text


def test_an_item_whose_row_has_left_is_told_from_its_seal(store: LiveServer) -> None:
    store.milepost.submit("assets", {"id": "a/b"})
    store.work()
    store.call(
        "POST",
        "/api/v1/routes/assets/confirmations",
        {"key": "a/b", "stage": "disk", "value": True},
    )
    head = store.call("GET", "/api/v1/routes/assets/items/a%2Fb").body["chain"]["head"]
    store.milepost.submit("assets", {"id": "newer"})
    prune(store.ctx, "assets", 0, by="ops", reason="a test")
    page = shown(store, "/items/assets/a%2Fb")
    assert "sealed Its row has left." in seen(page)
    assert "Only its seal is kept." in seen(page)
    assert head in page
    assert 'href="/api/v1/routes/assets/evidence/a%2Fb"' in page


def test_a_key_that_is_not_there_leads_to_those_that_begin_like_it(store: LiveServer) -> None:
    store.milepost.submit("assets", *({"id": f"TNA-2026-{number}"} for number in range(12)))
    store.milepost.submit("others", {"id": "TNA-2026-77"})
    page = shown(store, "/items/assets/TNA-2026-77", status=404)
    assert "There is no such item on assets" in seen(page)
    assert 'There is one on <a href="/items/others/TNA-2026-77">others</a>' in page
    assert (
        re.findall(r'<a href="/items/assets/([^"?]*)">TNA', page)
        == sorted(f"TNA-2026-{number}" for number in range(12))[:10]
    )
    assert "No key on assets begins like it." in seen(
        shown(store, "/items/assets/quite%20another", status=404)
    )


def test_a_key_for_one_route_is_told_nothing_of_another(store: LiveServer) -> None:
    store.milepost.submit("others", {"id": "X-1"})
    _, key = make_key(store.ctx, "state", ["read"], by="ops", reason="a test", routes=["assets"])
    assert "others" not in shown(store, "/items/assets/X-1", status=404, key=key)
    assert store.call("GET", "/items/others/X-1", key=key).status == 404
    assert (
        store.call("GET", "/api/v1/routes/others/evidence/X-1", key=key).body["code"]
        == "unknown-route"
    )


def test_markup_stays_text_wherever_it_comes_from(store: LiveServer) -> None:
    name = quote(MARKUP, safe="")
    body = json.dumps({"id": MARKUP, "fetch": MARKUP}).encode()
    taken = store.call(
        "POST",
        f"/api/v1/routes/assets/items?name={name}",
        body,
        headers={"Content-Type": "application/x-ndjson"},
    )
    assert taken.body["counts"]["new"] == 1
    store.work()
    store.call("POST", ACTS, {"verb": "cancel", "keys": [MARKUP], "reason": MARKUP})
    for path, status in (
        (f"/items/assets/{name}", 200),
        (f"/items/others/{name}", 404),
        (f"/lists/{taken.body['id']}", 200),
        ("/lists", 200),
    ):
        page = shown(store, path, status=status)
        assert "<img" not in page
        assert "&lt;img" in page


def test_a_key_that_is_not_found_is_not_said_to_be_new(live_server: LiveServer) -> None:
    """A route may have forgotten it, and the search compares the beginning of keys alone."""
    for path in ("/items/parcels/nope", "/find?q=nope", "/items?q=nope"):
        answer = live_server.call("GET", path)
        assert "never submitted" not in answer.raw.decode()
    assert "Whether it was ever submitted cannot be told from that" in seen(
        live_server.call("GET", "/items/parcels/nope").raw.decode()
    )
