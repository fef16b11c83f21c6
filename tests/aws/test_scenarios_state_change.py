"""The postingest document's state-change handler, scenario by scenario: rows that a step function puts, confirmers that add an
attribute, and all that they do wrong. Numbers are those of the scenario list for this system."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from postingest_scene import (
    ASSET,
    BATCH,
    INPUT,
    OTHER,
    PATHS,
    VOLUMES,
    Opener,
    Postingest,
    assets,
    opener,
    text,
)

from milepost.core.due import Grip
from milepost.core.errors import LedgerBusy
from milepost.core.outcome import Done, Retry
from milepost.core.route import Route
from milepost.engine.operate import act
from milepost.engine.settle import settle
from milepost.ports.ledger import Ask
from milepost.ports.runner import Ran

NOTHING = [
    {"BOOL": False}, {"S": "false"}, {"S": "False"}, {"S": "no"}, {"S": ""}, {"S": " "}, {"S": "0"}, {"S": "null"}, {"S": "{}"}, {"S": "[]"},
    {"N": "0"}, {"NULL": True}, {"L": []}, {"M": {}},
]  # fmt: skip
SOMETHING = [
    ({"BOOL": True}, True),
    ({"N": "1"}, 1),
    ({"S": "done"}, "done"),
    ({"S": "true"}, True),
    (text(PATHS), PATHS),
    ({"M": {"filePaths": {"L": [{"S": "a"}, {"S": "b"}]}}}, {"filePaths": ["a", "b"]}),
    ({"L": [{"S": "a"}, {"N": "2"}]}, ["a", 2]),
]
PAYLOAD = json.loads(INPUT)


@pytest.fixture
def open_at(endpoint: str, prefix: str) -> Iterator[Opener]:
    with opener(endpoint, prefix) as open_at:
        yield open_at


@pytest.fixture(params=[0, "1h"], ids=["at once", "an hour later"])
def post(endpoint: str, prefix: str, request: pytest.FixtureRequest) -> Iterator[Postingest]:
    """The relay reads a record when it is made, and goes by what it shows; or long after, and reads the row again."""
    with opener(endpoint, prefix, request.param) as open_at:
        yield open_at()


def in_cc(post: Postingest, asset: str = ASSET) -> None:
    """An asset that has been offered to the first confirmer, who has taken its message."""
    post.put(asset)
    post.follow()
    assert post.at(asset) == ("CC", "QUEUED")
    post.received("CC")


def in_scout(post: Postingest, asset: str = ASSET) -> None:
    in_cc(post, asset)
    post.confirm("CC", text(PATHS), asset)
    post.follow()
    assert post.at(asset) == ("Scout", "QUEUED")
    post.received("Scout")


def ended(post: Postingest, asset: str = ASSET) -> None:
    in_scout(post, asset)
    post.confirm("Scout", text(VOLUMES), asset)
    post.follow()
    assert post.at(asset) == ("Scout", "COMPLETED")


# Rows that a step function puts --------------------------------------------------------------------------------------------
def test_a_row_that_a_step_function_puts_is_adopted_and_offered_once(post: Postingest) -> None:
    """Scenario 1."""
    post.put()
    began = post.clock.now()
    post.follow()
    assert post.at() == ("CC", "QUEUED")
    row = post.row()
    assert row is not None
    assert row["queue"] == {"S": "CC"}
    assert row["input"] == {"S": INPUT}
    assert row["firstQueued"] == row["lastQueued"]
    assert began <= post.moment("lastQueued") <= post.clock.now()
    (message,) = post.received("CC")
    assert message.body == PAYLOAD
    assert message.key == {"assetId": ASSET, "batchId": BATCH}
    assert (message.labels["stage"], message.labels["attribute"]) == ("CC", "ingested_CC")
    assert message.labels["workId"] == post.item().work_id
    assert post.received("Scout") == []
    assert post.lines() == ["accepted"]
    assert post.events() == [("accepted", "CC", "QUEUED"), ("offered", "CC", "QUEUED")]


def test_the_offer_that_is_told_has_what_the_message_has(post: Postingest) -> None:
    """Scenario 1: whoever listens to events instead of the queue can do the work too."""
    post.put()
    post.follow()
    (message,) = post.received("CC")
    offered = next(envelope for envelope in post.told.envelopes if envelope["data"]["reason"] == "offered")
    assert offered["data"]["payload"] == message.body == PAYLOAD
    assert offered["data"]["work_id"] == message.labels["workId"]


@pytest.mark.parametrize("content", [PAYLOAD, "input", "", 7, ["a"], {"nested": {"deep": [1, 2]}}])
def test_json_is_passed_on_as_json_and_other_text_as_text(open_at: Opener, content: Any) -> None:
    """Scenario 2: text as it is, but for an empty one, which no queue takes."""
    post = open_at()
    post.put(content=content if isinstance(content, str) else json.dumps(content))
    post.follow()
    (body,) = post.bodies(post.store.queues.url(post.route, "CC"))
    assert (body if content and isinstance(content, str) else json.loads(body)) == content


@pytest.mark.parametrize("given", ["b0b41d4e-2c1f-4e0a-9f3a-1d2b3c4d5e6f", None])
def test_a_correlation_id_on_the_row_is_told_in_everything(open_at: Opener, given: str | None) -> None:
    """Scenario 3: without one the item is given its own, the same on every hop."""
    post = open_at()
    post.put(**({} if given is None else {"correlationId": {"S": given}}))
    post.follow()
    (message,) = post.received("CC")
    correlation = message.labels["correlationId"]
    assert correlation == (given or post.item().row.correlation_id)
    assert {event.correlation_id for event in post.told.events} == {correlation}


def test_the_relays_own_writes_lead_to_nothing(post: Postingest) -> None:
    """Scenario 7."""
    post.put()
    post.follow()
    told, records = len(post.told.events), sum(map(len, post.batches))
    post.received("CC")
    version = post.item().row.version
    post.set("remark", {"S": "seen by the desk"})
    post.set("lastQueued", {"S": "2038-01-19T03:14:07.000Z"})
    post.follow()
    assert sum(map(len, post.batches)) == records + 2
    assert (post.at(), post.item().row.version, len(post.told.events)) == (("CC", "QUEUED"), version, told)
    assert (post.received("CC"), post.received("Scout"), post.aside()) == ([], [], [])


def test_the_same_asset_in_two_batches_is_two_items(post: Postingest) -> None:
    """Weak point 24: each has its own way and its own end, under its own name."""
    post.put()
    post.put(batch="TDR_5d29749b-4891-4ae4-abdd-d57c9bab00ee")
    post.follow()
    assert sorted(message.key["batchId"] for message in post.received("CC")) == sorted([BATCH, "TDR_5d29749b-4891-4ae4-abdd-d57c9bab00ee"])
    post.confirm("CC", text(PATHS))
    post.follow()
    assert [message.key["batchId"] for message in post.received("Scout")] == [BATCH]


def test_a_row_that_is_gone_before_its_record_is_read_is_not_made_again(open_at: Opener) -> None:
    """Scenario 12: and the rest of the batch goes on."""
    post = open_at()
    post.put()
    post.put(OTHER)
    post.delete()
    post.follow()
    assert post.row() is None
    assert post.at(OTHER) == ("CC", "QUEUED")
    assert post.lines() == []
    assert post.events() == []


def test_a_row_that_goes_while_it_is_being_adopted_is_not_made_again(open_at: Opener) -> None:
    """Scenario 12: the write is conditional, so that it leaves no ghost; nothing is told of an item that never was."""
    post = open_at()
    post.put()

    def remove_first(operation: str, params: dict[str, Any]) -> None:
        if operation == "update_item" and params["TableName"] == post.table:
            post.delete()

    with post.before_each_call(remove_first):
        post.follow()
    post.follow()
    assert post.row() is None
    assert post.events() == []


# Confirmations in order ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("guarded", [True, False], ids=["if it exists", "in any case"])
def test_a_confirmation_moves_the_asset_to_the_next_stage_with_the_result_as_its_payload(post: Postingest, guarded: bool) -> None:
    """Scenario 4."""
    in_cc(post)
    first_queued = post.moment("firstQueued")
    post.confirm("CC", text(PATHS), guarded=guarded)
    post.follow()
    assert post.at() == ("Scout", "QUEUED")
    (message,) = post.received("Scout")
    assert message.body == PATHS
    assert (message.labels["stage"], message.labels["attribute"]) == ("Scout", "ingested_Scout")
    assert post.moment("firstQueued") == post.moment("lastQueued") >= first_queued
    assert post.received("CC") == []
    assert post.events()[2:] == [("confirmed", "CC", "QUEUED"), ("offered", "Scout", "QUEUED")]
    assert post.item().results == {"CC": PATHS}


@pytest.mark.parametrize("guarded", [True, False], ids=["if it exists", "in any case"])
@pytest.mark.parametrize("value", [{"BOOL": True}, text(PATHS)], ids=["bare", "with a result"])
def test_a_confirmer_that_rewrites_the_input_says_what_the_next_stage_is_given(
    post: Postingest, guarded: bool, value: dict[str, Any]
) -> None:
    """Scenario 4, as in the document: `SET ingested_CC = :x, input = :y`."""
    in_cc(post)
    digest = post.item().row.input_digest
    post.confirm("CC", value, rewrite='{"files":["on disk"]}', guarded=guarded)
    post.follow()
    (message,) = post.received("Scout")
    assert message.body == {"files": ["on disk"]}
    offered = [envelope["data"]["payload"] for envelope in post.told.envelopes if envelope["data"]["reason"] == "offered"]
    assert offered == [PAYLOAD, {"files": ["on disk"]}]
    assert post.item().row.input_digest == digest


def test_a_rewritten_input_with_the_last_confirmation_changes_nothing_of_the_record(post: Postingest) -> None:
    """Scenario 5: what was handed over is what the seal remembers."""
    in_scout(post)
    digest = post.item().row.input_digest
    post.confirm("Scout", {"BOOL": True}, rewrite='{"nobody":"is next"}')
    post.follow()
    assert post.at() == ("Scout", "COMPLETED")
    known = post.ledger.peek(post.route, [f"{ASSET}#{BATCH}"])[0]
    assert known is not None
    assert known.input_digest == digest


def test_an_input_rewritten_without_a_confirmation_confirms_nothing_and_reaches_nobody_yet(post: Postingest) -> None:
    """Scenario 16: the first stage's own payload is kept apart, so a resend of it is as before."""
    in_cc(post)
    post.set("input", {"S": '{"early":1}'})
    post.follow()
    assert post.at() == ("CC", "QUEUED")
    post.clock.advance("15d")
    assert post.resend().resent == 1
    (message,) = post.received("CC")
    assert message.body == PAYLOAD


