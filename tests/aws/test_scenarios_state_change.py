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
from milepost.ledgers.aws.finishing import Ended, finish
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
    assert message["payload"] == PAYLOAD
    assert message["key"] == f"{ASSET}#{BATCH}"
    assert message["stage"] == "CC"
    assert message["confirm"] == {"table": post.table, "key": {"assetId": ASSET, "batchId": BATCH}, "attribute": "ingested_CC"}
    assert message["workId"] == post.item().work_id
    assert post.received("Scout") == []
    assert post.lines() == ["accepted"]
    assert post.events() == [("accepted", "CC", "QUEUED"), ("offered", "CC", "QUEUED")]


def test_the_offer_that_is_told_has_what_the_message_has(post: Postingest) -> None:
    """Scenario 1: whoever listens to events instead of the queue can do the work too."""
    post.put()
    post.follow()
    (message,) = post.received("CC")
    offered = next(envelope for envelope in post.told.envelopes if envelope["data"]["reason"] == "offered")
    assert offered["data"]["payload"] == message["payload"] == PAYLOAD
    assert offered["data"]["work_id"] == message["workId"]


@pytest.mark.parametrize("content", [PAYLOAD, "input", "", 7, ["a"], {"nested": {"deep": [1, 2]}}])
def test_json_is_passed_on_as_json_and_other_text_as_text(open_at: Opener, content: Any) -> None:
    """Scenario 2."""
    post = open_at()
    post.put(content=content if isinstance(content, str) else json.dumps(content))
    post.follow()
    (message,) = post.received("CC")
    assert message["payload"] == content


@pytest.mark.parametrize("given", ["b0b41d4e-2c1f-4e0a-9f3a-1d2b3c4d5e6f", None])
def test_a_correlation_id_on_the_row_is_told_in_everything(open_at: Opener, given: str | None) -> None:
    """Scenario 3: without one the item is given its own, the same on every hop."""
    post = open_at()
    post.put(**({} if given is None else {"correlationId": {"S": given}}))
    post.follow()
    (message,) = post.received("CC")
    assert message["correlationId"]
    assert message["correlationId"] == (given or message["correlationId"])
    assert {envelope["correlationid"] for envelope in post.told.envelopes} == {message["correlationId"]}


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
    assert sorted(message["confirm"]["key"]["batchId"] for message in post.received("CC")) == sorted(
        [BATCH, "TDR_5d29749b-4891-4ae4-abdd-d57c9bab00ee"]
    )
    post.confirm("CC", text(PATHS))
    post.follow()
    assert [message["confirm"]["key"]["batchId"] for message in post.received("Scout")] == [BATCH]


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
    call = post.store.requests.call

    def remove_first(service: str, operation: str, /, **params: Any) -> dict[str, Any]:
        if operation == "update_item" and params["TableName"] == post.table:
            post.delete()
        return call(service, operation, **params)

    post.store.requests.call = remove_first  # type: ignore[method-assign]
    post.follow()
    post.store.requests.call = call  # type: ignore[method-assign]
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
    assert (message["payload"], message["stage"]) == (PATHS, "Scout")
    assert message["confirm"]["attribute"] == "ingested_Scout"
    assert post.moment("firstQueued") == post.moment("lastQueued") >= first_queued
    assert post.row()["queue"] == {"S": "Scout"}  # type: ignore[index]
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
    post.confirm("CC", value, rewrite='{"files":["on disk"]}', guarded=guarded)
    post.follow()
    (message,) = post.received("Scout")
    assert message["payload"] == {"files": ["on disk"]}
    offered = [envelope["data"]["payload"] for envelope in post.told.envelopes if envelope["data"]["reason"] == "offered"]
    assert offered == [PAYLOAD, {"files": ["on disk"]}]
    assert post.item().row.input_digest == post.ledger.peek(post.route, [f"{ASSET}#{BATCH}"])[0].input_digest  # type: ignore[union-attr]


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
    assert message["payload"] == PAYLOAD


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


def test_a_route_of_one_stage_says_its_own_words_at_the_end(open_at: Opener) -> None:
    """Scenario 6: never those of a tape that it has not got."""
    route = Route("shelf", key=("assetId", "batchId"))
    route.external("CC", announce="Asset has been written to custodial copy disk.")
    post = open_at(route=route)
    post.put()
    post.follow()
    post.confirm("CC", text(PATHS))
    post.follow()
    assert post.at() == ("CC", "COMPLETED")
    last = post.told.envelopes[-1]["data"]
    assert (last["reason"], last["status"], last["text"]) == ("confirmed", "COMPLETED", "Asset has been written to custodial copy disk.")


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
    assert message["payload"] == (PAYLOAD if result is True else result)


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
    assert message["payload"] == PATHS


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
    assert [event[:2] for event in post.events() if event[0] != "offered"] == [("accepted", "CC"), ("confirmed", "CC"), ("confirmed", "Scout")]


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
