"""Items over HTTP: submit, read, history and story."""

from __future__ import annotations

import json
import re
import threading
from pathlib import Path
from urllib.parse import quote

import pytest
from tests.http.live_server import LiveServer, running_server

import milepost as mp

ITEMS = "/api/v1/routes/parcels/items"
ONE = "/api/v1/routes/parcels"


def test_a_new_item_is_answered_201_and_again_200(live_server: LiveServer) -> None:
    first, again = (
        live_server.call("POST", ITEMS, {"id": "a"}),
        live_server.call("POST", ITEMS, {"id": "a"}),
    )
    assert (first.status, first.body["answer"]) == (201, "new")
    assert (again.status, again.body["answer"]) == (200, "known")
    assert live_server.milepost.show("parcels", "a") is not None


def test_a_known_key_with_other_content_is_a_conflict_and_changes_nothing(
    live_server: LiveServer,
) -> None:
    live_server.call("POST", ITEMS, {"id": "a", "n": 1})
    answer = live_server.call("POST", ITEMS, {"id": "a", "n": 2})
    assert (answer.status, answer.body["code"], answer.body["key"]) == (409, "conflict", "a")
    assert answer.headers["content-type"] == "application/problem+json"
    shown = live_server.milepost.show("parcels", "a")
    assert shown is not None
    assert shown["input"] == {"id": "a", "n": 1}


def test_several_items_have_a_receipt_each_in_their_order(live_server: LiveServer) -> None:
    answer = live_server.call("POST", ITEMS, [{"id": "a"}, {"no": "key"}, {"id": "a"}, {"id": "b"}])
    assert [receipt["answer"] for receipt in answer.body["receipts"]] == [
        "new",
        "malformed",
        "known",
        "new",
    ]


def test_more_items_than_one_call_may_hold_are_refused_whole(live_server: LiveServer) -> None:
    answer = live_server.call("POST", ITEMS, [{"id": str(n)} for n in range(10_001)])
    assert (answer.status, answer.body["code"]) == (400, "wrong-value")
    assert live_server.milepost.show("parcels", "0") is None


def test_submits_at_the_same_time_are_all_recorded(live_server: LiveServer) -> None:
    answers: list[int] = []

    def hand_over(worker: int) -> None:
        answers.extend(
            live_server.call("POST", ITEMS, {"id": f"{worker}-{n}"}).status for n in range(10)
        )

    threads = [threading.Thread(target=hand_over, args=(worker,)) for worker in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [201] * 80
    assert live_server.milepost.status()["routes"]["parcels"]["total"] == 80


def test_any_key_can_be_asked_for(live_server: LiveServer) -> None:
    for key in ("a/b", "a#1", "ä ö", "100%", "a?b=c", "a//b", ".", "a%2Fb"):
        live_server.call("POST", ITEMS, {"id": key})
        for what in ("items", "history", "story"):
            answer = live_server.call("GET", f"{ONE}/{what}/{quote(key, safe='')}")
            assert (answer.status, answer.body["key"]) == (200, key)


def test_the_history_and_the_story_of_an_item_are_told(live_server: LiveServer) -> None:
    live_server.call("POST", ITEMS, {"id": "a"})
    live_server.work()
    history = live_server.call("GET", f"{ONE}/history/a").body
    assert [line["reason"] for line in history["history"]] == ["accepted", "advanced"]
    assert history["chain"]["verified"] is True
    told = live_server.call("GET", f"{ONE}/story/a").body
    assert "'deliver' (stage 2 of 2)" in told["where"]
    assert re.search(r"\(\d{4}-\d\d-\d\dT[\d:.]+Z\)", told["where"]), (
        "a moment that means the same everywhere"
    )
    assert [moment["text"].split()[0] for moment in told["happened"]] == ["accepted", "'weigh'"]


@pytest.mark.parametrize("what", ["items", "history", "story"])
def test_an_item_that_was_never_seen_is_not_found(shared_server: LiveServer, what: str) -> None:
    answer = shared_server.call("GET", f"{ONE}/{what}/nobody")
    assert (answer.status, answer.body["code"], answer.body["field"]) == (
        404,
        "unknown-item",
        "key",
    )
    answer = shared_server.call("GET", f"/api/v1/routes/nowhere/{what}/a")
    assert (answer.status, answer.body["code"]) == (404, "unknown-route")


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b'{"id"', 400, "malformed"),
        (b"", 400, "malformed"),
        (b"7", 400, "wrong-value"),
        (b"null", 400, "wrong-value"),
        (b"\xff\xfe", 400, "malformed"),
        (b'{"n": 1}', 422, "malformed-item"),
        (b'{"id": ["a"]}', 422, "malformed-item"),
        (b'{"id": "a", "n": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", 400, "malformed"),
        (b"[" * 100_000, 400, "wrong-value"),
        (b'{"id": "a", "n": "' + b"x" * (1 << 20) + b'"}', 413, "too-large"),
    ],
)
def test_a_body_that_cannot_be_taken_is_refused_and_says_why(
    shared_server: LiveServer, body: bytes, status: int, code: str
) -> None:
    answer = shared_server.call("POST", ITEMS, body, headers={"Content-Type": "application/json"})
    assert (answer.status, answer.body["code"]) == (status, code), answer
    assert shared_server.milepost.status()["routes"]["parcels"]["total"] == 0