def test_the_last_confirmation_ends_the_asset_and_leaves_the_others_alone(post: Postingest) -> None:
    """Scenario 5."""
    in_scout(post)
    in_scout(post, OTHER)
    post.confirm("Scout", text(VOLUMES))
    post.follow()
    assert post.at() == ("Scout", "COMPLETED")
    assert post.at(OTHER) == ("Scout", "QUEUED")
    assert post.events()[-1] == ("confirmed", "Scout", "COMPLETED")
    assert (post.received("CC"), post.received("Scout")) == ([], [])
    assert post.item().results == {"CC": PATHS, "Scout": VOLUMES}


def test_from_end_to_end_each_event_is_told_once_and_in_order(post: Postingest) -> None:
    """Scenario 35: two messages sent, two taken; three events, and two offers beside them; nothing set aside."""
    post.put()
    post.follow()
    assert len(post.received("CC")) == 1
    post.confirm("CC", text(PATHS))
    post.follow()
    assert len(post.received("Scout")) == 1
    post.confirm("Scout", text(VOLUMES))
    post.follow()
    assert [event for event in post.events() if event[0] != "offered"] == [
        ("accepted", "CC", "QUEUED"),
        ("confirmed", "CC", "QUEUED"),
        ("confirmed", "Scout", "COMPLETED"),
    ]
    assert len({event.id for event in post.told.events}) == len(post.told.events) == 5
    assert post.lines() == ["accepted", "confirmed", "confirmed"]
    assert (post.received("CC"), post.received("Scout"), post.aside()) == ([], [], [])
    counted = {(count.stage, count.status.value): count.n for count in post.ledger.counts(post.route) if count.n}
    assert counted == {("Scout", "COMPLETED"): 1}


