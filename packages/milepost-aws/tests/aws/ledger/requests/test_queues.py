"""Queues: batches with an answer for each entry, expired receipts, and unreadable messages."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from tests.standins import REGION

from milepost.core.errors import LedgerBusy, LedgerError, LedgerMissing
from milepost_aws.aws_model import Faults
from milepost_aws.ledger.names import ResourceNames, b64
from milepost_aws.ledger.requests.client import Requests
from milepost_aws.ledger.requests.queues import Outgoing, Queues, SqsMessage

NAMES = ResourceNames("acme")
SEND, DELETE = ("sqs", "send_message_batch"), ("sqs", "delete_message_batch")


@pytest.fixture
def requests(endpoint: str) -> Iterator[Requests]:
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    made = Requests(
        REGION, endpoint, deadline_s=3.0, sleep=sleep, chance=lambda: 1.0, clock=lambda: now[0]
    )
    for name in (NAMES.queue("orders", "send"), NAMES.queue("orders", "bill"), NAMES.quarantine):
        made.call(
            "sqs", "create_queue", QueueName=name, Attributes={"MessageRetentionPeriod": "7200"}
        )
    made.counts.clear()
    yield made
    made.close()


@pytest.fixture
def queues(requests: Requests) -> Queues:
    return Queues(requests, NAMES)


@pytest.fixture
def url(queues: Queues) -> str:
    return queues.url("orders", "send")


@pytest.fixture
def faults(requests: Requests) -> Faults:
    made = Faults()
    made.attach(requests)
    return made


def numbered(url: str, count: int) -> list[Outgoing]:
    return [Outgoing(url, json.dumps({"n": number})) for number in range(count)]


def numbers(messages: list[SqsMessage]) -> list[int]:
    return sorted(message.body["n"] for message in messages)


def quarantined(requests: Requests) -> list[dict[str, Any]]:
    address = requests.call("sqs", "get_queue_url", QueueName=NAMES.quarantine)["QueueUrl"]
    found = requests.call("sqs", "receive_message", QueueUrl=address, MaxNumberOfMessages=10).get(
        "Messages", []
    )
    return [json.loads(message["Body"]) for message in found]


def test_addresses_are_asked_for_once_and_an_own_one_wins(
    queues: Queues, requests: Requests
) -> None:
    first = queues.url("orders", "send")
    assert first.endswith("/acme-orders-send")
    assert queues.url("orders", "send") == first
    assert queues.url("orders", "other", "https://there/queue") == "https://there/queue"
    assert queues.retention_ms(first) == queues.retention_ms(first) == 7_200_000
    assert requests.counts == {("sqs", "get_queue_url"): 1, ("sqs", "get_queue_attributes"): 1}
    with pytest.raises(LedgerMissing, match="acme-orders-none"):
        queues.url("orders", "none")


def test_250_messages_take_25_requests_each_way(
    queues: Queues, requests: Requests, url: str
) -> None:
    assert queues.send(numbered(url, 250)) == [None] * 250
    assert requests.counts[SEND] == 25
    assert queues.depth(url) == (250, 0, 0)
    messages = queues.receive(url, 250, 60)
    assert numbers(messages) == list(range(250))
    assert {message.received for message in messages} == {1}
    assert requests.counts["sqs", "receive_message"] == 25
    assert queues.depth(url) == (0, 250, 0)
    queues.extend(messages, 120)
    assert requests.counts["sqs", "change_message_visibility_batch"] == 25
    queues.delete(messages)
    assert requests.counts[DELETE] == 25
    assert queues.depth(url) == (0, 0, 0)


def test_receiving_stops_at_most_or_when_nothing_comes(
    queues: Queues, requests: Requests, url: str
) -> None:
    queues.send(numbered(url, 23))
    assert len(queues.receive(url, 12, 60)) == 12
    assert requests.counts["sqs", "receive_message"] == 2
    assert len(queues.receive(url, 100, 60)) == 11
    assert queues.receive(url, 10, 60) == []
    assert queues.receive(url, 0, 60) == []


def test_what_is_released_comes_again_at_once(queues: Queues, url: str) -> None:
    queues.send(numbered(url, 3))
    queues.release(queues.receive(url, 3, 600))
    again = queues.receive(url, 3, 600)
    assert numbers(again) == [0, 1, 2]
    assert {message.received for message in again} == {2}


def test_several_queues_delays_and_lanes(queues: Queues, requests: Requests, url: str) -> None:
    other = queues.url("orders", "bill")
    outgoing = [
        Outgoing(one, '{"n":1}', lane=lane)
        for one in (url, other)
        for lane in ("", "tenant-1", "tenant ä", "x" * 200)
    ]
    assert queues.send([*outgoing, Outgoing(other, '{"n":2}', delay_s=5000)]) == [None] * 9
    assert requests.counts[SEND] == 2
    assert queues.depth(url) == (4, 0, 0)
    assert queues.depth(other) == (4, 0, 1)
    found = requests.call(
        "sqs",
        "receive_message",
        QueueUrl=url,
        MaxNumberOfMessages=10,
        MessageSystemAttributeNames=["All"],
    )["Messages"]
    groups = [message["Attributes"].get("MessageGroupId") for message in found]
    hashed = {b64(hashlib.sha256(lane.encode()).digest()) for lane in ("tenant ä", "x" * 200)}
    assert set(groups) == {None, "tenant-1", *hashed}


# One entry among others ---------------------------------------------------------------------------
def test_a_batch_is_split_by_size(queues: Queues, requests: Requests, url: str) -> None:
    assert (
        queues.send(
            [Outgoing(url, json.dumps({"n": number, "fill": "x" * 400_000})) for number in range(5)]
        )
        == [None] * 5
    )
    assert requests.counts[SEND] == 3
    assert numbers(queues.receive(url, 10, 60)) == [0, 1, 2, 3, 4]


def test_what_sqs_will_never_take_is_answered_for_itself(queues: Queues, url: str) -> None:
    outgoing = numbered(url, 10)
    outgoing[2] = Outgoing(url, "")
    outgoing[4] = Outgoing(url, '{"n": "\ufffe"}')
    outgoing[5] = Outgoing(url, '{"n": "\ud800"}')
    outgoing[7] = Outgoing(url, json.dumps({"n": "x" * 1_100_000}))
    answers = queues.send(outgoing)
    assert [number for number, answer in enumerate(answers) if answer is not None] == [2, 4, 5, 7]
    assert "empty" in str(answers[2])
    assert r"'\ufffe' at 7" in str(answers[4])
    assert "BatchRequestTooLong" in str(answers[7])
    assert numbers(queues.receive(url, 10, 60)) == [0, 1, 3, 6, 8, 9]


def test_too_long_for_this_queue_alone(queues: Queues, requests: Requests, url: str) -> None:
    requests.call(
        "sqs", "set_queue_attributes", QueueUrl=url, Attributes={"MaximumMessageSize": "2048"}
    )
    outgoing = numbered(url, 10)
    outgoing[3] = Outgoing(url, json.dumps({"n": "x" * 5000}))
    answers = queues.send(outgoing)
    assert [number for number, answer in enumerate(answers) if answer is not None] == [3]
    assert numbers(queues.receive(url, 10, 60)) == [0, 1, 2, 4, 5, 6, 7, 8, 9]


@pytest.mark.parametrize(("kind", "copies"), [("partial_lost", 1), ("partial", 3)])
def test_an_entry_that_failed_is_sent_again_alone(
    queues: Queues, requests: Requests, faults: Faults, url: str, kind: str, copies: int
) -> None:
    faults.plan("SendMessageBatch", kind, times=2)
    assert queues.send(numbered(url, 10)) == [None] * 10
    assert requests.counts[SEND] == 3
    assert numbers(queues.receive(url, 100, 60)) == [*range(9), *[9] * copies]


def test_an_entry_that_fails_too_long(queues: Queues, faults: Faults, url: str) -> None:
    faults.plan("SendMessageBatch", "partial_lost", times=100)
    with pytest.raises(
        LedgerBusy,
        match=r"send_message_batch of .*acme-orders-send.*InternalError.*Try again later",
    ):
        queues.send(numbered(url, 10))
    assert numbers(queues.receive(url, 10, 60)) == list(range(9))


def test_a_queue_in_trouble_does_not_stop_another(
    queues: Queues, requests: Requests, url: str
) -> None:
    with pytest.raises(LedgerMissing):
        queues.send([Outgoing(url.replace("send", "none"), '{"n":0}'), *numbered(url, 12)])
    assert queues.depth(url) == (12, 0, 0)


def test_an_answer_that_forgets_an_entry(queues: Queues, requests: Requests, url: str) -> None:
    forgetful = [True]

    def forget(parsed: dict[str, Any], **_: Any) -> None:
        if forgetful and forgetful.pop():
            del parsed["Successful"][0]

    requests.client("sqs").meta.events.register("after-call.sqs.SendMessageBatch", forget)
    assert queues.send(numbered(url, 3)) == [None] * 3
    assert requests.counts[SEND] == 2


# Receipts out of date -----------------------------------------------------------------------------
def test_a_stale_receipt_is_no_error_and_its_neighbours_are_served(
    queues: Queues, url: str
) -> None:
    queues.send(numbered(url, 10))
    messages = queues.receive(url, 10, 60)
    queues.delete(messages[:4])
    queues.delete(messages[:4])
    queues.extend(messages, 90)
    queues.release(messages)
    assert queues.depth(url) == (6, 0, 0)
    anew = queues.receive(url, 10, 60)
    queues.delete(messages)
    queues.delete(anew)
    assert queues.depth(url) == (0, 0, 0)


def test_a_message_given_twice_can_be_deleted_twice(
    queues: Queues, faults: Faults, url: str
) -> None:
    queues.send(numbered(url, 2))
    faults.plan(("ReceiveMessage", 2), "dup")
    messages = queues.receive(url, 2, 60) + queues.receive(url, 5, 60)
    assert len(messages) == 3
    queues.delete(messages)
    assert queues.depth(url) == (0, 0, 0)


def test_a_lost_answer_to_a_delete(queues: Queues, faults: Faults, url: str) -> None:
    queues.send(numbered(url, 2))
    messages = queues.receive(url, 2, 60)
    faults.plan("DeleteMessageBatch", "timeout_after")
    queues.delete(messages)
    assert queues.depth(url) == (0, 0, 0)


# What cannot be read ------------------------------------------------------------------------------
UNREADABLE = [
    "no JSON",
    "[1, 2]",
    '"text"',
    "null",
    "{",
    "[" * 5000,
    '{"x": ' + "[" * 300 + "]" * 300 + "}",
]


def test_what_is_no_object_is_set_aside_and_its_neighbours_are_received(
    queues: Queues, requests: Requests, url: str
) -> None:
    good = numbered(url, 4)
    queues.send([good[0], *[Outgoing(url, body) for body in UNREADABLE], *good[1:]])
    messages = queues.receive(url, 50, 60)
    assert numbers(messages) == [0, 1, 2, 3]
    aside = quarantined(requests)
    assert sorted(one["content"]["body"] for one in aside) == sorted(UNREADABLE)
    assert {one["kind"] for one in aside} == {"message"}
    assert {one["content"]["url"] for one in aside} == {url}
    assert all("JSON" in one["reason"] for one in aside)
    queues.delete(messages)
    assert queues.depth(url) == (0, 0, 0)


def test_a_flood_of_what_cannot_be_read_ends_with_the_asking(
    queues: Queues, requests: Requests, url: str
) -> None:
    queues.send([Outgoing(url, "no JSON")] * 30)
    assert queues.receive(url, 10, 60) == []
    assert queues.depth(url) == (20, 0, 0)


def test_without_a_quarantine_the_message_stays_and_the_others_come(
    queues: Queues, requests: Requests, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    address = requests.call("sqs", "get_queue_url", QueueName=NAMES.quarantine)["QueueUrl"]
    requests.call("sqs", "delete_queue", QueueUrl=address)
    queues.send([Outgoing(url, "no JSON"), *numbered(url, 2)])
    with caplog.at_level(logging.WARNING):
        messages = queues.receive(url, 10, 60)
    assert numbers(messages) == [0, 1]
    assert "unusable message" in caplog.text
    queues.delete(messages)
    assert queues.depth(url) == (0, 1, 0)


def test_what_is_in_hand_is_not_given_up_for_a_later_error(
    queues: Queues, faults: Faults, url: str
) -> None:
    queues.send(numbered(url, 15))
    faults.plan(("ReceiveMessage", 2), "throttle", times=200)
    assert len(queues.receive(url, 15, 60)) == 10
    with pytest.raises(LedgerBusy):
        queues.receive(url, 15, 60)


@pytest.mark.parametrize(
    "content",
    ['quote " and \\ ' * 30_000, {"input": {"B": b"\xff" * 300_000}}, ["ä" * 60_000]],
    ids=["text", "bytes", "wide"],
)
def test_long_content_is_cut_and_its_digest_told(
    queues: Queues, requests: Requests, content: Any
) -> None:
    queues.set_aside("row", content, "why" * 2000)
    (aside,) = quarantined(requests)
    assert aside["kind"] == "row"
    assert len(aside["reason"]) == 2000
    cut = aside["content"]
    assert 100_000 < len(json.dumps(cut["cut"])) <= 200_000 < cut["bytes"]
    if isinstance(content, str):
        assert json.dumps(content).startswith(cut["cut"])
        assert cut["sha256"] == b64(hashlib.sha256(json.dumps(content).encode()).digest())


def test_anything_can_be_set_aside(queues: Queues, requests: Requests) -> None:
    image = {"key": {"S": "\ud800\ufffe\x00"}, "n": {"N": "1"}, "digest": {"B": b"\x00\x01"}}
    queues.set_aside("row", image, "odd")
    queues.set_aside("thing", {("a", "b"): object()}, "odder")
    row, thing = sorted(quarantined(requests), key=lambda one: one["kind"])
    assert row == {"kind": "row", "reason": "odd", "content": {**image, "digest": {"B": "AAE="}}}
    assert "object object at" in json.dumps(thing["content"])


def test_nothing_to_do_asks_nothing(queues: Queues, requests: Requests) -> None:
    assert queues.send([]) == []
    for act in (queues.delete, queues.release):
        act([])
    assert not requests.counts


def test_a_refusal_that_is_nobodys_receipt_is_raised(
    queues: Queues, requests: Requests, url: str
) -> None:
    queues.send(numbered(url, 2))
    messages = queues.receive(url, 2, 60)

    def refuse(parsed: dict[str, Any], **_: Any) -> None:
        parsed["Failed"] = [
            {
                "Id": parsed["Successful"].pop()["Id"],
                "Code": "Odd",
                "Message": "no",
                "SenderFault": True,
            }
        ]

    requests.client("sqs").meta.events.register("after-call.sqs.DeleteMessageBatch", refuse)
    with pytest.raises(LedgerError, match="Odd: no"):
        queues.delete(messages)
