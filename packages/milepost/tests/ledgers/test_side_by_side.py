"""Memory and SQLite side by side: random operations on both have the same answers."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from msgspec.structs import replace
from tests.seeds import examples

from milepost.core import operators
from milepost.core.admission.breakers import BreakerRecord
from milepost.core.admission.controls import scope
from milepost.core.change import Change, change
from milepost.core.confirmations import confirm
from milepost.core.decide import decide, given_back, undecided
from milepost.core.due import Lease, fragile, look
from milepost.core.item import Item, Row
from milepost.core.outcome import Done, HandedOver, NotYet, Outcome, Reject, Retry
from milepost.core.routes.breaker import Breaker
from milepost.core.routes.plan import Plan
from milepost.core.status import TERMINAL, Reason
from milepost.core.values.refusal import Refusal
from milepost.ledgers.memory import MemoryLedger
from milepost.ledgers.sqlite import SqliteLedger
from milepost.ports.documents import BREAKER, HOLD, LIMIT, ROUTE, read_as
from milepost.ports.items import ClaimRequest, Conflict, KnownKey
from milepost.ports.ledger import Ledger
from milepost.ports.retention import DeliveredLines, PruneCriteria
from milepost_testing.audit import audit, every_item
from milepost_testing.clock import SeededChance, VirtualClock
from milepost_testing.contract.acts.rename import renamed_plan
from milepost_testing.contract.world import World, sample_route

KEYS = [f"k{n}" for n in range(3)]
BREAKS = Breaker(failures=2, within="1h", cooldown="20s", probes=len(KEYS))
"""With room for all items as probes: of fewer, the ledgers might choose others."""
LANES = ["", "north"]
HOLDERS = ["anna", "bert"]
OUTCOMES: list[Outcome] = [
    Done(), Done({"n": 1}), Done(), Done(payload=[1, 2]), NotYet(), NotYet(note="no lorry"), NotYet(after="5s"), HandedOver("30s"),
    Retry("scale 1 is busy"), Retry("scale 2 is busy", unknown=True), Retry("later", after="1m"), Reject("no such parcel"),
]  # fmt: skip
VERBS: list[Callable[..., Change | Refusal]] = [
    operators.retry,
    operators.skip,
    operators.cancel,
    operators.resend,
]
Pair = tuple[Item, Item]
"""One item, as memory and as SQLite gave it."""


def plain(row: Row | None) -> Row | None:
    """A row without the ledger's own handle."""
    return None if row is None else replace(row, handle=None)


def shown(item: Item | None) -> Any:
    return None if item is None else (plain(item.row), item.content)


def told(conflict: Conflict | None) -> Any:
    return None if conflict is None else (plain(conflict.current), conflict.outdated)


def remembered(known: KnownKey | None) -> Any:
    if known is None:
        return None
    # What a seal promises is less: where the item was at its end is not part of it.
    more = (known.ended_at, known.head) if known.sealed else (known.stage, known.list_id)
    return known.key, known.status, known.input_digest, known.sealed, *more