@pytest.mark.parametrize(("value", "result"), SOMETHING)
def test_each_valid_kind_of_value_confirms(open_at: Opener, value: dict[str, Any], result: Any) -> None:
    """Scenario 4: a plain yes is no content, so that the next stage works on what this one did."""
    post = open_at()
    in_cc(post)
    post.confirm("CC", value)
    post.follow()
    assert post.at() == ("Scout", "QUEUED")
    assert post.item().results["CC"] == result
    (message,) = post.received("Scout")
    assert message.body == (PAYLOAD if result is True else result)


def test_all_values_that_say_no_confirm_nothing(post: Postingest) -> None:
    """Scenario 16: and a proper one after them does."""
    in_cc(post)
    for value in NOTHING:
        post.confirm("CC", value)
        post.follow()
        assert post.at() == ("CC", "QUEUED"), value
    assert post.received("Scout") == []
    assert post.lines() == ["accepted"]
    post.confirm("CC", text(PATHS))
    post.follow()
    assert post.at() == ("Scout", "QUEUED")


@pytest.mark.parametrize("stage", ["CC", "Scout"])
def test_a_confirmation_set_and_taken_off_before_it_is_read_confirms_nothing(post: Postingest, stage: str) -> None:
    """Scenario 16: what counts is how the row stands."""
    in_cc(post) if stage == "CC" else in_scout(post)
    post.confirm(stage, text(PATHS))
    post.take_off(f"ingested_{stage}")
    post.follow()
    assert post.at() == (stage, "QUEUED")
    assert post.aside() == []


def test_taking_off_what_confirmed_nothing_confirms_nothing(post: Postingest) -> None:
    """Scenario 16: theirs takes any difference for a confirmation."""
    in_scout(post)
    post.confirm("Scout", {"S": "false"})
    post.follow()
    post.take_off("ingested_Scout")
    post.follow()
    assert post.at() == ("Scout", "QUEUED")
    assert post.events()[-1] == ("offered", "Scout", "QUEUED")


@pytest.mark.parametrize("how", ["taken off", "emptied", "changed"])
def test_a_confirmation_tampered_with_after_it_was_applied_changes_nothing_for_the_next_stage(post: Postingest, how: str) -> None:
    """Scenarios 16 and 30: the first valid one stands, that another came is noted, and a resend has the same payload."""
    in_scout(post)
    if how == "taken off":
        post.take_off("ingested_CC")
    else:
        post.confirm("CC", {"S": ""} if how == "emptied" else text({"filePaths": ["elsewhere"]}))
    post.follow()
    assert post.at() == ("Scout", "QUEUED")
    assert post.item().results == {"CC": PATHS}
    assert [note["for"] for note in post.notes()] == ["CC"]
    assert post.received("Scout") == []
    post.clock.advance("15d")
    assert post.resend().resent == 1
    (message,) = post.received("Scout")
    assert message.body == PATHS


def test_tampering_and_the_next_confirmation_in_one_batch_leave_the_first_standing(post: Postingest) -> None:
    """Scenario 16: several changes of one row come together when the relay is behind."""
    in_scout(post)
    post.confirm("CC", text({"filePaths": ["elsewhere"]}))
    post.set("remark", {"S": "looked at"})
    post.follow()
    assert post.item().results == {"CC": PATHS}
    assert post.notes() == [{"for": "CC", "differs": {"filePaths": ["elsewhere"]}}]


