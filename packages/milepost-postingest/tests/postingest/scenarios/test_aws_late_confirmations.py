"""Late confirmations by attribute: recorded once without an event, unless the item failed at that
stage; then they count, as on every ledger."""

from __future__ import annotations

from typing import Any

import pytest
from tests.postingest.aws_scene import BATCH, PATHS, VOLUMES, Opener, Postingest, text

from milepost.blobs.memory import MemoryBlobs
from milepost.core.due import Lease
from milepost.core.item import Item, Row
from milepost.core.outcome import Done, Outcome, Reject, Retry
from milepost.core.routes.backoff import Backoff
from milepost.core.routes.plan import Plan
from milepost.core.routes.route import Route
from milepost.core.status import Status
from milepost.engine.act_log import select
from milepost.engine.acts.bulk import act, confirm_outside
from milepost.engine.acts.verbs import RetryVerb
from milepost.engine.context import Context
from milepost.engine.intake import submit
from milepost.engine.work.settle import settle
from milepost.ledgers.memory import MemoryLedger
from milepost.ports.items import ClaimRequest
from milepost.ports.runner import JobResult
from milepost_aws.ledger.repair.repair import Repair
from milepost_testing.clock import SeededChance, VirtualClock

ASSET = "e2715719-c313-4e95-b5e6-f8759dcc6aed"
KEY = f"{ASSET}#{BATCH}"


@pytest.fixture
def post(open_at: Opener) -> Postingest:
    """An asset that is through both stages, and everybody knows."""
    post = open_at()
    post.put()
    post.follow()
    for stage, value in (("CC", PATHS), ("Scout", VOLUMES)):
        post.confirm(stage, text(value))
        post.follow()
    assert post.at() == ("Scout", "COMPLETED")
    return post


# After the end ------------------------------------------------------------------------------------
@pytest.mark.parametrize(("stage", "first"), [("CC", PATHS), ("Scout", VOLUMES)])
def test_a_different_confirmation_after_the_end_is_noted_once_and_the_first_stays(
    post: Postingest, stage: str, first: Any
) -> None:
    told, lines = list(post.told.events), post.lines()
    post.confirm(stage, text({"elsewhere": ["L1"]}))
    for _ in range(3):
        post.follow()
    assert post.notes() == [{"for": stage, "differs": {"elsewhere": ["L1"]}}]
    assert post.lines() == [*lines, "noted"]
    assert post.item().content.results[stage] == first
    assert post.told.events == told
    assert post.aside() == []
    row = post.row()
    assert row is not None
    assert (row["status"], "dueShard" in row, "trail" in row) == (
        {"S": "COMPLETED"},
        False,
        False,
    ), "it is finished again"
    assert post.ledger.store.seals("assets", [KEY])[KEY].head == post.item().row.head


def test_the_same_confirmation_after_the_end_says_nothing_new(post: Postingest) -> None:
    lines = post.lines()
    post.confirm("Scout", text(dict(reversed(VOLUMES.items()))))
    post.follow()
    assert post.lines() == lines


def test_an_answer_after_the_end_for_a_stage_that_was_done_without_one_is_noted_and_taken_off(
    open_at: Opener,
) -> None:
    post = at_fetch(open_at)
    settled(post, Done())
    post.confirm("CC", text(PATHS))
    post.follow()
    assert post.at() == ("CC", "COMPLETED")
    told = list(post.told.events)
    post.confirm("fetch", text({"by": "somebody else"}))
    post.follow()
    assert post.notes() == [
        {"for": "fetch", "differs": {"type": "done", "output": {"by": "somebody else"}}}
    ]
    assert "ingested_fetch" not in (post.row() or {})
    assert (post.at(), post.told.events) == (("CC", "COMPLETED"), told)


# Where it failed ----------------------------------------------------------------------------------
def at_fetch(open_at: Opener) -> Postingest:
    """An asset at a stage of our own workers."""
    post = open_at(route=fetched())
    post.put()
    post.follow()
    return post


def fetched() -> Route:
    route = Route("loans", key=("assetId", "batchId"))
    route.stage("fetch", retry=Backoff(attempts=1, jitter=0))(lambda item: Done())
    route.external("CC")
    return route


