"""No request to AWS outlives the function that makes it, and a function that AWS fails gives its
messages back soon."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ReadTimeoutError
from tests.aws.lambdas.deployment import Deploy, Deployment, deployments
from tests.aws.lambdas.event_source_mapping import Context, sqs_event
from tests.standins import REGION

from milepost.core.errors import ConfigMistake, LedgerBusy, LedgerError, RouteChanged
from milepost_aws.lambdas import relay, start, worker
from milepost_aws.ledger.requests.client import CALL, SHORT, USUAL, Deadline, Requests


class Time:
    """A clock that moves only while a request waits or takes its time."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class Call(Context):
    """A function call with so many seconds on that clock."""

    def __init__(self, time: Time, seconds: float) -> None:
        super().__init__()
        self._time, self._until = time, time.now + seconds

    def get_remaining_time_in_millis(self) -> int:
        return max(0, round((self._until - self._time.now) * 1000))


@pytest.fixture
def deploy(endpoint: str, prefix: str, tmp_path: Path) -> Iterator[Deploy]:
    with deployments(endpoint, prefix, tmp_path) as made:
        yield made


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    made = Time()
    monkeypatch.setattr(CALL, "_clock", made)
    return made


def outage(requests: Requests, time: Time, *services: str) -> None:
    """From now on these services answer nothing: each request takes as long as it may."""
    make = requests.client

    def client(service: str, timeouts: tuple[float, float] = USUAL) -> Any:
        made = make(service, timeouts)

        def hang(**_: Any) -> None:
            time.now += sum(timeouts)
            raise ReadTimeoutError(endpoint_url=service)

        if service in services:
            made.meta.events.register("before-send", hang, unique_id="outage")
        return made

    requests.client = client  # type: ignore[method-assign]
    requests.clock, requests.sleep = time, time.sleep


@pytest.mark.parametrize("seconds", [0.5, 2.0, 7.0, 20.0, 200.0])
def test_no_request_outlives_the_deadline(endpoint: str, seconds: float) -> None:
    time = Time()
    requests = Requests(REGION, endpoint, deadline=Deadline(time))
    outage(requests, time, "dynamodb")
    try:
        with requests.deadline.within(seconds), pytest.raises(LedgerBusy):
            requests.call("dynamodb", "list_tables")
        assert time.now <= 1000.0 + seconds
        # Without a deadline it is the patience of one request that ends it.
        begun = time.now
        with pytest.raises(LedgerBusy):
            requests.call("dynamodb", "list_tables")
        assert requests.deadline_s <= time.now - begun <= requests.deadline_s + sum(USUAL)
    finally:
        requests.close()


def test_the_earlier_of_two_deadlines_holds() -> None:
    time = Time()
    deadline = Deadline(time)
    with deadline.within(10):
        with deadline.within(100):
            assert deadline.left() == 10
        with deadline.within(1):
            assert deadline.left() == 1
        assert deadline.left() == 10
    assert deadline.left() == float("inf")


def test_the_timeouts_of_late_requests_fit_into_the_time_that_is_left(endpoint: str) -> None:
    time = Time()
    requests = Requests(REGION, endpoint, deadline=Deadline(time))
    try:
        for left, timeouts in ((13.0, USUAL), (12.9, SHORT[0]), (3.9, SHORT[1]), (1.0, SHORT[1])):
            with requests.deadline.within(left):
                assert requests._timeouts("dynamodb", "list_tables", {}) == timeouts
    finally:
        requests.close()


def visibility(one: Deployment, changes: list[int]) -> None:
    """Note for how long messages are hidden, by whichever client."""
    extend = start.Queues.extend

    def watched(self: Any, messages: Any, seconds: int) -> None:
        extend(self, messages, seconds)
        changes.extend([seconds] * len(messages))

    one._patch.setattr(start.Queues, "extend", watched)


@pytest.mark.parametrize("seconds", [8.0, 60.0, 300.0])
def test_a_worker_without_dynamodb_gives_its_messages_back_in_time(
    deploy: Deploy, time: Time, seconds: float
) -> None:
    one = deploy()
    one.submit("a", "b", "c")
    one.stream.drain()
    hidden: list[int] = []
    visibility(one, hidden)
    calls: list[Call] = []

    def call() -> Call:
        calls.append(Call(time, seconds))
        return calls[-1]

    one.queues["weigh"] = one.queue("weigh", call)
    one.store._read.clear()
    outage(one.store.requests, time, "dynamodb")
    assert one.queues["weigh"].poll() == 0
    one.check()
    assert calls[0].get_remaining_time_in_millis() > 0
    assert hidden == [30, 30, 30], "and not the queue's visibility timeout"
    assert one.depth("weigh") == (0, 3, 0)