def test_the_same_confirmation_twice_is_one(post: Postingest) -> None:
    """Scenario 13: a confirmer that runs again writes what is there already."""
    in_cc(post)
    for _ in range(2):
        post.confirm("CC", text(PATHS))
        post.follow()
        post.confirm("CC", text(PATHS))
    post.follow()
    assert post.at() == ("Scout", "QUEUED")
    assert len(post.received("Scout")) == 1
    assert post.lines() == ["accepted", "confirmed"]


def test_two_different_confirmations_before_they_are_read_make_one_step(post: Postingest) -> None:
    """Scenario 13: the row shows the later one, and only that; nothing is sent twice."""
    in_cc(post)
    post.confirm("CC", text(PATHS))
    post.confirm("CC", text({"filePaths": ["later"]}))
    post.follow()
    assert post.at() == ("Scout", "QUEUED")
    assert len(post.received("Scout")) == 1
    assert post.lines()[:2] == ["accepted", "confirmed"]


# Out of order --------------------------------------------------------------------------------------------------------------
def test_a_confirmation_for_a_later_stage_is_kept_until_the_asset_gets_there(post: Postingest) -> None:
    """Scenario 8."""
    in_cc(post)
    post.confirm("Scout", text(VOLUMES))
    post.follow()
    assert post.at() == ("CC", "QUEUED")
    assert post.events()[-1] == ("offered", "CC", "QUEUED")
    post.confirm("CC", text(PATHS))
    post.follow()
    assert post.at() == ("Scout", "COMPLETED")
    assert post.item().results == {"CC": PATHS, "Scout": VOLUMES}
    assert [event for event in post.events() if event[0] == "confirmed"] == [
        ("confirmed", "CC", "QUEUED"),
        ("confirmed", "Scout", "COMPLETED"),
    ]


def test_an_early_confirmation_taken_off_again_is_forgotten(post: Postingest) -> None:
    """Scenarios 8 and 16."""
    in_cc(post)
    post.confirm("Scout", text(VOLUMES))
    post.follow()
    post.take_off("ingested_Scout")
    post.follow()
    post.confirm("CC", text(PATHS))
    post.follow()
    assert post.at() == ("Scout", "QUEUED")
    assert len(post.received("Scout")) == 1


def test_both_confirmations_in_one_batch_are_applied_in_the_routes_order(post: Postingest) -> None:
    """Scenario 8."""
    in_cc(post)
    post.confirm("Scout", text(VOLUMES))
    post.confirm("CC", text(PATHS))
    post.follow()
    assert post.at() == ("Scout", "COMPLETED")
    assert post.lines() == ["accepted", "confirmed", "confirmed"]


def test_confirmations_made_while_the_relay_is_down_are_applied_when_it_reads_on(post: Postingest) -> None:
    """Scenario 8: rows put, confirmed and put again, all unread."""
    in_cc(post)
    post.put(OTHER)
    post.confirm("CC", text(PATHS))
    post.clock.advance("20h")
    post.confirm("Scout", text(VOLUMES))
    post.follow()
    assert post.at() == ("Scout", "COMPLETED")
    assert post.at(OTHER) == ("CC", "QUEUED")
    assert [event[:2] for event in post.events() if event[0] != "offered"] == [
        ("accepted", "CC"),
        ("confirmed", "CC"),
        ("confirmed", "Scout"),
    ]


def test_a_confirmation_for_a_stage_that_the_route_has_not_got_does_nothing(post: Postingest) -> None:
    """Scenario 34."""
    in_cc(post)
    post.confirm("Offsite", text(PATHS))
    post.follow()
    assert post.at() == ("CC", "QUEUED")
    post.confirm("CC", text(PATHS))
    post.follow()
    assert post.at() == ("Scout", "QUEUED")
    assert len(post.received("Scout")) == 1


def test_a_different_confirmation_after_the_end_changes_nothing(post: Postingest) -> None:
    """Scenario 13: nothing is told again, nothing is sent again."""
    ended(post)
    told = list(post.events())
    post.confirm("Scout", text({"elsewhere": ["L1"]}))
    post.take_off("ingested_CC")
    post.follow()
    assert post.at() == ("Scout", "COMPLETED")
    assert post.events() == told
    assert (post.received("CC"), post.received("Scout"), post.aside()) == ([], [], [])


# A worker of ours at work on it ---------------------------------------------------------------------------------------------
def fetched(open_at: Opener, **options: Any) -> Postingest:
    """A route whose first stage is a handler's."""
    route = Route("loans", key=("assetId", "batchId"), **options)
    route.stage("fetch")(lambda item: Done())
    route.external("CC")
    return open_at(route=route)


def claimed(post: Postingest) -> Any:
    now = post.clock.now()
    grip = Grip(f"token-{now}", "worker", now + 60_000)
    (answer,) = post.ledger.claim([Ask(post.plan, "fetch", 1, grip)], now, 0.0)
    (item,) = answer.items
    return item


