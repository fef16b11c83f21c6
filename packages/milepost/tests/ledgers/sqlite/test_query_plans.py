"""The questions that a running process asks again and again use an index: their cost does not grow
with the rows of the ledger."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from msgspec.structs import replace

import milepost as mp
from milepost.composition import open_context
from milepost.core.due import Lease
from milepost.core.status import LIVE, TERMINAL, Status
from milepost.engine import metrics
from milepost.engine.acts.bulk import confirm_outside
from milepost.engine.context import Context
from milepost.engine.events.cursors import all_delivered
from milepost.engine.health import doctor
from milepost.engine.health.checks import late_since
from milepost.engine.intake import submit
from milepost.engine.left_counts import count_left
from milepost.engine.presence import Heartbeat
from milepost.engine.resend import Resender
from milepost.ledgers.sqlite.file.store import SqliteFile
from milepost.ledgers.sqlite.ledger import SqliteLedger
from milepost.ports.items import ClaimRequest, Query
from milepost.ports.retention import DeliveredLines, PruneCriteria
from milepost.station import Station
from milepost_testing import SimRunner, VirtualClock

LARGE = ("item", "history", "content", "seal", "departed", "offer")
"""Tables that grow with the items."""
ALIASES = {"i": "item", "h": "history", "c": "content", "s": "seal", "d": "departed", "o": "offer"}


class Watch:
    """All connections to ledgers: what they run, and how many steps SQLite takes for it."""

    def __init__(self) -> None:
        self.connections: list[sqlite3.Connection] = []
        self.statements: dict[str, sqlite3.Connection] = {}
        self.steps = 0

    def add(self, connection: sqlite3.Connection) -> sqlite3.Connection:
        self.connections.append(connection)
        connection.set_progress_handler(self._step, 1)
        connection.set_trace_callback(
            lambda statement: self.statements.setdefault(statement, connection)
        )
        return connection

    def _step(self) -> int:
        self.steps += 1
        return 0

    def counted(self, run: Callable[[], object]) -> int:
        run()  # what is read once, such as names, is read now
        self.steps = 0
        run()
        return self.steps

    def scans(self) -> list[str]:
        """The statements that pass all rows of a large table."""
        for connection in self.connections:
            connection.set_trace_callback(None)
        return [
            found
            for statement, connection in self.statements.items()
            for found in _scans(connection, statement)
        ]


def _scans(connection: sqlite3.Connection, statement: str) -> Iterator[str]:
    if statement.split(None, 1)[0] not in ("SELECT", "UPDATE", "DELETE", "INSERT", "WITH"):
        return
    for *_, step in connection.execute(f"EXPLAIN QUERY PLAN {statement}"):
        found = re.match(r"SCAN (\w+)", step)
        scan = (
            found is not None
            and ALIASES.get(found[1], found[1]) in LARGE
            and not re.search(r"\(\w+[=<>]", step)
        )
        # Of a question by due time, that index would give all live rows of a place.
        if scan or ("item_age" in step and re.search(r"due_at [<>]", statement)):
            yield f"{step}: {statement}"


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    watch, connect = Watch(), SqliteFile._connect
    monkeypatch.setattr(SqliteFile, "_connect", lambda store: watch.add(connect(store)))
    return watch


def parcels() -> mp.Route:
    route = mp.Route("parcels", key="id")

    def weigh(item: mp.Item) -> mp.Outcome:
        number = item.input["n"] % 8
        if number == 0:
            return mp.HandedOver(within="1h")
        if number == 1:
            return mp.NotYet(after="1h")
        return mp.Reject("broken") if number == 2 else mp.Done({"grams": 1})

    route.stage("weigh", checks=mp.Checks(every="1h", overdue="2h"))(weigh)
    route.stage("stamp")(lambda item: mp.Done())
    route.external("deliver", resend_after="14d", overdue="30d")
    return route


def filled(path: Path, clock: VirtualClock, n: int) -> Context:
    """A ledger with items everywhere on the route, some of them through it, and `n` that wait for a
    worker."""
    ctx = open_context(f"sqlite:///{path}", [parcels()], clock=clock)
    submit(ctx, "parcels", ({"id": f"p{number}", "n": number} for number in range(24)))
    Station(ctx, runner=SimRunner(clock), holder="first").run(until_idle_s=1)
    for number in (3, 4):
        confirm_outside(ctx, "parcels", f"p{number}", "deliver", mp.Done(True), "van")
    submit(ctx, "parcels", ({"id": f"new-{number}", "n": number} for number in range(n)))
    return ctx


def repeated(ctx: Context) -> dict[str, Callable[[], object]]:
    """What a process asks at its own pace, or for a page that refreshes itself, by name."""
    ledger, resender, plan = ctx.ledger, Resender(ctx), ctx.plan("parcels")
    heartbeat = Heartbeat(ctx, "me", dict)

    def page(query: Query) -> Callable[[], object]:
        return lambda: ledger.find(replace(query, limit=20))

    return {
        "resender": resender.run_once,
        "heartbeat": heartbeat.turn,
        "leases of the dead": lambda: ledger.reclaim(["gone"], ctx.clock.now()),
        "next due": lambda: ledger.next_due(ctx.plans.values()),
        "idle": lambda: all_delivered(ctx, [], ctx.clock.now()),
        "feed": lambda: ledger.feed(ledger.last_seq() - 10, 10),
        "feed at its end": lambda: ledger.feed(ledger.last_seq(), 500),
        "metrics": lambda: metrics.ledger_families(ctx),
        "ready": lambda: doctor.unready(ctx),
        "set aside": lambda: ledger.quarantine.entries(1),
        "claim": lambda: ledger.claim(
            [ClaimRequest(plan, "weigh", 1, Lease("token", "me", ctx.clock.now() + 60_000))],
            ctx.clock.now(),
            0.0,
        ),
        "claim of nothing": lambda: ledger.claim(
            [ClaimRequest(plan, "stamp", 9, Lease("token", "me", ctx.clock.now() + 60_000))],
            ctx.clock.now(),
            0.0,
        ),
        "late": lambda: late_since(ctx, "parcels", "weigh", set(), set(), ctx.clock.now()),
        "items in work": page(Query(route="parcels", statuses=frozenset({Status.PROCESSING}))),
        "items overdue": page(
            Query(route="parcels", statuses=LIVE, overdue_before=ctx.clock.now())
        ),
        "items handed over": page(
            Query(route="parcels", statuses=frozenset({Status.WAITING}), handed_over=True)
        ),
        "items failed": page(Query(route="parcels", statuses=frozenset({Status.REJECTED}))),
        "items by age": page(Query(route="parcels", statuses=LIVE, entered_before=0)),
        "items": page(Query(route="parcels")),
        "failed and left": lambda: count_left(ctx, "parcels"),
    }


def test_no_repeated_question_passes_all_rows(tmp_path: Path, watch: Watch) -> None:
    clock = VirtualClock()
    ctx = filled(tmp_path / "m.db", clock, 50)
    watch.statements.clear()
    for _ in range(2):
        for ask in repeated(ctx).values():
            ask()
        clock.advance("3h")
    Station(ctx, runner=SimRunner(clock), holder="second").run(until_idle_s=1)
    doctor.doctor(ctx)
    scans = watch.scans()
    assert len(watch.statements) > 50
    assert not scans, "\n".join(scans)
    ctx.ledger.close()


def test_the_content_of_an_item_leaves_without_a_scan(tmp_path: Path, watch: Watch) -> None:
    ctx = filled(tmp_path / "m.db", VirtualClock(), 10)
    ended = frozenset({Status.COMPLETED, Status.REJECTED})
    watch.statements.clear()
    for delivered in (0, ctx.ledger.last_seq()):
        pruned = ctx.ledger.prune(
            PruneCriteria(
                "parcels", ended, ctx.clock.now() + 1, None, DeliveredLines(delivered), 100
            )
        )
    assert pruned.lines
    assert any("DELETE FROM content" in statement for statement in watch.statements)
    assert not [scan for scan in watch.scans() if "content" in scan]
    ctx.ledger.close()


def test_a_backlog_makes_no_repeated_question_dearer(tmp_path: Path, watch: Watch) -> None:
    """SQLite counts its own steps. A page of rows that share one due time is sorted by number, so
    that the page may take more."""
    steps: dict[int, dict[str, int]] = {}
    for n in (100, 3_000):
        ctx = filled(tmp_path / f"{n}.db", VirtualClock(), n)
        steps[n] = {
            name: watch.counted(ask)
            for name, ask in repeated(ctx).items()
            if name not in ("metrics", "late")
        }
        ctx.ledger.close()
    grown = {
        name: (few, steps[3_000][name])
        for name, few in steps[100].items()
        if steps[3_000][name] > few + 50
    }
    assert not grown


def test_a_count_of_failed_items_that_left_reads_no_other_seals(
    tmp_path: Path, watch: Watch
) -> None:
    steps = []
    for n in (10, 500):
        ctx = filled(tmp_path / f"{n}.db", VirtualClock(), 0)
        submit(ctx, "parcels", ({"id": f"done-{number}", "n": 3} for number in range(n)))
        Station(ctx, runner=SimRunner(VirtualClock()), holder="first").run(until_idle_s=1)
        for number in range(n):
            confirm_outside(ctx, "parcels", f"done-{number}", "deliver", mp.Done(True), "van")
        criteria = PruneCriteria(
            "parcels", TERMINAL, ctx.clock.now() + 1, None, DeliveredLines(0), 1_000
        )
        assert ctx.ledger.prune(criteria).statuses[Status.COMPLETED] >= n
        steps.append(watch.counted(partial(count_left, ctx, "parcels")))
        assert count_left(ctx, "parcels").count == 3
        ctx.ledger.close()
    assert steps[0] == steps[1]


def test_each_live_row_is_in_one_of_the_two_indexes_of_its_time(tmp_path: Path) -> None:
    ctx = filled(tmp_path / "m.db", VirtualClock(), 10)
    assert isinstance(ctx.ledger, SqliteLedger)

    def count(connection: sqlite3.Connection, condition: str) -> int:
        return int(connection.execute(f"SELECT count(*) FROM item {condition}").fetchone()[0])

    whole, due, held = ctx.ledger._store.read(
        lambda connection: (
            count(connection, "WHERE due_at IS NOT NULL"),
            count(connection, "INDEXED BY item_due WHERE due_at IS NOT NULL AND status <> 2"),
            count(connection, "INDEXED BY item_held WHERE status = 2"),
        )
    )
    assert whole == due + held > 20
    ctx.ledger.close()