@pytest.mark.parametrize(
    ("item", "detail"),
    [({}, "missing"), ({"id": ""}, "empty"), ({"id": True}, "bool"), ({"id": "\0"}, "control")],
)
def test_an_item_that_cannot_be_taken_in_says_which_field_and_what_would_be_right(
    shared_server: LiveServer, item: dict[str, object], detail: str
) -> None:
    right = "text of 1 to 1,024 characters, or a whole number"
    told = shared_server.call("POST", ITEMS, item).body
    assert (told["code"], told["field"], told["expected"]) == ("malformed-item", "id", right)
    assert detail in told["detail"]
    [receipt] = shared_server.call("POST", ITEMS, [item]).body["receipts"]
    assert (receipt["answer"], receipt["field"], receipt["expected"]) == ("malformed", "id", right)


@pytest.mark.parametrize("depth", [100, 400, 900])
def test_a_nested_item_is_taken_in_or_refused_and_never_breaks_anything(
    live_server: LiveServer, depth: int
) -> None:
    nested = b'{"id": "a", "n": ' + b"[" * depth + b"]" * depth + b"}"
    answer = live_server.call("POST", ITEMS, nested, headers={"Content-Type": "application/json"})
    assert answer.status in (201, 400, 422), answer
    if answer.status == 201:
        assert live_server.call("GET", f"{ONE}/items/a").body["input"] == json.loads(nested)


@pytest.mark.parametrize(
    "kind", [None, "application/xml", "multipart/form-data; boundary=x", "application/json2"]
)
def test_a_body_of_another_type_is_refused(shared_server: LiveServer, kind: str | None) -> None:
    answer = shared_server.call(
        "POST", ITEMS, b"{}", headers={} if kind is None else {"Content-Type": kind}
    )
    assert (answer.status, answer.body["code"], answer.body["field"]) == (
        415,
        "wrong-type",
        "Content-Type",
    )


def test_what_is_for_lists_alone_is_refused_for_an_item(live_server: LiveServer) -> None:
    answer = live_server.call("POST", f"{ITEMS}?dry_run=true", {"id": "a"})
    assert (answer.status, answer.body["field"]) == (400, "Content-Type")
    assert live_server.milepost.show("parcels", "a") is None


def test_nothing_can_be_handed_over_to_the_route_of_the_daily_heads(tmp_path: Path) -> None:
    route = mp.Route("parcels", key="id", evidence=True)
    route.external("deliver")
    with running_server(tmp_path, route) as live_server:
        heads = "/api/v1/routes/heads/items"
        given = (
            ({"day": "2026-01-01"}, None),
            ([{"day": "2026-01-01"}], None),
            (b'{"day": "2026-01-01"}\n', {"Content-Type": "application/x-ndjson"}),
        )
        for body, headers in given:
            refused = live_server.call("POST", heads, body, headers=headers)
            assert (refused.status, refused.body["code"]) == (400, "wrong-value")
            assert "route 'heads' accepts no items" in refused.body["detail"]
        assert live_server.call("GET", heads).body["items"] == []
        assert live_server.call("GET", "/api/v1/lists").body["lists"] == []
        assert live_server.call("POST", ITEMS, {"id": "a"}).status == 201, "its neighbours go on"
