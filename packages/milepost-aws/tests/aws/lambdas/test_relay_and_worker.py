"""Items handled by functions alone: the stream calls the relay, queues call the workers, and the
topic receives events."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.aws.lambdas.deployment import HEAD, Deploy, deployments
from tests.aws.lambdas.event_source_mapping import Context, StreamMapping, sqs_event
from tests.postingest.aws_scene import WallClock

from milepost.core.errors import LedgerBusy
from milepost.core.item import Row
from milepost.core.status import Status
from milepost.engine.health.doctor import doctor
from milepost.ports.clock import ClockState
from milepost_aws.aws_model import Faults
from milepost_aws.lambdas import relay, start, worker

FLAKY = (
    HEAD
    + """
parcels = mp.Route("parcels", key="id")


@parcels.stage("weigh", retry=mp.Backoff(attempts=3, base="1s", jitter=0))
def weigh(item: mp.Item) -> mp.Outcome:
    seen.append(item.key)
    if seen.count(item.key) == 1:
        raise ConnectionError("the scales do not answer")
    return mp.Done()
"""
)

BATCHES = (
    HEAD
    + """
parcels = mp.Route("parcels", key="id")


@parcels.stage("weigh", batch=4)
def weigh(items: list[mp.Item]) -> list[mp.Outcome]:
    seen.append(" ".join(sorted(item.key for item in items)))
    return [mp.Done() for _ in items]
"""
)

ORDERS = (
    HEAD
    + """
orders = mp.Route("orders", key="id")


@orders.stage("ship")
def ship(item: mp.Item) -> mp.Outcome:
    return mp.Done({"parcel": f"P-{item.key}"})


refused = ["b"]


def later(item: mp.Item, completed_at: object) -> object:
    if item.key in refused:
        raise ConnectionError("not now")
    return None if item.key == "c" else {"order": item.key, "at": "2099-01-01", "parcel": item.results["ship"]["parcel"]}


reviews = mp.Route("reviews", key="order", not_before="at")
reviews.external("ask")
orders.then(reviews, later)
"""
)


@pytest.fixture
def deploy(endpoint: str, prefix: str, tmp_path: Path) -> Iterator[Deploy]:
    with deployments(endpoint, prefix, tmp_path) as made:
        yield made


def test_items_go_through(deploy: Deploy) -> None:
    one = deploy()
    keys = [f"p{n}" for n in range(25)]
    one.submit(*keys)
    one.run()
    assert one.all_at("COMPLETED")
    assert Counter(one.module.seen) == Counter(
        [f"{stage} {key}" for stage in ("weigh", "send") for key in keys]
    )
    kinds = Counter(event["type"] for event in one.events())
    assert set(kinds.values()) == {25}
    assert {event.rpartition(".")[2] for event in kinds} >= {"accepted", "completed"}
    # Everybody has been told, so the rows have left the index; their seals are there.
    assert not [key for key in keys if {"dueShard", "trail"} & one.image(key).keys()]
    assert all(known is not None for known in one.store.seals("parcels", keys).values())
    assert len(one.store.seals("parcels", keys)) == 25
    assert one.depth("weigh") == one.depth("send") == (0, 0, 0)


class UnsureClock(WallClock):
    """A clock that has not been compared with AWS's answers."""

    def __init__(self) -> None:
        super().__init__()
        self.doubt = "it has had no answer yet"

    def check(self) -> ClockState:
        return ClockState("the clock of AWS's answers", doubt=self.doubt)

    def follow(self, moment: int) -> None: ...


def test_a_function_that_is_not_sure_of_the_time_claims_nothing_and_gets_its_messages_again(
    deploy: Deploy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "TROUBLE_S", 0)
    one = deploy()
    one.submit("a")
    clock = one.opened.ctx.clock = UnsureClock()
    one.run()
    assert one.module.seen == []
    assert one.resend()["resent"] == {}
    assert one.depth("weigh") == (1, 0, 0)
    clock.doubt = ""
    stood = [
        finding.what
        for finding in doctor(one.opened.ctx).findings
        if "stands still" in finding.what
    ]
    assert {what.partition(":")[0] for what in stood} == {"worker", "resender"}
    assert all(
        "it is not sure of the time of the clock of AWS's answers: it has had no answer yet" in what
        for what in stood
    )
    one.run(lambda: one.all_at("COMPLETED"))
    assert one.module.seen == ["weigh a", "send a"]


