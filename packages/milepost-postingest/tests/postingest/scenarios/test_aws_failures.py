"""The postingest document's state-change handler, scenario by scenario: what is no row of ours, and
failures on the way. Numbers are those of the scenario list for this system."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.postingest.aws_scene import ASSET, BATCH, INPUT, OTHER, PATHS, Opener, Postingest, text
from tests.postingest.scenarios.state_change_scene import ended, in_cc, in_scout

from milepost.core.errors import LedgerBusy
from milepost.engine.act_log import select
from milepost.engine.acts.bulk import act
from milepost.engine.acts.verbs import CancelVerb


# What is no row of ours ---------------------------------------------------------------------------
def test_a_ghost_that_an_update_leaves_behind_is_set_aside_and_its_neighbours_go_on(
    post: Postingest,
) -> None:
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
    assert aside["content"]["row"] == {
        "assetId": ASSET,
        "batchId": BATCH,
        "lastQueued": "2025-06-05T10:00",
    }
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
def test_an_unfinished_row_that_somebody_deletes_is_set_aside_with_its_image(
    post: Postingest, stage: str
) -> None:
    """Scenario 10: theirs ignores it; here its lines are in the history and people can see what it
    was."""
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


def test_lines_not_yet_copied_when_a_row_is_deleted_are_in_the_history_all_the_same(
    open_at: Opener,
) -> None:
    """Scenario 10."""
    post = open_at()
    in_cc(post)
    act(
        post.ctx,
        select(post.ctx, post.route, keys=[f"{ASSET}#{BATCH}"]),
        CancelVerb(),
        by="ops",
        reason="withdrawn",
    )
    post.delete()
    post.follow()
    assert post.lines() == ["accepted", "cancelled"]
    assert post.events() == [
        ("accepted", "CC", "QUEUED"),
        ("offered", "CC", "QUEUED"),
        ("cancelled", "CC", "CANCELLED"),
    ]


def test_what_a_deleted_row_had_still_to_tell_is_told_when_somebody_listens_again(
    open_at: Opener,
) -> None:
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
    """Scenario 10: REMOVE of an ended row, with old attribute names on it, between an INSERT and a
    MODIFY."""
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


def test_one_malformed_record_among_a_hundred_is_set_aside_with_its_content(
    open_at: Opener,
) -> None:
    """Scenario 13: the others are handled once; the whole batch delivered again tells nobody
    anything new."""
    post = open_at()
    names = [f"00000000-0000-4000-8000-{number:012}" for number in range(100)]
    for number, name in enumerate(names):
        post.put(
            name,
            content=None if number == 50 else INPUT,
            **({"queue": {"S": "CC"}} if number == 50 else {}),
        )
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


def test_a_row_of_ours_that_somebody_has_spoilt_is_set_aside_and_its_neighbours_go_on(
    post: Postingest,
) -> None:
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
def test_a_change_record_without_one_of_its_images_hinders_only_itself(
    open_at: Opener, missing: str
) -> None:
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
    # Whatever such a record is taken for, the row is still there, and the next change of it brings
    # it on.
    post.set("remark", {"S": "looked at"})
    post.follow()
    assert post.at() == ("Scout", "QUEUED")


# Failures on the way ------------------------------------------------------------------------------
def test_a_message_that_cannot_be_sent_is_sent_when_the_record_comes_again(open_at: Opener) -> None:
    """Scenario 14: the row does not say that its stage was told until it was; events have the same
    ids whenever they are told."""
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
