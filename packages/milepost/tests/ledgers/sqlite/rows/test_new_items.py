"""New items on SQLite, in groups and one by one: any batch is stored and answered as on the memory
ledger."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from milepost.core.decide import accept
from milepost.core.item import digest_of
from milepost.core.operators import cancel
from milepost.core.routes.route import Route
from milepost.core.status import TERMINAL
from milepost.ledgers.memory import MemoryLedger
from milepost.ledgers.sqlite import SqliteLedger
from milepost.ledgers.sqlite.rows import new_items
from milepost.ports.items import KnownKey, NewItem, Refused, Same
from milepost.ports.ledger import Ledger
from milepost.ports.retention import DeliveredLines, PruneCriteria
from milepost_testing.audit import audit
from milepost_testing.clock import VirtualClock
from milepost_testing.contract.world import World, sample_route

LARGEST = 200_000
LARGE = "large"
"""The key of an input that no ledger of these tests can take."""
KEYS = [LARGE, *(f"k{n}" for n in range(12)), "ключ", "a\tb", "x" * 1024, 'q"uote\\', "☃" * 1024]


def external_route() -> Route:
    route = Route("parcels", key="id")
    route.external("delivered", resend_after="14d", lane=lambda content: content.get("lane", ""))
    return route


@st.composite
def arrivals(draw: st.DrawFn) -> list[dict[str, Any]]:
    """A batch of new_items: mostly alike, some with a lane, a start, a list, a long correlation id
    or a seal that they may pass."""
    odd = st.fixed_dictionaries(
        {},
        optional={
            "lane": st.sampled_from(["north", "south"]),
            "start": st.integers(-5, 5),
            "list_id": st.sampled_from(["list-1", "list-2"]),
            "correlation_id": st.sampled_from(["c", "é" * 40_000, "n\0ul"]),
            "size": st.sampled_from([0, 3, 1_000]),
            "over": st.booleans(),
            "large": st.booleans(),
            "by": st.sampled_from(["ada", "bob"]),
        },
    )
    usual = st.just(dict[str, Any]())
    one = st.tuples(st.sampled_from(KEYS), st.one_of(usual, usual, odd))
    return [{"key": key, **more} for key, more in draw(st.lists(one, max_size=24))]


def new_item(world: World, ledger: Ledger, more: dict[str, Any]) -> NewItem:
    key = more["key"]
    content = {
        "id": key,
        "lane": more.get("lane", ""),
        "filled": "f" * (2 * LARGEST if key == LARGE or more.get("large") else more.get("size", 0)),
    }
    (known,) = ledger.peek("parcels", [key])
    over = known.head if known is not None and known.sealed and more.get("over") else None
    change = accept(
        world.plan, key, content, world.now, correlation_id=more.get("correlation_id", f"c-{key}"), digest=digest_of(content),
        list_id=more.get("list_id"), by=more.get("by"), not_before=world.now + more["start"] if "start" in more else None,
        anew=over is not None,
    )  # fmt: skip
    return NewItem(change, content, over)


def told(answer: KnownKey | Refused | None) -> Any:
    if not isinstance(answer, KnownKey):
        return answer if answer is None else "refused"
    return answer.key, answer.status, answer.input_digest, answer.sealed


def held(ledger: Ledger) -> Any:
    """All that the ledger has of these keys."""
    found = ledger.get([("parcels", key) for key in KEYS])
    items = [item and (replace(item.row, handle=None), item.input) for item in found]  # type: ignore[union-attr]
    lines = [
        [
            (line.previous, line.body, line.payload)
            for line in ledger.history("parcels", key, payloads=True)
        ]
        for key in KEYS
    ]
    plain = [digest_of({"id": key, "lane": "", "filled": ""}) for key in KEYS]
    recognised = [
        one if isinstance(one, Same) else told(one)
        for one in ledger.recognise("parcels", KEYS, plain)
    ]
    return items, lines, [told(known) for known in ledger.peek("parcels", KEYS)], recognised


@pytest.mark.parametrize("make_route", [sample_route, external_route])
@settings(
    max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
@given(
    batches=st.lists(arrivals(), min_size=1, max_size=4),
    ending=st.sets(st.sampled_from(KEYS)),
    few=st.sampled_from([1, 4, 100]),
)
@example(
    batches=[[{"key": "k0", "large": True}, {"key": "k0"}, {"key": "k0"}]], ending=set(), few=100
)  # twins of a refused one
@example(
    batches=[[{"key": "k0"}], [{"key": "k0", "over": True}, {"key": "k0"}]], ending={"k0"}, few=100
)  # a twin of one that passes a seal
def test_any_batch_is_recorded_and_answered_as_in_memory(
    tmp_path_factory: pytest.TempPathFactory,
    make_route: Any,
    batches: list[list[dict[str, Any]]],
    ending: set[str],
    few: int,
) -> None:
    memory, sqlite = (
        MemoryLedger(),
        SqliteLedger.open(str(tmp_path_factory.mktemp("new") / "ledger.db")),
    )
    clock = VirtualClock()
    worlds = [World(ledger, make_route(), clock=clock) for ledger in (memory, sqlite)]
    memory.refuse_above(LARGEST)
    sqlite._store._writer.setlimit(0, LARGEST)  # SQLITE_LIMIT_LENGTH
    was, new_items.FEW = new_items.FEW, few
    try:
        for batch in batches:
            mine, theirs = (
                world.ledger.add(
                    world.plan, [new_item(world, world.ledger, one) for one in batch], clock.now()
                )
                for world in worlds
            )
            assert [told(answer) for answer in mine] == [told(answer) for answer in theirs]
            clock.advance(60)
            for world in worlds:
                for key in sorted(ending):
                    (item,) = world.ledger.get([("parcels", key)])
                    if item is not None:
                        world.apply(cancel(item, world.plan, clock.now(), by="ops"))  # type: ignore[arg-type]
                world.ledger.prune(
                    PruneCriteria(
                        "parcels", TERMINAL, clock.now() + 1, None, DeliveredLines(0), 100
                    )
                )
            assert held(memory) == held(sqlite)
        for world in worlds:
            audit(world.ledger, "parcels", world.plan)
    finally:
        new_items.FEW = was
        sqlite.close()


SUBMIT = """
import sys
from milepost.ledgers.sqlite import SqliteLedger
from milepost_testing.contract.world import World
world = World(SqliteLedger.open(sys.argv[1]))
who, batches, size = int(sys.argv[2]), 20, 25
print("ready", flush=True)
sys.stdin.readline()
new = []
for n in range(batches):
    start = (n * size + who * 7) % (batches * size)
    keys = [f"p{(start + k) % (batches * size)}" for k in range(size)]
    new_items = [world.new_item(key, by=who) for key in keys]
    for new_item, known in zip(new_items, world.ledger.add(world.plan, new_items, world.now)):
        if known is None:
            new.append(new_item.change.after.key)
print(" ".join(new))
"""


def test_processes_that_add_the_same_keys_record_each_once(tmp_path: Path) -> None:
    path = str(tmp_path / "ledger.db")
    world = World(SqliteLedger.open(path))
    command = [sys.executable, "-c", SUBMIT, path]
    pool = [
        subprocess.Popen(
            [*command, str(who)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for who in range(3)
    ]
    try:
        for process in pool:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for process in pool:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        new = [process.communicate(timeout=120)[0].split() for process in pool]
    finally:
        for process in pool:
            process.kill()
            process.wait()
    assert sorted(key for keys in new for key in keys) == sorted(f"p{n}" for n in range(500))
    for who, keys in enumerate(new):
        assert all(world.item(key).input["by"] == who for key in keys), (
            "what was answered new is what is recorded"
        )
    assert world.count() == {"QUEUED": 500}
    world.audit()
    world.ledger.close()
