"""Notifications of an asset: an update for each stage and one `complete`, each sent once and
compared byte by byte."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import milepost as mp
from milepost.composition import open_context
from milepost.core.values.durations import iso
from milepost.engine.act_log import select
from milepost.engine.acts.bulk import act
from milepost.engine.acts.verbs import CancelVerb, RetryVerb, SkipVerb
from milepost.engine.routes.versions import apply_route
from milepost.subscribers import CallSubscriber
from milepost.subscribers.route_formats import Formed
from milepost_postingest import postingest
from milepost_postingest.dialects import COMPLETE, UPDATE, message_id
from milepost_testing.clock import VirtualClock

ASSET, BATCH = "e2715719-c313-4e95-b5e6-f8759dcc6aed", "TDR_0cae3480-2b84-42a7-b899-dcce25aee98b"
INPUT = {"preservationSystemId": "9a83532d-dd26-442d-b259-b1823f668649"}
KEY = f"{ASSET}#{BATCH}"
ROW = {"assetId": ASSET, "batchId": BATCH, "input": INPUT}
THIRD = {"queueAlias": "Offsite", "queueOrder": 3, "statusText": "Tapes are off site."}


class NotifiedRoute:
    """The route on a ledger in memory, and somebody who hears the notifications only."""

    def __init__(self, *, ledger: str = "memory:", **options: Any) -> None:
        self.heard: list[dict[str, Any]] = []
        self.clock = VirtualClock()
        self.route = postingest(**options)
        listener = Formed(CallSubscriber(self.heard.append, name="desk"))
        self.milepost = mp.open(
            ledger, routes=[self.route], subscribers=[listener], clock=self.clock
        )

    def close(self) -> None:
        self.milepost.close()

    def run(self) -> list[dict[str, Any]]:
        self.milepost.run(until_idle=0)
        return self.heard

    def confirm(self, stage: str, value: Any = True) -> None:
        self.milepost.confirm("postingest", KEY, stage, value, by="confirmer")

    def said(self) -> list[tuple[str, str]]:
        """Kind and text of each notification, in either dialect."""
        bodies = [one.get("body", one) for one in self.run()]
        return [(one["properties"]["messageType"], one["parameters"]["status"]) for one in bodies]


def test_the_documents_three_messages_to_the_letter() -> None:
    desk = NotifiedRoute()
    desk.milepost.submit("postingest", ROW)
    desk.confirm("CC")
    desk.confirm("Scout")
    assert desk.run() == [
        {
            "body": {
                "properties": {"messageType": f"preserve.digital.asset.ingest.{kind}"},
                "parameters": {"assetId": ASSET, "status": text},
            }
        }
        for kind, text in (
            ("update", "Asset has been ingested to the Preservation System."),
            ("update", "Asset has been written to custodial copy disk."),
            ("complete", "Asset has been written to data tape."),
        )
    ]


@pytest.mark.parametrize("correlation", [None, "parent-1"])
def test_todays_messages_to_the_letter(correlation: str | None) -> None:
    desk = NotifiedRoute(dialect="today")
    desk.milepost.submit(
        "postingest", {**ROW, **({"correlationId": correlation} if correlation else {})}
    )
    desk.confirm("CC", {"filePaths": ["a", "b"]})
    desk.confirm("TC", {"a": ["L1"], "b": ["L1", "L2"]})
    heard = desk.run()
    assert [one["parameters"] for one in heard] == [
        {"assetId": ASSET, "status": "Asset has been ingested to the Preservation System."},
        {"assetId": ASSET, "status": "Asset has been written to custodial copy disk."},
        {"assetId": ASSET, "status": "Asset has been written to tape"},
    ]
    for one, (kind, stage) in zip(
        heard, [(UPDATE, ""), (UPDATE, "CC"), (COMPLETE, "TC")], strict=True
    ):
        properties = one["properties"]
        assert list(properties) == [
            "executionId",
            "messageId",
            "parentMessageId",
            "timestamp",
            "messageType",
        ]
        assert (properties["executionId"], properties["messageType"]) == (BATCH, kind)
        assert properties["messageId"] == message_id(KEY, stage, kind)
        assert properties["parentMessageId"] == correlation
        assert properties["timestamp"] == iso(desk.clock.now())
    assert len({one["properties"]["messageId"] for one in heard}) == 3


def test_a_route_of_one_stage_completes_with_that_stages_own_text() -> None:
    desk = NotifiedRoute(queues=[{"queueAlias": "CC", "queueOrder": 1}])
    desk.milepost.submit("postingest", ROW)
    desk.confirm("CC")
    assert desk.said()[-1] == (COMPLETE, "Asset has been written to custodial copy disk.")


def test_texts_can_be_configured() -> None:
    texts = [
        {"queueAlias": "CC", "queueOrder": 1, "statusText": "On disk."},
        {"queueAlias": "Scout", "queueOrder": 2, "statusText": "On tape."},
    ]
    desk = NotifiedRoute(queues=texts, ingested_text="Taken in.")
    desk.milepost.submit("postingest", ROW)
    desk.confirm("CC")
    desk.confirm("Scout")
    assert desk.said() == [(UPDATE, "Taken in."), (UPDATE, "On disk."), (COMPLETE, "On tape.")]


def test_early_and_repeated_confirmations_change_nothing_in_what_is_told() -> None:
    desk = NotifiedRoute()
    desk.milepost.submit("postingest", ROW)
    desk.milepost.submit("postingest", ROW)
    desk.confirm("Scout", {"tape": "L1"})
    desk.confirm("Scout", {"tape": "L1"})
    assert [kind for kind, _ in desk.said()] == [UPDATE]
    desk.confirm("CC")
    desk.confirm("CC")
    assert [kind for kind, _ in desk.said()] == [UPDATE, UPDATE, COMPLETE]


def test_the_same_asset_in_two_batches_has_two_series_with_ids_of_their_own() -> None:
    assert message_id(f"{ASSET}#one", "TC", COMPLETE) != message_id(f"{ASSET}#two", "TC", COMPLETE)


def test_nobody_can_skip_a_stage() -> None:
    desk = NotifiedRoute()
    desk.milepost.submit("postingest", ROW)
    report = act(
        desk.milepost.context,
        select(desk.milepost.context, "postingest", keys=[KEY]),
        SkipVerb(),
        by="ops",
        reason="no tape today",
    )
    assert (report.done, report.refused_count) == (0, 1)
    assert [kind for kind, _ in desk.said()] == [UPDATE]


def test_what_is_put_again_is_known_and_what_differs_is_told_apart() -> None:
    desk = NotifiedRoute()
    answers = [
        desk.milepost.submit("postingest", row)[0].answer
        for row in (
            ROW,
            {**ROW, "input": '{"preservationSystemId":"9a83532d-dd26-442d-b259-b1823f668649"}'},
            {**ROW, "input": "other"},
        )
    ]
    assert answers == ["new", "known", "changed"]
    shown = desk.milepost.show("postingest", KEY)
    assert shown is not None
    assert shown["input"] == INPUT


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ({"assetId": ASSET, "batchId": BATCH}, "the field 'input' is missing"),
        ({"assetId": ASSET, "input": "x"}, "the field 'batchId' is missing"),
        (
            {**ROW, "colour": "red"},
            "the field 'colour' is unknown; this route accepts assetId, batchId, input, correlationId",
        ),
        ({**ROW, "correlationId": 7}, "the field 'correlationId' is int, not text"),
    ],
)
def test_a_row_that_is_none_is_not_taken_in(row: dict[str, Any], told: str) -> None:
    receipt = NotifiedRoute().milepost.submit("postingest", row)[0]
    assert (receipt.answer, receipt.error) == ("malformed", told)


def test_a_back_fill_tells_updates_only(tmp_path: Path) -> None:
    ledger = f"sqlite:///{tmp_path}/assets.db"
    desk = NotifiedRoute(ledger=ledger)
    desk.milepost.submit("postingest", ROW)
    desk.confirm("CC")
    desk.confirm("Scout")
    assert [kind for kind, _ in desk.said()] == [UPDATE, UPDATE, COMPLETE]
    desk.close()

    usual = [
        {"queueAlias": alias, "queueOrder": order} for order, alias in enumerate(("CC", "Scout"), 1)
    ]
    grown = postingest([*usual, THIRD])
    ctx = open_context(ledger, [grown], clock=desk.clock, check=False)
    done = apply_route(
        ctx,
        ctx.plan("postingest"),
        mapping={},
        by="ops",
        reason="tapes go off site now",
        back_fill="Offsite",
    )
    assert done.back_filled == 1
    ctx.ledger.close()

    later = NotifiedRoute(ledger=ledger, queues=[*usual, THIRD])
    assert later.said() == []
    later.confirm("Offsite")
    assert later.said() == [(UPDATE, "Tapes are off site.")]
    later.milepost.submit("postingest", {**ROW, "batchId": "another"})
    for stage in ("CC", "Scout", "Offsite"):
        later.milepost.confirm("postingest", f"{ASSET}#another", stage, by="confirmer")
    assert [kind for kind, _ in later.said()[1:]] == [UPDATE, UPDATE, UPDATE, COMPLETE]
    later.close()


def test_complete_waits_while_another_batch_of_the_asset_is_unfinished() -> None:
    desk = NotifiedRoute(wait_for_batches=True)
    other = {**ROW, "batchId": "later"}
    desk.milepost.submit("postingest", ROW, other, {**ROW, "assetId": "another"})
    for stage in ("CC", "Scout"):
        desk.confirm(stage)
    assert [kind for kind, _ in desk.said()] == [UPDATE] * 4
    shown = desk.milepost.show("postingest", KEY)
    assert shown is not None
    assert (shown["stage"], shown["status"], shown["note"]) == (
        "batches",
        "WAITING",
        "all its stages are confirmed; other batches of the asset are not completed: later",
    )
    for stage in ("CC", "Scout"):
        desk.milepost.confirm("postingest", f"{ASSET}#later", stage, by="confirmer")
    desk.run()
    desk.clock.advance("2h")
    assert [kind for kind, _ in desk.said()[4:]] == [UPDATE, COMPLETE, COMPLETE]
    assert desk.said()[-1][1] == "Asset has been written to data tape."


def test_a_batch_that_failed_is_waited_for_and_one_that_was_cancelled_is_not() -> None:
    desk = NotifiedRoute(wait_for_batches=True)
    desk.milepost.submit("postingest", ROW, {**ROW, "batchId": "later"})
    desk.milepost.confirm(
        "postingest", f"{ASSET}#later", "CC", by="confirmer", outcome=mp.Reject("damaged")
    )
    for stage in ("CC", "Scout"):
        desk.confirm(stage)
    assert COMPLETE not in [kind for kind, _ in desk.said()]
    ctx = desk.milepost.context
    assert (
        act(
            ctx,
            select(ctx, "postingest", keys=[f"{ASSET}#later"]),
            RetryVerb(),
            by="ops",
            reason="mended",
        ).done
        == 1
    )
    assert (
        act(
            ctx,
            select(ctx, "postingest", keys=[f"{ASSET}#later"]),
            CancelVerb(),
            by="ops",
            reason="it is not wanted",
        ).done
        == 1
    )
    desk.clock.advance("2h")
    assert [kind for kind, _ in desk.said()].count(COMPLETE) == 1


@pytest.mark.parametrize("early", [False, True])
def test_a_part_of_the_files_on_tape_confirms_nothing(early: bool) -> None:
    desk = NotifiedRoute(dialect="today")
    desk.milepost.submit("postingest", ROW)
    if early:
        # Nobody can say yet which files there are: it is found out when the asset comes there.
        desk.confirm("TC", {"a": ["L1"]})
    desk.confirm("CC", {"filePaths": ["a", "b"]})
    if not early:
        with pytest.raises(mp.ActRefused, match="it covers 1 of 2 files; missing: b"):
            desk.confirm("TC", {"a": ["L1"]})
    assert [kind for kind, _ in desk.said()] == [UPDATE, UPDATE]
    shown = desk.milepost.show("postingest", KEY)
    assert shown is not None
    assert (shown["stage"], shown["status"]) == ("TC", "QUEUED" if early else "WAITING")
    desk.confirm("TC", {"a": ["L1"], "b": ["L2"]})
    assert [kind for kind, _ in desk.said()] == [UPDATE, UPDATE, COMPLETE]


@pytest.mark.parametrize(
    "value", [True, "yes", {"filePaths": []}, {"filePaths": [""]}, {"filePaths": "a"}, ["a"]]
)
def test_what_is_no_list_of_files_does_not_confirm_the_first_stage_today(value: Any) -> None:
    desk = NotifiedRoute(dialect="today")
    desk.milepost.submit("postingest", ROW)
    with pytest.raises(mp.ActRefused, match="confirms nothing"):
        desk.confirm("CC", value)
