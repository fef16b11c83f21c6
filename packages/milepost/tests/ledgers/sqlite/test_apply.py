"""Changes on SQLite, together or one by one: any set of them is written and answered as on the
memory ledger."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from milepost.core.change import Change, change
from milepost.core.decide import decide
from milepost.core.item import Item
from milepost.core.outcome import Done, NotYet, Outcome, Reject, Retry
from milepost.core.routes.breaker import Breaker
from milepost.core.status import Reason
from milepost.ledgers.memory import MemoryLedger
from milepost.ledgers.sqlite import SqliteLedger
from milepost.ports.documents import BREAKER
from milepost.ports.items import Conflict, Refused
from milepost.ports.ledger import Ledger
from milepost_testing.audit import audit
from milepost_testing.clock import VirtualClock
from milepost_testing.contract.world import World, sample_route

LARGEST = 50_000
KEYS = [f"k{number}" for number in range(8)]
OUTCOMES: dict[str, Outcome] = {
    "done": Done({"n": 1}),
    "not yet": NotYet(),
    "retry": Retry("busy"),
    "reject": Reject("no"),
    "large": Done({"text": "x" * 2 * LARGEST}),
}


def changes_of(world: World, items: dict[str, Item], steps: list[tuple[str, str]]) -> list[Change]:
    """A change for each step: an outcome, a note too large for the storage, or a stale outcome."""
    changes: list[Change] = []
    for key, kind in steps:
        item = items[key]
        if kind == "large note":
            note = {"note": "x" * 2 * LARGEST}
            changes.append(change(item.row, Reason.NOTED, world.now, item.row.status, note))
        elif kind == "stale":
            stale = replace(item.row, lease="another")
            changes.append(decide(Item(stale, item.content), Done(), world.plan, world.now, 0.0))
        else:
            changes.append(decide(item, OUTCOMES[kind], world.plan, world.now, 0.0))
    return changes


def plain_answer(answer: Conflict | Refused | None) -> Any:
    if isinstance(answer, Refused):
        return "refused"
    if isinstance(answer, Conflict) and answer.current is not None:
        return replace(answer.current, handle=None), answer.outdated
    return answer


def state_of(ledger: Ledger) -> Any:
    items = []
    for item in ledger.get([("parcels", key) for key in KEYS]):
        assert isinstance(item, Item)
        items.append((replace(item.row, handle=None), item.results))
    lines = [
        [(entry.line.reason, entry.body) for entry in ledger.history("parcels", key)]
        for key in KEYS
    ]
    breakers = {name: document.value for name, document in ledger.read(BREAKER).items()}
    groups = sorted((group.stage, group.group, group.now) for group in ledger.groups("parcels"))
    return items, lines, breakers, groups


@settings(
    max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
@given(
    steps=st.lists(
        st.tuples(st.sampled_from(KEYS), st.sampled_from([*OUTCOMES, "large note", "stale"])),
        max_size=12,
    ),
    claiming=st.booleans(),
)
def test_any_changes_are_written_and_answered_as_in_memory(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, str]], claiming: bool
) -> None:
    memory = MemoryLedger()
    sqlite = SqliteLedger.open(str(tmp_path_factory.mktemp("apply") / "ledger.db"))
    clock = VirtualClock()
    breaker = Breaker(failures=2, within="1h")
    worlds = [
        World(ledger, sample_route(breaker=breaker), clock=clock) for ledger in (memory, sqlite)
    ]
    answers: list[Any] = []
    for world in worlds:
        world.add(*KEYS)
        items = {item.key: item for item in world.claim().items}
        changes = changes_of(world, items, steps)
        if world is worlds[0]:
            memory.refuse_above(LARGEST)
        else:
            sqlite._store._writer.setlimit(0, LARGEST)  # SQLITE_LIMIT_LENGTH
        if claiming:
            ask = world.ask("stamp", want=3)
            applied, [claimed] = world.ledger.apply_and_claim(changes, world.now, {}, [ask], 0.0)
            answers.append(([plain_answer(answer) for answer in applied], len(claimed.items)))
        else:
            applied = world.ledger.apply(changes, world.now)
            answers.append([plain_answer(answer) for answer in applied])
    assert answers[0] == answers[1]
    if not claiming:
        assert state_of(memory) == state_of(sqlite)
    for world in worlds:
        audit(world.ledger, "parcels", world.plan)
    sqlite.close()
