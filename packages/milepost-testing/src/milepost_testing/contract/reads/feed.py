"""The feed: history is the outbox, in the order written, with the payloads of offers."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace as replaced

from milepost.core.item import digest_of
from milepost.core.operators import replace, retry
from milepost.core.outcome import Done, Retry
from milepost.core.routes.route import Route
from milepost.ports.ledger import Ledger
from milepost_testing.contract.base import Promises
from milepost_testing.contract.world import World, sample_route


class FeedContract(Promises):
    def test_lines_of_all_items_come_in_the_order_written(self, ledger: Ledger) -> None:
        parcels, letters = World(ledger), World(ledger, sample_route("letters"))
        parcels.add("p1")
        letters.add("l1")
        parcels.settle(parcels.take("p1"), Done())
        found = [(line.route, line.key, line.line.reason.value) for line in ledger.feed(0, 100)]
        assert found == [
            ("parcels", "p1", "accepted"),
            ("letters", "l1", "accepted"),
            ("parcels", "p1", "advanced"),
        ]

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
        assert (written.line.version, written.line.stage, written.line.at) == (
            1,
            "weigh",
            world.now,
        )
        assert written.payload is None

    def test_the_offer_of_an_external_stage_carries_its_payload(self, world: World) -> None:
        world.add("p1")
        world.settle(world.take("p1"), Done())
        world.settle(world.take("p1", "stamp"), Done({"stamp": "x-1"}))
        offered = [line for line in world.ledger.feed(0, 100) if line.line.offered]
        assert [line.payload for line in offered] == [{"stamp": "x-1"}]
        assert all(
            line.payload is None for line in world.ledger.feed(0, 100) if not line.line.offered
        )
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

    def test_an_offer_keeps_its_payload_when_the_item_is_sent_back_and_done_again(
        self, world: World
    ) -> None:
        _ship(world, "p1", "one")
        world.apply(
            retry(world.item("p1"), world.plan, world.now, stage="stamp", by="ops", why="again")
        )
        world.settle(world.take("p1", "stamp"), Done({"label": "two"}))
        assert _offers(world) == [{"label": "one"}, {"label": "two"}]
        world.audit()

    def test_an_offer_keeps_its_payload_when_its_stage_is_renamed(self, world: World) -> None:
        _ship(world, "p1", "one")
        world.ledger.rename_stage("parcels", "delivered", "received")
        assert _offers(world) == [{"label": "one"}]
        assert world.item("p1").content.payloads["received"] == {"label": "one"}

    def test_an_offer_keeps_the_input_that_it_was_made_from(self, ledger: Ledger) -> None:
        route = Route("parcels")
        route.external("delivered")
        world = World(ledger, route)
        world.add("p1", colour="red")
        world.add("p2", colour="blue")
        content = {"id": "p1", "colour": "green"}
        more = {
            "content": content,
            "digest": digest_of(content),
            "old": world.item("p1").input,
            "by": "ops",
            "why": "wrong colour",
        }
        world.apply(replace(world.item("p1"), world.plan, world.now, **more))
        assert [payload["colour"] for payload in _offers(world)] == ["red", "blue", "green"]

    def test_the_history_has_payloads_where_they_are_asked_for(self, world: World) -> None:
        _ship(world, "p1", "one")
        world.clock.advance("14d")
        world.apply(world.look("p1"))
        world.apply(
            retry(world.item("p1"), world.plan, world.now, stage="stamp", by="ops", why="again")
        )
        lines = world.ledger.history("parcels", "p1", payloads=True)
        assert [line.payload for line in lines if line.line.offered] == [
            {"label": "one"},
            {"label": "one"},
        ]
        assert all(line.payload is None for line in lines if not line.line.offered)
        assert [replaced(line, payload=None) for line in lines] == world.ledger.history(
            "parcels", "p1"
        )
        assert [(line.seq, line.payload) for line in lines] == [
            (line.seq, line.payload) for line in world.ledger.feed(0, 100)
        ]

    def test_a_large_payload_is_kept_whole(self, world: World) -> None:
        world.add("p1")
        world.settle(world.take("p1"), Done())
        large = {"files": [f"disk/{n:06}/content.tiff" for n in range(1_000)]}
        world.settle(world.take("p1", "stamp"), Done(large))
        assert _offers(world) == [large]
        assert world.ledger.history("parcels", "p1", payloads=True)[-1].payload == large

    def test_a_change_that_lost_its_race_is_never_told(self, world: World) -> None:
        world.add("p1")
        item = world.take("p1")
        world.settle(item, Done())
        before = world.ledger.last_seq()
        assert world.settle(item, Retry("too late")) is not None
        assert world.ledger.last_seq() == before


def _ship(world: World, key: str, label: str) -> None:
    """Bring an item to the external stage, which is offered with this label."""
    world.add(key)
    world.settle(world.take(key), Done())
    world.settle(world.take(key, "stamp"), Done({"label": label}))


def _offers(world: World) -> list[Any]:
    """The offers, in the order of the feed."""
    return [line.payload for line in world.ledger.feed(0, 100) if line.line.offered]
