"""The scenarios in which the dialects differ, to the letter: what a confirmer is sent, what it
writes, what everyone is told. Numbers are those of the scenario list for this system."""

from __future__ import annotations

import json
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

from milepost.core.errors import LedgerBusy
from milepost_aws.ledger.names import iso, ms
from milepost_postingest.dialects import message_id
from milepost_testing.clock import VirtualClock

MOMENT = iso(AHEAD)
PAYLOAD = json.loads(INPUT)
LAST = {"seed": "Scout", "today": "TC"}
PREFIX = {"seed": "ingested_", "today": "result_"}
INGESTED, ON_DISK = (
    "Asset has been ingested to the Preservation System.",
    "Asset has been written to custodial copy disk.",
)
ON_TAPE = {
    "seed": "Asset has been written to data tape.",
    "today": "Asset has been written to tape",
}


@pytest.fixture(params=["seed", "today"])
def dialect(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


@pytest.fixture
def post(open_at: Opener, dialect: str) -> Postingest:
    return open_at(VirtualClock(AHEAD), route=assets(dialect=dialect))


def message(dialect: str, stage: str, payload: Any) -> str:
    """What that stage's confirmer is sent, to the letter."""
    if dialect == "seed":
        return payload if isinstance(payload, str) else json.dumps(payload, separators=(",", ":"))
    body = {
        "assetId": ASSET,
        "batchId": BATCH,
        "resultAttrName": f"result_{stage}",
        "payload": payload,
    }
    return json.dumps(body, separators=(",", ":"))


def notification(
    dialect: str, stage: str, kind: str, status: str, parent: str | None = None
) -> dict[str, Any]:
    """What everyone is told when the stage has been confirmed ("": when the asset has come)."""
    kind = f"preserve.digital.asset.ingest.{kind}"
    parameters = {"assetId": ASSET, "status": status}
    if dialect == "seed":
        return {"body": {"properties": {"messageType": kind}, "parameters": parameters}}
    properties = {
        "executionId": BATCH,
        "messageId": message_id(f"{ASSET}#{BATCH}", stage, kind),
        "parentMessageId": parent,
        "timestamp": MOMENT,
        "messageType": kind,
    }
    return {"properties": properties, "parameters": parameters}


def sent(post: Postingest, stage: str) -> list[str]:
    return post.bodies(post.store.queues.url(post.route, stage))


@pytest.mark.parametrize("parent", [None, "b0b41d4e-2c1f-4e0a-9f3a-1d2b3c4d5e6f"])
def test_a_new_row_is_queued_offered_and_told_to_the_letter(
    post: Postingest, dialect: str, parent: str | None
) -> None:
    """Scenarios 1 and 3."""
    post.put(**({} if parent is None else {"correlationId": {"S": parent}}))
    post.follow()
    row = post.row()
    assert row is not None
    assert [row[name]["S"] for name in ("queue", "firstQueued", "lastQueued", "input")] == [
        "CC",
        MOMENT,
        MOMENT,
        INPUT,
    ]
    assert sent(post, "CC") == [message(dialect, "CC", PAYLOAD)]
    assert sent(post, LAST[dialect]) == []
    assert post.told.notifications == [notification(dialect, "", "update", INGESTED, parent)]


def test_text_that_is_no_json_is_sent_as_text(post: Postingest, dialect: str) -> None:
    """Scenario 2."""
    post.put(content="input")
    post.follow()
    assert sent(post, "CC") == [message(dialect, "CC", "input")]


def test_from_end_to_end_to_the_letter(post: Postingest, dialect: str) -> None:
    """Scenarios 4, 5 and 35: three notifications, two messages; the row leaves, and nothing is said
    of that."""
    last = LAST[dialect]
    post.put()
    post.follow()
    messages = sent(post, "CC")
    post.confirm("CC", text(PATHS))
    post.follow()
    row = post.row()
    assert row is not None
    assert [row[name]["S"] for name in ("queue", "firstQueued", "lastQueued")] == [
        last,
        MOMENT,
        MOMENT,
    ]
    messages += sent(post, last)
    post.confirm(last, text(VOLUMES))
    post.follow()
    assert messages == [message(dialect, "CC", PAYLOAD), message(dialect, last, PATHS)]
    assert post.told.notifications == [
        notification(dialect, "", "update", INGESTED),
        notification(dialect, "CC", "update", ON_DISK),
        notification(dialect, last, "complete", ON_TAPE[dialect]),
    ]
    row = post.row()
    assert row is not None
    assert "ttl" in row
    post.delete()
    post.follow()
    assert post.row() is None
    assert (len(post.told.notifications), sent(post, "CC"), sent(post, last), post.aside()) == (
        3,
        [],
        [],
        [],
    )


def test_the_other_dialects_attribute_confirms_nothing(post: Postingest, dialect: str) -> None:
    """Scenario 4."""
    other = PREFIX["today" if dialect == "seed" else "seed"]
    post.put()
    post.follow()
    post.confirm("CC", text(PATHS), prefix=other)
    post.follow()
    assert post.at() == ("CC", "QUEUED")
    post.confirm("CC", text(PATHS), prefix=PREFIX[dialect])
    post.follow()
    assert post.at() == (LAST[dialect], "QUEUED")


def test_a_route_of_one_stage_says_its_own_words_at_the_end(open_at: Opener, dialect: str) -> None:
    """Scenario 6: never those of a tape that it has not got."""
    post = open_at(
        VirtualClock(AHEAD), route=assets([{"queueAlias": "CC", "queueOrder": 1}], dialect=dialect)
    )
    post.put()
    post.follow()
    post.confirm("CC", text(PATHS))
    post.follow()
    assert post.at() == ("CC", "COMPLETED")
    assert post.told.notifications == [
        notification(dialect, "", "update", INGESTED),
        notification(dialect, "CC", "complete", ON_DISK),
    ]


def test_an_early_confirmation_is_told_of_in_the_routes_order(
    post: Postingest, dialect: str
) -> None:
    """Scenario 8."""
    last = LAST[dialect]
    post.put()
    post.follow()
    post.confirm(last, text(VOLUMES))
    post.follow()
    assert len(post.told.notifications) == 1
    post.confirm("CC", text(PATHS))
    post.follow()
    assert post.told.notifications[1:] == [
        notification(dialect, "CC", "update", ON_DISK),
        notification(dialect, last, "complete", ON_TAPE[dialect]),
    ]


@pytest.mark.parametrize("early", [False, True], ids=["in time", "early"])
def test_today_nothing_less_than_a_whole_result_confirms(open_at: Opener, early: bool) -> None:
    """Scenarios 16 and 25: a part of the files on tape lets nobody delete their copies."""
    post = open_at(VirtualClock(AHEAD), route=assets(dialect="today"))
    post.put()
    post.follow()
    for value in ({"BOOL": True}, {"S": "done"}, text({"filePaths": []}), text({"files": ["a"]})):
        post.confirm("CC", value)
        post.follow()
        assert post.at() == ("CC", "WAITING"), value
    part = text({PATHS["filePaths"][0]: ["L03721"]})
    if early:
        post.confirm("TC", part)
        post.follow()
    post.confirm("CC", text(PATHS))
    post.follow()
    for value in (part, text({path: [] for path in PATHS["filePaths"]})):
        post.confirm("TC", value)
        post.follow()
        assert post.at() == ("TC", "WAITING"), value
    post.take_off("result_TC")
    post.follow()
    assert [one["parameters"]["status"] for one in post.told.notifications] == [INGESTED, ON_DISK]
    post.confirm("TC", text(VOLUMES))
    post.follow()
    assert post.told.notifications[2:] == [
        notification("today", "TC", "complete", ON_TAPE["today"])
    ]


def test_what_is_sent_again_is_the_same_to_the_letter_and_nobody_is_told(
    post: Postingest, dialect: str
) -> None:
    """Scenarios 27 and 30: text and labels, at either stage. Today's resender waits until an offer
    is older than its queue's retention."""
    post.put()
    post.follow()
    for stage, payload, value in (("CC", PAYLOAD, PATHS), (LAST[dialect], PATHS, VOLUMES)):
        url = post.store.queues.url(post.route, stage)
        first = post.taken(url)
        assert [body for body, _ in first] == [message(dialect, stage, payload)]
        told = len(post.told.notifications)
        for _ in range(2):
            post.clock.advance("14d")
            if dialect == "today":
                assert (post.resend().resent, post.taken(url)) == (0, [])
                post.clock.advance("1ms")
            assert post.resend().resent == 1
            assert post.taken(url) == first
        assert len(post.told.notifications) == told
        post.confirm(stage, text(value))
        post.follow()
    assert len(post.told.notifications) == 3


@pytest.mark.parametrize("stage", ["CC", "last"])
def test_the_documents_example_at_every_stage(open_at: Opener, dialect: str, stage: str) -> None:
    """Scenario 28: on 2025-06-19 at 16:24 one run sends what was sent on 5 June, and not what was
    sent on 15 June."""
    first, later, now = (
        "2025-06-05T10:00:00.000Z",
        "2025-06-15T10:00:00.000Z",
        "2025-06-19T16:24:00.000Z",
    )
    post = open_at(VirtualClock(ms(first)), route=assets(dialect=dialect))
    stage = LAST[dialect] if stage == "last" else stage
    for asset, moment in ((ASSET, first), (OTHER, later)):
        post.clock.advance_to(ms(moment))
        post.put(asset)
        post.follow()
        if stage != "CC":
            post.confirm("CC", text(PATHS), asset)
            post.follow()
    sent_first = {one.asset: one for one in post.received(stage)}
    post.clock.advance_to(ms(now))
    untouched = post.row(OTHER)
    assert post.resend().resent == 1
    assert post.received(stage) == [sent_first[ASSET]]
    row = post.row()
    assert row is not None
    assert (row["firstQueued"]["S"], row["lastQueued"]["S"]) == (first, now)
    assert post.row(OTHER) == untouched


def test_a_notification_sent_again_after_a_lost_answer_has_the_same_id(open_at: Opener) -> None:
    """Scenarios 13, 14 and 15: whoever hears it twice can tell."""
    post = open_at(VirtualClock(AHEAD), route=assets(dialect="today"))
    post.put()
    lost: list[str] = []

    def lose(operation: str, params: dict[str, Any], answer: dict[str, Any]) -> None:
        # The first time that it is written down how far the subscriber was told.
        if post.told.notifications and not lost:
            lost.append(operation)
            raise LedgerBusy("no answer came")

    with post.after_each_call(lose), pytest.raises(LedgerBusy):
        post.follow()
    post.clock.advance("1h")
    post.follow()
    assert lost
    told = post.told.notifications
    assert {one["properties"]["messageId"] for one in told} == {
        message_id(f"{ASSET}#{BATCH}", "", told[0]["properties"]["messageType"])
    }
    assert all(one == told[0] for one in told)


@pytest.mark.parametrize(
    "odd",
    ['{"title":"\uffff"}', '{"title":"\ufffe"}', "plain \x01 text", "", '{"title":"\ud83d\ude80"}'],
)
def test_an_asset_with_characters_that_no_queue_takes_stops_nobody(
    post: Postingest, dialect: str, odd: str
) -> None:
    post.put(content=odd)
    post.put(OTHER)
    post.follow()
    assert {post.at(ASSET), post.at(OTHER)} == {("CC", "QUEUED")}
    bodies = [one.body for one in post.received("CC")]
    given = [body["payload"] if dialect == "today" else body for body in bodies]
    assert sorted(map(repr, given)) == sorted(map(repr, [post.item(ASSET).payload, PAYLOAD]))


def test_a_row_put_again_tells_nothing_again(post: Postingest) -> None:
    post.put()
    post.follow()
    post.put()
    post.follow()
    assert len(post.told.notifications) == 1
