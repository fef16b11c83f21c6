"""One clock: rows dated by a clock that was ahead are found by date, made due, and dated anew;
nothing else of them changes."""

from __future__ import annotations

from typing import Any

from milepost.core.change import Change
from milepost.core.clocks import FOLLOWED_MS
from milepost.core.future import due_at_once, redate
from milepost.core.outcome import Done, HandedOver, Retry
from milepost.core.status import LIVE, Status
from milepost.core.values.durations import iso
from milepost.ports.items import Query
from milepost_testing.contract.base import Promises
from milepost_testing.contract.world import World

WHO: dict[str, Any] = {"by": "ops", "why": "the clock was ahead"}


class OneClockContract(Promises):
    def test_rows_are_found_by_the_date_of_their_last_change_or_claim(self, world: World) -> None:
        world.add("old", "claimed")
        world.clock.advance("3d")
        world.add("new")
        [claimed] = [item for item in world.claim(want=3).items if item.key == "claimed"]
        assert claimed.row.status is Status.PROCESSING
        ahead = world.now
        world.clock.set_back("3d")
        assert self._dated(world, ahead) >= {"new", "claimed"}
        assert self._dated(world, ahead, statuses=frozenset({Status.PROCESSING})) >= {"claimed"}
        assert self._dated(world, ahead + 1) == set()
        assert self._dated(world, ahead, statuses=frozenset({Status.COMPLETED})) == set()

    def test_a_retry_that_a_clock_ahead_has_set_is_made_due_now(self, world: World) -> None:
        world.add("p1")
        world.clock.advance("3d")
        world.settle(world.take("p1"), Retry("busy", after="1h"))
        world.clock.set_back("3d")
        assert world.claim().items == []
        self._make_due(world, "p1")
        assert world.row("p1").due_at == world.now
        assert due_at_once(world.row("p1"), world.now) is None
        if not world.called:
            world.settle(world.take("p1"), Done())
        world.audit()

    def test_a_lease_that_a_clock_ahead_has_given_ends_now(self, world: World) -> None:
        if world.called:
            return  # workers are called by messages, and clocks are compared with the service's
        world.add("p1")
        world.clock.advance("3d")
        world.take("p1", holder="gone")
        world.clock.set_back("3d")
        assert world.claim().items == []
        self._make_due(world, "p1")
        assert world.take("p1").row.losses == 1
        world.audit()

    def test_a_partner_keeps_its_time_counted_from_now(self, world: World) -> None:
        world.add("p1")
        world.clock.advance("3d")
        world.settle(world.take("p1"), HandedOver(within="2h"))
        world.clock.set_back("3d")
        self._make_due(world, "p1")
        row = world.row("p1")
        assert (row.handed_over, row.attempts, row.due_at) == (True, 0, world.now + 2 * 3_600_000)
        world.audit()

    def test_an_item_for_later_keeps_its_date(self, world: World) -> None:
        world.clock.advance("3d")
        later = world.now + 86_400_000
        world.add("p1", not_before=later)
        world.clock.set_back("3d")
        assert due_at_once(world.row("p1"), world.now) is None
        assert world.apply(redate(world.row("p1"), world.now, **WHO)) is None
        row = world.row("p1")
        assert (row.not_before, row.due_at, row.updated_at) == (later, later, world.now)
        world.audit()

    def test_redate_is_on_record_and_leaves_status_counters_and_chain_whole(
        self, world: World
    ) -> None:
        world.clock.advance("3d")
        world.add("p1")
        ahead, counted = world.now, world.count()
        world.clock.set_back("3d")
        assert world.apply(redate(world.row("p1"), world.now, **WHO)) is None
        row, line = world.row("p1"), world.lines("p1")[-1]
        assert (row.updated_at, row.entered_at) == (world.now, world.now)
        assert (line.reason, line.by, line.why) == ("noted", "ops", "the clock was ahead")
        assert line.note["redated"]["updated_at"] == iso(ahead)
        assert world.count() == counted
        world.settle(world.take("p1"), Done())
        world.audit()

    @staticmethod
    def _dated(world: World, at: int, **more: Any) -> set[str]:
        return {
            item.key
            for item in world.ledger.find(
                Query(route=world.plan.name, dated_from=at, exact=True, **more)
            ).items
        }

    @staticmethod
    def _make_due(world: World, key: str) -> None:
        found = world.ledger.find(
            Query(
                route=world.plan.name,
                statuses=LIVE,
                dated_from=world.now + FOLLOWED_MS + 1,
                due_after=world.now,
                exact=True,
            )
        )
        assert [item.key for item in found.items] == [key]
        change = due_at_once(found.items[0].row, world.now)
        assert isinstance(change, Change)
        assert world.apply(change) is None
