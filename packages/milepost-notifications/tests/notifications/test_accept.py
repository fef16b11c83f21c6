"""POST /message: fields and their order, answers and errors in the seed's shape, over real HTTP."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.http.live_server import HttpAnswer
from tests.http.state.test_submit_batches import item_commits, store_of, written_to
from tests.notifications.partners import (
    ROUTE,
    Partner,
    Service,
    VirtualClock,
    answers,
    key_of,
    message,
    service,
)
from tests.polling import wait_until

from milepost.core.errors import LedgerError
from milepost.engine.auth import make_key
from milepost_client import MessageRefused
from milepost_notifications.operate.messages import read_message

HOOK = "https://partner.example/hook"
ACCEPTED = {
    "message", "requestId", "timestamp", "duplicateDetected", "stored", "queued", "statusUpdated", "messageId", "storedMessage",
}  # fmt: skip
STORED = {"messageId", "senderId", "status", "attempts", "ttl", "createdAt"}


@pytest.fixture(scope="module")
def at() -> Iterator[Service]:
    with service() as opened:
        yield opened


def read(**fields: Any) -> dict[str, Any]:
    """The content that is stored of a message with these fields."""
    return read_message(json.dumps(message(HOOK, **fields)).encode(), 262_144).content


def refusal(**fields: Any) -> str:
    with pytest.raises(MessageRefused) as caught:
        read(**fields)
    assert caught.value.code == "VALIDATION_ERROR"
    return caught.value.text


def test_s01_a_valid_message_is_accepted_and_its_exact_bytes_are_delivered(at: Service) -> None:
    with Partner(answers(204)) as partner:
        body = '{"b": 1,\n "a": "ä€𝄞"}'
        sent = message(
            f"{partner.url}a/b?c=%20d",
            messageId="s01",
            method="PATCH",
            headers={"X-One": "1", "Content-Type": "x/y"},
            body=body,
        )
        answer = at.post(sent, headers={"X-Correlation-ID": "trace-1"})
        assert (answer.status, answer.body.keys(), answer.body["storedMessage"].keys()) == (
            200,
            ACCEPTED,
            STORED,
        )
        assert (answer.body["requestId"], answer.headers["x-correlation-id"]) == (
            "trace-1",
            "trace-1",
        )
        stored = answer.body["storedMessage"]
        assert (stored["status"], stored["attempts"], answer.body["queued"]) == ("QUEUED", 0, True)
        item = at.item(sent)
        assert (stored["createdAt"], item["status"], item["correlation_id"]) == (
            item["created_at"],
            "QUEUED",
            "trace-1",
        )
        at.work()
        [request] = partner.requests
        assert request.line == "PATCH /a/b?c=%20d HTTP/1.1"
        assert request.body == body.encode()
        assert (request.headers["x-one"], request.headers["content-type"]) == ("1", "x/y")


@pytest.mark.parametrize("field", ["messageId", "timestamp", "senderId", "targetUrl"])
def test_s02_a_missing_field_is_named_and_nothing_is_stored(at: Service, field: str) -> None:
    before = at.milepost.status()["routes"][ROUTE]["total"]
    sent = message(HOOK, messageId="s02")
    del sent[field]
    answer = at.post(sent)
    assert (answer.status, answer.body.keys()) == (
        400,
        {"error", "message", "timestamp", "requestId"},
    )
    assert (answer.body["error"], answer.body["message"]) == (
        "VALIDATION_ERROR",
        f"Missing required field: {field}",
    )
    assert answer.body["requestId"] == answer.headers["x-correlation-id"]
    assert at.milepost.status()["routes"][ROUTE]["total"] == before


def test_s02_the_first_missing_field_wins_and_missing_ones_win_over_wrong_ones() -> None:
    with pytest.raises(MessageRefused, match="Missing required field: messageId"):
        read_message(b"{}", 1)
    with pytest.raises(MessageRefused, match="Missing required field: targetUrl"):
        read_message(b'{"messageId": 1, "timestamp": "x", "senderId": 2}', 1)
    wrong: dict[str, Any] = {
        "messageId": 1,
        "timestamp": "x",
        "senderId": 2,
        "targetUrl": "ftp://a",
        "method": "BREW",
        "headers": [],
        "body": 1,
    }
    for field in ("messageId", "timestamp", "senderId", "targetUrl", "method", "headers", "body"):
        with pytest.raises(MessageRefused, match=f"^Invalid {field}: "):
            read_message(json.dumps(wrong).encode(), 1)
        wrong[field] = message(HOOK, method="POST", headers={}).get(field)


@pytest.mark.parametrize(
    "body", [b"{", b"", b"[]", b'"text"', b"7", b"null", b"[" * 5000, b"\xff{}"]
)
def test_s03_bad_json_and_json_that_is_no_object_are_refused(at: Service, body: bytes) -> None:
    answer = at.post(body)
    assert (answer.status, answer.body["error"]) == (400, "INVALID_JSON")


@pytest.mark.parametrize(
    ("more", "name"),
    [
        (', "senderId": "shop"', "senderId"),
        (', "headers": {"X-Colour": "red", "X-Colour": "blue"}', "X-Colour"),
        (', "body": {"a": [{"b": 1, "b": 1}]}', "b"),
    ],
)
def test_json_that_gives_a_name_twice_is_refused(at: Service, more: str, name: str) -> None:
    sent = message(HOOK, messageId="twice")
    answer = at.post(json.dumps(sent)[:-1].encode() + more.encode() + b"}")
    assert (answer.status, answer.body["error"], answer.body["message"]) == (
        400,
        "INVALID_JSON",
        f"Request body gives the name '{name}' twice",
    )
    assert at.milepost.show(ROUTE, key_of(sent)) is None


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        ("2023-12-28T12:00:00Z", "2023-12-28T12:00:00.000Z"),
        ("2023-12-28T12:00:00+08:00", "2023-12-28T04:00:00.000Z"),
        ("2023-12-28T12:00:00.123456Z", "2023-12-28T12:00:00.123Z"),
        ("2023-12-28t12:00:00.5z", "2023-12-28T12:00:00.500Z"),
    ],
)
def test_s04_timestamps_with_offsets_and_fractions_are_normalised(given: str, stored: str) -> None:
    assert read(timestamp=given)["timestamp"] == stored


@pytest.mark.parametrize(
    "given",
    [
        "yesterday",
        "2023-02-30T00:00:00Z",
        "2023-12-28",
        "2023-12-28T12:00:00",
        1700000000,
        "0001-01-01T00:00:00+14:00",
    ],
)
def test_s04_other_timestamps_are_refused(given: Any) -> None:
    assert refusal(timestamp=given).startswith("Invalid timestamp: ")


def test_a_day_that_the_calendar_does_not_have_is_named() -> None:
    assert (
        refusal(timestamp="2026-02-30T08:00:00Z") == "Invalid timestamp: there is no day 2026-02-30"
    )
    assert (
        refusal(deliverAt="2026-02-30T08:00:00Z") == "Invalid deliverAt: there is no day 2026-02-30"
    )
    assert refusal(timestamp="2026-02-28T25:00:00Z").startswith(
        "Invalid timestamp: must be an ISO 8601 time"
    )


@pytest.mark.parametrize(
    "url",
    ["file:///etc/passwd", "ftp://a.example/", "javascript:alert(1)", "https://user:pass@a.example/", "https:///path", "http://", "//a.example",
     "https://a.example/\n", "https://a.example/a b", "https://a.example/\x00", "https://exa mple/", f"https://a.example/{'x' * 2000}", 7],
)  # fmt: skip
def test_s05_only_http_urls_with_a_host_are_targets(url: Any) -> None:
    assert refusal(targetUrl=url).startswith("Invalid targetUrl: ")


@pytest.mark.parametrize(
    ("headers", "rule"),
    [
        (None, "must be an object"),
        ([], "must be an object"),
        ({"a b": "x"}, "header name 'a b'"),
        ({"X-A": "x\r\nX-B: y"}, "header X-A is not one line"),
        ({"X-A": 7}, "header X-A is not one line"),
        ({"Host": "a"}, "header Host is set by the client"),
        ({"content-length": "3"}, "header content-length is set by the client"),
        ({"Transfer-Encoding": "chunked"}, "header Transfer-Encoding is set by the client"),
        ({"Connection": "x"}, "header Connection is set by the client"),
        ({"Proxy-Authorization": "Basic x"}, "proxy-authorization is for a proxy"),
    ],
)
def test_s06_wrong_headers_are_refused_with_field_and_rule(
    at: Service, headers: Any, rule: str
) -> None:
    answer = at.post({**message(HOOK, messageId="s06"), "headers": headers})
    assert (answer.status, answer.body["error"]) == (400, "VALIDATION_ERROR")
    assert answer.body["message"].startswith("Invalid headers: ")
    assert rule in answer.body["message"]


def test_s06_names_that_differ_in_case_are_one_header() -> None:
    assert read(headers={"x-a": "1", "X-A": "2"})["headers"] == {
        "X-A": "2",
        "Content-Type": "application/json",
    }


def test_s06_headers_that_each_delivery_sets_cannot_be_given() -> None:
    given = {
        "X-Message-ID": "other",
        "x-correlation-id": "other",
        "Webhook-Signature": "v1,x",
        "webhook-id": "other",
    }
    assert read(headers=given, body=None)["headers"] == {}


@pytest.mark.parametrize(
    ("method", "said"),
    [("BREW", "must be one of"), ("CONNECT", "must be one of"), (7, "must be one of")],
)
def test_other_methods_are_refused(method: Any, said: str) -> None:
    assert said in refusal(method=method)


def test_methods_are_stored_in_capitals_and_get_has_no_body() -> None:
    assert read(method="delete")["method"] == "DELETE"
    assert read(method="get", body=None)["body"] is None
    assert refusal(method="GET", body="x") == "Invalid body: a GET request has none"


@pytest.mark.parametrize(
    ("body", "text", "kind"),
    [({"b": 1, "a": [1.5, None]}, '{"b":1,"a":[1.5,null]}', "application/json"), ('{"a": 1}', '{"a": 1}', "application/json"),
     ("plain", "plain", "text/plain; charset=utf-8"), ([1], "[1]", "application/json")],
)  # fmt: skip
def test_bodies_are_serialised_once_and_have_a_content_type(
    body: Any, text: str, kind: str
) -> None:
    content = read(body=body)
    assert (content["body"], content["headers"]["Content-Type"]) == (text, kind)


def test_s07_262144_bytes_are_accepted_and_one_more_is_413_counted_in_bytes(at: Service) -> None:
    largest = "ä" * 131_072
    assert at.post(message(HOOK, messageId="s07-a", body=largest)).status == 200
    answer = at.post(message(HOOK, messageId="s07-b", body=largest + "x"))
    assert (answer.status, answer.body["error"]) == (413, "PAYLOAD_TOO_LARGE")
    assert "262,145 bytes; at most 262,144" in answer.body["message"]
    # Every character escaped: six bytes of JSON for one of the body.
    assert at.post(message(HOOK, messageId="s07-c", body="\x01" * 262_144)).status == 200
    endless = at.post(b" " * (2 << 20))
    assert (endless.status, endless.body["error"]) == (413, "PAYLOAD_TOO_LARGE")
    assert (
        endless.body["message"]
        == "The request is too large: it may have 1,703,936 bytes, of which the field body at most 262,144"
    )


def test_s08_a_message_that_comes_again_is_a_duplicate_with_its_status(at: Service) -> None:
    with Partner(answers(200)) as partner:
        sent = message(partner.url, messageId="s08")
        assert at.post(sent).body["duplicateDetected"] is False
        again = at.post({**sent, "timestamp": "2026-01-31T09:00:00+01:00"})
        assert (
            again.status,
            again.body["duplicateDetected"],
            again.body["messageId"],
            again.body["status"],
        ) == (
            200,
            True,
            "s08",
            "QUEUED",
        )
        assert again.body.keys() == {
            "message",
            "requestId",
            "timestamp",
            "duplicateDetected",
            "messageId",
            "senderId",
            "status",
        }
        at.work()
        assert at.post(sent).body["status"] == "COMPLETED"
        at.work()
        assert len(partner.requests) == 1


def test_s09_fifty_at_once_make_one_record_and_one_delivery(tmp_path: Path) -> None:
    with Partner(answers(200)) as partner, service(f"sqlite:///{tmp_path / 'n.db'}") as at:
        sent = message(partner.url)
        ready = threading.Barrier(50)

        def post(_: int) -> bool:
            ready.wait(60)
            answer = at.post(sent)
            assert answer.status == 200
            return bool(answer.body["duplicateDetected"])

        with ThreadPoolExecutor(50) as pool:
            duplicates = list(pool.map(post, range(50)))
        assert sorted(duplicates) == [False] + [True] * 49
        at.work()
        assert len(partner.requests) == 1
        assert len(at.milepost.items(ROUTE)) == 1


@pytest.mark.parametrize(
    "change", [{"body": {"paid": False}}, {"method": "PUT"}, {"headers": {"X-A": "b"}}]
)
def test_s10_the_same_key_with_another_request_is_a_conflict_and_the_first_is_delivered(
    at: Service, change: dict[str, Any]
) -> None:
    with Partner(answers(200)) as partner:
        sent = message(partner.url, messageId="s10")
        assert at.post(sent).status == 200
        answer = at.post({**sent, **change})
        assert (answer.status, answer.body["error"]) == (409, "IDEMPOTENCY_CONFLICT")
        at.work()
        [request] = partner.requests
        assert (request.line, request.body) == ("POST / HTTP/1.1", b'{"paid":true}')


def test_s11_parts_of_the_key_are_escaped(at: Service) -> None:
    with Partner(answers(200)) as partner:
        first = message(partner.url, messageId="a#b", senderId="c")
        second = message(partner.url, messageId="a", senderId="b#c")
        third = message(partner.url, messageId="a%23b", senderId="c")
        assert [at.post(one).body["duplicateDetected"] for one in (first, second, third)] == [
            False,
            False,
            False,
        ]
        at.work()
        assert sorted(
            (one.headers["x-message-id"], one.headers["x-sender-id"]) for one in partner.requests
        ) == [
            ("a", "b#c"),
            ("a#b", "c"),
            ("a%23b", "c"),
        ]
        assert len({one.headers["webhook-id"] for one in partner.requests}) == 3


def test_s12_a_store_that_is_down_fails_closed_and_a_later_retry_is_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Partner(answers(200)) as partner, service(f"sqlite:///{tmp_path / 'n.db'}") as at:
        sent = message(partner.url)

        def down(*_: Any) -> Any:
            raise LedgerError(f"cannot write {tmp_path / 'n.db'}: disk I/O error")

        with monkeypatch.context() as patch:
            patch.setattr(at.ctx.ledger, "add", down)
            answer = at.post(sent)
        assert (answer.status, answer.body["error"]) == (503, "SYSTEM_ERROR")
        assert "n.db" not in json.dumps(answer.body)
        assert answer.body["requestId"] == answer.headers["x-correlation-id"]
        at.work()
        assert partner.requests == []
        assert at.post(sent).body["duplicateDetected"] is False
        at.work()
        assert len(partner.requests) == 1


def test_messages_of_several_senders_that_come_together_share_one_commit(tmp_path: Path) -> None:
    with service(f"sqlite:///{tmp_path / 'n.db'}") as at, ThreadPoolExecutor(20) as senders:
        keys = [
            make_key(
                at.ctx,
                f"k{n}",
                ["submit"],
                by="test",
                reason="test",
                attributes={"sender": f"s{n}"},
            )[1]
            for n in range(5)
        ]

        def post(number: int) -> HttpAnswer:
            sent = message(
                HOOK,
                messageId=f"m{number}",
                senderId=f"s{number % 5}",
                deliverAt=["2040-01-01T00:00:00Z", None][number % 2],
            )
            return at.post(sent, key=keys[number % 5], headers={"X-Correlation-ID": f"c{number}"})

        assert {post(number).status for number in range(20, 25)} == {
            200
        }  # the keys are known from here on
        with item_commits(store_of(at)) as commits:
            with written_to(store_of(at)):
                calls = [senders.submit(post, number) for number in range(20)]
                wait_until(lambda: at.ctx.accepts.waiting == 20)
            answers = [call.result() for call in calls]
        assert {answer.status for answer in answers} == {200}
        # The batch of the first that came; all others.
        assert 1 <= len(commits) <= 2
        for number, answer in enumerate(answers):
            item = at.item(message(HOOK, messageId=f"m{number}", senderId=f"s{number % 5}"))
            assert (answer.body["requestId"], item["correlation_id"], item["history"][0]["by"]) == (
                f"c{number}",
                f"c{number}",
                f"k{number % 5}",
            )
            assert (item["not_before"] is None, answer.body["queued"]) == (
                number % 2 == 1,
                number % 2 == 1,
            )


def test_a_message_for_later_is_not_sent_before(tmp_path: Path) -> None:
    clock = VirtualClock()
    with Partner(answers(200)) as partner, service(f"sqlite:///{tmp_path / 'n.db'}", clock) as at:
        sent = message(partner.url)
        later = "2033-11-14T23:13:20.000+00:00"
        answer = at.post({**sent, "deliverAt": later})
        assert (answer.status, answer.body["queued"], answer.body["storedMessage"]["status"]) == (
            200,
            False,
            "PENDING",
        )
        assert (
            at.post({**sent, "deliverAt": "2033-12-01T00:00:00Z"}).body["duplicateDetected"] is True
        )
        at.work()
        assert partner.requests == []
        assert at.item(sent)["not_before"] == "2033-11-14T23:13:20.000Z"
        clock.advance_to(at.next_look(sent) or 0)
        at.work()
        assert len(partner.requests) == 1
        assert (
            at.post({**sent, "deliverAt": "soon"}).body["message"].startswith("Invalid deliverAt: ")
        )


def test_keys_are_asked_for_in_the_seeds_shape(tmp_path: Path) -> None:
    with service(f"sqlite:///{tmp_path / 'n.db'}") as at:
        allowed = make_key(
            at.ctx, "shop", ["submit"], by="test", reason="test", attributes={"sender": "shop"}
        )[1]
        reader = make_key(at.ctx, "reader", ["read"], by="test", reason="test")[1]
        sent = message(HOOK)
        missing, wrong = at.post(sent), at.post(sent, key=reader)
        assert (missing.status, missing.body["error"], missing.headers["www-authenticate"]) == (
            401,
            "UNAUTHORIZED",
            "Bearer",
        )
        assert (wrong.status, wrong.body["error"]) == (403, "FORBIDDEN")
        assert at.post(sent, key=allowed).status == 200


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "PATCH", "DELETE", "TRACE"])
def test_other_methods_of_the_path_are_refused_in_the_seeds_shape(at: Service, method: str) -> None:
    answer = at.call(method, "/message", headers={"X-Correlation-ID": "trace-405"})
    assert (answer.status, answer.headers["allow"]) == (405, "OPTIONS, POST")
    assert answer.headers["content-type"] == "application/json"
    if method != "HEAD":
        assert answer.body.keys() == {"error", "message", "timestamp", "requestId"}
        assert (answer.body["error"], answer.body["requestId"]) == (
            "METHOD_NOT_ALLOWED",
            "trace-405",
        )
        assert (
            answer.body["message"]
            == f"{method} is not possible at /message; expected: OPTIONS, POST"
        )


def test_pages_of_configured_origins_may_call_and_none_by_default(at: Service) -> None:
    asked = {"Origin": "https://shop.example", "Access-Control-Request-Method": "POST"}
    assert (
        "access-control-allow-origin" not in at.call("OPTIONS", "/message", headers=asked).headers
    )
    with service(origins=["https://shop.example"]) as other:
        allowed = other.call("OPTIONS", "/message", headers=asked)
        assert (allowed.status, allowed.headers["access-control-allow-origin"]) == (
            204,
            "https://shop.example",
        )


def test_unregistered_targets_may_be_refused() -> None:
    with service(
        unregistered="refuse", destinations={"crm": {"url": "https://crm.example/v1"}}
    ) as at:
        assert at.post(message("https://crm.example/v1/people")).status == 200
        answer = at.post(message("https://crm.example/v10"))
        assert (answer.status, answer.body["message"]) == (
            400,
            "Invalid targetUrl: it belongs to no destination, and unregistered targets are refused",
        )


def test_headers_that_a_delivery_would_have_no_room_for_are_refused_at_once() -> None:
    with Partner(answers(200)) as partner, service() as at:
        large = {f"X-{number:03d}": "v" * 480 for number in range(100)}
        sent = message(partner.url, headers=large)
        assert at.post(sent).status == 200
        at.work()
        assert at.item(sent)["status"] == "COMPLETED"
        refused = at.post(
            message(partner.url, messageId="m-2", headers={**large, "X-More": "v" * 2_000})
        )
        assert (refused.status, "larger than 49,152 bytes" in refused.body["message"]) == (
            400,
            True,
        )
