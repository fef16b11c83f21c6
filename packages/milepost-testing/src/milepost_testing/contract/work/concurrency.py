"""Concurrency: threads and several handles on one ledger."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Barrier
from typing import Any

from milepost.core.change import Change
from milepost.core.decide import decide
from milepost.core.due import Lease
from milepost.core.item import digest_of
from milepost.core.operators import cancel, skip
from milepost.core.outcome import Done
from milepost.core.status import Status
from milepost.ports.items import ClaimRequest, Conflict, KnownKey, Refused
from milepost.ports.ledger import Ledger
from milepost_testing.contract.base import Promises
from milepost_testing.contract.world import LEASE, World


def at_once(jobs: Sequence[Callable[[], Any]]) -> list[Any]:
    """Run all jobs at the same time, each in a thread of its own; their answers in order."""
    gate = Barrier(len(jobs))

    def run(job: Callable[[], Any]) -> Any:
        gate.wait()
        return job()

    with ThreadPoolExecutor(len(jobs)) as threads:
        return [future.result() for future in [threads.submit(run, job) for job in jobs]]


class ConcurrencyContract(Promises):
    def test_64_concurrent_adds_of_one_key_make_one_row(self, ledger: Ledger) -> None:
        world = World(ledger)
        handles = [ledger, self.another(ledger)]
        new_item = world.new_item("p1")
        jobs = [partial(handles[n % 2].add, world.plan, [new_item], world.now) for n in range(64)]
        answers = [answer[0] for answer in at_once(jobs)]
        assert sum(answer is None for answer in answers) == 1
        assert all(answer is None or answer.key == "p1" for answer in answers)
        assert world.count() == {"QUEUED": 1}
        assert world.reasons("p1") == ["accepted"]
        world.audit()

    def test_concurrent_adds_of_overlapping_batches_record_each_key_once_and_name_the_winner(
        self, ledger: Ledger
    ) -> None:
        world = World(ledger)
        handles = [ledger, *(self.another(ledger) for _ in range(3))]
        batches = [
            [world.new_item(f"p{n}", by=who) for n in range(who, who + 8)]
            for who in range(len(handles))
        ]
        answers = at_once(
            [
                partial(handle.add, world.plan, batch, world.now)
                for handle, batch in zip(handles, batches, strict=True)
            ]
        )
        won: dict[str, bytes] = {}
        for batch, answer in zip(batches, answers, strict=True):
            for new_item, known in zip(batch, answer, strict=True):
                if known is None:
                    assert new_item.change.after.key not in won, "it was new twice"
                    won[new_item.change.after.key] = new_item.change.after.input_digest
        assert sorted(won) == sorted(
            {new_item.change.after.key for batch in batches for new_item in batch}
        )
        for batch, answer in zip(batches, answers, strict=True):
            for new_item, known in zip(batch, answer, strict=True):
                key = new_item.change.after.key
                assert known is None or (
                    isinstance(known, KnownKey)
                    and (known.key, known.input_digest) == (key, won[key])
                )
        assert {key: digest_of(world.item(key).input) for key in won} == won
        assert world.count() == {"QUEUED": len(won)}
        world.audit()

    def test_concurrent_claims_never_give_one_item_twice(self, ledger: Ledger) -> None:
        world = World(ledger)
        world.add(*(f"p{n}" for n in range(200)))
        handles = [ledger, self.another(ledger)]

        def claim(number: int) -> list[str]:
            ask = ClaimRequest(
                world.plan,
                "weigh",
                20,
                Lease(f"token-{number}", f"worker-{number}", world.now + LEASE),
            )
            return [item.key for item in handles[number % 2].claim([ask], world.now, 0.0)[0].items]

        given = [key for keys in at_once([partial(claim, n) for n in range(16)]) for key in keys]
        assert len(given) == len(set(given)) == 200
        assert world.count() == {"PROCESSING": 200}
        world.audit()

    def test_of_many_concurrent_changes_to_one_row_exactly_one_is_written(
        self, ledger: Ledger
    ) -> None:
        world = World(ledger)
        world.add("p1")
        item = world.item("p1")
        handles = [ledger, self.another(ledger)]

        def write(number: int) -> Conflict | Refused | None:
            change = (cancel if number % 2 else skip)(
                item, world.plan, world.now, by=f"op-{number}"
            )
            assert isinstance(change, Change)
            return handles[number // 2 % 2].apply([change], world.now)[0]

        answers = at_once([partial(write, n) for n in range(16)])
        assert answers.count(None) == 1
        current = world.row("p1")
        lost = [answer.current for answer in answers if isinstance(answer, Conflict)]
        assert {(row.version, row.head) for row in lost if row is not None} == {
            (current.version, current.head)
        }
        assert None not in lost
        assert current.version == 2
        world.audit()

    def test_a_second_handle_sees_and_settles_what_the_first_has_written(
        self, ledger: Ledger
    ) -> None:
        world = World(ledger)
        other = World(self.another(ledger), clock=world.clock)
        world.add("p1")
        item = other.take("p1", holder="other")
        assert world.row("p1").holder == "other"
        assert other.settle(item, Done({"grams": 1})) is None
        assert world.item("p1").results == {"weigh": {"grams": 1}}
        assert world.ledger.last_seq() == other.ledger.last_seq()
        other.audit()

    def test_a_second_handle_knows_lanes_and_routes_that_the_first_has_made(
        self, ledger: Ledger
    ) -> None:
        other = World(self.another(ledger))
        assert other.claim().items == []
        world = World(ledger)
        world.add("a", lane="north")
        assert [item.key for item in other.claim().items] == ["a"]
        world.add("b", lane="south")
        other.hold("parcels/weigh/south")
        assert world.claim().items == []
        other.release("parcels/weigh/south")
        assert [item.lane for item in world.claim().items] == ["south"]

    def test_many_workers_see_every_item_through_once(self, ledger: Ledger) -> None:
        world = World(ledger)
        world.add(*(f"p{n}" for n in range(120)))
        handles = [ledger, self.another(ledger)]

        def work(number: int) -> int:
            handle, settled = handles[number % 2], 0
            for turn in range(200):
                lease = Lease(f"token-{number}-{turn}", f"worker-{number}", world.now + LEASE)
                asks = [ClaimRequest(world.plan, stage, 7, lease) for stage in ("weigh", "stamp")]
                items = [
                    item for claimed in handle.claim(asks, world.now, 0.0) for item in claimed.items
                ]
                if not items and world.count("delivered") == {"QUEUED": 120}:
                    break
                answers = handle.apply(
                    [decide(item, Done(), world.plan, world.now, 0.0) for item in items], world.now
                )
                assert answers == [None] * len(items)
                settled += len(items)
            return settled

        assert sum(at_once([partial(work, n) for n in range(8)])) == 240
        assert world.count() == {Status.QUEUED.value: 120}
        world.audit()
