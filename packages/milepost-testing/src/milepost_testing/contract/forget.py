"""Forget: the content of an ended item goes, whatever subscriber is absent; its key stays known,
and its lines keep their digests."""

from __future__ import annotations

import pytest

from milepost.core.forgetting import forgotten_name, is_forgotten_name
from milepost.core.history import link
from milepost.core.operators import cancel
from milepost.core.outcome import Reject
from milepost.core.status import Status
from milepost.ports.documents import FORGET, SECRET, ForgetSecret
from milepost.ports.items import Conflict, NewItem
from milepost.ports.ledger import Ledger
from milepost.ports.retention import ForgetRequest, Forgotten
from milepost_testing.contract.base import Promises
from milepost_testing.contract.retention import prune
from milepost_testing.contract.world import World

KEPT_SECRET = b"s" * 32
PRIVATE = "Jane-Roe-1970"


def give_secret(world: World) -> None:
    """Give the ledger its secret, and wait until every process knows it."""
    world.ledger.write(FORGET, SECRET, ForgetSecret(KEPT_SECRET.hex(), world.now), expect=0)
    world.clock.advance("1m")


def forget(world: World, key: str) -> Forgotten:
    """Forget a key an hour after now; a ledger may require that time since the item's end."""
    world.clock.advance("2h")
    return world.ledger.forget(ForgetRequest("parcels", key, name_of(key), world.now))


def name_of(key: str) -> str:
    return forgotten_name(KEPT_SECRET, "parcels", key)


