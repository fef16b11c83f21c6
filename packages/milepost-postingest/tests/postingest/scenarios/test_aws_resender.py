"""The postingest document's resender, scenario by scenario: what has been in a queue for as long as
that queue keeps it is sent again, as it was sent before, and nothing else is touched. Numbers are
those of the scenario list for this system."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from tests.postingest.aws_scene import (
    AHEAD,
    ASSET,
    BATCH,
    INPUT,
    OTHER,
    PATHS,
    VOLUMES,
    Opener,
    Postingest,
    assets,
    text,
)

from milepost.blobs.memory import MemoryBlobs
from milepost.core.errors import LedgerBusy, RouteChanged
from milepost.core.outcome import Done
from milepost.core.routes.plan import Plan
from milepost.core.routes.route import Route
from milepost.engine.context import Context
from milepost.engine.health.doctor import doctor
from milepost.engine.intake import submit
from milepost.engine.resend import Resender
from milepost.engine.routes.versions import register
from milepost.engine.views.items import status
from milepost_testing.clock import SeededChance, VirtualClock

PAYLOAD = json.loads(INPUT)
DAY = 86_400_000
FOUR_DAYS = 4 * DAY
THIRD = "7c1f3b58-64be-4b5e-9d3e-1a5ab0f4f1de"


@pytest.fixture
def queue(client: Callable[[str], Any], prefix: str) -> Callable[[int], str]:
    """Makes somebody's own queue that keeps messages so many seconds; its URL."""
    sqs = client("sqs")

    def make(seconds: int) -> str:
        made = sqs.create_queue(
            QueueName=f"{prefix}-own-{seconds}", Attributes={"MessageRetentionPeriod": str(seconds)}
        )
        url: str = made["QueueUrl"]
        return url

    return make


def confirmers(cc: str, scout: str | None = None, **options: Any) -> Route:
    """With queues of somebody's own."""
    queues = [
        {"queueAlias": "CC", "queueOrder": 1, "queueUrl": cc, **options},
        {"queueAlias": "Scout", "queueOrder": 2, "queueUrl": scout},
    ]
    return assets(queues)


def into_cc(post: Postingest, asset: str = ASSET, content: str = INPUT) -> None:
    post.put(asset, content)
    post.follow()
    assert post.at(asset) == ("CC", "QUEUED")


def into_scout(post: Postingest, asset: str = ASSET) -> None:
    into_cc(post, asset)
    post.confirm("CC", text(PATHS), asset)
    post.follow()
    assert post.at(asset) == ("Scout", "QUEUED")