@pytest.mark.parametrize("read_before", [True, False], ids=["read before it settles", "unread"])
@pytest.mark.parametrize("outcome", [Retry("no"), Done({"by": "the worker"})], ids=["failed", "done"])
def test_a_confirmation_beats_the_outcome_of_the_worker_at_work(open_at: Opener, read_before: bool, outcome: Any) -> None:
    """Scenario 8: an outsider's word counts like one of our own, and the first wins."""
    post = fetched(open_at)
    post.put()
    post.follow()
    item = claimed(post)
    post.confirm("fetch", text({"by": "somebody outside"}))
    if read_before:
        post.follow()
        assert post.at() == ("fetch", "PROCESSING")
    settled = settle(post.ctx, [Ran(item, outcome, 5)])
    assert (settled.written, settled.refused) == (1, 0)
    post.follow()
    assert post.at() == ("CC", "QUEUED")
    (message,) = post.received("CC")
    assert message.body["payload"] == {"by": "somebody outside"}
    assert post.lines() == ["accepted", "confirmed", "offered"]
    assert post.item().row.total_attempts == 0


def test_a_confirmation_taken_off_while_the_worker_is_at_work_does_not_beat_it(open_at: Opener) -> None:
    """Scenario 16."""
    post = fetched(open_at)
    post.put()
    post.follow()
    item = claimed(post)
    post.confirm("fetch", text({"by": "somebody outside"}))
    post.follow()
    post.take_off("ingested_fetch")
    settle(post.ctx, [Ran(item, Done({"by": "the worker"}), 5)])
    post.follow()
    (message,) = post.received("CC")
    assert message.body["payload"] == {"by": "the worker"}


def test_a_rewritten_input_goes_with_a_confirmation_that_beats_the_worker(open_at: Opener) -> None:
    """Scenario 4, while a worker holds the item."""
    post = fetched(open_at)
    post.put()
    post.follow()
    item = claimed(post)
    post.confirm("fetch", {"BOOL": True}, rewrite='{"files":["on disk"]}')
    post.follow()
    settle(post.ctx, [Ran(item, Retry("no"), 5)])
    post.follow()
    assert post.at() == ("CC", "QUEUED")
    (message,) = post.received("CC")
    assert message.body["payload"] == {"files": ["on disk"]}


def test_a_row_put_again_while_a_worker_is_at_work_keeps_its_lease(open_at: Opener) -> None:
    """Scenario 17: the worker's outcome is still the worker's to write."""
    post = fetched(open_at)
    post.put()
    post.follow()
    item = claimed(post)
    post.put()
    post.follow()
    assert post.at() == ("fetch", "PROCESSING")
    assert settle(post.ctx, [Ran(item, Done({"by": "the worker"}), 5)]).written == 1
    post.follow()
    (message,) = post.received("CC")
    assert message.body["payload"] == {"by": "the worker"}


# Put again -----------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("content", [INPUT, '{"preservationSystemId":"another"}'], ids=["same content", "other content"])
@pytest.mark.parametrize("stage", ["CC", "Scout"])
def test_a_row_put_again_goes_on_from_where_it_was(post: Postingest, stage: str, content: str) -> None:
    """Scenario 17: never an orphan; that it was put again is noted, and what else was put with it."""
    in_cc(post) if stage == "CC" else in_scout(post)
    before = post.row()
    assert before is not None
    post.put(content=content)
    post.follow()
    row = post.row()
    assert row is not None
    assert post.at() == (stage, "QUEUED")
    same = ("queue", "firstQueued", "lastQueued", "dueAt", "dueShard", "createdAt", "inputDigest", "correlationId", "input")
    assert {name: row.get(name) for name in same} == {name: before.get(name) for name in same}
    assert post.lines()[-1] == "noted"
    assert post.notes() == [{"put again": "with the same content" if content == INPUT else {"input": json.loads(content)}}]
    assert (post.received("CC"), post.received("Scout"), post.aside()) == ([], [], [])
    post.confirm(stage, text(PATHS))
    post.follow()
    assert post.at() == (("Scout", "QUEUED") if stage == "CC" else ("Scout", "COMPLETED"))


def test_a_row_put_again_and_confirmed_before_that_is_read_goes_on(post: Postingest) -> None:
    """Scenario 17: both changes come in one batch; theirs is lost for good."""
    in_cc(post)
    post.put()
    post.confirm("CC", text(PATHS))
    post.follow()
    assert post.at() == ("Scout", "QUEUED")
    (message,) = post.received("Scout")
    assert message.body == PATHS
    assert post.lines() == ["accepted", "noted", "confirmed"]
    assert post.aside() == []


def test_a_row_put_twice_before_it_is_read_is_one_item(post: Postingest) -> None:
    """Scenario 17: a step function that tries again."""
    post.put()
    post.put()
    post.follow()
    assert post.at() == ("CC", "QUEUED")
    assert len(post.received("CC")) == 1
    assert post.lines() == ["accepted"]


def test_a_row_put_twice_with_other_content_is_the_later_one(post: Postingest) -> None:
    """Scenario 17: nobody had been given the first."""
    post.put(content='{"first":1}')
    post.put(content='{"second":2}')
    post.follow()
    (message,) = post.received("CC")
    assert message.body == {"second": 2}
    assert post.at() == ("CC", "QUEUED")


