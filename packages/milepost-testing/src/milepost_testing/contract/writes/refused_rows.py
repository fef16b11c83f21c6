"""Refused rows: a row that the storage cannot take or read affects one item only."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from milepost.core.change import Change, change
from milepost.core.decide import decide
from milepost.core.failures import CANNOT_BE_READ
from milepost.core.item import Content, Item, Row, digest_of
from milepost.core.operators import cancel
from milepost.core.outcome import Done, NotYet
from milepost.core.status import Reason, Status
from milepost.ports.items import KnownKey, NewItem, Query, Refused
from milepost.ports.ledger import Ledger
from milepost_testing.contract.base import Promises
from milepost_testing.contract.world import World


class RefusedRowsContract(Promises):
    def test_a_change_that_the_storage_cannot_take_is_refused_and_its_neighbours_are_written(
        self, ledger: Ledger
    ) -> None:
        world = World(ledger)
        world.add("a", "b", "c")
        size = self.refused_size(ledger)
        items = sorted(world.claim().items, key=lambda item: item.key)
        changes = [
            decide(item, Done({"of": item.key}), world.plan, world.now, 0.0) for item in items
        ]
        changes[1] = _noted(items[1], world, size)
        first, refused, third = ledger.apply(changes, world.now)
        assert (first, third) == (None, None)
        assert isinstance(refused, Refused)
        assert refused.reason
        assert world.row("b") == items[1].row, "it is as it was"
        assert [world.item(key).results for key in ("a", "c")] == [
            {"weigh": {"of": "a"}},
            {"weigh": {"of": "c"}},
        ]
        assert world.settle(items[1], NotYet(note="later")) is None, "what fits is written"
        world.audit()

    def test_what_builds_on_a_refused_change_is_not_written_either(self, ledger: Ledger) -> None:
        world = World(ledger)
        world.add("a")
        size = self.refused_size(ledger)
        item = world.take("a")
        large = _noted(item, world, size)
        after = decide(Item(large.after, item.content), Done(), world.plan, world.now, 0.0)
        answers = ledger.apply([large, after], world.now)
        assert isinstance(answers[0], Refused)
        assert answers[1] is not None
        assert world.row("a") == item.row
        world.audit()

    def test_a_new_item_that_the_storage_cannot_take_is_refused_and_the_others_are_recorded(
        self, ledger: Ledger
    ) -> None:
        world = World(ledger)
        size = self.refused_size(ledger)
        new_items = [world.new_item(key) for key in ("a", "b", "c")]
        change = new_items[1].change
        new_items[1] = NewItem(
            replace(change, after=replace(change.after, list_id="x" * size)), new_items[1].input
        )
        first, refused, third = ledger.add(world.plan, new_items, world.now)
        assert (first, third) == (None, None)
        assert isinstance(refused, Refused)
        assert ledger.peek("parcels", ["a", "b", "c"])[1] is None
        assert ledger.add(world.plan, [world.new_item("b")], world.now) == [None]
        world.audit()

    def test_the_twin_of_a_refused_item_is_recorded(self, ledger: Ledger) -> None:
        world = World(ledger)
        change = world.new_item("a").change
        large = NewItem(
            replace(change, after=replace(change.after, list_id="x" * self.refused_size(ledger))),
            {"id": "a"},
        )
        refused, written, known = ledger.add(
            world.plan, [large, world.new_item("a"), world.new_item("a")], world.now
        )
        assert isinstance(refused, Refused)
        assert written is None
        assert isinstance(known, KnownKey)
        assert not known.sealed
        world.audit()

    @pytest.mark.parametrize("what", ["content", "row"])
    def test_one_damaged_item_hinders_nobody_and_does_not_come_again(
        self, ledger: Ledger, what: str
    ) -> None:
        world = World(ledger)
        world.add("a", "bad", "c")
        self.damage(ledger, "parcels", "bad", what)
        got = {item.key for _ in range(3) for item in world.claim().items}
        assert got == {"a", "c"}
        world.clock.advance("5m")
        for item in [
            found
            for found in ledger.get([("parcels", key) for key in ("a", "c")])
            if isinstance(found, Item)
        ]:
            assert world.settle(item, Done()) is None
        assert [world.row(key).stage for key in ("a", "c")] == ["stamp", "stamp"]
        again = world.claim()
        assert again.items == []
        assert again.refused == [], "it is not due again at once"
        set_aside, _ = ledger.quarantine.entries(10)
        if what == "content":
            row = self._as_far_as_read(ledger, "bad")
            assert (row.status, row.error and row.error.category) == (
                Status.REJECTED,
                CANNOT_BE_READ,
            )
        else:
            assert any("bad" in str(aside.content) for aside in set_aside), "operators find it"

    @pytest.mark.parametrize("what", ["content", "row"])
    def test_a_damaged_item_is_told_from_one_that_is_not_there(
        self, ledger: Ledger, what: str
    ) -> None:
        world = World(ledger)
        world.add("a", "bad")
        self.damage(ledger, "parcels", "bad", what)
        sound, damaged, absent = ledger.get([("parcels", key) for key in ("a", "bad", "unknown")])
        assert isinstance(sound, Item)
        assert isinstance(damaged, Refused)
        assert damaged.reason
        assert absent is None
        page = ledger.find(Query(route="parcels", with_content=True))
        assert [item.key for item in page.items] == ["a"]
        assert [refused.key for refused in page.refused] == ["bad"]
        assert ledger.history("parcels", "bad")[0].line.reason is Reason.ACCEPTED
        (known,) = ledger.peek("parcels", ["bad"])
        assert known is not None, "it is known, so that it is not accepted twice"
        assert ledger.recognise("parcels", ["bad"], [digest_of({"id": "bad"})]) != [None]

    def test_an_item_whose_content_is_damaged_can_be_cancelled(self, ledger: Ledger) -> None:
        world = World(ledger)
        world.add("bad")
        self.damage(ledger, "parcels", "bad", "content")
        (damaged,) = ledger.get([("parcels", "bad")])
        assert isinstance(damaged, Refused)
        assert damaged.row is not None
        change = cancel(
            Item(damaged.row, Content()), world.plan, world.now, by="ops", why="it is damaged"
        )
        assert isinstance(change, Change)
        assert ledger.apply([change], world.now) == [None]
        assert self._as_far_as_read(ledger, "bad").status is Status.CANCELLED

    def test_a_row_that_is_set_aside_is_due_again_only_when_it_is_replayed(
        self, ledger: Ledger
    ) -> None:
        world = World(ledger)
        world.add("a", "b")
        assert len(world.claim().items) == 2
        ledger.quarantine.put([("parcels", "a")], "a test says so", world.now)
        world.clock.advance("5m")
        assert {item.key for _ in range(3) for item in world.claim().items} == {"b"}, (
            "the leases of both have run out"
        )
        [aside], more = ledger.quarantine.entries(10)
        assert (aside.kind, aside.reason, more) == ("row", "a test says so", False)
        [answer] = ledger.quarantine.replay(
            {"parcels": world.plan}, [aside.id], world.now, by="ops", why="mended"
        )
        assert answer.done, answer.why
        assert ledger.quarantine.entries(10) == ([], False)
        world.clock.advance("1h")
        got = {item.key for _ in range(3) for item in world.claim().items}
        assert "a" in got

    def _as_far_as_read(self, ledger: Ledger, key: str) -> Row:
        (found,) = ledger.get([("parcels", key)])
        assert isinstance(found, Refused)
        assert found.row is not None
        return found.row


def _noted(item: Item, world: World, size: int) -> Change:
    return change(item.row, Reason.NOTED, world.now, item.row.status, {"note": "x" * size})
