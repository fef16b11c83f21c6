"""Functions in trouble: time that runs out, AWS that does not answer, pauses, rates, changed
routes, items that kill."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.aws.lambdas.deployment import HEAD, Countdown, Deploy, Deployment, deployments
from tests.aws.lambdas.event_source_mapping import Context

from milepost.core.admission.controls import Hold, Limit
from milepost.core.errors import EventRefused
from milepost.core.events import Envelope
from milepost.core.status import FAILED
from milepost.engine.events.deliver import EventRelay as Teller
from milepost.ports.documents import HOLD, LIMIT, ROUTE
from milepost.ports.items import Query
from milepost_aws.aws_model import Faults
from milepost_aws.lambdas import start, worker

SLOW = (
    HEAD
    + """
parcels = mp.Route("parcels", key="id")
go_on = threading.Event()


def verify(item: mp.Item) -> bool:
    seen.append(f"verify {item.key}")
    return True


@parcels.stage("weigh", concurrency=1, timeout="1s", verify=verify)
def weigh(item: mp.Item) -> mp.Outcome:
    seen.append(item.key)
    if item.input.get("slow"):
        go_on.wait(30)
    return mp.Done()
"""
)

SLOW_ASYNC = (
    HEAD
    + """
parcels = mp.Route("parcels", key="id")
cancelled: list[str] = []


@parcels.stage("weigh")
async def weigh(item: mp.Item) -> mp.Outcome:
    seen.append(item.key)
    if item.input.get("slow") and seen.count(item.key) == 1:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.append(item.key)
            raise
    return mp.Done()
"""
)

RATED = (
    HEAD
    + """
parcels = mp.Route("parcels", key="id")


@parcels.stage("weigh", rate="RATE")
def weigh(item: mp.Item) -> mp.Outcome:
    seen.append(item.key)
    return mp.Done()
"""
)

TOGETHER = (
    HEAD
    + """
parcels = mp.Route("parcels", key="id")
inside: set[str] = set()
together = threading.Barrier(2, timeout=20)


@parcels.stage("weigh", concurrency=4)
def weigh(item: mp.Item) -> mp.Outcome:
    inside.add(item.key)
    if item.key in "ab":
        together.wait()
    seen.append(f"{item.key} with {len(inside)}")
    inside.discard(item.key)
    return mp.Done()
"""
)


LANES = (
    HEAD
    + """
parcels = mp.Route("parcels", key="id")
inside: list[str] = []
together: list[int] = []


@parcels.stage("weigh", lane=lambda content: content["to"], lanes={"north": mp.Limits(concurrency=1)})
async def weigh(item: mp.Item) -> mp.Outcome:
    inside.append(item.lane)
    together.append(inside.count("north"))
    await asyncio.sleep(0.05)
    inside.remove(item.lane)
    seen.append(item.key)
    return mp.Done()