class ForgetContract(Promises):
    def traces(self, ledger: Ledger, text: str) -> list[str]:
        """Where the ledger's storage still holds this text: override it to search the storage
        itself."""
        raise NotImplementedError("say how the storage of the ledger is searched")

    @pytest.fixture
    def forgetful(self, world: World) -> World:
        give_secret(world)
        return world

    def test_a_live_item_is_not_forgotten(self, forgetful: World) -> None:
        forgetful.bring("p1", to="stamp")
        refused = forget(forgetful, "p1").refused
        assert "it has not ended" in refused
        assert "cancel it first" in refused
        assert forgetful.item("p1").input == {"id": "p1"}
        assert forgetful.reasons("p1")[0] == "accepted"

    def test_a_dry_run_only_answers(self, forgetful: World) -> None:
        world = forgetful
        world.bring("p1", to="COMPLETED")
        world.add("p2")
        world.clock.advance("2h")
        before = (world.row("p1"), world.ledger.feed(0, 100))
        asked = [
            ForgetRequest("parcels", key, name_of(key), world.now, dry_run=True)
            for key in ("p1", "p2")
        ]
        assert ["it has not ended" in world.ledger.forget(one).refused for one in asked] == [
            False,
            True,
        ]
        assert (world.row("p1"), world.ledger.feed(0, 100)) == before

    def test_a_forgotten_key_stays_known(self, forgetful: World) -> None:
        world = forgetful
        world.bring("p1", to="COMPLETED")
        row = world.row("p1")
        assert forget(world, "p1").refused == ""
        assert world.ledger.get([("parcels", "p1")]) == [None]
        (known,) = world.ledger.peek("parcels", ["p1"])
        assert known is not None
        assert (known.key, known.status, known.sealed, known.forgotten) == (
            "p1",
            Status.COMPLETED,
            True,
            True,
        )
        assert (known.head, known.ended_at, known.stage) == (row.head, row.entered_at, row.stage)
        assert (known.input_digest, known.content_digest) == (b"", None)
        assert world.ledger.recognise("parcels", ["p1", "p9"], [row.input_digest, b"x" * 32]) == [
            known,
            None,
        ]
        assert world.add("p1", "p2") == [known, None]
        assert world.ledger.get([("parcels", "p1")]) == [None]

    def test_a_forgotten_item_is_found_under_its_name_only(self, forgetful: World) -> None:
        world = forgetful
        world.bring("p1", "p2", to="COMPLETED")
        forget(world, "p1")
        prune(world)
        names = [seal.key for seal in world.ledger.sealed("parcels", None, 10)[0]]
        assert sorted(names) == sorted([name_of("p1"), "p2"])
        assert [key for key in names if is_forgotten_name(key)] == [name_of("p1")]
        assert world.ledger.history("parcels", "p1") == []

    def test_lines_keep_their_places_and_digests(self, forgetful: World) -> None:
        world = forgetful
        world.bring("p1", to="COMPLETED")
        before = world.ledger.history("parcels", "p1")
        digests = [link(line.previous, line.body) for line in before]
        assert forget(world, "p1").lines == len(before)
        fed = [line for line in world.ledger.feed(0, 100) if line.key == name_of("p1")]
        assert [line.seq for line in fed] == [line.seq for line in before]
        assert [line.digest for line in fed] == digests
        assert [line.removed for line in fed] == [True] * len(before)
        assert [(line.line.version, line.line.at) for line in fed] == [
            (line.line.version, line.line.at) for line in before
        ]
        assert [line.previous for line in fed] == [b"", *digests[:-1]]
        assert [line.payload for line in fed] == [None] * len(before)
        (known,) = world.ledger.peek("parcels", ["p1"])
        assert known is not None
        assert known.head == digests[-1]
        assert world.ledger.history("parcels", name_of("p1")) == fed

    def test_nothing_of_the_content_is_left_in_the_storage(self, forgetful: World) -> None:
        """Nor of a large one, which some storages keep elsewhere."""
        world = forgetful
        world.add(PRIVATE, text=f"born in {PRIVATE}", large=PRIVATE + "x" * 9_000)
        taken = world.take(PRIVATE)
        world.settle(taken, Reject(f"there is no {PRIVATE}", category="UNKNOWN"))
        assert self.traces(world.ledger, PRIVATE)
        assert forget(world, PRIVATE).refused == ""
        assert self.traces(world.ledger, PRIVATE) == []
        assert [group.sample for group in world.ledger.groups("parcels")] == ["(content removed)"]

    def test_nothing_of_a_pruned_item_is_left_either(self, forgetful: World) -> None:
        world = forgetful
        world.bring(PRIVATE, to="COMPLETED")
        world.clock.advance("1h")
        assert prune(world, up_to=0).items == 1
        assert forget(world, PRIVATE).lines
        assert self.traces(world.ledger, PRIVATE) == []

    def test_nothing_of_an_item_whose_lines_are_pruned_is_left_either(
        self, forgetful: World
    ) -> None:
        world = forgetful
        world.bring(PRIVATE, to="COMPLETED")
        world.clock.advance("1h")
        assert prune(world).lines == 1
        assert forget(world, PRIVATE).lines == 0
        assert self.traces(world.ledger, PRIVATE) == []
        (known,) = world.ledger.peek("parcels", [PRIVATE])
        assert known is not None
        assert known.forgotten

    def test_all_lives_of_a_key_are_forgotten(self, forgetful: World) -> None:
        world = forgetful
        world.add(PRIVATE)
        world.settle(world.take(PRIVATE), Reject("no"))
        world.clock.advance("2h")
        prune(world, up_to=0)
        _submit_again(world, PRIVATE)
        world.apply(cancel(world.item(PRIVATE), world.plan, world.now, by="ops"))
        assert forget(world, PRIVATE).refused == ""
        assert self.traces(world.ledger, PRIVATE) == []
        assert {line.key for line in world.ledger.feed(0, 100)} == {"anchor", name_of(PRIVATE)}

    def test_a_repeat_changes_nothing(self, forgetful: World) -> None:
        world = forgetful
        world.bring("p1", to="COMPLETED")
        forget(world, "p1")
        known, fed = world.ledger.peek("parcels", ["p1"]), world.ledger.feed(0, 100)
        again = forget(world, "p1")
        assert (again.refused, again.lines) == ("", 0)
        assert (world.ledger.peek("parcels", ["p1"]), world.ledger.feed(0, 100)) == (known, fed)

    def test_an_unknown_key_is_no_fault(self, forgetful: World) -> None:
        assert forget(forgetful, "p9") == Forgotten(remains=forget(forgetful, "p9").remains)
        assert forgetful.ledger.peek("parcels", ["p9"]) == [None]

    def test_the_lines_of_a_forgotten_item_are_pruned_like_others(self, forgetful: World) -> None:
        world = forgetful
        world.bring("p1", "p2", to="COMPLETED")
        forget(world, "p1")
        assert prune(world).lines == 2
        assert {line.key for line in world.ledger.feed(0, 100)} == {"anchor"}
        (known,) = world.ledger.peek("parcels", ["p1"])
        assert known is not None
        assert known.forgotten

    def test_other_items_are_not_touched(self, forgetful: World) -> None:
        world = forgetful
        world.add("p1", "p2", "p10")
        for item in world.claim().items:
            world.settle(item, Reject(f"no {item.key}"))
        others = [world.item(key) for key in ("p2", "p10")]
        lines = {key: world.ledger.history("parcels", key) for key in ("p2", "p10")}
        forget(world, "p1")
        for before, after in zip(others, [world.item(key) for key in ("p2", "p10")], strict=True):
            assert (after.row.head, after.input, after.row.error) == (
                before.row.head,
                before.input,
                before.row.error,
            )
        assert {key: world.ledger.history("parcels", key) for key in ("p2", "p10")} == lines
        assert world.count() == {"REJECTED": 2}
        world.audit()

    def test_a_change_to_a_forgotten_item_finds_nothing(self, forgetful: World) -> None:
        world = forgetful
        world.add("p1")
        before = world.item("p1")
        world.apply(cancel(before, world.plan, world.now, by="ops"))
        forget(world, "p1")
        assert world.apply(cancel(before, world.plan, world.now, by="ops")) == Conflict(None)

    def test_a_second_handle_knows_the_key(self, ledger: Ledger) -> None:
        world = World(ledger)
        other = self.another(ledger)
        assert other.peek("parcels", ["p9"]) == [None]
        give_secret(world)
        world.bring("p1", to="COMPLETED")
        forget(world, "p1")
        beside = World(other, clock=world.clock)
        (known,) = other.peek("parcels", ["p1"])
        assert known is not None
        assert known.forgotten
        assert beside.add("p1") == [known]


def _submit_again(world: World, key: str) -> None:
    """Accept a key again, as an operator may once its failed item has left: a second life."""
    from milepost.core.decide import accept
    from milepost.core.item import digest_of

    (seal,) = world.ledger.peek("parcels", [key])
    assert seal is not None
    content = {"id": key, "n": 2}
    again = accept(
        world.plan,
        key,
        content,
        world.now,
        correlation_id=f"c-{key}",
        digest=digest_of(content),
        anew=True,
    )
    assert world.ledger.add(world.plan, [NewItem(again, content, seal.head)], world.now) == [None]
