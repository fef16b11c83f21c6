"""Invented history of `milepost demo`: two days of an archive, written step by step with a clock in
the past.

Everything goes through the engine: lists are submitted, partners confirm, operators act, resender
and relay run, all by that clock. Events depend only on an asset's number, so that every demo has
the same history.
"""

from __future__ import annotations

import io
import math
from collections import deque
from collections.abc import Callable, Sequence
from random import Random

import msgspec

from milepost.core.change import Change
from milepost.core.confirmations import confirm
from milepost.core.item import Item, Row
from milepost.core.outcome import Done, NotYet, Outcome, Reject, Retry
from milepost.core.status import Status
from milepost.core.values.refusal import Refusal, impossible
from milepost.demo.archive import LIBRARIES, archive
from milepost.engine.act_log import select
from milepost.engine.acts.bulk import act
from milepost.engine.acts.controls import pause
from milepost.engine.acts.verbs import RetryVerb
from milepost.engine.apply import apply_all
from milepost.engine.context import Context
from milepost.engine.events.deliver import EventRelay
from milepost.engine.heads.daily import DAY_MS, day_of, publish
from milepost.engine.lists.reconcile import take_in_list
from milepost.engine.lists.source import Source
from milepost.engine.resend import Resender
from milepost.ports.items import Query
from milepost.ports.subscriber import Subscriber

ROUTE = archive.name
DISK, TAPE = (stage.name for stage in archive.stages)
HOUR_MS = 3_600_000
STEP_MS = 30 * 60_000
STEPS = 48 * HOUR_MS // STEP_MS
EVERY = 6
"""Steps between runs of resender and relay; more often would only cost disk writes."""
NOON_IS_AT = 2
"""The step at noon: whatever the time is now, the invented present is an hour before noon, so that
the history is always the same."""
LISTS = (0, 4, 8, 14, 40, 46, 54, 90)
"""Steps at which a list is submitted: the last one three hours ago."""
CLEANED, SERVICED, ASKED = STEPS - 10, STEPS - 8, STEPS - 1
"""When a faulty drive was clean again, since when the library in the north stands still, and when
the south was last asked for its progress."""


class PastClock:
    """Clock that starts two days before `end` and reaches it after all steps."""

    def __init__(self, end: int) -> None:
        self._now = end - STEPS * STEP_MS

    def now(self) -> int:
        return self._now

    def step(self) -> None:
        self._now += STEP_MS


class PastChance:
    """Randomness with a fixed seed."""

    def __init__(self) -> None:
        self._random = Random(1)

    def jitter(self) -> float:
        return self._random.uniform(-1.0, 1.0)

    def token(self) -> str:
        return self._random.randbytes(8).hex()


def disk_says(number: int) -> Outcome | None:
    """Outcome of the disk store for an asset; None: it never answers."""
    if number % 211 == 17:
        return None
    if number % 173 == 11:
        return Reject("the checksum is not the one in the transfer", category="CHECKSUM")
    if number % 307 == 29:
        return Reject("the file is empty", category="EMPTY")
    return Done(
        {"path": f"disk-{number % 8}/{key_of(number)}", "bytes": 20_000 + number * 7919 % 9_000_000}
    )


def tape_says(number: int, step: int, tries: int) -> Outcome | None:
    """Outcome of the tape library for an asset at this step, after so many attempts."""
    if number % 229 == 23:
        return None
    if number % 401 == 31:
        return Reject("the library takes no name of more than 255 characters", category="NAME")
    if number % 131 == 5 and step < CLEANED:
        return Retry("write error on tape T-0113", category="TAPE")
    if number % 37 == 3 and not tries:
        return Retry("no drive is free", category="BUSY")
    return Done({"tape": f"T-{100 + number // 40:04d}"})


def pace(step: int, peak: int) -> float:
    """Load at a step, 1 on average: highest at the hour `peak`, lowest twelve hours later."""
    hour = 12 + (step - NOON_IS_AT) * STEP_MS / HOUR_MS
    return 1 + 0.8 * math.cos((hour - peak) * math.pi / 12)


def key_of(number: int) -> str:
    return f"asset-{number:04d}"


