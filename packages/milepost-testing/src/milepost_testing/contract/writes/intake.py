"""Promise 1, accepted once; and the record of a known key."""

from __future__ import annotations

import pytest

from milepost.core.change import change
from milepost.core.errors import RouteChanged
from milepost.core.item import Put, digest_of
from milepost.core.outcome import Done
from milepost.core.routes.one_field import KeyDigests
from milepost.core.status import Reason, Status
from milepost.ports.items import KnownKey, Same
from milepost.ports.ledger import Ledger
from milepost_testing.contract.base import Promises
from milepost_testing.contract.world import World, sample_route


class IntakeContract(Promises):
    def test_a_new_item_is_recorded_with_its_row_content_line_and_counter(
        self, world: World
    ) -> None:
        assert world.add("p1", colour="red") == [None]
        item = world.item("p1")
        assert (item.route, item.key, item.stage, item.row.status) == (
            "parcels",
            "p1",
            "weigh",
            Status.QUEUED,
        )
        assert (
            item.row.version,
            item.row.created_at,
            item.row.updated_at,
            item.row.entered_at,
        ) == (1, world.now, world.now, world.now)
        assert item.row.correlation_id == "c-p1"
        assert item.input == item.payload == {"id": "p1", "colour": "red"}
        assert world.reasons("p1") == ["accepted"]
        assert world.count() == {"QUEUED": 1}
        world.audit()

    def test_a_key_that_is_there_is_known_and_nothing_is_written(self, world: World) -> None:
        world.add("p1", colour="red")
        before, lines = world.row("p1"), world.ledger.last_seq()
        world.clock.advance(5)
        (known,) = world.add("p1", colour="blue", list_id="second")
        assert isinstance(known, KnownKey)
        assert (known.key, known.status, known.stage, known.sealed) == (
            "p1",
            Status.QUEUED,
            "weigh",
            False,
        )
        assert known.input_digest == digest_of({"id": "p1", "colour": "red"}), (
            "other content is a conflict that the caller can see"
        )
        assert world.row("p1") == before
        assert world.item("p1").input == {"id": "p1", "colour": "red"}
        assert world.ledger.last_seq() == lines

    def test_a_key_twice_in_one_batch_makes_one_row(self, world: World) -> None:
        first, second, third = world.add("p1", "p2", "p1")
        assert (first, second) == (None, None)
        assert third is not None
        assert third.key == "p1"
        assert world.count() == {"QUEUED": 2}
        world.audit()

    def test_known_and_new_keys_in_one_batch_do_not_hinder_each_other(self, world: World) -> None:
        world.add("p2")
        answers = world.add("p1", "p2", "p3")
        assert [answer is None for answer in answers] == [True, False, True]
        assert [
            known is None for known in world.ledger.peek("parcels", ["p1", "p2", "p3", "p4"])
        ] == [False, False, False, True]

    def test_the_same_key_on_another_route_is_another_item(self, ledger: Ledger) -> None:
        one, other = World(ledger), World(ledger, sample_route("letters"))
        assert one.add("k") == [None]
        assert other.add("k") == [None]
        assert one.settle(one.take("k"), Done()) is None
        assert one.row("k").stage == "stamp"
        assert other.row("k").stage == "weigh"
        one.audit()
        other.audit()

    def test_peek_answers_in_the_order_asked(self, world: World) -> None:
        world.add("a", "b", list_id="list-1")
        known = world.ledger.peek("parcels", ["b", "unknown", "a", "b"])
        assert [one and one.key for one in known] == ["b", None, "a", "b"]
        assert known[0] is not None
        assert known[0].list_id == "list-1"
        assert world.ledger.peek("no-such-route", ["a"]) == [None]

    def test_recognise_tells_the_same_content_from_other_content(self, world: World) -> None:
        world.bring("done", to="COMPLETED")
        world.add("a", "b", colour="red")
        red = {key: digest_of({"id": key, "colour": "red"}) for key in ("a", "b", "unknown")}
        keys, digests = (
            ["b", "unknown", "a", "done"],
            [digest_of({"id": "b"}), red["unknown"], red["a"], digest_of({"id": "done"})],
        )
        other, absent, same, done = world.ledger.recognise("parcels", keys, digests)
        assert other == world.ledger.peek("parcels", ["b"])[0]
        assert (absent, same) == (None, Same(Status.QUEUED, "weigh"))
        assert done == Same(Status.COMPLETED, "delivered")
        assert world.ledger.recognise("no-such-route", ["a"], [red["a"]]) == [None]
        assert world.ledger.recognise("parcels", [], []) == []

    def test_recognise_compares_with_the_content_that_the_item_has_now(self, world: World) -> None:
        world.add("a", colour="red")
        first, second = (
            digest_of({"id": "a", "colour": "red"}),
            digest_of({"id": "a", "colour": "blue"}),
        )
        item = world.item("a")
        put = Put("input", "", {"id": "a", "colour": "blue"})
        made = change(
            item.row,
            Reason.NOTED,
            world.now,
            item.row.status,
            {"content_digest": second},
            note="blue",
            puts=(put,),
        )
        assert world.apply(made) is None
        (was,), (now,) = (
            world.ledger.recognise("parcels", ["a"], [digest]) for digest in (first, second)
        )
        assert isinstance(was, KnownKey)
        assert was.current_digest == second
        assert now == Same(Status.QUEUED, "weigh")

    def test_recognise_knows_an_input_that_is_the_key_alone(self, world: World) -> None:
        world.bring("done", to="COMPLETED")
        world.add("a", "replaced")
        world.add("b", colour="red")
        item = world.item("replaced")
        content = {"id": "replaced", "colour": "blue"}
        facts = {"content_digest": digest_of(content)}
        made = change(
            item.row,
            Reason.NOTED,
            world.now,
            item.row.status,
            facts,
            note="blue",
            puts=(Put("input", "", content),),
        )
        assert world.apply(made) is None
        keys = ["b", "unknown", "a", "replaced", "done"]
        other, absent, same, replaced, done = world.ledger.recognise(
            "parcels", keys, KeyDigests("id", keys)
        )
        assert [other, replaced] == world.ledger.peek("parcels", ["b", "replaced"])
        assert (absent, same, done) == (
            None,
            Same(Status.QUEUED, "weigh"),
            Same(Status.COMPLETED, "delivered"),
        )
        assert world.ledger.recognise(
            "parcels", ["a"], KeyDigests("name", ["a"])
        ) == world.ledger.peek("parcels", ["a"])
        assert world.ledger.recognise("no-such-route", ["a"], KeyDigests("id", ["a"])) == [None]
        assert world.ledger.recognise("parcels", [], KeyDigests("id", [])) == []

    def test_recognise_answers_for_many_keys_as_for_each(self, world: World) -> None:
        world.bring("done", to="COMPLETED")
        world.add("changed", colour="red")
        queued = [f"queued-{number}" for number in range(60)]
        world.add(*queued)
        odd = ["done", "unknown", "changed"]
        keys = [*queued, *odd]
        digests = {key: digest_of({"id": key}) for key in keys}
        each = {key: world.ledger.recognise("parcels", [key], [digests[key]])[0] for key in keys}
        assert [type(answer) for answer in each.values()].count(Same) == 61
        for first in ("queued-0", *odd):
            keys = [first, *(key for key in keys if key != first)]
            assert world.ledger.recognise("parcels", keys, [digests[key] for key in keys]) == [
                each[key] for key in keys
            ]
            assert world.ledger.recognise("parcels", keys, KeyDigests("id", keys)) == [
                each[key] for key in keys
            ]

    def test_add_is_refused_while_the_ledger_holds_another_version_of_the_route(
        self, world: World
    ) -> None:
        world.set_version(2)
        with pytest.raises(RouteChanged, match="parcels"):
            world.add("p1")
        assert world.ledger.peek("parcels", ["p1"]) == [None]
        assert world.ledger.last_seq() == 0
        world.plan = world.plan.at_version(2)
        assert world.add("p1") == [None]

    def test_what_is_handed_out_is_a_copy(self, world: World) -> None:
        world.add("p1", tags=["a"])
        world.item("p1").input["tags"].append("b")
        world.claim().items[0].input["tags"].append("c")
        assert world.item("p1").input["tags"] == ["a"]

    def test_strange_keys_and_inputs_come_back_as_they_were(self, world: World) -> None:
        keys = ["ключ", "a/b#c%d", "x" * 1024, "' OR 1=1 --", "  spaced  "]
        value = {"none": None, "deep": [1, {"two": [2.5, True, "☃", ""]}], "big": 2**53}
        assert world.add(*keys, value=value) == [None] * len(keys)
        for key in keys:
            assert world.item(key).input == {"id": key, "value": value}
        assert [known and known.key for known in world.ledger.peek("parcels", keys)] == keys

    def test_get_gives_none_for_what_is_not_there(self, world: World) -> None:
        world.add("p1")
        found = world.ledger.get([("parcels", "unknown"), ("parcels", "p1"), ("nowhere", "p1")])
        assert [item and item.key for item in found] == [None, "p1", None]
        assert world.ledger.get([]) == []
        assert world.ledger.add(world.plan, [], world.now) == []