def test_an_ended_row_put_again_is_known(post: Postingest) -> None:
    """Scenario 17: its row is still there, and is as it was."""
    ended(post)
    told = post.events()
    post.put()
    post.follow()
    assert post.at() == ("Scout", "COMPLETED")
    assert post.item().results == {"CC": PATHS, "Scout": VOLUMES}
    assert (post.received("CC"), post.received("Scout"), post.aside()) == ([], [], [])
    assert post.events() == told
    row = post.row()
    assert row is not None
    assert "dueShard" not in row


def test_an_asset_put_again_after_its_row_has_left_is_known_by_its_seal(post: Postingest) -> None:
    """Scenario 17: the row goes again, and nobody does the work twice."""
    ended(post)
    post.delete()
    post.follow()
    told = post.events()
    post.put()
    post.follow()
    assert post.row() is None
    assert (post.received("CC"), post.aside()) == ([], [])
    assert post.events() == told


def test_an_asset_put_again_with_other_content_after_its_row_has_left_is_set_aside(post: Postingest) -> None:
    """Scenario 17: a conflict that people have to see."""
    ended(post)
    post.delete()
    post.follow()
    post.put(content='{"preservationSystemId":"another"}')
    post.follow()
    assert post.received("CC") == []
    (aside,) = post.aside()
    assert "ended before" in aside["reason"]
    assert aside["content"]["row"]["input"] == '{"preservationSystemId":"another"}'


# What is no row of ours ----------------------------------------------------------------------------------------------------
def test_a_ghost_that_an_update_leaves_behind_is_set_aside_and_its_neighbours_go_on(post: Postingest) -> None:
    """Scenarios 12 and 13: an UpdateItem without a condition on a key whose row has gone."""
    ended(post)
    post.delete()
    post.follow()
    post.put(OTHER)
    post.set("lastQueued", {"S": "2025-06-05T10:00"})
    post.follow()
    assert post.at(OTHER) == ("CC", "QUEUED")
    (aside,) = post.aside()
    assert "no input" in aside["reason"]
    assert aside["content"]["row"] == {"assetId": ASSET, "batchId": BATCH, "lastQueued": "2025-06-05T10:00"}
    assert len(post.received("CC")) == 1
    assert "version" not in (post.row() or {})


@pytest.mark.parametrize("content", [None, INPUT], ids=["a ghost", "with an input"])
def test_a_row_born_with_a_confirmation_is_set_aside(post: Postingest, content: str | None) -> None:
    """Scenario 12: an outsider's upsert is no proof of anything."""
    post.put(content=content, ingested_CC=text(PATHS))
    post.follow()
    assert (post.received("CC"), post.received("Scout")) == ([], [])
    (aside,) = post.aside()
    assert ("ingested_CC" if content else "no input") in aside["reason"]
    assert aside["content"]["row"]["ingested_CC"] == json.dumps(PATHS)
    assert post.lines() == []


@pytest.mark.parametrize("stage", ["CC", "Scout"])
def test_an_unfinished_row_that_somebody_deletes_is_set_aside_with_its_image(post: Postingest, stage: str) -> None:
    """Scenario 10: theirs ignores it; here its lines are in the history and people can see what it was."""
    in_cc(post) if stage == "CC" else in_scout(post)
    lines = post.lines()
    post.delete()
    post.follow()
    assert post.row() is None
    (aside,) = post.aside()
    assert f"{stage!r}" in aside["reason"]
    assert aside["content"]["old"]["input"] == INPUT
    assert aside["content"]["new"] is None
    assert post.lines() == lines
    assert {count.n for count in post.ledger.counts(post.route)} <= {0}


def test_lines_not_yet_copied_when_a_row_is_deleted_are_in_the_history_all_the_same(open_at: Opener) -> None:
    """Scenario 10."""
    post = open_at()
    in_cc(post)
    act(post.ctx, "cancel", post.route, keys=[f"{ASSET}#{BATCH}"], by="ops", reason="withdrawn")
    post.delete()
    post.follow()
    assert post.lines() == ["accepted", "cancelled"]
    assert post.events() == [("accepted", "CC", "QUEUED"), ("offered", "CC", "QUEUED"), ("cancelled", "CC", "CANCELLED")]


def test_what_a_deleted_row_had_still_to_tell_is_told_when_somebody_listens_again(open_at: Opener) -> None:
    """Scenarios 10 and 15."""
    post = open_at()
    in_cc(post)
    post.told.deaf = True
    post.confirm("CC", text(PATHS))
    post.follow()
    post.delete()
    post.follow()
    post.told.deaf = False
    post.clock.advance("1h")
    post.follow()
    assert post.events()[2:] == [("confirmed", "CC", "QUEUED"), ("offered", "Scout", "QUEUED")]


def test_a_deletion_among_other_changes_hinders_none_of_them(post: Postingest) -> None:
    """Scenario 10: REMOVE of an ended row, with old attribute names on it, between an INSERT and a MODIFY."""
    ended(post)
    in_cc(post, OTHER)
    third = "7c1f3b58-64be-4b5e-9d3e-1a5ab0f4f1de"
    post.set("result_TC", {"M": {"old": {"S": "name"}}})
    post.put(third)
    post.delete()
    post.confirm("CC", text(PATHS), OTHER)
    post.follow()
    assert post.at(third) == ("CC", "QUEUED")
    assert post.at(OTHER) == ("Scout", "QUEUED")
    assert post.row() is None
    assert post.aside() == []