# When ---------------------------------------------------------------------------------------------
def test_what_has_been_in_its_queue_for_as_long_as_that_keeps_it_is_sent_again(
    open_at: Opener, queue: Callable[[int], str]
) -> None:
    """Scenario 27: a queue that keeps messages four days."""
    own = queue(FOUR_DAYS // 1000)
    clock = VirtualClock()
    post = open_at(clock, route=confirmers(own))
    for asset, wait in ((ASSET, "23h"), (OTHER, "23h 59m"), (THIRD, 0)):
        into_cc(post, asset)
        clock.advance(wait)
    post.received("CC", own)
    # Now the first has been there for 1 d 22 h 59 m, the second for 23 h 59 m, the third has just
    # come.
    clock.advance("3d")
    before = {asset: post.row(asset) for asset in (ASSET, OTHER, THIRD)}
    told = len([event for event in post.told.events if event.kind != "offered"])
    assert post.resend().resent == 1
    assert [message.asset for message in post.received("CC", own)] == [ASSET]
    assert [post.row(OTHER), post.row(THIRD)] == [before[OTHER], before[THIRD]]
    assert post.resend().resent == 0
    clock.advance("2m")
    assert post.resend().resent == 1
    assert [message.asset for message in post.received("CC", own)] == [OTHER]
    now = clock.now()
    assert (post.moment("lastQueued", OTHER), post.moment("dueAt", OTHER)) == (now, now + FOUR_DAYS)
    after, first = post.row(OTHER), before[OTHER]
    assert after is not None
    assert first is not None
    assert (after["firstQueued"], after["queue"]) == (first["firstQueued"], {"S": "CC"})
    assert len([event for event in post.told.events if event.kind != "offered"]) == told
    assert post.lines(OTHER) == ["accepted", "resent"]


def test_to_the_millisecond(open_at: Opener, queue: Callable[[int], str]) -> None:
    """Scenario 27: while the message may still be there it is not doubled; at the moment at which
    it is gone it is sent again."""
    own = queue(FOUR_DAYS // 1000)
    clock = VirtualClock()
    post = open_at(clock, route=confirmers(own))
    into_cc(post)
    clock.advance_to(clock.now() + FOUR_DAYS - 1)
    assert post.resend().resent == 0
    clock.advance_to(clock.now() + 1)
    assert post.resend().resent == 1


def test_it_is_sent_again_and_again_until_it_is_confirmed(open_at: Opener) -> None:
    """Scenario 27: a stage that takes months."""
    clock = VirtualClock(AHEAD)
    post = open_at(clock)
    into_scout(post)
    post.received("Scout")
    for _ in range(5):
        clock.advance("14d")
        # Where a run finds that it is late as well, people are told of that first; the next one
        # sends.
        assert post.resend().resent + post.resend().resent == 1
        assert post.resend().resent == 0
        assert len(post.received("Scout")) == 1
    post.confirm("Scout", text(VOLUMES))
    post.follow()
    clock.advance("15d")
    assert post.resend().resent == 0
    assert (post.at(), post.received("Scout")) == (("Scout", "COMPLETED"), [])


# How long a queue keeps it ------------------------------------------------------------------------
def test_each_stage_goes_by_its_own_queue(open_at: Opener, queue: Callable[[int], str]) -> None:
    """Scenarios 27 and 29: four days at the one, ten at the other; on the first send, on the next
    stage's and on a resend."""
    cc, scout = queue(FOUR_DAYS // 1000), queue(10 * DAY // 1000)
    post = open_at(VirtualClock(), route=confirmers(cc, scout))
    into_cc(post)
    assert post.moment("dueAt") - post.moment("lastQueued") == FOUR_DAYS
    post.clock.advance("4d")
    assert post.resend().resent == 1
    assert post.moment("dueAt") - post.moment("lastQueued") == FOUR_DAYS
    post.confirm("CC", text(PATHS))
    post.follow()
    assert post.moment("dueAt") - post.moment("lastQueued") == 10 * DAY
    assert {stage.name: stage.offer_life_ms for stage in post.plan.stages} == {
        "CC": FOUR_DAYS,
        "Scout": 10 * DAY,
    }


def test_a_queue_of_our_own_name_is_asked_too(
    open_at: Opener, client: Callable[[str], Any]
) -> None:
    """Scenario 27: whoever deploys the queues says how long they keep messages."""
    first = open_at(VirtualClock())
    url = first.store.queues.url(first.route, "CC")
    client("sqs").set_queue_attributes(QueueUrl=url, Attributes={"MessageRetentionPeriod": "3600"})
    second = open_at(VirtualClock(), make=False)
    into_cc(second)
    assert second.moment("dueAt") - second.moment("lastQueued") == 3_600_000


def test_a_lost_call_of_a_handlers_stage_is_made_again_within_minutes(open_at: Opener) -> None:
    """However long its queue keeps messages."""
    route = Route("loans", key=("assetId", "batchId"))
    route.stage("fetch")(lambda item: Done())
    post = open_at(VirtualClock(), route=route)
    post.put()
    post.follow()
    assert post.at() == ("fetch", "QUEUED")
    assert post.moment("dueAt") - post.moment("lastQueued") == 600_000
    post.received("fetch")
    post.clock.advance("11m")
    assert post.resend().offered == 1
    assert len(post.received("fetch")) == 1


def test_a_stage_that_says_when_it_is_offered_again_is_not_asked_for_its_queue(
    open_at: Opener, queue: Callable[[int], str]
) -> None:
    """Scenario 27: `resend_after` wins."""
    own = queue(FOUR_DAYS // 1000)
    post = open_at(VirtualClock(), route=confirmers(own, resendAfter="2d"))
    into_cc(post)
    assert post.moment("dueAt") - post.moment("lastQueued") == 2 * DAY
    post.clock.advance("2d")
    assert post.resend().resent == 1
    assert post.moment("dueAt") - post.moment("lastQueued") == 2 * DAY
    assert post.store.requests.counts["sqs", "get_queue_attributes"] == 1


def test_queues_are_asked_once(open_at: Opener) -> None:
    post = open_at()
    for number in range(5):
        into_scout(post, f"asset-{number}")
    post.resend()
    assert post.store.requests.counts["sqs", "get_queue_attributes"] == 2


# What ---------------------------------------------------------------------------------------------
@pytest.mark.parametrize("content", [INPUT, "plain text", '{"title":"Übergröße 日本語"}'])
def test_a_message_is_the_same_the_first_time_and_every_other_time(
    open_at: Opener, content: str
) -> None:
    """Scenario 30: theirs has another field name in a resend."""
    post = open_at(VirtualClock())
    into_cc(post, content=content)
    (first,) = post.bodies(post.store.queues.url(post.route, "CC"))
    post.clock.advance("14d")
    post.resend()
    assert post.bodies(post.store.queues.url(post.route, "CC")) == [first]


@pytest.mark.parametrize(
    "rewrite", [None, '{"files":["on disk"]}'], ids=["result", "rewritten input"]
)
@pytest.mark.parametrize(
    "value", [text(PATHS), {"M": {"n": {"N": "1"}}}, {"BOOL": True}], ids=["text", "typed", "yes"]
)
def test_a_resend_for_the_second_stage_has_the_second_stages_payload(
    open_at: Opener, value: dict[str, Any], rewrite: str | None
) -> None:
    """Scenario 30: theirs sends the first stage's input, which no tape confirmer can use."""
    post = open_at(VirtualClock())
    into_cc(post)
    post.confirm("CC", value, rewrite=rewrite)
    post.follow()
    (first,) = post.bodies(post.store.queues.url(post.route, "Scout"))
    wanted = {True: PAYLOAD}.get("BOOL" in value, PATHS if "S" in value else {"n": 1})
    assert json.loads(first) == (wanted if rewrite is None else json.loads(rewrite))
    post.clock.advance("14d")
    assert post.resend().resent == 1
    assert post.bodies(post.store.queues.url(post.route, "Scout")) == [first]
    offered = [
        envelope["data"]["payload"]
        for envelope in post.told.envelopes
        if envelope["data"]["reason"] == "offered"
    ]
    assert offered[-1] == json.loads(first)


def test_a_resend_for_the_first_stage_has_what_it_was_given_though_the_input_was_rewritten_since(
    open_at: Opener,
) -> None:
    """Scenario 30: sends, resends and send-backs use what was kept."""
    post = open_at(VirtualClock())
    into_cc(post)
    (first,) = post.bodies(post.store.queues.url(post.route, "CC"))
    post.confirm("CC", {"S": "false"}, rewrite='{"too":"early"}')
    post.follow()
    post.clock.advance("14d")
    assert post.resend().resent == 1
    assert post.bodies(post.store.queues.url(post.route, "CC")) == [first]


def test_rows_of_another_stage_are_never_touched(
    open_at: Opener, queue: Callable[[int], str]
) -> None:
    """Scenario 29: however old they are."""
    cc = queue(3600)
    post = open_at(VirtualClock(), route=confirmers(cc))
    into_scout(post, OTHER)
    into_cc(post)
    untouched = post.row(OTHER)
    post.received("Scout")
    post.received("CC", cc)
    post.clock.advance("13d 23h")
    assert post.resend().resent == 1
    assert (len(post.received("CC", cc)), post.received("Scout")) == (1, [])
    assert post.row(OTHER) == untouched


def test_a_row_confirmed_just_before_is_moved_on_instead_of_sent_again(open_at: Opener) -> None:
    """Scenario 31: the relay has been down; the resender meets the confirmation on the row."""
    post = open_at(VirtualClock())
    into_cc(post)
    post.received("CC")
    post.confirm("CC", text(PATHS))
    post.clock.advance("15d")
    summary = Resender(post.ctx).run_once()
    assert (summary.confirmed, summary.resent) == (1, 0)
    post.follow()
    assert post.at() == ("Scout", "QUEUED")
    assert post.received("CC") == []
    assert {message.body["filePaths"][0] for message in post.received("Scout")} == {
        PATHS["filePaths"][0]
    }


def test_a_run_reads_what_is_due_and_nothing_else(open_at: Opener) -> None:
    """Scenario 29: by the index, stage by stage; never the whole table."""
    post = open_at(VirtualClock())
    for number in range(12):
        into_cc(post, f"asset-{number}")
    post.store.requests.counts.clear()
    summary = Resender(post.ctx).run_once()
    assert (summary.looked, summary.resent) == (0, 0)
    counts = post.store.requests.counts
    assert (
        counts["dynamodb", "scan"],
        counts["dynamodb", "batch_get_item"],
        counts["sqs", "send_message_batch"],
    ) == (0, 0, 0)


# What goes wrong ----------------------------------------------------------------------------------
def test_a_row_that_goes_between_the_look_and_the_write_is_not_made_again(open_at: Opener) -> None:
    """Scenario 31: theirs leaves a ghost, which then blocks the stream."""
    post = open_at(VirtualClock())
    into_cc(post)
    into_cc(post, OTHER)
    post.clock.advance("15d")

    def remove_first(operation: str, params: dict[str, Any]) -> None:
        if operation == "update_item" and params.get("Key") == post.key():
            post.delete()

    with post.before_each_call(remove_first):
        summary = Resender(post.ctx).run_once()
    assert summary.resent == 1
    assert post.row() is None
    post.follow()
    assert post.row() is None
    assert post.lines(OTHER) == ["accepted", "resent"]


@pytest.mark.parametrize("how", ["a wrong status", "no head", "no blob"])
def test_one_bad_row_keeps_no_other_from_being_sent_again(open_at: Opener, how: str) -> None:
    """Scenario 31: of its own stage and of a later one."""
    post = open_at(VirtualClock())
    large = {"assetId": ASSET, "batchId": BATCH, "input": {"large": "x" * 10_000}}
    assert submit(post.ctx, post.route, [large])[0].answer == "new"
    into_cc(post, OTHER)
    into_scout(post, THIRD)
    post.received("CC")
    post.received("Scout")
    if how == "a wrong status":
        post.set("status", {"S": "LOST IN THE POST"})
    elif how == "no head":
        post.take_off("head")
    else:
        row = post.row()
        assert row is not None
        post.store.blobs.remove(row["input"]["M"]["blob"]["S"])
    post.clock.advance("15d")
    summary = Resender(post.ctx).run_once()
    assert summary.resent == 2
    assert [message.asset for message in post.received("CC")] == [OTHER]
    assert [message.asset for message in post.received("Scout")] == [THIRD]


@pytest.mark.parametrize("operation", ["query", "send_message_batch", "update_item"])
def test_what_aws_refuses_is_told_and_done_by_the_next_run(open_at: Opener, operation: str) -> None:
    """Scenario 29: no failure is swallowed, and the row never says that a message was sent which
    was not."""
    post = open_at(VirtualClock())
    into_cc(post)
    post.received("CC")
    post.clock.advance("15d")
    before = post.row()

    def busy(called: str, params: dict[str, Any]) -> None:
        if called == operation and params.get("TableName") in (None, post.table):
            raise LedgerBusy("it does not answer")

    with post.before_each_call(busy), pytest.raises(LedgerBusy):
        Resender(post.ctx).run_once()
    assert post.row() == before
    sent_already = len(post.received("CC"))
    assert sent_already == (1 if operation == "update_item" else 0)
    assert post.resend().resent == 1
    assert len(post.received("CC")) == 1


def test_a_queue_that_cannot_be_asked_is_told(open_at: Opener, endpoint: str) -> None:
    """Scenario 29."""
    post = open_at()

    def busy(called: str, params: dict[str, Any]) -> None:
        if called == "get_queue_attributes":
            raise LedgerBusy("it does not answer")

    timing = post.ledger.timing
    route = assets(name="others")
    with post.before_each_call(busy), pytest.raises(LedgerBusy):
        post.ledger.prepare(
            Plan(route, grace_ms=timing.grace_ms, offer_life_ms=timing.offer_life_ms)
        )
    post.ledger.prepare(Plan(route, grace_ms=timing.grace_ms, offer_life_ms=timing.offer_life_ms))


def test_two_resenders_at_once_make_one_line(open_at: Opener) -> None:
    """Scenario 31: a message too many at the most, and it is the same one."""
    post = open_at(VirtualClock())
    into_cc(post)
    (first,) = post.bodies(post.store.queues.url(post.route, "CC"))
    post.clock.advance("15d")
    runs = []

    def another_first(operation: str, params: dict[str, Any]) -> None:
        if operation == "send_message_batch" and not runs:
            runs.append(0)
            post.clock.advance("1s")
            runs[0] = Resender(post.ctx).run_once().resent

    with post.before_each_call(another_first):
        assert Resender(post.ctx).run_once().resent == 0
    assert runs == [1]
    post.follow()
    assert post.lines() == ["accepted", "resent"]
    assert set(post.bodies(post.store.queues.url(post.route, "CC"))) == {first}


def test_rows_at_a_stage_that_the_route_has_not_got_any_more_are_told_of(open_at: Opener) -> None:
    """Scenario 34: theirs forgets them; here nothing starts until a person has said where they
    go."""
    offsite = {"queueAlias": "Offsite", "queueOrder": 1, "statusText": "Tapes are off site."}
    wide = assets([offsite, {"queueAlias": "CC", "queueOrder": 2}])
    post = open_at(route=wide)
    register(post.ledger, post.plan, post.clock.now(), "ops")
    post.put()
    post.follow()
    assert post.at() == ("Offsite", "QUEUED")
    narrow = assets([{"queueAlias": "CC", "queueOrder": 1}])
    with pytest.raises(RouteChanged, match=r"removed 'Offsite' \(1 item there\)"):
        register(post.ledger, Plan(narrow), post.clock.now(), "ops")
    ctx = Context(
        post.ledger, {post.route: Plan(narrow)}, post.clock, SeededChance(), MemoryBlobs()
    )
    assert status(ctx)["routes"][post.route]["stages"] == {"CC": {}, "Offsite": {"QUEUED": 1}}
    report = doctor(ctx)
    assert [finding.what for finding in report.findings if finding.level == "bad"] == [
        "assets: the route file differs from version 1 in the ledger"
    ]