def test_rows_that_cannot_be_finished_now_are_finished_by_the_next_call_and_counted_once(
    deploy: Deploy, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, finish, failures = deploy(), relay.finish, []

    def fail_first(store: Any, ended: Sequence[Row], now: int) -> int:
        if ended and not failures:
            failures.append(len(ended))
            raise LedgerBusy("not sent, because the function call is about to time out")
        return finish(store, ended, now)

    monkeypatch.setattr(relay, "finish", fail_first)
    one.submit("a", "b", "c")
    one.run()
    one.submit("d")
    one.run()
    assert failures == [3]
    assert one.all_at("COMPLETED")
    counts = one.store.counters.counts("parcels")
    assert ({count.status for count in counts}, sum(count.n for count in counts)) == (
        {Status.COMPLETED},
        4,
    ), "perhaps in two hours"
    assert not [key for key in "abcd" if {"dueShard", "trail"} & one.image(key).keys()]


def test_functions_leave_the_deleting_to_their_queue(deploy: Deploy) -> None:
    one = deploy()
    one.submit("a", "b", "c")
    one.run()
    assert one.all_at("COMPLETED")
    counts = one.store.requests.counts
    assert ("sqs", "delete_message_batch") not in counts
    assert ("sqs", "receive_message") not in counts


def test_a_stream_that_tells_everything_twice_harms_nobody(deploy: Deploy) -> None:
    one = deploy()
    one.stream = StreamMapping(
        one.streams, one.stream.arn, relay.handler, batch_size=3, shards=3, twice=True
    )
    one.submit(*"abcdef")
    one.run()
    assert one.all_at("COMPLETED")
    assert sorted(one.module.seen) == sorted(
        [f"{stage} {key}" for stage in ("weigh", "send") for key in "abcdef"]
    )
    done = {event["subject"] for event in one.events() if event["type"].endswith("completed")}
    assert len(done) == 6
    assert not [key for key in "abcdef" if "dueShard" in one.image(key)]


def test_a_row_that_a_step_function_put_goes_through(deploy: Deploy) -> None:
    one = deploy()
    one.dynamodb.put_item(
        TableName=one.store.names.rows("parcels"),
        Item={"id": {"S": "p1"}, "input": {"S": '{"id":"p1"}'}},
    )
    one.run()
    assert one.row("p1").status == "COMPLETED"
    assert one.module.seen == ["weigh p1", "send p1"]


def test_follow_up_items_are_made_by_functions(deploy: Deploy) -> None:
    one = deploy(ORDERS)
    one.submit(*"abc")
    one.run()
    assert one.all_at("COMPLETED")
    made = one.opened.ledger.get([("reviews", key) for key in "abc"])
    assert [item and item.input["parcel"] for item in made] == ["P-a", None, None]
    # The one that could not be made is parked by itself, and the resender function makes it; no
    # event makes a second item.
    one.module.refused.clear()
    one.clock.advance("1h")
    one.resend()
    one.run()
    made = one.opened.ledger.get([("reviews", key) for key in "abc"])
    assert [item and (item.input["parcel"], item.status, item.row.version) for item in made] == [
        ("P-a", Status.PENDING, 1),
        ("P-b", Status.PENDING, 1),
        None,
    ]
    assert {event["type"].rpartition(".")[2] for event in one.events()} >= {"accepted", "completed"}


def test_a_topic_that_takes_nothing_hinders_no_follow_up_item(deploy: Deploy) -> None:
    one = deploy(ORDERS)
    one.module.refused.clear()
    one.submit("a")
    faults = Faults()
    faults.attach(one.opened.event_relays[0]._subscriber._client)
    faults.plan("PublishBatch", "500", times=50)
    one.run()
    assert one.opened.ledger.get([("reviews", "a")])[0] is not None
    assert one.events() == []


def test_what_fails_comes_again_by_a_delayed_call(deploy: Deploy) -> None:
    one = deploy(FLAKY)
    one.submit("a", "b")
    one.run(lambda: one.all_at("COMPLETED"))
    assert sorted(one.module.seen) == ["a", "a", "b", "b"]
    assert "retry" in one.lines("a")


def test_a_handler_of_batches_is_given_batches(deploy: Deploy) -> None:
    one = deploy(BATCHES)
    one.submit(*"abcdefgh")
    one.run()
    assert one.all_at("COMPLETED")
    assert sorted("".join(call.split()) for call in one.module.seen) != sorted("abcdefgh")
    assert sorted(key for call in one.module.seen for key in call.split()) == list("abcdefgh")


def test_a_message_that_comes_twice_works_once(deploy: Deploy) -> None:
    one = deploy()
    one.submit("a")
    one.stream.drain()
    one.call_for("weigh", "a", "a")
    one.run()
    assert one.module.seen == ["weigh a", "send a"]
    again = one.queues["weigh"].events[0]
    assert worker.handler(again, Context()) == {"batchItemFailures": []}
    assert one.module.seen == ["weigh a", "send a"]


def test_an_item_that_another_worker_holds_is_left_alone(deploy: Deploy) -> None:
    one = deploy()
    one.submit("a")
    one.stream.drain()
    one.dynamodb.update_item(
        TableName=one.store.names.rows("parcels"),
        Key={"id": {"S": "a"}},
        UpdateExpression="SET #lease = :lease, #status = :status",
        ExpressionAttributeNames={"#lease": "lease", "#status": "status"},
        ExpressionAttributeValues={":lease": {"S": "another's"}, ":status": {"S": "PROCESSING"}},
    )
    one.queues["weigh"].poll()
    one.check()
    assert one.module.seen == []
    assert one.depth("weigh") == (0, 0, 0)


def test_what_is_no_call_is_set_aside_and_hinders_nobody(deploy: Deploy) -> None:
    one = deploy()
    one.submit("a")
    one.stream.drain()
    one.send(
        "weigh", "not JSON", "[1]", json.dumps({"route": "others", "key": "a", "stage": "weigh"})
    )
    one.call_for("weigh", "nobody")
    one.run()
    assert one.row("a").status == "COMPLETED"
    assert sorted(found["kind"] for found in one.aside()) == ["message"] * 3
    assert one.depth("weigh") == (0, 0, 0)


def test_a_container_opens_its_ledger_once(deploy: Deploy) -> None:
    one = deploy()
    opened = start.opened()
    one.submit("a")
    one.run()
    assert start.opened() is opened
    before = one.store.requests.counts["sqs", "get_queue_url"]
    one.submit("b")
    one.run()
    assert one.row("b").status == "COMPLETED"
    assert one.store.requests.counts["sqs", "get_queue_url"] == before


def test_a_worker_answers_an_event_without_messages(deploy: Deploy) -> None:
    one = deploy()
    one.submit("a")
    one.run()
    assert worker.handler(sqs_event([]), Context()) == {"batchItemFailures": []}
