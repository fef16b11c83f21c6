"""Writes that conflict: the one loop for them writes and answers what three loops did before."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.engine.world import ROUTE, World, parcels

from milepost.core.change import Change
from milepost.core.decide import decide, given_back, late, undecided
from milepost.core.item import Item, Row
from milepost.core.operators import cancel
from milepost.core.outcome import Done, NotYet, Outcome, Reject, Retry
from milepost.core.values.refusal import Refusal, RefusalKind
from milepost.engine.acts.bulk import confirm_outside
from milepost.engine.apply import (
    CHANGES_TOO_OFTEN,
    GONE,
    OUTDATED,
    apply_all,
    count_refused,
    follow_up,
    unreadable,
)
from milepost.engine.conflicts import TRIES
from milepost.engine.context import Context
from milepost.engine.work import settle as settling
from milepost.engine.work.settle import SettleResult, give_back, settle
from milepost.ledgers.memory import MemoryLedger
from milepost.ports.items import Conflict, Refused
from milepost.ports.runner import JobResult
from milepost_testing.clock import VirtualClock

KEYS = ["a", "b", "c"]
EVENTS = [
    "nothing",
    "nothing",
    "note",
    "confirmation",
    "confirmation of the next stage",
    "claimed elsewhere",
    "lost lease",
    "cancelled",
    "outdated",
    "gone",
    "lost answer",
    "refused",
]
"""What may happen to a change on its way to the ledger."""


class DisturbedLedger:
    """A ledger on which other processes write between a decision and its write, and which refuses
    some writes. `script`: what happens to each change, in the order in which they come."""

    def __init__(self, inner: MemoryLedger) -> None:
        self.inner = inner
        self.script: Iterator[str] = iter(())
        self.other: World | None = None
        self.calls: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def drop_tickets(self, tickets: Sequence[Any]) -> None:
        self.calls.append(sorted(tickets))

    def apply(
        self, changes: Sequence[Change], now: int, versions: dict[str, int] | None = None
    ) -> list[Conflict | Refused | None]:
        fence = None if versions is None else versions[ROUTE]
        self.calls.append(([change.after for change in changes], now, fence))
        return [self._apply_one(change, now, next(self.script, "nothing")) for change in changes]

    def _apply_one(self, change: Change, now: int, event: str) -> Conflict | Refused | None:
        if event == "refused":
            return Refused("too large")
        if event == "gone":
            return Conflict(None)
        row = change.before
        item = self.inner.get([(row.route, row.key)])[0]
        assert isinstance(item, Item)
        if event == "outdated":
            return Conflict(item.row, outdated=True)
        self._write_elsewhere(item, event, now)
        answer = self.inner.apply([change], now)[0]
        if event == "lost answer" and answer is None:
            return Conflict(self._row(row))
        return answer

    def _write_elsewhere(self, item: Item, event: str, now: int) -> None:
        assert self.other is not None
        row = item.row
        if event == "note":
            self.inner.apply([late(row, Done(), now, by="slow:9")], now)
        elif event == "confirmation":
            confirm_outside(self.other.ctx, ROUTE, row.key, row.stage, Done(row.version), by="p")
        elif event == "confirmation of the next stage":
            confirm_outside(self.other.ctx, ROUTE, row.key, "stamp", Done({"at": "x"}), by="p")
        elif event == "claimed elsewhere":
            self.other.claim("weigh", want=1, holder="quick:2")
        elif event == "lost lease":
            self.inner.apply([given_back(row, now, why="its worker died")], now)
        elif event == "cancelled":
            decided = cancel(item, self.other.plan, now, by="ops", why="test")
            if isinstance(decided, Change):
                self.inner.apply([decided], now)

    def _row(self, row: Row) -> Row:
        item = self.inner.get([(row.route, row.key)])[0]
        assert isinstance(item, Item)
        return item.row


@dataclass
class Scene:
    """Claimed items on a ledger of its own. The same scene made twice is equal in all."""

    ctx: Context
    ledger: DisturbedLedger
    items: list[Item]

    def record(self, result: object) -> object:
        """All that can be seen of what was done."""
        refs = [(ROUTE, key) for key in KEYS]
        rows = [
            replace(item.row, handle=None) if isinstance(item, Item) else item
            for item in self.ledger.inner.get(refs)
        ]
        lines = [
            [entry.body for entry in self.ledger.inner.history(route, key)] for route, key in refs
        ]
        return result, rows, lines, self.ledger.calls


def scene(script: Sequence[str], lease: bool = True) -> Scene:
    clock = VirtualClock()
    ledger = DisturbedLedger(MemoryLedger())
    world = World(ledger, clock, parcels()).registered()  # type: ignore[arg-type]
    world.add(*KEYS)
    items = world.claim("weigh") if lease else [world.item(key) for key in KEYS]
    ledger.other = World(ledger.inner, clock, parcels(), seed=7).registered()
    ledger.script = iter(script)
    with_tickets = [replace(item, ticket=f"ticket-{item.key}") for item in items]
    return Scene(world.ctx, ledger, with_tickets)


# The three loops as they were ---------------------------------------------------------------------
def apply_all_before(ctx: Context, work: Sequence[tuple[Item, Any]]) -> list[Row | Refusal]:
    answers: list[Row | Refusal] = [CHANGES_TOO_OFTEN] * len(work)
    todo = {place: item for place, (item, _) in enumerate(work)}
    for _ in range(TRIES):
        changes: dict[int, Change] = {}
        for place, item in todo.items():
            change = work[place][1](item)
            if isinstance(change, Change):
                changes[place] = change
            else:
                answers[place] = item.row if change is None else change
        versions = {
            route: ctx.plan(route).version
            for route in {change.before.route for change in changes.values()}
        }
        conflicts = (
            ctx.ledger.apply(list(changes.values()), ctx.clock.now(), versions) if changes else []
        )
        lost: dict[int, Row] = {}
        for (place, change), conflict in zip(changes.items(), conflicts, strict=True):
            if conflict is None:
                answers[place] = change.after
            elif isinstance(conflict, Refused):
                answers[place] = Refusal(
                    RefusalKind.UNSTORABLE, f"it cannot be stored: {conflict.reason}"
                )
            elif conflict.outdated:
                answers[place] = OUTDATED
            elif conflict.current is None:
                answers[place] = GONE
            else:
                lost[place] = conflict.current
        if not lost:
            break
        todo = {}
        current = ctx.ledger.get([(row.route, row.key) for row in lost.values()])
        for place, item_now in zip(lost, current, strict=True):
            if item_now is None:
                answers[place] = GONE
            elif isinstance(item_now, Refused):
                answers[place] = unreadable(item_now)
            else:
                todo[place] = item_now
    followed = follow_up(ctx, [answer for answer in answers if isinstance(answer, Row)])
    return [
        followed.get((answer.route, answer.key), answer) if isinstance(answer, Row) else answer
        for answer in answers
    ]


def settle_before(ctx: Context, results: Sequence[JobResult]) -> SettleResult:
    answers, claims = settling._write(ctx, results)
    summary, follow, ended = SettleResult(claims=claims), list[Row](), list[Any]()
    for result, (after, conflict) in zip(results, answers, strict=True):
        if conflict is None:
            summary.written += 1
            if after.kept:
                follow.append(after)
        elif (
            conflict := count_refused_before(ctx, result, result.item.row, conflict, summary)
        ) is not None:
            written = summary.written
            settle_again_before(ctx, result, conflict, summary, follow)
            if summary.written == written:
                continue
        ended.append(result.item.ticket)
    if ended:
        ctx.ledger.drop_tickets(ended)
    if follow:
        follow_up(ctx, follow)
    return summary


def settle_again_before(
    ctx: Context, result: JobResult, answer: Conflict, summary: SettleResult, follow: list[Row]
) -> None:
    claimed = result.item.row
    for _ in range(TRIES):
        current, now = answer.current, ctx.clock.now()
        if current is None:
            break
        if claimed.lease is None:
            same = (current.stage, current.round, current.pass_no) == (
                claimed.stage,
                claimed.round,
                claimed.pass_no,
            )
            if not same or answer.outdated or current.terminal or current.lease is not None:
                break
            current = replace(current, holder=claimed.holder, claimed_at=claimed.claimed_at)
        elif current.lease != claimed.lease:
            if settling.recorded(ctx, current, claimed.lease):
                summary.written += 1
                return
            by, lease = claimed.holder or "", claimed.lease
            note = late(current, result.outcome, now, by=by, lease=lease)
            noted = ctx.ledger.apply([note], now)[0]
            if not isinstance(noted, Conflict):
                break
            answer = noted
            continue
        item = Item(
            replace(current, alone=current.alone or result.failed_alone), result.item.content
        )
        versions: dict[str, int] | None = settling._versions(ctx)
        if answer.outdated:
            change = undecided(current, result.outcome, now, by=claimed.holder or "")
            versions = None
        else:
            change = decide(
                item,
                result.outcome,
                ctx.plans[current.route],
                now,
                ctx.chance.jitter(),
                by=settling._author(ctx.plans, item),
                response_ms=result.response_ms,
            )
        again = ctx.ledger.apply([change], now, versions)[0]
        if again is None:
            if answer.outdated:
                summary.undecided += 1
            else:
                summary.written += 1
                follow.append(change.after)
            return
        left = count_refused_before(ctx, result, current, again, summary)
        if left is None:
            return
        answer = left
    summary.refused += 1


def count_refused_before(
    ctx: Context, result: JobResult, row: Row, unwritten: Conflict | Refused, summary: SettleResult
) -> Conflict | None:
    answer = (
        count_refused(ctx, row, unwritten, result.response_ms)
        if isinstance(unwritten, Refused)
        else unwritten
    )
    if isinstance(answer, Conflict):
        return answer
    if answer is None:
        summary.refused += 1
    else:
        summary.written += 1
    return None


def give_back_before(ctx: Context, items: Sequence[Item], why: str) -> int:
    rows = [item.row for item in items if item.row.lease is not None]
    tickets = {(item.row.route, item.row.key, item.row.lease): item.ticket for item in items}
    returned: list[Row] = []
    ended: list[Any] = []
    for _ in range(TRIES):
        if not rows:
            break
        now = ctx.clock.now()
        changes = [given_back(row, now, why=why, unknown=False) for row in rows]
        answers = ctx.ledger.apply(changes, now)
        written = [
            change for change, answer in zip(changes, answers, strict=True) if answer is None
        ]
        returned += [change.after for change in written]
        ended += [
            tickets.get((change.before.route, change.before.key, change.before.lease))
            for change in written
        ]
        rows = [
            answer.current
            for row, answer in zip(rows, answers, strict=True)
            if isinstance(answer, Conflict)
            and answer.current is not None
            and answer.current.lease == row.lease
        ]
    ctx.ledger.drop_tickets(ended)
    follow_up(ctx, returned)
    return len(returned)


# The same writes and answers ----------------------------------------------------------------------
SCRIPTS = st.lists(st.sampled_from(EVENTS), min_size=8, max_size=40)
OUTCOMES = st.sampled_from(
    [Done({"grams": 3}), Retry("busy"), Reject("no such parcel"), NotYet("1m")]
)


def run_both(
    script: Sequence[str],
    new: Callable[[Scene], object],
    old: Callable[[Scene], object],
    **how: Any,
) -> None:
    expected, actual = scene(script, **how), scene(script, **how)
    assert actual.record(new(actual)) == expected.record(old(expected))


@given(script=SCRIPTS, refusals=st.lists(st.integers(0, 12), max_size=3))
def test_apply_all_writes_and_answers_as_its_own_loop_did(
    script: list[str], refusals: list[int]
) -> None:
    def work(made: Scene) -> list[tuple[Item, Any]]:
        decisions = iter(range(100))

        def decision(item: Item) -> Any:
            number = next(decisions)
            if number in refusals:
                return Refusal(RefusalKind.IMPOSSIBLE, "no") if number % 2 else None
            return cancel(item, made.ctx.plan(ROUTE), made.ctx.clock.now(), by="ops", why="test")

        return [(item, decision) for item in made.items]

    run_both(
        script,
        lambda made: apply_all(made.ctx, work(made)),
        lambda made: apply_all_before(made.ctx, work(made)),
    )


@settings(max_examples=300)
@given(
    script=SCRIPTS,
    outcomes=st.lists(OUTCOMES, min_size=len(KEYS), max_size=len(KEYS)),
    lease=st.booleans(),
    alone=st.booleans(),
)
def test_settle_writes_and_answers_as_its_own_loop_did(
    script: list[str], outcomes: list[Outcome], lease: bool, alone: bool
) -> None:
    def results(made: Scene) -> list[JobResult]:
        return [
            JobResult(item, outcome, 5, failed_alone=alone)
            for item, outcome in zip(made.items, outcomes, strict=True)
        ]

    run_both(
        script,
        lambda made: settle(made.ctx, results(made)),
        lambda made: settle_before(made.ctx, results(made)),
        lease=lease,
    )


@given(script=SCRIPTS)
def test_give_back_writes_and_answers_as_its_own_loop_did(script: list[str]) -> None:
    run_both(
        script,
        lambda made: give_back(made.ctx, made.items, "stopping"),
        lambda made: give_back_before(made.ctx, made.items, "stopping"),
    )


def test_an_item_that_always_conflicts_is_decided_five_times() -> None:
    made = scene(["note"] * 40)
    assert give_back(made.ctx, made.items, "stopping") == 0
    assert len(made.ledger.calls) == TRIES + 1, "five rounds, and the tickets at the end"