def test_a_container_that_cannot_start_gives_its_messages_back(deploy: Deploy) -> None:
    one = deploy()
    one.submit("a", "b")
    one.stream.drain()
    hidden: list[int] = []
    visibility(one, hidden)
    one._patch.setenv("MILEPOST_STAGE", "parcels/weigh")
    start.forget()

    def fail(error: Exception) -> Callable[..., Any]:
        def open_context(*_: Any) -> Any:
            raise error

        return open_context

    for error, seconds in (
        (LedgerBusy("DynamoDB does not answer"), 30),
        (RouteChanged("other stages"), 60),
        (KeyError("a fault"), 30),
    ):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(start, "open_context", fail(error))
            messages = one.sqs.receive_message(
                QueueUrl=one.queues["weigh"].url, MaxNumberOfMessages=10
            )["Messages"]
            answer = worker.handler(sqs_event(messages, one.queues["weigh"].arn), Context())
        assert [failed["itemIdentifier"] for failed in answer["batchItemFailures"]] == [
            message["MessageId"] for message in messages
        ]
        assert hidden[-len(messages) :] == [seconds] * len(messages)
        start.hide(sqs_event(messages, one.queues["weigh"].arn), 0)
    one.open()
    one.run(lambda: one.all_at("COMPLETED"))


def test_a_wrong_setting_is_raised(deploy: Deploy, monkeypatch: pytest.MonkeyPatch) -> None:
    deploy()
    monkeypatch.setenv("MILEPOST_STAGE", "parcels")
    with pytest.raises(ConfigMistake):
        worker.handler(sqs_event([]), Context())


@pytest.mark.parametrize("seconds", [20.0, 60.0])
def test_a_resender_without_dynamodb_ends_in_time(
    deploy: Deploy, time: Time, seconds: float
) -> None:
    one = deploy()
    one.submit("a")
    outage(one.store.requests, time, "dynamodb", "sqs")
    call = Call(time, seconds)
    with pytest.raises(LedgerError):
        one.resend(call)
    assert call.get_remaining_time_in_millis() > 0


def test_a_relay_without_dynamodb_ends_in_time_and_gives_the_batch_back(
    deploy: Deploy, time: Time
) -> None:
    one = deploy()
    one.submit("a", "b")
    one.store._read.clear()
    outage(one.store.requests, time, "dynamodb")
    calls: list[Call] = []

    def handler(event: Any, _: Any) -> Any:
        calls.append(Call(time, 20.0))
        return relay.handler(event, calls[-1])

    one.stream._caller.handler = handler
    assert one.stream.poll() == 0
    assert (one.stream.waiting, one.stream.errors) == (2, [])
    assert calls[0].get_remaining_time_in_millis() > 0


def test_a_relay_waits_for_a_changed_route_and_burns_no_retry(
    deploy: Deploy, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = deploy()
    one.submit("a")
    carry_out, waits = relay._handle, list[float]()

    def announced(*args: Any) -> Any:
        if len(waits) < 3:
            raise RouteChanged("announced")
        return carry_out(*args)

    monkeypatch.setattr(relay, "_handle", announced)
    monkeypatch.setattr(relay.time, "sleep", waits.append)
    one.stream.retries = 0
    one.stream.drain()
    assert waits == [relay.LOOK_AGAIN_S] * 3
    assert one.stream.failed == []
    one.open()
    assert one.row("a").status == "QUEUED"


def test_a_relay_that_waited_long_enough_gives_the_batch_back(
    deploy: Deploy, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = deploy()
    one.submit("a")

    def newer(*_: Any) -> Any:
        raise RouteChanged("newer than here")

    monkeypatch.setattr(relay, "_handle", newer)
    monkeypatch.setattr(relay, "STAND_BY_S", 0.0)
    assert one.stream.poll() == 0
    assert (one.stream.waiting, one.stream.errors) == (1, [])


def test_a_relay_call_delivers_for_seconds_and_leaves_the_rest_to_the_next(
    deploy: Deploy, time: Time, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = deploy()
    with monkeypatch.context() as undelivered:
        undelivered.setattr(relay, "deliver", lambda *_: None)
        for start_at in range(0, 1200, 400):
            one.submit(*(f"n{number:04}" for number in range(start_at, start_at + 400)))
        one.stream.drain()

    def slow(**_: Any) -> None:
        time.now += 0.1

    took: list[float] = []

    def handler(event: Any, _: Any) -> Any:
        call = Call(time, 300.0)
        answer = relay.handler(event, call)
        took.append(300.0 - call.get_remaining_time_in_millis() / 1000)
        return answer

    one.stream._caller.handler = handler
    waits = []
    for key in ("x", "y", "z"):
        one.opened.event_relays[0]._subscriber._client.meta.events.register(
            "before-send.sns.PublishBatch", slow
        )
        one.submit(key)
        one.stream.poll()
        waits.append(one.opened.ledger.last_seq() - one.opened.event_relays[0]._cursor.seq)
        # Another container has the next call: nothing keeps it from delivering at once.
        start.forget()
        one.open()
    assert max(took) < relay.DELIVERY_MS / 1000 + 6, (
        "a page of 500 events, in requests of 0.1 s each, has begun before the time was over"
    )
    assert waits == [701, 202, 0]
