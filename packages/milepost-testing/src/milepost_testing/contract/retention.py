"""Promise 2, remembered permanently: rows leave, seals stay, and no line leaves before every
subscriber has received it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from milepost.core.change import change
from milepost.core.decide import accept
from milepost.core.item import digest_of
from milepost.core.operators import cancel, retry
from milepost.core.outcome import Reject
from milepost.core.status import TERMINAL, Reason, Status
from milepost.ports.items import Conflict, KnownKey, NewItem
from milepost.ports.retention import (
    DeliveredLines,
    Keep,
    Leaving,
    LeftFailures,
    PruneCriteria,
    Pruned,
)
from milepost_testing.contract.base import Promises
from milepost_testing.contract.world import World

COMPLETED = frozenset({Status.COMPLETED})


def prune(
    world: World,
    *,
    statuses: frozenset[Status] = TERMINAL,
    forget_before: int | None = None,
    up_to: int | None = None,
    parked: Sequence[str] = (),
    limit: int = 1000,
    keep: Keep | None = None,
) -> Pruned:
    """Prune items that ended before now. A ledger may keep its newest line, so another item gets
    that one first."""
    world.add("anchor")
    anchor = world.row("anchor")
    assert (
        world.apply(change(anchor, Reason.NOTED, world.now, anchor.status, {}, note="newest"))
        is None
    )
    delivered = DeliveredLines(
        world.ledger.last_seq() if up_to is None else up_to,
        frozenset(("parcels", key) for key in parked),
    )
    return world.ledger.prune(
        PruneCriteria("parcels", statuses, world.now, forget_before, delivered, limit, keep)
    )


class RetentionContract(Promises):
    def test_a_finished_key_stays_known_after_pruning(self, world: World) -> None:
        world.bring("p1", to="COMPLETED")
        row = world.row("p1")
        world.clock.advance("1h")
        assert prune(world) == Pruned(1, 0, False, 1, {Status.COMPLETED: 1})
        assert world.ledger.get([("parcels", "p1")]) == [None]
        (known,) = world.ledger.peek("parcels", ["p1"])
        assert known is not None
        assert (known.key, known.status, known.sealed, known.ended_at) == (
            "p1",
            Status.COMPLETED,
            True,
            row.entered_at,
        )
        assert (known.head, known.input_digest) == (row.head, digest_of({"id": "p1"}))
        assert world.add("p1", other="content") == [known]
        assert world.ledger.get([("parcels", "p1")]) == [None]

    def test_history_and_counters_of_a_pruned_item_are_gone(self, world: World) -> None:
        world.bring("p1", to="COMPLETED")
        world.add("p2")
        world.settle(world.take("p2"), Reject("no"))
        world.clock.advance("1h")
        prune(world)
        assert world.ledger.history("parcels", "p1") == []
        assert {line.key for line in world.ledger.feed(0, 100)} == {"anchor"}
        assert world.count() == {"QUEUED": 1}
        world.audit()

    def test_only_ended_items_leave_and_only_those_that_ended_before(self, world: World) -> None:
        world.bring("early", to="COMPLETED")
        world.bring("cancelled", to="stamp")
        world.apply(cancel(world.item("cancelled"), world.plan, world.now, by="ops"))
        world.bring("live", to="delivered")
        world.clock.advance("1h")
        world.bring("late", to="COMPLETED")
        assert prune(world).items == 2
        assert [
            item and item.key
            for item in world.ledger.get(
                [("parcels", key) for key in ("early", "cancelled", "live", "late")]
            )
        ] == [
            None,
            None,
            "live",
            "late",
        ]
        world.audit()

    def test_a_row_leaves_while_its_lines_wait_to_be_told(self, world: World) -> None:
        world.bring("p1", to="COMPLETED")
        delivered = world.ledger.last_seq()
        world.bring("p2", to="COMPLETED")
        lines = {key: world.ledger.history("parcels", key) for key in ("p1", "p2")}
        fed = [line for line in world.ledger.feed(0, 100) if line.key == "p2"]
        world.clock.advance("1h")
        pruned = prune(world, up_to=delivered)
        assert (pruned.items, pruned.lines) == (2, 1)
        assert world.ledger.get([("parcels", "p1"), ("parcels", "p2")]) == [None, None]
        assert all(
            known is not None and known.sealed
            for known in world.ledger.peek("parcels", ["p1", "p2"])
        )
        assert world.ledger.history("parcels", "p1") == []
        assert world.ledger.history("parcels", "p2") == lines["p2"]
        assert [line for line in world.ledger.feed(0, 100) if line.key != "anchor"] == fed, (
            "with the payloads that they offered"
        )
        pruned = prune(world)
        assert (pruned.items, pruned.lines) == (0, 1)
        assert world.ledger.history("parcels", "p2") == []
        assert {line.key for line in world.ledger.feed(0, 100)} == {"anchor"}
        world.audit()

    def test_lines_stay_while_one_of_them_is_untold(self, world: World) -> None:
        world.bring("p1", to="COMPLETED")
        seqs = [line.seq for line in world.ledger.history("parcels", "p1")]
        world.clock.advance("1h")
        for seq in seqs[:-1]:
            assert prune(world, up_to=seq).lines == 0
        assert [line.seq for line in world.ledger.history("parcels", "p1")] == seqs
        world.audit()

    def test_a_parked_item_keeps_its_own_lines_and_no_others(self, world: World) -> None:
        world.bring("p1", "p2", "p3", to="COMPLETED")
        world.clock.advance("1h")
        pruned = prune(world, parked=["p1"])
        assert (pruned.items, pruned.lines) == (3, 2)
        assert {line.key for line in world.ledger.feed(0, 100)} == {"anchor", "p1"}
        assert world.ledger.history("parcels", "p1")
        assert prune(world).lines == 1
        assert world.ledger.history("parcels", "p1") == []

    def test_a_new_item_never_gets_lines_that_an_older_one_left_behind(self, world: World) -> None:
        world.bring("p1", to="COMPLETED")
        world.clock.advance("1h")
        lines = world.ledger.history("parcels", "p1")
        pruned = world.ledger.prune(
            PruneCriteria("parcels", TERMINAL, world.now, None, DeliveredLines(0), 10)
        )
        assert (pruned.items, pruned.lines) == (1, 0)
        world.add("p2")
        assert [line.key for line in world.ledger.history("parcels", "p2")] == ["p2"]
        assert world.ledger.history("parcels", "p1") == lines
        assert [line.seq for line in world.ledger.feed(0, 100) if line.key == "p1"] == [
            line.seq for line in lines
        ]

    def test_a_seal_is_not_forgotten_while_its_lines_wait(self, world: World) -> None:
        world.bring("p1", to="COMPLETED")
        world.clock.advance("1h")
        assert prune(world, up_to=0, forget_before=world.now).forgotten == 0
        assert world.ledger.peek("parcels", ["p1"]) != [None]
        assert prune(world, forget_before=world.now).forgotten == 1
        assert world.ledger.peek("parcels", ["p1"]) == [None]
        assert world.ledger.history("parcels", "p1") == []

    def test_failed_items_whose_rows_have_left_are_found_by_the_beginning_of_their_keys(
        self, world: World
    ) -> None:
        world.bring("a-1.done", to="COMPLETED")
        for key in ("a-1.x", "a-1.y", "a-10.x", "a-1.stays"):
            world.add(key)
            world.settle(world.take(key), Reject("no"))
        world.clock.advance("1h")
        stays = world.item("a-1.stays")
        assert world.apply(retry(stays, world.plan, world.now, by="ops")) is None
        prune(world)
        left = world.ledger.left_failures("parcels", "a-1.", None, 10)
        assert [(seal.key, seal.status) for seal in left.seals] == [
            ("a-1.x", Status.REJECTED),
            ("a-1.y", Status.REJECTED),
        ]
        assert (left.next, left.complete) == (None, True)
        assert [seal.key for seal in world.ledger.left_failures("parcels", "", None, 10).seals] == [
            "a-1.x",
            "a-1.y",
            "a-10.x",
        ]
        assert world.ledger.left_failures("parcels", "b", None, 10).seals == []

    def test_failed_items_whose_rows_have_left_come_in_pages(self, world: World) -> None:
        for key in ("p1", "p2", "p3"):
            world.add(key)
            world.settle(world.take(key), Reject("no"))
        world.clock.advance("1h")
        prune(world)
        keys: list[str] = []
        page = LeftFailures([], next=None)
        while not keys or page.next is not None:
            page = world.ledger.left_failures("parcels", "p", page.next, 2)
            keys += [seal.key for seal in page.seals]
        assert keys == ["p1", "p2", "p3"]

    def test_only_rows_of_the_named_statuses_leave(self, world: World) -> None:
        world.bring("done", to="COMPLETED")
        world.add("failed")
        world.settle(world.take("failed"), Reject("no"))
        world.add("cancelled")
        world.apply(cancel(world.item("cancelled"), world.plan, world.now, by="ops"))
        world.clock.advance("1h")
        pruned = prune(world, statuses=COMPLETED)
        assert (pruned.items, pruned.statuses) == (1, {Status.COMPLETED: 1})
        assert (world.row("failed").status, world.row("cancelled").status) == (
            Status.REJECTED,
            Status.CANCELLED,
        )
        assert prune(world, statuses=frozenset()).items == 0
        pruned = prune(world, statuses=frozenset({Status.REJECTED, Status.CANCELLED}))
        assert (pruned.items, pruned.statuses) == (2, {Status.REJECTED: 1, Status.CANCELLED: 1})
        world.audit()

    def test_pruning_goes_in_portions_and_says_if_there_is_more(self, world: World) -> None:
        world.bring(*(f"p{n}" for n in range(5)), to="COMPLETED")
        world.clock.advance("1h")
        first, second, third = prune(world, limit=2), prune(world, limit=2), prune(world, limit=2)
        assert [first.items, second.items, third.items] == [2, 2, 1]
        assert (first.more, third.more) == (True, False)
        assert all(
            known and known.sealed
            for known in world.ledger.peek("parcels", [f"p{n}" for n in range(5)])
        )
        world.audit()

    def test_seals_older_than_the_route_remembers_are_forgotten(self, world: World) -> None:
        world.bring("old", to="COMPLETED")
        world.clock.advance("30d")
        world.bring("new", to="COMPLETED")
        world.clock.advance("1h")
        prune(world)
        assert prune(world, forget_before=world.now - 86_400_000) == Pruned(0, 1, False)
        old, new = world.ledger.peek("parcels", ["old", "new"])
        assert old is None
        assert new is not None
        assert world.add("old") == [None]

    def test_what_goes_is_shown_before_whole_and_with_its_lines(self, world: World) -> None:
        world.bring("p1", "p2", "p3", to="COMPLETED")
        items = {item.key: item for item in (world.item(key) for key in ("p1", "p2", "p3"))}
        lines = {key: world.ledger.history("parcels", key) for key in items}
        world.bring("live", to="delivered")
        world.clock.advance("1h")
        shown: list[Leaving] = []

        def keep(leaving: Sequence[Leaving]) -> None:
            assert all(world.ledger.get([("parcels", one.item.key) for one in leaving])), (
                "they are still there"
            )
            shown.extend(leaving)

        while prune(world, limit=2, keep=keep).more:
            pass
        assert sorted(one.item.key for one in shown) == ["p1", "p2", "p3"]
        for one in shown:
            item = items[one.item.key]
            assert (one.item.row.head, one.item.input, one.item.results) == (
                item.row.head,
                item.input,
                item.results,
            )
            assert [line.body for line in one.lines] == [line.body for line in lines[item.key]]
            assert [line.seq for line in one.lines] == [line.seq for line in lines[item.key]]

    def test_what_cannot_be_kept_stays(self, world: World) -> None:
        world.bring("p1", to="COMPLETED")
        world.clock.advance("1h")

        def keep(leaving: Sequence[Leaving]) -> None:
            raise OSError("no space left")

        with pytest.raises(OSError, match="no space left"):
            prune(world, keep=keep)
        assert world.row("p1").status is Status.COMPLETED
        assert world.ledger.history("parcels", "p1")
        assert prune(world).items == 1
        world.audit()

    def test_an_item_that_changes_after_it_was_kept_is_kept_again_before_it_leaves(
        self, world: World
    ) -> None:
        world.bring("p1", to="COMPLETED")
        world.clock.advance("1h")
        kept: list[Leaving] = []

        def keep(leaving: Sequence[Leaving]) -> None:
            if not kept:
                row = world.row("p1")
                assert (
                    world.apply(
                        change(row, Reason.NOTED, world.now, row.status, {}, note="checked by hand")
                    )
                    is None
                )
            kept.extend(leaving)

        prune(world, keep=keep)
        world.clock.advance("1h")
        prune(world, keep=keep)
        assert world.ledger.get([("parcels", "p1")]) == [None]
        assert [one.item.key for one in kept] == ["p1", "p1"]
        assert kept[-1].lines[-1].line.note == "checked by hand"
        (seal,) = world.ledger.peek("parcels", ["p1"])
        assert seal is not None
        assert seal.head == kept[-1].item.row.head

    def test_another_routes_items_are_not_touched(self, world: World) -> None:
        world.bring("p1", to="COMPLETED")
        world.clock.advance("1h")
        assert world.ledger.prune(
            PruneCriteria(
                "letters",
                TERMINAL,
                world.now,
                world.now,
                DeliveredLines(world.ledger.last_seq()),
                10,
            )
        ) == Pruned(0, 0, False)
        assert world.row("p1").status is Status.COMPLETED

    def test_a_change_to_a_pruned_item_finds_nothing(self, world: World) -> None:
        world.add("p1")
        world.settle(world.take("p1"), Reject("no"))
        before = world.item("p1")
        world.clock.advance("1h")
        prune(world)
        assert world.apply(retry(before, world.plan, world.now, by="ops")) == Conflict(None)

    def test_a_change_to_a_pruned_item_never_lands_on_a_newcomer(self, world: World) -> None:
        world.add("anchor")
        world.add("gone")
        world.apply(cancel(world.item("gone"), world.plan, world.now, by="ops"))
        before = world.item("gone")
        world.clock.advance("1h")
        prune(world)
        world.add("new_item")
        world.apply(cancel(world.item("new_item"), world.plan, world.now, by="ops"))
        assert world.apply(retry(before, world.plan, world.now, by="ops")) == Conflict(None)
        assert world.row("new_item").status is Status.CANCELLED
        world.audit()

    def test_a_place_in_the_feed_is_never_given_twice(self, world: World) -> None:
        """A subscriber that has read up to a line must be given every later one, whatever has been
        pruned since."""
        world.bring("p1", to="COMPLETED")
        world.clock.advance("1h")
        read_up_to = world.ledger.last_seq()
        world.ledger.prune(
            PruneCriteria("parcels", TERMINAL, world.now, None, DeliveredLines(read_up_to), 100)
        )
        world.add("p2")
        assert [line.key for line in world.ledger.feed(read_up_to, 10)] == ["p2"]
        assert world.ledger.last_seq() > read_up_to

    def test_a_sealed_key_is_added_again_only_over_its_own_seal(self, world: World) -> None:
        world.add("p1")
        world.settle(world.take("p1"), Reject("no"))
        world.clock.advance("1h")
        prune(world)
        (seal,) = world.ledger.peek("parcels", ["p1"])
        assert seal is not None
        world.clock.advance("1h")
        content = {"id": "p1", "n": 2}
        made = accept(
            world.plan, "p1", content, world.now, correlation_id="c2", digest=digest_of(content)
        )
        assert world.ledger.add(world.plan, [NewItem(made, content, b"x" * 32)], world.now) == [
            seal
        ]
        assert world.ledger.add(world.plan, [NewItem(made, content, seal.head)], world.now) == [
            None
        ]
        assert world.item("p1").input == content
        (known,) = world.ledger.peek("parcels", ["p1"])
        assert known is not None
        assert not known.sealed
        assert [line.line.version for line in world.ledger.history("parcels", "p1")] == [1]
        (there,) = world.ledger.add(world.plan, [NewItem(made, content, seal.head)], world.now)
        assert isinstance(there, KnownKey)
        assert not there.sealed
