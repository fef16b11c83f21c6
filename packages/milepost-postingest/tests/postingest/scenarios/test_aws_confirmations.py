"""The postingest document's state-change handler, scenario by scenario: confirmers that add an
attribute, and all that they do wrong. Numbers are those of the scenario list for this system."""

from __future__ import annotations

from typing import Any

import pytest
from tests.postingest.aws_scene import ASSET, BATCH, OTHER, PATHS, VOLUMES, Opener, Postingest, text
from tests.postingest.scenarios.state_change_scene import PAYLOAD, in_cc, in_scout

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


@pytest.mark.parametrize("guarded", [True, False], ids=["if it exists", "in any case"])
def test_a_confirmation_moves_the_asset_to_the_next_stage_with_the_result_as_its_payload(
    post: Postingest, guarded: bool
) -> None:
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
    offered = [
        envelope["data"]["payload"]
        for envelope in post.told.envelopes
        if envelope["data"]["reason"] == "offered"
    ]
    assert offered == [PAYLOAD, {"files": ["on disk"]}]
    assert post.item().row.input_digest == digest


def test_a_rewritten_input_with_the_last_confirmation_changes_nothing_of_the_record(
    post: Postingest,
) -> None:
    """Scenario 5: what was handed over is what the seal remembers."""
    in_scout(post)
    digest = post.item().row.input_digest
    post.confirm("Scout", text(VOLUMES), rewrite='{"nobody":"is next"}')
    post.follow()
    assert post.at() == ("Scout", "COMPLETED")
    known = post.ledger.peek(post.route, [f"{ASSET}#{BATCH}"])[0]
    assert known is not None
    assert known.input_digest == digest


def test_an_input_rewritten_without_a_confirmation_confirms_nothing_and_reaches_nobody_yet(
    post: Postingest,
) -> None:
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
    """Scenario 35: two messages sent, two taken; three events, and two offers beside them; nothing
    set aside."""
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
    counted = {
        (count.stage, count.status.value): count.n
        for count in post.ledger.counts(post.route)
        if count.n
    }
    assert counted == {("Scout", "COMPLETED"): 1}


@pytest.mark.parametrize(("value", "result"), SOMETHING)
def test_each_valid_kind_of_value_confirms(
    open_at: Opener, value: dict[str, Any], result: Any
) -> None:
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
        assert post.at() == ("CC", "WAITING"), value
        assert "ingested_CC" not in (post.row() or {}), value
    assert post.received("Scout") == []
    assert set(post.lines()) == {"accepted", "not-yet"}
    post.confirm("CC", text(PATHS))
    post.follow()
    assert post.at() == ("Scout", "QUEUED")


@pytest.mark.parametrize("stage", ["CC", "Scout"])
def test_a_confirmation_set_and_taken_off_before_it_is_read_confirms_nothing(
    post: Postingest, stage: str
) -> None:
    """Scenario 16: what counts is how the row stands."""
    in_cc(post) if stage == "CC" else in_scout(post)
    post.confirm(stage, text(PATHS))
    post.take_off(f"ingested_{stage}")
    post.follow()
    assert post.at() == (stage, "QUEUED")
    assert post.aside() == []


def test_taking_off_what_confirmed_nothing_confirms_nothing(post: Postingest) -> None:
    """Scenario 16: today's handler takes any difference for a confirmation. Here the answer is
    refused once, and the stage offered again."""
    in_scout(post)
    post.confirm("Scout", {"S": "false"})
    post.follow()
    post.take_off("ingested_Scout")
    post.follow()
    assert post.at() == ("Scout", "WAITING")
    assert post.events()[-2:] == [("offered", "Scout", "QUEUED"), ("not-yet", "Scout", "WAITING")]
    assert post.lines() == ["accepted", "confirmed", "not-yet"]
    assert post.received("Scout") == []
    post.clock.advance("1h")
    assert post.resend().resent == 1
    assert post.at() == ("Scout", "QUEUED")
    assert [message.body for message in post.received("Scout")] == [PATHS]


@pytest.mark.parametrize("how", ["taken off", "emptied", "changed"])
def test_a_confirmation_tampered_with_after_it_was_applied_changes_nothing_for_the_next_stage(
    post: Postingest, how: str
) -> None:
    """Scenarios 16 and 30: the first valid one stands, that another came is noted, and a resend has
    the same payload."""
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


def test_tampering_and_the_next_confirmation_in_one_batch_leave_the_first_standing(
    post: Postingest,
) -> None:
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


@pytest.mark.parametrize(
    "rewrite", [None, text(PATHS)["S"]], ids=["confirms", "rewrites the input"]
)
@pytest.mark.parametrize(
    ("says", "recorded"),
    [
        (None, "row attribute ingested_CC"),
        ("checker-1 (milepost 1.0.0, ocfl)", "checker-1 (milepost 1.0.0, ocfl)"),
    ],
    ids=["by its attribute", "by what it says"],
)
def test_the_history_names_the_confirmer(
    post: Postingest, says: str | None, recorded: str, rewrite: str | None
) -> None:
    in_cc(post)
    if says is not None:
        post.set("confirmedBy_CC", {"S": says})
    post.confirm("CC", text(PATHS), rewrite=rewrite)
    post.follow()
    [line] = [
        entry.line
        for entry in post.ledger.history(post.route, f"{ASSET}#{BATCH}")
        if entry.line.reason.value == "confirmed"
    ]
    assert (line.by, line.kept) == (recorded, True)
    assert "confirmedBy_CC" not in (post.row() or {})