class SideBySide(RuleBasedStateMachine):
    """Every rule does one thing to both ledgers and compares the answers; the invariants compare
    all that they hold."""

    @initialize()
    def begin(self) -> None:
        # In memory-backed storage where there is some: this is about agreement, not about disks.
        shm = Path("/dev/shm")
        self.folder = tempfile.mkdtemp(dir=shm if shm.is_dir() else None)
        self.memory, self.sqlite = MemoryLedger(), SqliteLedger.open(f"{self.folder}/milepost.db")
        self.clock, self.chance = VirtualClock(), SeededChance()
        self.plan = World(self.memory, sample_route(breaker=BREAKS)).plan
        self.held: dict[str, Pair] = {}
        self.stale: list[Pair] = []
        self.renamed = False
        for number, key in enumerate(KEYS):
            self.add(key, LANES[number % 2], None)

    def teardown(self) -> None:
        if hasattr(self, "memory"):
            for ledger in self.ledgers:
                audit(ledger, "parcels", self.plan)
            self.sqlite.close()
            shutil.rmtree(self.folder)

    @property
    def ledgers(self) -> tuple[Ledger, Ledger]:
        return self.memory, self.sqlite

    @property
    def now(self) -> int:
        return self.clock.now()

    def pair(self, key: str) -> Pair | None:
        mine, theirs = (ledger.get([("parcels", key)])[0] for ledger in self.ledgers)
        assert shown(mine) == shown(theirs)
        return None if mine is None or theirs is None else (mine, theirs)

    def both(
        self, pair: Pair, make: Callable[[Item], Change | Refusal | None], **more: Any
    ) -> None:
        """Make the same change from each ledger's own item, write it to each, and compare what they
        answer."""
        made = [make(item) for item in pair]
        if not isinstance(made[0], Change) or not isinstance(made[1], Change):
            assert made[0] == made[1]
            return
        assert (made[0].body, plain(made[0].after), made[0].puts) == (
            made[1].body,
            plain(made[1].after),
            made[1].puts,
        )
        mine, theirs = (
            ledger.apply([one], self.now, **more)[0]
            for ledger, one in zip(self.ledgers, made, strict=True)
        )  # type: ignore[list-item]
        assert told(mine) == told(theirs)

    # What is done ---------------------------------------------------------------------------------
    @rule(
        key=st.sampled_from(KEYS),
        lane=st.sampled_from(LANES),
        list_id=st.sampled_from([None, "list-1"]),
    )
    def add(self, key: str, lane: str, list_id: str | None) -> None:
        world = World(self.memory, clock=self.clock)
        world.plan = self.plan
        new_item = world.new_item(key, lane=lane, list_id=list_id)
        mine, theirs = (ledger.add(self.plan, [new_item], self.now)[0] for ledger in self.ledgers)
        assert remembered(mine) == remembered(theirs)

    @rule(
        position=st.integers(0, 2),
        holder=st.sampled_from(HOLDERS),
        jitter=st.floats(-1, 1),
        alone=st.booleans(),
    )
    def claim(self, position: int, holder: str, jitter: float, alone: bool) -> None:
        stage = self.plan.stages[position].name
        # Of several fragile items one is given, and the ledgers may choose; of one there is no
        # choice.
        rows = [item.row for item in every_item(self.memory, "parcels")]
        alone = alone and sum(row.stage == stage and fragile(row) for row in rows) == 1
        lease = Lease(self.chance.token(), holder, self.now + 60_000)
        ask = ClaimRequest(self.plan, stage, 1000, lease, fragile=alone)
        mine, theirs = (ledger.claim([ask], self.now, jitter)[0] for ledger in self.ledgers)
        ours, others = (
            {item.key: item for item in mine.items},
            {item.key: item for item in theirs.items},
        )
        assert {key: shown(item) for key, item in ours.items()} == {
            key: shown(item) for key, item in others.items()
        }
        assert (mine.moved, mine.outdated, mine.fragile) == (
            theirs.moved,
            theirs.outdated,
            theirs.fragile,
        )
        for key, item in ours.items():
            self.stale += [self.held[key]] if key in self.held else []
            self.held[key] = (item, others[key])

    @rule(
        outcomes=st.lists(st.sampled_from(OUTCOMES), min_size=1, max_size=4),
        holder=st.sampled_from(HOLDERS),
        jitter=st.floats(-1, 1),
    )
    def work(self, outcomes: list[Outcome], holder: str, jitter: float) -> None:
        """A worker's turn at the moment at which something is due: claim at both of our stages,
        settle all that came."""
        self.clock.advance_to(self.memory.next_due([self.plan]) or self.now)
        for position in (0, 1):
            before = set(self.held)
            self.claim(position, holder, jitter, False)
            for number, key in enumerate(sorted(set(self.held) - before)):
                self.settle_one(key, outcomes[number % len(outcomes)], jitter, fresh=True)

    @precondition(lambda self: self.held)
    @rule(
        data=st.data(),
        outcome=st.sampled_from(OUTCOMES),
        jitter=st.floats(-1, 1),
        fresh=st.booleans(),
    )
    def settle(self, data: st.DataObject, outcome: Outcome, jitter: float, fresh: bool) -> None:
        self.settle_one(data.draw(st.sampled_from(sorted(self.held))), outcome, jitter, fresh=fresh)

    def settle_one(self, key: str, outcome: Outcome, jitter: float, *, fresh: bool) -> None:
        pair = self.held.pop(key)
        current = self.pair(key)
        if fresh and current is not None and current[0].row.lease == pair[0].row.lease:
            pair = current
        self.stale.append(pair)
        if pair[0].stage in self.plan.by_name:
            self.both(
                pair,
                lambda item: decide(item, outcome, self.plan, self.now, jitter),
                versions={"parcels": self.plan.version},
            )

    @precondition(lambda self: self.stale)
    @rule(data=st.data(), outcome=st.sampled_from(OUTCOMES))
    def settle_too_late(self, data: st.DataObject, outcome: Outcome) -> None:
        pair = self.stale[data.draw(st.integers(0, len(self.stale) - 1))]
        if pair[0].stage in self.plan.by_name:
            self.both(pair, lambda item: decide(item, outcome, self.plan, self.now, 0.0))

    @precondition(lambda self: self.held)
    @rule(
        data=st.data(),
        way=st.sampled_from(["back", "undecided"]),
        outcome=st.sampled_from(OUTCOMES),
    )
    def let_go(self, data: st.DataObject, way: str, outcome: Outcome) -> None:
        pair = self.held.pop(data.draw(st.sampled_from(sorted(self.held))))
        if way == "back":
            self.both(pair, lambda item: given_back(item.row, self.now, why="shutdown"))
        else:
            self.both(pair, lambda item: undecided(item.row, outcome, self.now, by="old"))

    @precondition(lambda self: self.held or self.stale)
    @rule(data=st.data(), seconds=st.integers(1, 200))
    def extend(self, data: st.DataObject, seconds: int) -> None:
        pair = data.draw(st.sampled_from([*self.held.values(), *self.stale]), label="pair")
        mine, theirs = (
            ledger.extend([item.row], self.now + seconds * 1000, self.now)
            for ledger, item in zip(self.ledgers, pair, strict=True)
        )
        assert mine == theirs

    @rule(span=st.sampled_from(["1ms", "1s", "10s", "1m", "2h", "1d", "15d"]))
    def advance(self, span: str) -> None:
        self.clock.advance(span)

    @rule(where=st.sampled_from([(), (0,), (1,), (0, "north")]), on=st.booleans())
    def pause(self, where: tuple[Any, ...], on: bool) -> None:
        name = scope(
            "parcels",
            *(self.plan.stages[part].name if isinstance(part, int) else part for part in where),
        )
        value = {"at": self.now, "by": "ops", "reason": "test"} if on else None
        assert self.memory.write(HOLD, name, value) == self.sqlite.write(HOLD, name, value)

    @rule(
        name=st.sampled_from(["a", "b"]),
        value=st.sampled_from([None, 1, {"x": [1]}]),
        expect=st.sampled_from([None, 0, 1, 2]),
    )
    def document(self, name: str, value: Any, expect: int | None) -> None:
        assert self.memory.write("act", name, value, expect) == self.sqlite.write(
            "act", name, value, expect
        )

    @rule(
        key=st.sampled_from(KEYS),
        position=st.integers(0, 2),
        outcome=st.sampled_from([Done(True), Done({"seen": 1}), *OUTCOMES]),
    )
    def confirm(self, key: str, position: int, outcome: Outcome) -> None:
        pair = self.pair(key)
        if pair is not None:
            stage = self.plan.stages[position].name
            self.both(
                pair,
                lambda item: confirm(item, stage, outcome, self.plan, self.now, 0.0, by="partner"),
            )

    @rule(key=st.sampled_from(KEYS), verb=st.sampled_from(VERBS))
    def operate(self, key: str, verb: Callable[..., Change | Refusal]) -> None:
        pair = self.pair(key)
        if pair is not None:
            self.both(
                pair,
                lambda item: verb(item, self.plan, self.now, by="ops", why="test", act="act-1"),
            )

    @rule(key=st.sampled_from(KEYS))
    def send_back(self, key: str) -> None:
        pair = self.pair(key)
        if pair is not None:
            first = self.plan.first.name
            self.both(
                pair, lambda item: operators.retry(item, self.plan, self.now, stage=first, by="ops")
            )

    @rule(key=st.sampled_from(KEYS))
    def look_again(self, key: str) -> None:
        pair = self.pair(key)
        if pair is not None:
            self.both(pair, lambda item: look(item, self.plan, self.now, 0.0, None))

    @rule(holders=st.lists(st.sampled_from(HOLDERS), unique=True))
    def reclaim(self, holders: list[str]) -> None:
        assert self.memory.reclaim(holders, self.now) == self.sqlite.reclaim(holders, self.now)

    @rule(forget=st.booleans())
    def prune(self, forget: bool) -> None:
        """A ledger may keep the item of its newest line, so both are given the same one and asked
        to stop before it."""
        self.add("anchor", "", None)
        pair = self.pair("anchor")
        if pair is None:
            return  # it has ended and left, and its key is still known
        self.both(
            pair,
            lambda item: change(
                item.row, Reason.NOTED, self.now, item.row.status, {}, note="newest"
            ),
        )
        mine, theirs = (
            ledger.prune(
                PruneCriteria(
                    "parcels", TERMINAL, self.now, None, DeliveredLines(ledger.last_seq() - 1), 1000
                )
            )
            for ledger in self.ledgers
        )
        assert mine.items == theirs.items
        if forget:
            old = self.now - 86_400_000
            mine, theirs = (
                ledger.prune(
                    PruneCriteria(
                        "parcels", TERMINAL, old, old, DeliveredLines(ledger.last_seq() - 1), 1000
                    )
                )
                for ledger in self.ledgers
            )
            assert (mine.items, mine.forgotten) == (theirs.items, theirs.forgotten)

    @rule()
    def new_version(self) -> None:
        """Somebody applies a new version of the route; we take it up at once."""
        version = self.plan.version + 1
        for ledger in self.ledgers:
            ledger.write(
                ROUTE, "parcels", {"version": version, "digest": "", "shape": [], "at": self.now}
            )
        self.plan = self.plan.at_version(version)

    @rule()
    def rename(self) -> None:
        """Back and forth between two names for the second stage."""
        old, new = ("frank", "stamp") if self.renamed else ("stamp", "frank")
        for ledger in self.ledgers:
            ledger.rename_stage("parcels", old, new)
        version, self.renamed = self.plan.version, not self.renamed
        self.plan = (
            renamed_plan(self.memory) if self.renamed else Plan(World(self.memory).plan.route)
        ).at_version(version)

    # What must agree ------------------------------------------------------------------------------
    @invariant()
    def rows_contents_and_histories_agree(self) -> None:
        if not hasattr(self, "memory"):
            return
        mine, theirs = (
            {item.key: shown(item) for item in every_item(ledger, "parcels", 4, with_content=True)}
            for ledger in self.ledgers
        )
        assert mine == theirs
        for key in mine:
            lines = [
                [(line.previous, line.body) for line in ledger.history("parcels", key)]
                for ledger in self.ledgers
            ]
            assert lines[0] == lines[1]
        known = [
            [remembered(one) for one in ledger.peek("parcels", KEYS)] for ledger in self.ledgers
        ]
        assert known[0] == known[1]

    @invariant()
    def counters_groups_documents_and_due_times_agree(self) -> None:
        if not hasattr(self, "memory"):
            return
        for facts in (self.counted, self.grouped, self.documents, self.breakers, self.fed):
            mine, theirs = facts(self.memory), facts(self.sqlite)
            assert mine == theirs, facts.__name__
        assert self.memory.next_due([self.plan]) == self.sqlite.next_due([self.plan])

    def counted(self, ledger: Ledger) -> Any:
        return {
            (count.stage, count.status, count.hour): count.n
            for count in ledger.counts("parcels")
            if count.n
        }

    def breakers(self, ledger: Ledger) -> Any:
        found = {
            name: read_as(BreakerRecord, document.value)
            for name, document in ledger.read(BREAKER).items()
        }
        # A lease that was extended may be noted by one ledger before the other.
        return {
            name: replace(
                one, probes=sorted((replace(probe, until=0) for probe in one.probes), key=str)
            )
            for name, one in found.items()
        }

    def grouped(self, ledger: Ledger) -> Any:
        return {
            (group.stage, group.group): (group.category, group.now)
            for group in ledger.groups("parcels")
            if group.now
        }

    def documents(self, ledger: Ledger) -> Any:
        return [ledger.read(kind) for kind in (HOLD, LIMIT, ROUTE, "act")]

    def fed(self, ledger: Ledger) -> Any:
        """Each item's lines in its own order (one claim may write its lanes in any), and the
        payload of its newest offer."""
        lines: dict[str, list[bytes]] = {}
        payloads: dict[str, Any] = {}
        for written in ledger.feed(0, 10_000):
            lines.setdefault(written.key, []).append(written.body)
            if written.line.offered is not None:
                payloads[written.key] = written.payload
        return lines, payloads


SideBySide.TestCase.settings = settings(
    max_examples=examples(180, thorough=600),
    stateful_step_count=50,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
TestSideBySide = pytest.mark.slow(SideBySide.TestCase)
