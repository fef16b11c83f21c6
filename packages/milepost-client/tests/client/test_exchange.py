"""Conversation of a client with the service, without I/O: repeats, pauses and what answers mean."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import milepost_net as net
from milepost_client import (
    ClientUsageError,
    MessageNotAccepted,
    MessageReceipt,
    MessageRefused,
    MessageUnknown,
    RetryPolicy,
)
from milepost_client.exchange import (
    GivenMessage,
    HttpCall,
    RetryPause,
    checked_message,
    reading,
    sending,
)

NOW = datetime(2026, 1, 31, 8, tzinfo=UTC)
ACCEPTED = {
    "messageId": "m-1",
    "duplicateDetected": False,
    "requestId": "r-1",
    "storedMessage": {"status": "QUEUED"},
}
DUPLICATE = {
    "messageId": "m-1",
    "duplicateDetected": True,
    "requestId": "r-1",
    "status": "COMPLETED",
}


def message(**fields: Any) -> Any:
    usual = {
        "target_url": "https://crm.example/a", "body": {"paid": True}, "sender_id": "shop", "message_id": "m-1", "timestamp": NOW,
        "method": "POST", "headers": None, "deliver_at": None,
    }  # fmt: skip
    return checked_message(GivenMessage(**{**usual, **fields}), 1000, NOW)


def answer(status: int, body: Any = None, **headers: str) -> net.Response:
    data = b"<html>" if body is None else json.dumps(body).encode()
    return net.Response(
        status,
        net.HeaderList([(name.replace("_", "-"), value) for name, value in headers.items()]),
        data,
        len(data),
    )


EVEN = RetryPolicy(jitter=0)


class Talk:
    """Carries out a conversation with given results; remembers the steps."""

    def __init__(self, policy: RetryPolicy = EVEN, *, read: bool = False) -> None:
        self.now, self.calls, self.pauses = 0.0, list[HttpCall](), list[float]()
        if read:
            self.steps: Any = reading("m-1#shop", policy, lambda: self.now, lambda: 0.5)
        else:
            checked, data = message()
            self.steps = sending(checked, data, "c-1", policy, lambda: self.now, lambda: 0.5)

    def run(self, *results: Any) -> Any:
        left = list(results)
        step = next(self.steps)
        try:
            while True:
                if isinstance(step, HttpCall):
                    self.calls.append(step)
                    step = self.steps.send(left.pop(0))
                else:
                    assert isinstance(step, RetryPause)
                    self.pauses.append(step.seconds)
                    self.now += step.seconds
                    step = self.steps.send(None)
        except StopIteration as end:
            assert not left
            return end.value


LOST = net.NoAnswer("crm: no answer", kind="timeout", sent=net.SendState.MAYBE_SENT)
DOWN = net.ConnectFailed("crm: refused", kind="connection-refused")


def test_an_accepted_message_has_a_receipt() -> None:
    talk = Talk()
    receipt: MessageReceipt = talk.run(answer(200, ACCEPTED))
    assert (receipt.status, receipt.duplicate, receipt.request_id, receipt.tries) == (
        "QUEUED",
        False,
        "r-1",
        1,
    )
    assert receipt.key == "m-1#shop#2026-01-31T08:00:00.000Z#https://crm.example/a"
    [call] = talk.calls
    assert (call.method, call.path, call.headers["X-Correlation-ID"]) == ("POST", "/message", "c-1")
    assert json.loads(call.body or b"") == {
        "messageId": "m-1", "timestamp": "2026-01-31T08:00:00.000Z", "senderId": "shop", "targetUrl": "https://crm.example/a",
        "method": "POST", "headers": {}, "body": {"paid": True},
    }  # fmt: skip


def test_every_try_is_the_same_request() -> None:
    talk = Talk()
    receipt = talk.run(
        DOWN, LOST, answer(503, {"message": "later"}), answer(502), answer(200, DUPLICATE)
    )
    assert len(talk.calls) == 5
    assert len(set(map(repr, talk.calls))) == 1
    assert talk.pauses == [0.5, 1.0, 2.0, 4.0]
    assert (receipt.duplicate, receipt.status, receipt.tries) == (True, "COMPLETED", 5)


def test_retry_after_is_a_floor_and_too_long_a_one_ends_it() -> None:
    talk = Talk()
    talk.run(answer(429, {"message": "too often"}, Retry_After="7"), answer(200, ACCEPTED))
    assert talk.pauses == [7.0]
    with pytest.raises(MessageNotAccepted, match="503") as caught:
        Talk(RetryPolicy(within=60)).run(answer(503, None, Retry_After="3600"))
    assert (caught.value.tries, caught.value.status, caught.value.unknown) == (1, 503, True)


@pytest.mark.parametrize(
    ("last", "unknown"), [(DOWN, False), (LOST, True), (answer(500), True), (answer(429), False)]
)
def test_what_stays_wrong_is_said_with_whether_it_may_have_been_accepted(
    last: Any, unknown: bool
) -> None:
    with pytest.raises(MessageNotAccepted) as caught:
        Talk(RetryPolicy(attempts=3)).run(last, last, last)
    assert (caught.value.tries, caught.value.unknown) == (3, unknown)
    assert ("may have been accepted" in str(caught.value)) == unknown
    assert "after 3 tries" in str(caught.value)


@pytest.mark.parametrize(
    ("status", "body", "code"),
    [
        (400, {"error": "VALIDATION_ERROR", "message": "Invalid targetUrl: …"}, "VALIDATION_ERROR"),
        (409, {"error": "IDEMPOTENCY_CONFLICT", "message": "another body"}, "IDEMPOTENCY_CONFLICT"),
        (413, {"error": "PAYLOAD_TOO_LARGE", "message": "too large"}, "PAYLOAD_TOO_LARGE"),
        (401, {"error": "UNAUTHORIZED", "message": "a key is needed"}, "UNAUTHORIZED"),
        (404, None, "HTTP_404"),
        (302, None, "HTTP_302"),
    ],
)
def test_a_refusal_is_not_repeated(status: int, body: Any, code: str) -> None:
    with pytest.raises(MessageRefused) as caught:
        Talk().run(answer(status, body))
    assert (caught.value.status, caught.value.code) == (status, code)


def test_an_answer_of_another_server_is_no_receipt() -> None:
    with pytest.raises(MessageNotAccepted, match="is the URL right"):
        Talk(RetryPolicy(attempts=2)).run(answer(200, {"ok": True}), answer(200))


def test_a_request_that_cannot_be_sent_is_raised_at_once() -> None:
    with pytest.raises(net.AddressRefused):
        Talk().run(net.AddressRefused("refused", kind="address-refused"))


@pytest.mark.parametrize(
    ("counts", "expected"),
    [({"attempts": 2, "tries": 3}, (2, 3)), ({"attempts": 3}, (3, 3)), ({}, (0, 0))],
)
def test_tries_are_read_also_from_a_service_that_names_them_attempts(
    counts: dict[str, int], expected: tuple[int, int]
) -> None:
    state = Talk(read=True).run(answer(200, {"key": "m-1#shop", "status": "COMPLETED", **counts}))
    assert (state.attempts, state.tries) == expected


def test_a_message_is_read_back() -> None:
    talk = Talk(read=True)
    record = {
        "key": "m-1#shop",
        "status": "RETRY_SCHEDULED",
        "attempts": 2,
        "nextRetryAt": "2026-01-31T08:00:05.000Z",
        "requestId": "r-1",
    }
    state = talk.run(answer(503), answer(200, record))
    assert (state.status, state.attempts, state.next_retry_at, state.ended, state.delivered) == (
        "RETRY_SCHEDULED", 2, "2026-01-31T08:00:05.000Z", False, False,
    )  # fmt: skip
    assert talk.calls[0].path == "/api/v1/notifications/messages/m-1%23shop"
    with pytest.raises(MessageUnknown):
        Talk(read=True).run(answer(404, {"detail": "there is no message"}))
    with pytest.raises(MessageRefused):
        Talk(read=True).run(answer(403, {"detail": "scope"}))


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"sender_id": None}, ClientUsageError),
        ({"timestamp": None}, ClientUsageError),
        ({"timestamp": datetime(2026, 1, 1)}, ClientUsageError),
        ({"target_url": "ftp://crm.example"}, MessageRefused),
        ({"method": "BREW"}, MessageRefused),
        ({"headers": {"Host": "x"}}, MessageRefused),
        ({"body": "x" * 1001}, MessageRefused),
        ({"body": {"a": float("inf")}}, MessageRefused),
        ({"body": "\ud800"}, MessageRefused),
    ],
)
def test_what_the_service_would_refuse_is_refused_before_it_is_sent(
    fields: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        message(**fields)


def test_without_an_id_each_message_has_a_new_one() -> None:
    (one, _), (other, _) = (message(message_id=None, timestamp=None) for _ in range(2))
    assert one.message_id != other.message_id
    assert one.content["timestamp"] == "2026-01-31T08:00:00.000Z"


@given(st.integers(1, 100), st.floats(0, 1), st.floats(0, 100))
def test_pauses_stay_within_their_bounds(tries: int, chance: float, floor: float) -> None:
    policy = RetryPolicy()
    pause = policy.pause(tries, chance, floor)
    assert floor <= pause <= max(floor, policy.cap * (1 + policy.jitter))
    assert policy.pause(tries, chance) >= policy.base * (1 - policy.jitter)


@pytest.mark.parametrize(
    "fields", [{"attempts": 0}, {"base": -1}, {"cap": 0.1}, {"jitter": 2}, {"within": -1}]
)
def test_a_policy_that_cannot_be_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ClientUsageError):
        RetryPolicy(**fields)