def test_one_malformed_record_among_a_hundred_is_set_aside_with_its_content(open_at: Opener) -> None:
    """Scenario 13: the others are handled once; the whole batch delivered again tells nobody anything new."""
    post = open_at()
    names = [f"00000000-0000-4000-8000-{number:012}" for number in range(100)]
    for number, name in enumerate(names):
        post.put(name, content=None if number == 50 else INPUT, **({"queue": {"S": "CC"}} if number == 50 else {}))
    post.follow()
    assert len(post.batches[0]) == 100
    offered = post.received("CC")
    assert sorted(message.asset for message in offered) == sorted(set(names) - {names[50]})
    (aside,) = post.aside()
    assert aside["content"]["row"]["assetId"] == names[50]
    told = [event.id for event in post.told.events]
    assert len(told) == len(set(told)) == 2 * 99
    post.relay.handle(post.batches[0], post.clock.now())
    post.follow()
    assert [event.id for event in post.told.events] == told
    assert post.received("CC") == []
    assert {post.item(name).row.version for name in names if name != names[50]} == {1}


def test_a_row_of_ours_that_somebody_has_spoilt_is_set_aside_and_its_neighbours_go_on(post: Postingest) -> None:
    """Scenario 13: attributes of the wrong kind."""
    in_cc(post)
    post.set("status", {"S": "LOST IN THE POST"})
    post.put(OTHER)
    post.follow()
    assert post.at(OTHER) == ("CC", "QUEUED")
    asides = post.aside()
    assert asides
    assert all(aside["content"]["keys"]["assetId"] == ASSET for aside in asides)


@pytest.mark.parametrize("missing", ["old", "new"])
def test_a_change_record_without_one_of_its_images_hinders_only_itself(open_at: Opener, missing: str) -> None:
    """Scenario 9."""
    post = open_at()
    in_cc(post)
    in_cc(post, OTHER)
    post.confirm("CC", text(PATHS))
    post.confirm("CC", text(PATHS), OTHER)
    spoilt: list[Any] = []

    def spoil(operation: str, params: dict[str, Any], answer: dict[str, Any]) -> None:
        for record in answer["Records"] if operation == "get_records" and not spoilt else ():
            change = record["dynamodb"]
            if change["Keys"]["assetId"]["S"] == ASSET and "ingested_CC" in change["NewImage"]:
                spoilt.append(change.pop("OldImage" if missing == "old" else "NewImage"))

    with post.after_each_call(spoil):
        post.follow()
    assert spoilt
    assert post.at(OTHER) == ("Scout", "QUEUED")
    # Whatever such a record is taken for, the row is still there, and the next change of it brings it on.
    post.set("remark", {"S": "looked at"})
    post.follow()
    assert post.at() == ("Scout", "QUEUED")


# Failures on the way -------------------------------------------------------------------------------------------------------
def test_a_message_that_cannot_be_sent_is_sent_when_the_record_comes_again(open_at: Opener) -> None:
    """Scenario 14: the row does not say that its stage was told until it was; events have the same ids whenever they are told."""
    post = open_at()
    in_cc(post)
    post.confirm("CC", text(PATHS))

    def no_queue(operation: str, params: dict[str, Any]) -> None:
        if operation == "send_message_batch":
            raise LedgerBusy("the queue does not answer")

    with post.before_each_call(no_queue), pytest.raises(LedgerBusy):
        post.follow()
    assert post.at() == ("CC", "QUEUED")
    post.follow()
    assert post.at() == ("Scout", "QUEUED")
    assert len(post.received("Scout")) == 1
    assert post.lines() == ["accepted", "confirmed"]
    assert len({event.id for event in post.told.events}) == len(post.told.events) == 4


def test_a_write_that_fails_after_the_send_only_sends_twice(open_at: Opener) -> None:
    """Scenario 14: both messages are the same, and the asset moves on once."""
    post = open_at()
    in_cc(post)
    post.confirm("CC", text(PATHS))

    def no_table(operation: str, params: dict[str, Any]) -> None:
        if operation == "update_item" and params["TableName"] == post.table:
            raise LedgerBusy("the table does not answer")

    with post.before_each_call(no_table), pytest.raises(LedgerBusy):
        post.follow()
    post.follow()
    first, second = post.received("Scout")
    assert first == second
    assert post.lines() == ["accepted", "confirmed"]


def test_an_ended_row_stays_until_its_last_event_is_known_to_be_out(open_at: Opener) -> None:
    """Scenario 15: nobody is told later only because a topic was out when the row was about to leave."""
    post = open_at(route=assets())
    in_scout(post)
    post.told.deaf = True
    post.confirm("Scout", text(VOLUMES))
    post.follow()
    row = post.row()
    assert row is not None
    assert post.at() == ("Scout", "COMPLETED")
    assert "ttl" not in row
    post.told.deaf = False
    post.clock.advance("1h")
    post.tell()
    assert post.events()[-1] == ("confirmed", "Scout", "COMPLETED")
    row = post.row()
    assert row is not None
    assert int(row["ttl"]["N"]) * 1000 >= post.clock.now() + 3_600_000 - 5_000
    assert "dueShard" not in row