"""
)


@pytest.fixture
def deploy(endpoint: str, prefix: str, tmp_path: Path) -> Iterator[Deploy]:
    with deployments(endpoint, prefix, tmp_path) as made:
        yield made


def faults_of(one: Deployment) -> Faults:
    """What AWS does to the function from now on; it gives up at once."""
    found = Faults()
    found.attach(one.store.requests)
    one.store.requests.deadline_s = 0.0
    return found


def answers(one: Deployment, stage: str) -> list[Any]:
    """The answers of the function, as its queue is given them."""
    given: list[Any] = []
    mapping = one.queues[stage]
    inner = mapping._caller.handler

    def watched(event: Any, context: Any) -> Any:
        given.append(inner(event, context))
        return given[-1]

    mapping._caller.handler = watched
    return given


def set_row(one: Deployment, key: str, **values: dict[str, Any]) -> None:
    one.dynamodb.update_item(
        TableName=one.store.names.rows("parcels"),
        Key={"id": {"S": key}},
        UpdateExpression="SET " + ", ".join(f"#{name} = :{name}" for name in values),
        ExpressionAttributeNames={f"#{name}": name for name in values},
        ExpressionAttributeValues={f":{name}": value for name, value in values.items()},
    )


# Time that runs out -------------------------------------------------------------------------------


def test_a_handler_that_overruns_is_let_go_of(deploy: Deploy) -> None:
    one = deploy(SLOW)
    one.submit("a", slow=True)
    one.stream.drain()
    one.queue("weigh", lambda: Countdown(12000)).poll()
    assert one.row("a").status == "QUEUED"
    assert one.row("a").unknown
    assert "given-back" in one.lines("a")
    # The next call asks first whether the work was done; the thread that hangs keeps nobody from
    # it.
    one.run(lambda: one.all_at("COMPLETED"))
    assert one.module.seen == ["a", "verify a"]
    one.module.go_on.set()
    one.submit("b")
    one.run()
    assert one.row("b").status == "COMPLETED"


def test_an_async_handler_that_overruns_is_cancelled_and_its_neighbours_are_settled(
    deploy: Deploy,
) -> None:
    one = deploy(SLOW_ASYNC)
    one.submit("a", slow=True)
    one.submit("b", "c")
    one.stream.drain()
    one.queue("weigh", lambda: Countdown(12000)).poll()
    assert {key: one.row(key).status.value for key in "abc"} == {
        "a": "QUEUED",
        "b": "COMPLETED",
        "c": "COMPLETED",
    }
    one.run(lambda: one.all_at("COMPLETED"))
    assert sorted(one.module.seen) == ["a", "a", "b", "c"]
    assert one.module.cancelled == ["a"]


def test_a_container_that_opens_its_ledger_again_ends_the_event_loop_of_its_handlers(
    deploy: Deploy,
) -> None:
    def event_loops() -> int:
        return sum(thread.name == "handlers" for thread in threading.enumerate())

    before = event_loops()
    one = deploy(SLOW_ASYNC)
    one.submit("a")
    one.stream.drain()
    one.queues["weigh"].poll()
    assert event_loops() == before + 1
    start.forget()
    assert event_loops() == before


def test_what_cannot_be_started_in_time_is_given_back(deploy: Deploy) -> None:
    one = deploy(SLOW)
    one.submit("a", slow=True)
    one.stream.drain()
    one.submit("b", "c")
    one.stream.drain()
    # One hand, and its limit: whoever comes after the first is never begun.
    one.queue("weigh", lambda: Countdown(8000)).poll()
    one.module.go_on.set()
    after = one.module.seen[one.module.seen.index("a") + 1 :]
    left = {"b", "c"} - set(one.module.seen)
    assert after == []
    assert left
    for key in left:
        assert "given-back" in one.lines(key)
        assert (one.row(key).status.value, one.row(key).unknown, one.row(key).attempts) == (
            "QUEUED",
            False,
            0,
        )
    assert one.row("a").unknown
    one.run(lambda: one.all_at("COMPLETED"))


def test_nothing_is_claimed_when_the_time_is_over_already(deploy: Deploy) -> None:
    one = deploy()
    one.submit("a", "b")
    one.stream.drain()

    class Late(Context):
        asked = 0

        def get_remaining_time_in_millis(self) -> int:
            self.asked += 1
            return 10_000 if self.asked <= 2 else 100

    mapping = one.queue("weigh", Late)
    assert mapping.poll() == 0
    assert one.module.seen == []
    assert one.row("a").lease is None
    # They were reported, and shown to others at once.
    assert one.depth("weigh") == (2, 0, 0)


# AWS that does not answer -------------------------------------------------------------------------


def test_a_claim_that_fails_reports_its_own_message_alone(deploy: Deploy) -> None:
    one = deploy()
    one.submit("a", "b", "c")
    one.stream.drain()
    given = answers(one, "weigh")
    faults_of(one).plan("UpdateItem", "throttle")
    one.queues["weigh"].poll()
    (answer,) = given
    assert len(answer["batchItemFailures"]) == 1
    assert len(one.module.seen) == 2
    assert sorted(row.stage for row in one.rows()) == ["send", "send", "weigh"]
    # It is still in its queue: hidden for a while, and not deleted.
    assert one.depth("weigh") == (0, 1, 0)


def test_an_outcome_that_cannot_be_written_is_written_later(deploy: Deploy) -> None:
    one = deploy()
    one.submit("a")
    one.stream.drain()
    given = answers(one, "weigh")
    faults_of(one).plan(("UpdateItem", 2), "throttle")
    one.queues["weigh"].poll()
    assert given == [{"batchItemFailures": []}]
    assert (one.row("a").stage, one.module.seen) == ("send", ["weigh a"])


def test_an_outcome_that_can_never_be_written_reports_its_message(deploy: Deploy) -> None:
    one = deploy()
    one.submit("a")
    one.stream.drain()
    one.queues["weigh"] = one.queue("weigh", lambda: Countdown(8000))
    given = answers(one, "weigh")
    faults = faults_of(one)
    faults.plan(("UpdateItem", 2), "throttle", times=1000)
    one.queues["weigh"].poll()
    (answer,) = given
    assert len(answer["batchItemFailures"]) == 1
    assert one.row("a").status == "PROCESSING"
    # The lease runs out, the resender writes the loss and calls again.
    faults.clear()
    one.store.requests.deadline_s = 30.0
    one.queues["weigh"] = one.queue("weigh")
    one.clock.advance("5m")
    one.resend()
    assert "lost" in one.lines("a")
    one.run(lambda: one.all_at("COMPLETED"))


def test_the_relay_gives_the_whole_batch_back(deploy: Deploy) -> None:
    one = deploy()
    one.submit("a", "b", "c")
    faults = faults_of(one)
    faults.plan("BatchWriteItem", "throttle")
    assert one.stream.poll() == 0
    assert one.stream.waiting == 3
    assert faults.fired
    one.run()
    assert one.all_at("COMPLETED")
    assert [one.lines(key)[0] for key in "abc"] == ["accepted"] * 3
    assert len([event for event in one.events() if event["type"].endswith("accepted")]) == 3


def test_a_topic_that_takes_nothing_fails_no_record(deploy: Deploy) -> None:
    one = deploy()
    one.submit("a", "b")
    faults = Faults()
    faults.attach(one.opened.event_relays[0]._subscriber._client)
    faults.plan("PublishBatch", "500", times=50)
    one.run()
    assert one.all_at("COMPLETED")
    assert one.events() == []
    # Nothing waits for the rows: what is to be told stands in the journal.
    assert "dueShard" not in one.image("a")
    faults.clear()
    one.clock.advance("1h")
    one.resend()
    assert {event["type"].rpartition(".")[2] for event in one.events()} >= {"accepted", "completed"}


# Pauses and rates ---------------------------------------------------------------------------------


def test_what_is_paused_stands_apart_until_it_is_resumed(deploy: Deploy) -> None:
    one = deploy()
    one.submit("a", "b")
    one.stream.drain()
    one.opened.ledger.write(HOLD, "parcels/weigh", Hold(0, "ops", "stock-taking"))
    one.clock.advance("10s")
    one.run()
    assert one.module.seen == []
    assert one.depth("weigh") == (0, 0, 0)
    assert one.image("a")["dueShard"]["S"].startswith("held#weigh")
    one.opened.ledger.write(HOLD, "parcels/weigh", None)
    one.clock.advance("10s")
    assert one.resend()["resumed"] == 2
    one.run()
    assert one.all_at("COMPLETED")
    assert len(one.module.seen) == 4


def test_a_rate_holds_and_all_come_through(deploy: Deploy) -> None:
    one = deploy(RATED.replace("RATE", "20/s"))
    one.submit(*"abcdefgh")
    one.stream.drain()
    given = answers(one, "weigh")
    one.run(lambda: one.all_at("COMPLETED"))
    assert sorted(one.module.seen) == list("abcdefgh")
    # Tokens come soon: the function waits for them, and nothing is reported.
    assert all(answer == {"batchItemFailures": []} for answer in given)


def test_what_has_no_token_for_long_comes_back_as_a_delayed_copy(deploy: Deploy) -> None:
    one = deploy(RATED.replace("RATE", "6/m"))
    one.submit("a", "b", "c")
    one.stream.drain()
    given = answers(one, "weigh")
    one.queues["weigh"].poll()
    assert given == [{"batchItemFailures": []}]
    assert len(one.module.seen) == 1
    assert one.depth("weigh") == (0, 0, 2)
    assert {row.lease for row in one.rows()} == {None}


def test_a_lane_has_no_more_in_hand_than_it_may(deploy: Deploy) -> None:
    one = deploy(LANES)
    one.submit("a", "b", "c", to="north")
    one.submit("d", "e", to="south")
    one.stream.drain()
    one.queues["weigh"].poll()
    one.check()
    assert sorted(one.module.seen) == list("abcde")
    assert max(one.module.together) == 1
    assert one.all_at("COMPLETED")


def test_a_limit_set_while_running_holds(deploy: Deploy) -> None:
    one = deploy()
    one.submit("a", "b")
    one.stream.drain()
    one.opened.ledger.write(
        LIMIT, "parcels/weigh", Limit(rate="1/m", by="ops", reason="the scales are old")
    )
    one.clock.advance("10s")
    one.queues["weigh"].poll()
    one.check()
    assert len(one.module.seen) == 1
    assert one.depth("weigh") == (0, 0, 1)


# Changed routes, and items that kill --------------------------------------------------------------


def test_a_container_that_is_out_of_date_claims_nothing_and_opens_anew(deploy: Deploy) -> None:
    one = deploy()
    one.submit("a")
    one.stream.drain()
    given = answers(one, "weigh")
    held = one.opened.ledger.read(ROUTE)["parcels"]
    one.opened.ledger.write(ROUTE, "parcels", {**held.value, "version": 2})
    one.clock.advance("10s")
    before = start.opened()
    one.queues["weigh"].poll()
    assert len(given[0]["batchItemFailures"]) == 1
    assert one.module.seen == []
    assert start.opened() is not before
    one.open()
    assert one.plan_again().version == 2
    one.clock.advance("10m")
    one.call_for("weigh", "a")
    one.run(lambda: one.all_at("COMPLETED"))
    assert one.module.seen == ["weigh a", "send a"]


def test_an_announced_route_puts_calls_off(deploy: Deploy) -> None:
    one = deploy()
    one.submit("a")
    one.stream.drain()
    held = one.opened.ledger.read(ROUTE)["parcels"]
    one.opened.ledger.write(
        ROUTE, "parcels", {**held.value, "version": 2, "at": one.clock.now() + 10_000}
    )
    start.forget()
    one.open()
    one.clock.advance("20s")
    one.queues["weigh"].poll()
    one.check()
    assert one.module.seen == []
    assert one.depth("weigh") == (0, 0, 1)


def test_fragile_items_run_alone_and_last(deploy: Deploy) -> None:
    one = deploy(TOGETHER)
    one.submit("x", "y", "a", "b")
    one.stream.drain()
    for key in "xy":
        set_row(one, key, losses={"N": "2"})
    one.run()
    assert one.all_at("COMPLETED")
    assert len(one.queues["weigh"].events) == 1
    assert sorted(one.module.seen[2:]) == ["x with 1", "y with 1"]


def test_fragile_items_without_a_token_come_back_too(deploy: Deploy) -> None:
    one = deploy(RATED.replace("RATE", "6/m"))
    one.submit("x", "y")
    one.stream.drain()
    for key in "xy":
        set_row(one, key, losses={"N": "2"})
    one.queues["weigh"].poll()
    one.check()
    assert len(one.module.seen) == 1
    assert one.depth("weigh") == (0, 0, 1)


def test_a_stage_that_is_none_is_told(deploy: Deploy, monkeypatch: pytest.MonkeyPatch) -> None:
    deploy()
    for wrong in ("parcels", "parcels/wrap"):
        monkeypatch.setenv("MILEPOST_STAGE", wrong)
        with pytest.raises(Exception, match="MILEPOST_STAGE is"):
            worker.handler({"Records": []}, Context())


REJECTS = (
    HEAD
    + """
parcels = mp.Route("parcels", key="id")


@parcels.stage("weigh")
def weigh(item: mp.Item) -> mp.Outcome:
    return mp.Reject("too heavy")
"""
)


class Picky:
    """A subscriber that takes no event of one item."""

    name, batch = "picky", 10

    def tell(self, envelopes: Sequence[Envelope]) -> list[Exception | None]:
        return [
            EventRefused("too large") if envelope.event.key == "bad" else None
            for envelope in envelopes
        ]


def test_failed_items_are_found_while_an_event_of_another_is_parked(deploy: Deploy) -> None:
    one = deploy(REJECTS)
    picky = Teller(one.opened.ctx, Picky(), "h")
    for keys in (["bad"], ["a", "b", "c"]):
        one.submit(*keys)
        one.run()
        picky.run_once()
        one.clock.advance("2m")
        one.resend()
        one.run()
    found = one.opened.ledger.find(Query(route="parcels", statuses=FAILED)).items
    assert sorted(item.key for item in found) == ["a", "b", "bad", "c"]
