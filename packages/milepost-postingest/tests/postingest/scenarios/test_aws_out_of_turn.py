"""The postingest document's state-change handler, scenario by scenario: confirmations that come
before their turn, after the end, or while a worker of ours is at work. Numbers are those of the
scenario list for this system."""

from __future__ import annotations

from typing import Any

import pytest
from tests.postingest.aws_scene import OTHER, PATHS, VOLUMES, Opener, Postingest, text
from tests.postingest.scenarios.state_change_scene import ended, in_cc

from milepost.core.due import Lease
from milepost.core.outcome import Done, Retry
from milepost.core.routes.route import Route
from milepost.engine.work.settle import settle
from milepost.ports.items import ClaimRequest
from milepost.ports.runner import JobResult


# Out of order -------------------------------------------------------------------------------------
def test_a_confirmation_for_a_later_stage_is_kept_until_the_asset_gets_there(
    post: Postingest,
) -> None:
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


def test_confirmations_made_while_the_relay_is_down_are_applied_when_it_reads_on(
    post: Postingest,
) -> None:
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


def test_a_confirmation_for_a_stage_that_the_route_has_not_got_does_nothing(
    post: Postingest,
) -> None:
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


# A worker of ours at work on it -------------------------------------------------------------------
def fetched(open_at: Opener, **options: Any) -> Postingest:
    """A route whose first stage is a handler's."""
    route = Route("loans", key=("assetId", "batchId"), **options)
    route.stage("fetch")(lambda item: Done())
    route.external("CC")
    return open_at(route=route)


def claimed(post: Postingest) -> Any:
    now = post.clock.now()
    lease = Lease(f"token-{now}", "worker", now + 60_000)
    (answer,) = post.ledger.claim([ClaimRequest(post.plan, "fetch", 1, lease)], now, 0.0)
    (item,) = answer.items
    return item


@pytest.mark.parametrize("read_before", [True, False], ids=["read before it settles", "unread"])
@pytest.mark.parametrize(
    "outcome", [Retry("no"), Done({"by": "the worker"})], ids=["failed", "done"]
)
def test_a_confirmation_beats_the_outcome_of_the_worker_at_work(
    open_at: Opener, read_before: bool, outcome: Any
) -> None:
    """Scenario 8: an outsider's word counts like one of our own, and the first wins."""
    post = fetched(open_at)
    post.put()
    post.follow()
    item = claimed(post)
    post.confirm("fetch", text({"by": "somebody outside"}))
    if read_before:
        post.follow()
        assert post.at() == ("fetch", "PROCESSING")
    settled = settle(post.ctx, [JobResult(item, outcome, 5)])
    assert (settled.written, settled.refused) == (1, 0)
    post.follow()
    assert post.at() == ("CC", "QUEUED")
    (message,) = post.received("CC")
    assert message.body["payload"] == {"by": "somebody outside"}
    assert post.lines() == ["accepted", "confirmed", "offered"]
    assert post.item().row.total_attempts == 0


def test_a_confirmation_taken_off_while_the_worker_is_at_work_does_not_beat_it(
    open_at: Opener,
) -> None:
    """Scenario 16."""
    post = fetched(open_at)
    post.put()
    post.follow()
    item = claimed(post)
    post.confirm("fetch", text({"by": "somebody outside"}))
    post.follow()
    post.take_off("ingested_fetch")
    settle(post.ctx, [JobResult(item, Done({"by": "the worker"}), 5)])
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
    settle(post.ctx, [JobResult(item, Retry("no"), 5)])
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
    assert settle(post.ctx, [JobResult(item, Done({"by": "the worker"}), 5)]).written == 1
    post.follow()
    (message,) = post.received("CC")
    assert message.body["payload"] == {"by": "the worker"}
