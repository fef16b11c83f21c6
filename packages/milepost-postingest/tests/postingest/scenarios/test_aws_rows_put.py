"""The postingest document's state-change handler, scenario by scenario: rows that a step function
puts, once and again. Numbers are those of the scenario list for this system."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.postingest.aws_scene import (
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
from tests.postingest.scenarios.state_change_scene import PAYLOAD, ended, in_cc, in_scout


# Rows that a step function puts -------------------------------------------------------------------
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
    offered = next(
        envelope for envelope in post.told.envelopes if envelope["data"]["reason"] == "offered"
    )
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
def test_a_correlation_id_on_the_row_is_told_in_everything(
    open_at: Opener, given: str | None
) -> None:
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
    assert (post.at(), post.item().row.version, len(post.told.events)) == (
        ("CC", "QUEUED"),
        version,
        told,
    )
    assert (post.received("CC"), post.received("Scout"), post.aside()) == ([], [], [])


def test_the_same_asset_in_two_batches_is_two_items(post: Postingest) -> None:
    """Weak point 24: each has its own way and its own end, under its own name."""
    post.put()
    post.put(batch="TDR_5d29749b-4891-4ae4-abdd-d57c9bab00ee")
    post.follow()
    assert sorted(message.key["batchId"] for message in post.received("CC")) == sorted(
        [BATCH, "TDR_5d29749b-4891-4ae4-abdd-d57c9bab00ee"]
    )
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
    """Scenario 12: the write is conditional, so that it leaves no ghost; nothing is told of an item
    that never was."""
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


# Put again ----------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "content", [INPUT, '{"preservationSystemId":"another"}'], ids=["same content", "other content"]
)
@pytest.mark.parametrize("stage", ["CC", "Scout"])
def test_a_row_put_again_goes_on_from_where_it_was(
    post: Postingest, stage: str, content: str
) -> None:
    """Scenario 17: never an orphan; that it was put again is noted, and what else was put with
    it."""
    in_cc(post) if stage == "CC" else in_scout(post)
    before = post.row()
    assert before is not None
    post.put(content=content)
    post.follow()
    row = post.row()
    assert row is not None
    assert post.at() == (stage, "QUEUED")
    same = (
        "queue",
        "firstQueued",
        "lastQueued",
        "dueAt",
        "dueShard",
        "createdAt",
        "inputDigest",
        "correlationId",
        "input",
    )
    assert {name: row.get(name) for name in same} == {name: before.get(name) for name in same}
    assert post.lines()[-1] == "noted"
    assert post.notes() == [
        {
            "put again": "with the same content"
            if content == INPUT
            else {"input": json.loads(content)}
        }
    ]
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


def test_an_asset_put_again_with_other_content_after_its_row_has_left_is_set_aside(
    post: Postingest,
) -> None:
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


# Names and alphabets ------------------------------------------------------------------------------
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
    offered = [
        envelope["data"]["payload"]
        for envelope in post.told.envelopes
        if envelope["data"]["reason"] == "offered"
    ]
    assert offered == [content, paths]
    post.put("ghost-é", None, remark={"S": name})
    post.follow()
    (aside,) = post.aside()
    assert aside["content"]["row"]["remark"] == name


def test_a_stage_is_offered_at_its_own_queue(open_at: Opener, client: Any, prefix: str) -> None:
    """Scenario 1, with the queue URLs of the document's configuration; no queue of ours is made for
    such a stage."""
    own = client("sqs").create_queue(QueueName=f"{prefix}-their-confirmer")["QueueUrl"]
    queues = [
        {"queueAlias": "CC", "queueOrder": 1, "queueUrl": own},
        {"queueAlias": "Scout", "queueOrder": 2},
    ]
    post = open_at(route=assets(queues))
    post.put()
    post.follow()
    (message,) = post.received("CC", own)
    assert message.body == PAYLOAD
    assert [
        url
        for url in client("sqs").list_queues(QueueNamePrefix=prefix)["QueueUrls"]
        if url.endswith("-CC")
    ] == []
    post.confirm("CC", text(PATHS))
    post.follow()
    assert len(post.received("Scout")) == 1


@pytest.mark.parametrize(
    ("attributes", "reason"),
    [
        ({"input": {"B": b"\x00\x01\xff"}}, "its input is binary, or has binary values"),
        (
            {"input": {"M": {"key": {"L": [{"B": b"\x00"}]}}}},
            "its input is binary, or has binary values",
        ),
        ({"correlationId": {"N": "7"}}, "its correlationId is of type N; write it as text (S)"),
    ],
    ids=["binary", "binary within", "a number as correlation id"],
)
def test_a_row_whose_values_cannot_be_passed_on_is_quarantined_with_a_sentence(
    post: Postingest, attributes: dict[str, Any], reason: str
) -> None:
    post.put(**attributes)
    post.follow()
    assert post.received("CC") == []
    [aside] = post.aside()
    assert aside["reason"].startswith(reason)