def test_a_spoilt_row_keeps_no_other_from_leaving(open_at: Opener) -> None:
    """Scenarios 13 and 15."""
    post = open_at(route=assets())
    in_scout(post)
    in_scout(post, OTHER)
    post.told.deaf = True
    for asset in (ASSET, OTHER):
        post.confirm("Scout", text(VOLUMES), asset)
    post.follow()
    post.take_off("createdAt")
    post.told.deaf = False
    post.clock.advance("1h")
    post.follow()
    assert "ttl" in (post.row(OTHER) or {})
    assert [aside["content"]["keys"]["assetId"] for aside in post.aside()] == [ASSET]


# Rows leave ----------------------------------------------------------------------------------------------------------------
def kept(keep: Any) -> Route:
    """The stages on a route of one's own, which says how long an ended row stays. (Postingest's leave at once.)"""
    route = Route("assets", key=("assetId", "batchId"), keep=keep)
    for alias in ("CC", "Scout"):
        route.external(alias, message=lambda offer: offer["payload"])
    return route


@pytest.mark.parametrize(("keep", "hours"), [(0, 1), ("10m", 1), ("30d", 30 * 24)])
def test_an_ended_row_leaves_by_its_time_to_live_and_its_memory_stays(open_at: Opener, keep: Any, hours: int) -> None:
    """Scenario 35: theirs deletes the row; here seal and history outlive it, and it leaves an hour after the seal at the earliest."""
    post = open_at(route=kept(keep))
    ended(post)
    row = post.row()
    assert row is not None
    leaves = int(row["ttl"]["N"]) * 1000
    assert hours * 3_600_000 - 30_000 <= leaves - post.clock.now() <= hours * 3_600_000 + 1_000
    assert "trail" not in row
    post.delete()
    post.follow()
    assert post.aside() == []
    assert post.lines() == ["accepted", "confirmed", "confirmed"]
    known = post.ledger.peek(post.route, [f"{ASSET}#{BATCH}"])[0]
    assert known is not None
    assert (known.sealed, known.status.value) == (True, "COMPLETED")


def test_a_row_whose_route_keeps_it_has_no_time_to_live(open_at: Opener) -> None:
    """Scenario 35, for those who want to see what was."""
    post = open_at(route=kept(None))
    ended(post)
    assert "ttl" not in (post.row() or {})


def test_an_edge_out_of_an_end_takes_the_time_to_live_off(open_at: Opener) -> None:
    """Scenario 35: a cancelled asset that a person starts again must not vanish on its way."""
    post = open_at(route=assets())
    in_cc(post)
    key = f"{ASSET}#{BATCH}"
    act(post.ctx, "cancel", post.route, keys=[key], by="ops", reason="withdrawn")
    post.follow()
    assert "ttl" in (post.row() or {})
    act(post.ctx, "retry", post.route, keys=[key], by="ops", reason="wanted after all")
    post.follow()
    assert post.at() == ("CC", "QUEUED")
    row = post.row()
    assert row is not None
    assert "ttl" not in row
    assert row["dueShard"]["S"].startswith("CC#")
    assert len(post.received("CC")) == 1
    post.confirm("CC", text(PATHS))
    post.follow()
    assert post.at() == ("Scout", "QUEUED")


# Names and alphabets -------------------------------------------------------------------------------------------------------
def test_other_alphabets_survive_every_hop(post: Postingest) -> None:
    """Scenario 33."""
    name = "Übergröße/日本語/Ωmega – naïve/🗄️.tiff"
    asset, content, paths = "café-№7", {"title": name}, {"filePaths": [name]}
    post.put(asset, json.dumps(content, ensure_ascii=False))
    post.follow()
    (message,) = post.received("CC")
    assert message.body == content
    assert message.asset == asset
    post.confirm("CC", text(paths), asset)
    post.follow()
    (message,) = post.received("Scout")
    assert message.body == paths
    post.confirm("Scout", {"M": {name: {"L": [{"S": "Bänder"}]}}}, asset)
    post.follow()
    assert post.at(asset) == ("Scout", "COMPLETED")
    assert post.item(asset).results == {"CC": paths, "Scout": {name: ["Bänder"]}}
    offered = [envelope["data"]["payload"] for envelope in post.told.envelopes if envelope["data"]["reason"] == "offered"]
    assert offered == [content, paths]
    post.put("ghost-é", None, remark={"S": name})
    post.follow()
    (aside,) = post.aside()
    assert aside["content"]["row"]["remark"] == name


def test_a_stage_is_offered_at_its_own_queue(open_at: Opener, client: Any, prefix: str) -> None:
    """Scenario 1, with the queue URLs of the document's configuration; no queue of ours is made for such a stage."""
    own = client("sqs").create_queue(QueueName=f"{prefix}-their-confirmer")["QueueUrl"]
    queues = [{"queueAlias": "CC", "queueOrder": 1, "queueUrl": own}, {"queueAlias": "Scout", "queueOrder": 2}]
    post = open_at(route=assets(queues))
    post.put()
    post.follow()
    (message,) = post.received("CC", own)
    assert message.body == PAYLOAD
    assert [url for url in client("sqs").list_queues(QueueNamePrefix=prefix)["QueueUrls"] if url.endswith("-CC")] == []
    post.confirm("CC", text(PATHS))
    post.follow()
    assert len(post.received("Scout")) == 1
