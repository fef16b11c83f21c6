"""A key that is submitted again after the route has forgotten it: a new item with its own ids,
`work_id` and chain."""

from __future__ import annotations

from milepost.core.events import events_of
from milepost.core.history import origin, verify_chain
from milepost.core.item import work_id
from milepost.core.outcome import Done, Retry
from milepost.core.routes.route import Route
from milepost.core.status import TERMINAL
from milepost.evidence.record import differences, evidence
from milepost.ports.ledger import Ledger
from milepost.ports.retention import DeliveredLines, PruneCriteria
from milepost_testing.contract.base import Promises
from milepost_testing.contract.retention import prune
from milepost_testing.contract.world import World


class LivesContract(Promises):
    def test_a_key_that_comes_again_has_ids_and_a_chain_of_its_own(self, ledger: Ledger) -> None:
        world = World(ledger, _forgetful_route())
        first = _live(world, retries=2)
        _forget(world)
        second = _live(world, retries=0)
        assert not first & second
        assert [reason for reason in world.reasons("p1") if reason != "offered"] == [
            "accepted",
            "advanced",
            "confirmed",
        ]
        world.audit()

    def test_lines_of_an_earlier_life_are_not_mixed_in(self, ledger: Ledger) -> None:
        world = World(ledger, _forgetful_route())
        _live(world, retries=2)
        _forget(world)
        assert world.add("p1") == [None]
        row, lines = world.row("p1"), world.ledger.history("parcels", "p1")
        assert (row.version, [written.line.version for written in lines]) == (1, [1])
        assert {written.line.life for written in lines} == {row.life}
        assert [written.line.life for written in ledger.feed(0, 1000) if written.key == "p1"] == [
            row.life
        ]

    def test_the_evidence_of_a_second_life_can_be_verified(self, ledger: Ledger) -> None:
        world = World(ledger, _forgetful_route())
        _live(world, retries=1)
        _forget(world)
        _live(world, retries=0)
        item = world.item("p1")
        row, written = item.row, ledger.history("parcels", "p1")
        start = origin("parcels", "p1", row.input_digest, row.life)
        assert (
            verify_chain([(line.previous, line.body) for line in written], start, row.head) is None
        )
        assert (
            verify_chain(
                [(line.previous, line.body) for line in written],
                origin("parcels", "p1", row.input_digest),
                row.head,
            )
            == 1
        )
        bodies = [line.body for line in written]
        record = evidence(
            "parcels", "p1", row.input_digest, row.correlation_id, row.head, bodies, item.results
        )
        assert differences(record) == []
        assert differences({**record, "key": "p2"}) != []

    def test_a_seal_knows_which_life_it_is_of(self, ledger: Ledger) -> None:
        world = World(ledger, _forgetful_route())
        _live(world, retries=0)
        life = world.row("p1").life
        world.clock.advance("2h")
        assert prune(world).items == 1
        [known] = ledger.peek("parcels", ["p1"])
        assert known is not None
        assert (known.sealed, known.life) == (True, life)
        assert ledger.sealed("parcels", None, 10)[0] == [known]

    def test_ids_stay_as_they_are_where_keys_are_remembered_for_good(self, world: World) -> None:
        world.bring("p1", to="delivered")
        row = world.row("p1")
        assert row.life == 0
        assert world.item("p1").work_id == work_id("parcels", "p1", "delivered", 1)
        assert world.ledger.history("parcels", "p1")[0].previous == origin(
            "parcels", "p1", row.input_digest
        )
        ids = [
            event.id
            for line in world.lines("p1")
            for event in events_of(line, "parcels", "p1", "c-p1")
        ]
        assert ids[:2] == ["parcels/p1/1/accepted", "parcels/p1/2/advanced"]


def _forgetful_route() -> Route:
    route = Route("parcels", remember="1d")
    route.stage("weigh")(lambda item: Done())
    route.external("delivered", resend_after="14d")
    return route


def _live(world: World, retries: int) -> set[str | bytes]:
    """Process the item to the end; its event ids, the work_ids that partners saw, and the digests
    of its chain."""
    assert world.add("p1") == [None]
    seen: set[str | bytes] = set()
    for _ in range(retries):
        item = world.take("p1")
        seen.add(item.work_id)
        assert world.settle(item, Retry("busy")) is None
        world.clock.advance("1m")
    item = world.take("p1")
    assert world.settle(item, Done({"grams": 3})) is None
    seen |= {item.work_id, world.item("p1").work_id} | {
        line.offered for line in world.lines("p1") if line.offered
    }
    assert world.confirm("p1", "delivered") is None
    written = world.ledger.history("parcels", "p1")
    seen |= {
        event.id
        for one in written
        for event in events_of(one.line, "parcels", "p1", one.correlation_id, one.payload)
    }
    return seen | {one.previous for one in written} | {world.row("p1").head}


def _forget(world: World) -> None:
    """The item's row leaves, and some days later its seal is forgotten."""
    world.clock.advance("2h")
    assert prune(world).items == 1
    assert world.add("p1") != [None]
    world.clock.advance("3d")
    assert (
        world.ledger.prune(
            PruneCriteria(
                "parcels",
                TERMINAL,
                world.now,
                world.now - 86_400_000,
                DeliveredLines(world.ledger.last_seq()),
                10,
            )
        ).forgotten
        == 1
    )
    # Only keys that are requested now are looked up again.
    world.ledger.peek("parcels", ["p1"])
    for item in world.claim().items:
        world.settle(item, Done())
