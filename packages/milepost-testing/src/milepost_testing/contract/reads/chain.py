"""Promise 9, accountable: history is append-only and chained, and has every act with its author and
reason."""

from __future__ import annotations

from milepost.core.change import Change
from milepost.core.confirmations import confirm
from milepost.core.history import origin, verify_chain
from milepost.core.operators import cancel, retry
from milepost.core.outcome import Done, NotYet, Reject, Retry
from milepost_testing.contract.base import Promises
from milepost_testing.contract.world import World


class ChainContract(Promises):
    def test_the_chain_begins_with_nothing_and_ends_at_the_rows_head(self, world: World) -> None:
        world.bring("p1", to="COMPLETED")
        written = world.ledger.history("parcels", "p1")
        start = origin("parcels", "p1", world.row("p1").input_digest)
        assert written[0].previous == start
        assert (
            verify_chain(
                [(line.previous, line.body) for line in written], start, world.row("p1").head
            )
            is None
        )
        assert [line.line.version for line in written] == list(
            range(1, world.row("p1").version + 1)
        )

    def test_bodies_are_stored_to_the_byte(self, world: World) -> None:
        world.add("p1")
        item = world.item("p1")
        change = cancel(item, world.plan, world.now, by="büro", why='☃ "quoted" \\ \n', act="a-1")
        assert isinstance(change, Change)
        assert world.apply(change) is None
        last = world.ledger.history("parcels", "p1")[-1]
        assert (last.previous, last.body) == (change.before.head, change.body)

    def test_tampering_shows(self, world: World) -> None:
        world.bring("p1", to="COMPLETED")
        links = [(line.previous, line.body) for line in world.ledger.history("parcels", "p1")]
        head = world.row("p1").head
        start = origin("parcels", "p1", world.row("p1").input_digest)
        for place in range(len(links)):
            changed = list(links)
            changed[place] = (
                links[place][0],
                links[place][1].replace(b"p", b"q").replace(b"e", b"f"),
            )
            assert verify_chain(changed, start, head) is not None
            assert verify_chain(links[:place] + links[place + 1 :], start, head) is not None

    def test_every_act_names_who_and_why(self, world: World) -> None:
        world.add("p1")
        world.settle(world.take("p1"), Reject("no"))
        world.apply(
            retry(world.item("p1"), world.plan, world.now, by="ops", why="fixed", act="a-1")
        )
        world.apply(
            confirm(
                world.item("p1"),
                "weigh",
                Done(True),
                world.plan,
                world.now,
                0.0,
                by="desk",
                why="seen it",
                act="a-2",
            )
        )
        world.apply(
            cancel(world.item("p1"), world.plan, world.now, by="cid", why="enough", act="a-3")
        )
        acts = [(line.reason.value, line.by, line.why, line.act) for line in world.lines("p1")[2:]]
        assert acts == [
            ("operator-retry", "ops", "fixed", "a-1"),
            ("confirmed", "desk", "seen it", "a-2"),
            ("cancelled", "cid", "enough", "a-3"),
        ]
        world.audit()

    def test_an_outcomes_line_names_holder_and_claim_time(self, world: World) -> None:
        world.add("p1")
        item = world.take("p1", holder="worker-7")
        claimed_at = world.now
        world.clock.advance(3)
        world.settle(item, NotYet())
        line = world.lines("p1")[-1]
        assert (line.by, line.since, line.at) == ("worker-7", claimed_at, world.now)

    def test_a_failed_try_is_kept_with_all_its_numbers(self, world: World) -> None:
        world.add("p1")
        world.settle(
            world.take("p1"), Retry("busy", category="HTTP", http_status=503, details={"host": "a"})
        )
        attempt = world.lines("p1")[-1].attempt
        assert attempt is not None
        assert (attempt.number, attempt.category, attempt.message, attempt.http_status) == (
            1,
            "HTTP",
            "busy",
            503,
        )
        assert (attempt.details, attempt.delay_ms, attempt.next_at) == (
            {"host": "a"},
            1000,
            world.now + 1000,
        )

    def test_attempts_never_pass_the_threshold(self, world: World) -> None:
        world.add("p1")
        for _ in range(5):
            for item in world.claim().items:
                world.settle(item, Retry("busy"))
            world.clock.advance("1h")
        row = world.row("p1")
        assert (row.status.value, row.attempts, row.total_attempts) == (
            "MAX_RETRIES_EXCEEDED",
            3,
            3,
        )
        assert world.reasons("p1") == ["accepted", "retry", "retry", "exhausted"]
        world.audit()