def settled(post: Any, outcome: Outcome) -> Item:
    """A worker claims it, and says this."""
    now = post.clock.now()
    (answer,) = post.ledger.claim(
        [ClaimRequest(post.plan, "fetch", 1, Lease(f"token-{now}", "worker", now + 60_000))],
        now,
        0.0,
    )
    (item,) = answer.items
    assert settle(post.ctx, [JobResult(item, outcome, 5)]).written == 1
    post.follow()
    found: Item = post.ledger.get([("loans", KEY)])[0]
    return found


class Embedded:
    """The same asset on a ledger where confirmers speak by API."""

    def __init__(self) -> None:
        self.ledger, self.clock = MemoryLedger(), VirtualClock()
        self.plan = Plan(
            fetched(),
            grace_ms=self.ledger.timing.grace_ms,
            offer_life_ms=self.ledger.timing.offer_life_ms,
        )
        self.ctx = Context(
            self.ledger, {"loans": self.plan}, self.clock, SeededChance(), MemoryBlobs()
        )
        submit(self.ctx, "loans", [{"assetId": ASSET, "batchId": BATCH}])

    def follow(self) -> None:
        """Here everything follows at once."""


def said(ledger: Any) -> tuple[Any, ...]:
    """Where it is, what it carries, and its history since it was accepted, but for who spoke."""
    item = ledger.get([("loans", KEY)])[0]
    lines = [written.line for written in ledger.history("loans", KEY)]
    row = item.row
    facts = (
        row.stage,
        row.status,
        row.attempts,
        row.round,
        row.error,
        row.kept,
        item.content.results,
    )
    return facts, [
        (line.version, line.reason, line.stage, line.to, line.status, line.output, line.offered)
        for line in lines[1:]
    ]


@pytest.mark.parametrize(
    ("outcome", "value"),
    [(Reject("no such asset"), PATHS), (Retry("out of reach"), True)],
    ids=["REJECTED", "MAX_RETRIES_EXCEEDED"],
)
def test_a_confirmation_of_the_stage_at_which_it_failed_moves_it_on_as_one_by_api_does_elsewhere(
    open_at: Opener, outcome: Outcome, value: Any
) -> None:
    post, elsewhere = at_fetch(open_at), Embedded()
    assert (
        settled(post, outcome).row.status
        == settled(elsewhere, outcome).row.status
        != Status.COMPLETED
    )
    post.confirm("fetch", text(value))
    post.follow()
    assert isinstance(
        confirm_outside(elsewhere.ctx, "loans", KEY, "fetch", Done(value), "partner"), Row
    )
    assert post.at() == ("CC", "QUEUED")
    assert said(post.ledger) == said(elsewhere.ledger)
    assert "ttl" not in (post.row() or {})
    post.confirm("CC", text(VOLUMES))
    post.follow()
    assert post.at() == ("CC", "COMPLETED")


def test_a_confirmation_of_a_failed_stage_that_the_stream_lost_is_found_by_the_repair(
    open_at: Opener,
) -> None:
    post = at_fetch(open_at)
    settled(post, Reject("no"))
    post.confirm("fetch", text(PATHS))
    lose(post)
    assert repaired(post) == {"confirmed": 1}
    post.follow()
    assert post.at() == ("CC", "QUEUED")
    assert repaired(post) == {}


def test_an_early_confirmation_on_a_failed_row_waits_for_the_item_and_costs_nothing(
    open_at: Opener,
) -> None:
    post = at_fetch(open_at)
    settled(post, Reject("no"))
    post.confirm("CC", text(PATHS))
    post.follow()
    assert post.at() == ("fetch", "REJECTED")
    assert repaired(post) == {}
    act(post.ctx, select(post.ctx, "loans", keys=[KEY]), RetryVerb(), by="ops", reason="again")
    post.follow()
    settled(post, Done())
    assert post.at() == ("CC", "COMPLETED")


def lose(post: Postingest) -> None:
    while post._stream.poll(lambda records: None, post.clock):
        pass


def repaired(post: Postingest) -> dict[str, int]:
    """What a run of the repair mends, a day later."""
    post.clock.advance("1d")
    repair = Repair(post.store, post.plan, lambda: 0.0)
    while not (progress := repair.step(post.clock)).done:
        assert progress.next_at is not None
        post.clock.advance(max(0, progress.next_at - post.clock.now()) / 1000 + 0.001)
    return progress.found.mended
