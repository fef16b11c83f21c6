"""Changes: written only on the row that was read, each completely or not at all, without effect on
others."""

from __future__ import annotations

from milepost.core.change import Change, change
from milepost.core.counters import HOUR
from milepost.core.decide import decide, given_back, late
from milepost.core.item import digest_of
from milepost.core.operators import cancel, retry, skip
from milepost.core.outcome import Checked, Done, HandedOver, NotYet, Outcome, Reject, Retry
from milepost.core.status import Reason, Status
from milepost.ports.items import Conflict
from milepost_testing.contract.base import Promises
from milepost_testing.contract.world import World


class ChangesContract(Promises):
    def test_done_moves_the_item_on_with_its_result_and_payload(self, world: World) -> None:
        world.add("p1", colour="red")
        assert world.settle(world.take("p1"), Done({"grams": 340})) is None
        item = world.item("p1")
        assert (item.stage, item.row.status, item.row.lease) == ("stamp", Status.QUEUED, None)
        assert item.results == {"weigh": {"grams": 340}}
        assert item.payload == {"grams": 340}
        assert item.input == {"id": "p1", "colour": "red"}
        assert world.claim("stamp").items[0].payload == {"grams": 340}
        world.audit()

    def test_many_outcomes_in_one_write_keep_each_items_own_output(self, world: World) -> None:
        keys = [f"p{number}" for number in range(9)]
        world.add(*keys)
        for grams in (100, 200):
            items = {item.key: item for item in world.claim().items}
            assert sorted(items) == keys
            outputs = {key: {"grams": grams + number} for number, key in enumerate(keys)}
            changes = [
                decide(items[key], Done(outputs[key]), world.plan, world.now, 0.0) for key in keys
            ]
            assert world.ledger.apply(changes, world.now) == [None] * len(keys)
            assert {key: world.item(key).results for key in keys} == {
                key: {"weigh": outputs[key]} for key in keys
            }
            assert {key: world.item(key).payload for key in keys} == outputs
            world.ledger.drop_tickets([item.ticket for item in items.values()])
            world.audit()
            for key in keys:
                world.apply(retry(world.item(key), world.plan, world.now, stage="weigh", by="ops"))

    def test_without_an_output_the_payload_travels_on(self, world: World) -> None:
        world.add("p1")
        world.settle(world.take("p1"), Done(payload={"only": "this"}))
        world.settle(world.take("p1", "stamp"), Done())
        item = world.item("p1")
        assert item.stage == "delivered"
        assert item.payload == {"only": "this"}
        assert item.results == {}

    def test_through_the_last_stage_is_completed_and_due_never_again(self, world: World) -> None:
        world.bring("p1", to="COMPLETED")
        row = world.row("p1")
        assert (row.status, row.due_at, row.lease) == (Status.COMPLETED, None, None)
        assert world.count() == {"COMPLETED": 1}
        world.audit()

    def test_every_outcome_is_kept_field_by_field(self, world: World) -> None:
        outcomes: list[Outcome] = [
            NotYet(note="no lorry"),
            Checked({"files": 2}, after="20h", note="all there"),
            HandedOver("2d", note="ticket 7"),
            Retry("busy", details={"a": [1]}, http_status=503),
            Reject("no"),
        ]
        for number, outcome in enumerate(outcomes):
            world.add(f"p{number}")
            item = world.take(f"p{number}")
            change = decide(item, outcome, world.plan, world.now, 0.0)
            assert world.apply(change) is None
            assert world.row(f"p{number}") == change.after
        world.audit()

    def test_a_stale_version_loses_and_the_conflict_carries_the_current_row(
        self, world: World
    ) -> None:
        world.add("p1")
        stale = world.item("p1")
        world.confirm("p1", "stamp")
        current = world.row("p1")
        assert world.apply(skip(stale, world.plan, world.now, by="ops")) == Conflict(current)
        assert world.row("p1") == current
        assert world.reasons("p1") == ["accepted", "kept"]
        world.audit()

    def test_a_change_to_an_item_that_is_not_there_is_a_conflict_with_nothing(
        self, world: World
    ) -> None:
        world.add("p1")
        gone = world.new_item("gone").change.after
        assert world.apply(change(gone, Reason.NOTED, world.now, gone.status, {})) == Conflict(None)
        assert world.ledger.history("parcels", "gone") == []

    def test_of_two_changes_to_one_row_in_one_batch_the_first_wins(self, world: World) -> None:
        world.add("p1")
        item = world.item("p1")
        first = cancel(item, world.plan, world.now, by="ops")
        second = skip(item, world.plan, world.now, by="desk")
        assert isinstance(first, Change)
        assert isinstance(second, Change)
        won, lost = world.ledger.apply([first, second], world.now)
        assert won is None
        assert lost == Conflict(first.after)
        assert world.row("p1") == first.after
        world.audit()

    def test_a_change_may_build_on_the_one_before_it_in_the_same_batch(self, world: World) -> None:
        world.add("p1")
        row = world.row("p1")
        first = change(row, Reason.NOTED, world.now, row.status, {}, note="one")
        second = change(first.after, Reason.NOTED, world.now, row.status, {}, note="two")
        assert world.ledger.apply([first, second], world.now) == [None, None]
        assert [line.note for line in world.lines("p1")] == [None, "one", "two"]
        world.audit()

    def test_a_lost_change_hinders_no_other(self, world: World) -> None:
        world.add("p1", "p2", "p3")
        items = world.claim().items
        world.confirm("p2", "weigh", Done("from outside"))
        changes = [decide(item, Done(), world.plan, world.now, 0.0) for item in items]
        answers = world.ledger.apply(changes, world.now)
        assert [answer is None for answer in answers] == [item.key != "p2" for item in items]
        assert world.count() == {"QUEUED": 2, "PROCESSING": 1}
        world.audit()

    def test_a_not_yet_that_says_nothing_new_moves_the_row_and_not_the_history(
        self, world: World
    ) -> None:
        world.add("p1")
        for _ in range(3):
            assert world.settle(world.take("p1"), NotYet()) is None
            world.clock.advance("1m")
        assert world.reasons("p1") == ["accepted", "not-yet"]
        assert world.row("p1").looks == 3
        world.audit()

    def test_each_successful_check_makes_a_line_and_moves_the_overdue_mark(
        self, world: World
    ) -> None:
        world.bring("p1", to="stamp")
        for _ in range(4):
            assert (
                world.settle(world.take("p1", "stamp"), Checked(after="20h", note="all there"))
                is None
            )
            row = world.row("p1")
            assert (row.stage, row.status, row.overdue_at) == (
                "stamp",
                Status.WAITING,
                world.now + 24 * HOUR,
            )
            world.audit()
            world.clock.advance("20h")
        assert world.reasons("p1")[-4:] == ["checked"] * 4
        assert "overdue" not in world.reasons("p1")

    def test_what_an_earlier_attempt_left_is_gone_after_a_successful_check(
        self, world: World
    ) -> None:
        world.add("p1")
        world.settle(world.take("p1"), Retry("busy", after="1s"))
        world.clock.advance("1h")
        assert world.settle(world.take("p1"), Checked(after="1h")) is None
        row = world.row("p1")
        assert (row.attempts, row.error, row.looks, row.lease) == (0, None, 0, None)
        world.audit()

    def test_the_output_of_a_check_replaces_the_stages_result(self, world: World) -> None:
        world.bring("p1", to="stamp")
        for output in ({"tape": "V1"}, None, {"tape": "V2"}):
            assert world.settle(world.take("p1", "stamp"), Checked(output, after="1m")) is None
            assert world.item("p1").results["stamp"] == (output or {"tape": "V1"})
            world.clock.advance("1m")
        assert [line.output for line in world.lines("p1")[-3:]] == [
            digest_of({"tape": "V1"}).hex(),
            None,
            digest_of({"tape": "V2"}).hex(),
        ]
        assert world.settle(world.take("p1", "stamp"), Done({"sealed": True})) is None
        assert (world.row("p1").stage, world.item("p1").results["stamp"]) == (
            "delivered",
            {"sealed": True},
        )
        world.audit()

    def test_counters_hold_when_a_look_without_a_line_came_in_between(self, world: World) -> None:
        """A "not yet" that says nothing new makes no new version; a change decided before it must
        not corrupt the counters."""
        world.add("p1")
        world.settle(world.take("p1"), NotYet())
        world.clock.advance("1m")
        world.apply(given_back(world.take("p1").row, world.now, why="shutdown"))
        read_before = world.item("p1")
        assert read_before.row.status is Status.QUEUED
        world.settle(world.take("p1"), NotYet())
        current = world.row("p1")
        assert (current.status, current.version) == (Status.WAITING, read_before.row.version)
        assert world.apply(cancel(read_before, world.plan, world.now, by="ops")) == Conflict(
            current
        )
        world.audit()

    def test_outdated_versions_are_refused_as_outdated(self, world: World) -> None:
        world.add("p1")
        item = world.take("p1")
        world.set_version(2)
        answer = world.apply(
            decide(item, Done(), world.plan, world.now, 0.0), versions={"parcels": 1}
        )
        assert answer == Conflict(item.row, outdated=True)
        assert world.row("p1").stage == "weigh"
        assert (
            world.apply(decide(item, Done(), world.plan, world.now, 0.0), versions={"parcels": 2})
            is None
        )
        assert world.row("p1").stage == "stamp"

    def test_a_route_without_a_stored_version_is_written_at_any(self, world: World) -> None:
        world.add("p1")
        assert (
            world.apply(
                decide(world.take("p1"), Done(), world.plan, world.now, 0.0),
                versions={"parcels": 7},
            )
            is None
        )

    def test_a_refused_outcome_can_be_noted(self, world: World) -> None:
        world.add("p1")
        item = world.take("p1")
        world.apply(cancel(world.item("p1"), world.plan, world.now, by="ops"))
        conflict = world.settle(item, Done())
        assert isinstance(conflict, Conflict)
        assert conflict.current is not None
        assert world.apply(late(conflict.current, Done(), world.now, by="worker")) is None
        assert world.row("p1").status is Status.CANCELLED
        assert world.reasons("p1")[-1] == "late"
        world.audit()

    def test_an_operators_retry_begins_the_stage_afresh(self, world: World) -> None:
        world.add("p1")
        world.settle(world.take("p1"), Reject("no such parcel"))
        assert world.count() == {"REJECTED": 1}
        world.apply(
            retry(world.item("p1"), world.plan, world.now, by="ops", why="fixed", act="act-1")
        )
        row = world.row("p1")
        assert (row.status, row.attempts, row.total_attempts, row.round, row.error) == (
            Status.QUEUED,
            0,
            1,
            2,
            None,
        )
        line = world.lines("p1")[-1]
        assert (line.by, line.why, line.act) == ("ops", "fixed", "act-1")
        assert len(world.claim().items) == 1
        world.audit()

    def test_a_stage_sent_back_to_does_not_meet_an_old_payload(self, world: World) -> None:
        world.add("p1")
        world.settle(world.take("p1"), Done({"grams": 1}))
        world.apply(retry(world.item("p1"), world.plan, world.now, stage="weigh", by="ops"))
        world.settle(world.take("p1"), Done())
        assert world.item("p1").payload == {"id": "p1"}