def the_lists(assets: int) -> list[bytes]:
    """The assets divided among the lists; one list has repeated and malformed lines."""
    lists: list[list[bytes]] = [[] for _ in LISTS]
    for number in range(1, assets + 1):
        asset = {
            "id": key_of(number),
            "library": LIBRARIES[number % len(LIBRARIES)],
            "collection": f"C-{number % 12 + 1}",
        }
        lists[(number - 1) * len(LISTS) // assets].append(msgspec.json.encode(asset))
    lists[4] += [*lists[4][:3], b'{"library": "north"}', b'{"id": "asset-']
    return [b"\n".join(lines) + b"\n" for lines in lists]


class Past:
    """Writes two days of history of so many assets, up to the end of the clock, which `ctx`
    uses."""

    def __init__(self, ctx: Context, clock: PastClock, assets: int, subscriber: Subscriber) -> None:
        self._ctx, self._clock, self._assets = ctx, clock, assets
        self._plan = ctx.plan(ROUTE)
        self._lists = the_lists(assets)
        self._relay, self._resender = EventRelay(ctx, subscriber, "past"), Resender(ctx)
        self._disk: deque[int] = deque()
        self._tape: dict[str, deque[int]] = {library: deque() for library in LIBRARIES}
        self._left: dict[str, float] = {}

    def make(self) -> None:
        """Write the whole history, step by step."""
        for step in range(STEPS):
            self._people(step)
            self._partners(step)
            before = self._clock.now()
            self._clock.step()
            if step % EVERY == 0:
                self._now_and_then()
            if self._clock.now() // DAY_MS > before // DAY_MS:
                midnight = self._clock.now() // DAY_MS * DAY_MS
                publish(self._ctx, None, day_of(midnight - 1), midnight)
        self._now_and_then()

    def _people(self, step: int) -> None:
        """Operators: submit lists, and act on failures."""
        if step in LISTS:
            number = LISTS.index(step)
            name = f"transfer-{number + 1}.jsonl"
            # (A small demo has no assets for some of its lists.)
            if self._lists[number].strip():
                take_in_list(
                    self._ctx,
                    ROUTE,
                    Source(io.BytesIO(self._lists[number]), name),
                    name,
                    by="ingest",
                )
            bounds = [
                (place * self._assets + len(LISTS) - 1) // len(LISTS)
                for place in (number, number + 1)
            ]
            self._disk.extend(range(bounds[0] + 1, bounds[1] + 1))
        if step == CLEANED:
            failed = Query(route=ROUTE, statuses=frozenset({Status.MAX_RETRIES_EXCEEDED}))
            again = [_number(item.key) for item in self._ctx.ledger.find(failed).items]
            selection = select(self._ctx, ROUTE, query=failed)
            act(self._ctx, selection, RetryVerb(), by="ops", reason="the drive has been cleaned")
            for number in again:
                self._tape[LIBRARIES[number % len(LIBRARIES)]].appendleft(number)
        if step == SERVICED:
            pause(
                self._ctx,
                ROUTE,
                TAPE,
                "north",
                by="ops",
                reason="the robot in the north is being serviced",
            )

    def _partners(self, step: int) -> None:
        """Partners: each handles as many of its assets as it can, oldest first. All outcomes of a
        step are one write."""
        taken = self._next(DISK, self._disk, 1.02 * self._assets * pace(step, 14) / STEPS)
        for library, queue in self._tape.items():
            if library == "south" or step < SERVICED:
                taken += self._next(
                    library, queue, 0.9 * self._assets * pace(step, 16) / STEPS / len(LIBRARIES)
                )

        def said(item: Item) -> Outcome | None:
            number = _number(item.key)
            return (
                disk_says(number)
                if item.stage == DISK
                else tape_says(number, step, item.row.attempts)
            )

        for row in self._heard(taken, said):
            if not row.terminal:
                queue = self._tape[row.lane]
                (queue.appendleft if row.attempts else queue.append)(_number(row.key))
        if step == ASKED:
            asked = list(self._tape["south"])[::2]
            self._heard(
                asked,
                lambda item: NotYet(
                    after="6h", note=f"{_number(item.key) % 4 + 1} of 6 files on tape"
                ),
            )

    def _now_and_then(self) -> None:
        """Run resender and relay."""
        self._resender.run_once()
        while self._relay.run_once().waiting:
            pass

    def _next(self, who: str, queue: deque[int], most: float) -> list[int]:
        """Take as many numbers off the queue as `who` can handle; a fraction is carried over to the
        next step."""
        able = self._left.get(who, 0.0) + most
        taken = [queue.popleft() for _ in range(min(int(able), len(queue)))]
        self._left[who] = able - len(taken) if queue else 0.0
        return taken

    def _heard(self, numbers: Sequence[int], said: Callable[[Item], Outcome | None]) -> list[Row]:
        """Write the partners' outcomes of these assets in one write; returns the rows that
        changed."""
        now, jitter = self._clock.now(), self._ctx.chance.jitter

        def decision(item: Item) -> Change | Refusal:
            outcome = said(item)
            by = "disk store" if item.stage == DISK else f"tape library {item.lane}"
            return (
                impossible("not a word")
                if outcome is None
                else confirm(item, item.stage, outcome, self._plan, now, jitter(), by=by)
            )

        items = self._ctx.ledger.get([(ROUTE, key_of(number)) for number in numbers])
        return [
            row
            for row in apply_all(
                self._ctx, [(item, decision) for item in items if isinstance(item, Item)]
            )
            if isinstance(row, Row)
        ]


def _number(key: str) -> int:
    return int(key.rpartition("-")[2])
