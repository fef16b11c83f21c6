"""Find: every filter, and pages that are complete and without repeats."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from milepost.core.item import KeyPart
from milepost.core.outcome import Done, HandedOver, NotYet, Reject, Retry
from milepost.core.status import FAILED, LIVE, Status
from milepost.ports.items import Query
from milepost_testing.contract.base import Promises
from milepost_testing.contract.world import World


class FindContract(Promises):
    def find(self, world: World, **query: Any) -> set[str]:
        return {item.key for item in world.ledger.find(Query(route="parcels", **query)).items}

    @pytest.fixture
    def full(self, world: World) -> World:
        """old: stamp, QUEUED; failed: weigh, REJECTED; retried: weigh, RETRY_SCHEDULED; waits:
        stamp, WAITING; new: weigh, QUEUED in a lane."""
        world.bring("old", to="stamp")
        world.clock.advance("1h")
        world.add("failed", list_id="list-1")
        world.settle(world.take("failed"), Reject("no such parcel"))
        world.add("retried", list_id="list-1")
        world.settle(world.take("retried"), Retry("busy", after="2h"))
        world.clock.advance("1h")
        world.add("waits")
        world.settle(world.take("waits"), Done())
        for item in world.claim("stamp").items:
            if item.key == "waits":
                world.settle(item, NotYet(after="5h"))
            else:
                world.ledger.extend([item.row], world.now + 3 * 3_600_000, world.now)
        world.clock.advance("1h")
        world.add("new", lane="north", list_id="list-2")
        return world

    def test_without_a_filter_all_items_of_the_route(self, full: World) -> None:
        assert self.find(full) == {"old", "failed", "retried", "waits", "new"}
        assert full.ledger.find(Query(route="letters")).items == []

    def test_by_status(self, full: World) -> None:
        assert self.find(full, statuses=frozenset({Status.REJECTED})) == {"failed"}
        assert self.find(full, statuses=frozenset({Status.WAITING, Status.PROCESSING})) == {
            "waits",
            "old",
        }
        assert self.find(full, statuses=frozenset()) == set()

    def test_by_stage(self, full: World) -> None:
        assert self.find(full, stages=frozenset({"stamp"})) == {"old", "waits"}
        assert self.find(full, stages=frozenset({"stamp", "weigh"})) == {
            "old",
            "failed",
            "retried",
            "waits",
            "new",
        }
        assert self.find(full, stages=frozenset({"no-such-stage"})) == set()

    def test_by_lane(self, full: World) -> None:
        assert self.find(full, lane="north") == {"new"}
        assert self.find(full, lane="") == {"old", "failed", "retried", "waits"}
        assert self.find(full, lane="south") == set()

    def test_by_what_was_handed_over(self, full: World) -> None:
        [new] = [item for item in full.claim("weigh").items if item.key == "new"]
        full.settle(new, HandedOver(within="2h"))
        assert self.find(full, handed_over=True) == {"new"}
        assert self.find(
            full,
            handed_over=True,
            statuses=frozenset({Status.WAITING}),
            due_before=full.now + 2 * 3_600_000,
        ) == {"new"}
        assert self.find(full, handed_over=True, due_before=full.now) == set()
        assert self.find(full, handed_over=True, lane="") == set()

    def test_by_error_group(self, full: World) -> None:
        error = full.row("failed").error
        assert error is not None
        assert self.find(full, group=error.group) == {"failed"}
        assert self.find(full, group="nothing-like-it") == set()

    def test_by_list(self, full: World) -> None:
        assert self.find(full, lists=frozenset({"list-1"})) == {"failed", "retried"}
        assert self.find(full, lists=frozenset({"list-1", "list-2"})) == {
            "failed",
            "retried",
            "new",
        }

    def test_by_parts_of_the_key(self, world: World) -> None:
        keys = [
            "A1#B1",
            "A1#B2",
            "A2#B1",
            "A2#B1#late",
            "A3#B1x",
            "A3#xB1",
            "B1",
            "B1#A1",
            "A4%23#B1",
        ]
        world.add("A2#B1")
        world.settle(world.take("A2#B1"), Reject("no such asset"))
        world.add(*(key for key in keys if key != "A2#B1"))
        batch = (KeyPart(1, "B1"),)
        assert self.find(world, parts=batch) == {"A1#B1", "A2#B1", "A2#B1#late", "A4%23#B1"}
        assert self.find(world, parts=(*batch, KeyPart(2, "late"))) == {"A2#B1#late"}
        assert self.find(world, parts=(KeyPart(0, "B1"),)) == {"B1", "B1#A1"}
        assert self.find(world, parts=(KeyPart(0, "A1"), KeyPart(1, "B1"))) == {"A1#B1"}
        assert self.find(world, prefix="A2#", parts=batch) == {"A2#B1", "A2#B1#late"}
        assert self.find(world, parts=batch, statuses=frozenset({Status.REJECTED})) == {"A2#B1"}
        assert self.find(world, parts=batch, stages=frozenset({"stamp"})) == set()
        assert self.find(world, parts=(KeyPart(1, "B"),)) == set()
        assert self.find(world, parts=(KeyPart(5, "B1"),)) == set()

    @pytest.mark.parametrize("limit", [1, 2, 3])
    def test_pages_by_a_part_of_the_key_are_complete_and_without_repeats(
        self, world: World, limit: int
    ) -> None:
        keys = [
            f"A{asset}#B{batch}{tail}"
            for asset in range(4)
            for batch in range(2)
            for tail in ("", "#x")
        ]
        world.add(*keys)
        found: list[str] = []
        query = Query(route="parcels", parts=(KeyPart(1, "B1"),), limit=limit)
        while True:
            page = world.ledger.find(query)
            found += [item.key for item in page.items]
            if page.next is None:
                break
            query = replace(query, after=page.next)
        assert sorted(found) == sorted(key for key in keys if key.split("#")[1] == "B1")

    def test_by_age_at_the_stage_and_by_last_change(self, full: World) -> None:
        two_hours_ago = full.now - 2 * 3_600_000
        assert self.find(full, entered_before=two_hours_ago) == {"old"}
        assert self.find(full, entered_before=two_hours_ago + 1) == {"old", "failed", "retried"}
        assert self.find(full, changed_before=full.now) >= {"failed", "retried", "waits"}
        assert "new" not in self.find(full, changed_before=full.now)
        assert "new" in self.find(full, changed_before=full.now + 1)

    def test_by_due_time(self, full: World) -> None:
        """An item that is due exactly at that time is due."""
        due = {key: _due(full, key) for key in ("old", "retried", "waits", "new")}
        moments = sorted({moment + step for moment in due.values() for step in (-1, 0)})
        assert len(moments) > 2
        for moment in moments:
            assert self.find(full, due_before=moment) == {
                key for key, at in due.items() if at <= moment
            }

    def test_by_overdue_mark(self, full: World) -> None:
        marked = full.row("old").overdue_at
        assert marked is not None
        assert self.find(full, overdue_before=marked - 1) == set()
        assert self.find(full, overdue_before=marked) == {"old"}
        assert self.find(full, overdue_before=marked + 86_400_000) == {"old", "waits"}

    def test_by_the_keys_beginning(self, full: World) -> None:
        assert self.find(full, prefix="") == self.find(full)
        assert self.find(full, prefix="w") == {"waits"}
        assert self.find(full, prefix="ne") == {"new"}
        assert self.find(full, prefix="news") == set()
        assert self.find(full, prefix="", stages=frozenset({"stamp"})) == {"old", "waits"}

    def test_pages_by_the_keys_beginning(self, world: World) -> None:
        world.add(*(f"a#{number}" for number in range(5)), "b#0", "a")
        found, after = [], None
        while True:
            page = world.ledger.find(Query(route="parcels", prefix="a#", limit=2, after=after))
            found += [item.key for item in page.items]
            after = page.next
            if after is None:
                break
        assert sorted(found) == [f"a#{number}" for number in range(5)]

    def test_all_conditions_must_hold(self, full: World) -> None:
        assert self.find(
            full,
            stages=frozenset({"weigh"}),
            lists=frozenset({"list-1"}),
            statuses=frozenset({Status.RETRY_SCHEDULED}),
        ) == {"retried"}
        assert self.find(full, stages=frozenset({"stamp"}), lists=frozenset({"list-1"})) == set()

    def test_rows_are_as_get_gives_them_and_content_comes_when_asked_for(self, full: World) -> None:
        for item in full.ledger.find(Query(route="parcels")).items:
            assert item.row == full.row(item.key)
        for item in full.ledger.find(Query(route="parcels", with_content=True)).items:
            assert item.content == full.item(item.key).content

    @pytest.mark.parametrize("limit", [1, 3, 7, 100])
    @pytest.mark.parametrize("filtered", [False, True])
    def test_pages_are_complete_and_without_repeats(
        self, world: World, limit: int, filtered: bool
    ) -> None:
        keys = [f"p{n}" for n in range(21)]
        world.add(*keys)
        for item in world.claim(want=14).items:
            world.settle(item, Done())
        wanted: dict[str, Any] = (
            {"stages": frozenset({"stamp"}), "statuses": frozenset({Status.QUEUED})}
            if filtered
            else {}
        )
        seen: list[str] = []
        after: Any = None
        for _ in range(50):
            page = world.ledger.find(Query(route="parcels", limit=limit, after=after, **wanted))
            assert len(page.items) <= limit
            seen += [item.key for item in page.items]
            after = page.next
            if after is None:
                break
        assert len(seen) == len(set(seen)) == (14 if filtered else 21)

    def test_pages_neither_skip_nor_repeat_while_items_change_between_them(
        self, world: World
    ) -> None:
        world.add(*(f"p{n}" for n in range(10)))
        seen: list[str] = []
        after: Any = None
        while True:
            page = world.ledger.find(Query(route="parcels", limit=3, after=after))
            seen += [item.key for item in page.items]
            for item in world.claim(want=2).items:
                world.settle(item, Done())
            after = page.next
            if after is None:
                break
        assert sorted(seen) == sorted(f"p{n}" for n in range(10))

    @pytest.mark.parametrize("limit", [1, 2, 3, 100])
    @pytest.mark.parametrize(
        "query",
        [
            {},
            {"statuses": frozenset({Status.QUEUED})},
            {"statuses": FAILED},
            {"statuses": FAILED, "lane": "north"},
            {"stages": frozenset({"weigh"})},
            {"prefix": "p"},
            {"prefix": "p0", "statuses": FAILED},
            {"parts": (KeyPart(1, "B1"),)},
            {"lists": frozenset({"list-1", "list-2"})},
        ],
        ids=lambda query: "-".join(query) or "all",
    )
    def test_pages_in_the_order_of_acceptance(
        self, world: World, query: dict[str, Any], limit: int
    ) -> None:
        for number in range(12):
            world.add(
                f"p{(5 * number) % 12:02}#B{number % 2}",
                lane=("north", "south")[number % 3 == 0],
                list_id=f"list-{number % 2 + 1}",
            )
            world.clock.advance("1s")
        for item in world.claim(want=7).items:
            world.settle(item, Reject("too heavy") if int(item.key[1:3]) % 2 else Done())
        expected = [
            (item.row.created_at, item.key)
            for item in world.ledger.find(Query(route="parcels", **query)).items
        ]
        assert expected
        for order in ("newest", "oldest"):
            found: list[str] = []
            after: Any = None
            for _ in range(50):
                page = world.ledger.find(
                    Query(route="parcels", order=order, limit=limit, after=after, **query)
                )
                assert page.ordered
                assert len(page.items) <= limit
                found += [item.key for item in page.items]
                after = page.next
                if after is None:
                    break
            assert found == [key for _, key in sorted(expected, reverse=order == "newest")], order

    @pytest.mark.parametrize("order", ["newest", "oldest"])
    @pytest.mark.parametrize(
        "query",
        [
            {},
            {"statuses": FAILED},
            {"statuses": LIVE},
            {"prefix": "p"},
            {"lists": frozenset({"list-1"})},
        ],
        ids=lambda query: "-".join(query) or "all",
    )
    def test_ordered_pages_neither_skip_nor_repeat_items_while_rows_change(
        self, world: World, query: dict[str, Any], order: Any
    ) -> None:
        def add(number: int) -> None:
            world.add(
                f"p{(7 * number) % 100:02}", lane=("north", "south")[number % 2], list_id="list-1"
            )
            world.clock.advance("1s")

        def work(want: int) -> None:
            for item in world.claim(want=want).items:
                world.settle(item, Reject("too heavy"))

        for number in range(12):
            add(number)
        work(6)
        first = {item.key for item in world.ledger.find(Query(route="parcels", **query)).items}
        found: list[str] = []
        after: Any = None
        for number in range(12, 40):
            page = world.ledger.find(
                Query(route="parcels", order=order, limit=2, after=after, **query)
            )
            found += [item.key for item in page.items]
            after = page.next
            if after is None:
                break
            if number < 20:
                add(number)
                work(1)
        assert after is None
        assert len(found) == len(set(found))
        last = {item.key for item in world.ledger.find(Query(route="parcels", **query)).items}
        assert set(found) >= first & last

    def test_by_time_of_acceptance(self, full: World) -> None:
        times = {
            item.key: item.row.created_at for item in full.ledger.find(Query(route="parcels")).items
        }
        for moment in sorted(set(times.values())):
            assert self.find(full, created_from=moment) == {
                key for key, at in times.items() if at >= moment
            }
            assert self.find(full, created_before=moment) == {
                key for key, at in times.items() if at < moment
            }

    def test_a_failed_item_is_found_at_once_whoever_has_been_told(self, world: World) -> None:
        world.add("p1", "p2")
        for item in world.claim().items:
            world.settle(item, Reject("no good"))
        assert self.find(world, statuses=FAILED) == {"p1", "p2"}

    def test_an_exact_question_finds_the_same(self, full: World) -> None:
        for query in (
            {"statuses": frozenset({Status.REJECTED})},
            {"statuses": FAILED, "stages": frozenset({"weigh", "stamp"})},
            {"stages": frozenset({"stamp"})},
            {"stages": frozenset[str]()},
            {"due_before": full.now},
            {"prefix": "n"},
        ):
            assert self.find(full, exact=True, **query) == self.find(full, **query), query


def _due(world: World, key: str) -> int:
    return world.row(key).due_at or 0
