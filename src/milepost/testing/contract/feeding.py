"""The feed: history is the outbox, in the order written, with what an offer offers."""

from __future__ import annotations

from milepost.core.outcome import Done, Retry
from milepost.ports.ledger import Ledger
from milepost.testing.contract.base import Promises
from milepost.testing.contract.world import World, sample_route


class Feeding(Promises):
    def test_lines_of_all_items_come_in_the_order_written(self, ledger: Ledger) -> None:
        parcels, letters = World(ledger), World(ledger, sample_route("letters"))
        parcels.add("p1")
        letters.add("l1")
        parcels.settle(parcels.take("p1"), Done())
        found = [(line.route, line.key, line.line.reason.value) for line in ledger.feed(0, 100)]
        assert found == [("parcels", "p1", "accepted"), ("letters", "l1", "accepted"), ("parcels", "p1", "advanced")]

    def test_reading_on_from_the_last_place_gives_every_line_once(self, world: World) -> None:
        world.add(*(f"p{n}" for n in range(10)))
        for item in world.claim().items:
            world.settle(item, Done())
        seqs: list[int] = []
        after = 0
        while batch := world.ledger.feed(after, 3):
            assert len(batch) <= 3
            seqs += [line.seq for line in batch]
            after = seqs[-1]
        assert len(seqs) == 20
        assert seqs == sorted(set(seqs))
        assert after == world.ledger.last_seq()
        assert world.ledger.feed(after, 10) == []

    def test_an_empty_ledger_has_no_lines(self, ledger: Ledger) -> None:
        assert ledger.last_seq() == 0
        assert ledger.feed(0, 10) == []
        assert ledger.history("parcels", "p1") == []

    def test_each_items_lines_come_in_its_own_order(self, world: World) -> None:
        world.add("p1", "p2")
        for _ in range(2):
            for item in world.claim().items:
                world.settle(item, Retry("busy"))
            world.clock.advance("1m")
        for key in ("p1", "p2"):
            versions = [line.line.version for line in world.ledger.feed(0, 100) if line.key == key]
            assert versions == [1, 2, 3]

    def test_a_line_carries_what_an_event_needs(self, world: World) -> None:
        world.add("p1")
        (written,) = world.ledger.feed(0, 10)
        assert (written.route, written.key, written.correlation_id) == ("parcels", "p1", "c-p1")
        assert (written.line.version, written.line.stage, written.line.at) == (1, "weigh", world.now)
        assert written.payload is None

    def test_the_offer_of_an_external_stage_carries_its_payload(self, world: World) -> None:
        world.add("p1")
        world.settle(world.take("p1"), Done())
        world.settle(world.take("p1", "stamp"), Done({"stamp": "x-1"}))
        offered = [line for line in world.ledger.feed(0, 100) if line.line.offered]
        assert [line.payload for line in offered] == [{"stamp": "x-1"}]
        assert all(line.payload is None for line in world.ledger.feed(0, 100) if not line.line.offered)
        assert offered[0].line.offered == world.item("p1").work_id

    def test_an_offer_without_a_payload_of_its_own_carries_the_input(self, world: World) -> None:
        world.add("p1", colour="red")
        world.settle(world.take("p1"), Done())
        world.settle(world.take("p1", "stamp"), Done())
        assert world.ledger.feed(0, 100)[-1].payload == {"id": "p1", "colour": "red"}

    def test_a_resend_is_a_new_line_with_the_same_payload(self, world: World) -> None:
        world.bring("p1", to="delivered")
        world.clock.advance("14d")
        world.apply(world.look("p1"))
        first, second = [line for line in world.ledger.feed(0, 100) if line.line.offered]
        assert first.payload == second.payload == {"by": "stamp"}
        assert first.line.offered == second.line.offered
        assert first.seq < second.seq

    def test_a_change_that_lost_its_race_is_never_told(self, world: World) -> None:
        world.add("p1")
        item = world.take("p1")
        world.settle(item, Done())
        before = world.ledger.last_seq()
        assert world.settle(item, Retry("too late")) is not None
        assert world.ledger.last_seq() == before
