"""The past of `milepost demo`: two made-up days of an archive, told to the ledger step by step with a clock that is set back.

Nothing is written around the engine: lists are taken in, partners say their word, people act, the resender and a relay run, all by
that clock. What happens follows from an asset's number alone, so that every demo has the same past.
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
from milepost.engine.acts.bulk import act, pause
from milepost.engine.apply import apply_all
from milepost.engine.context import Context
from milepost.engine.events.deliver import EventRelay
from milepost.engine.heads.daily import DAY_MS, day_of, publish
from milepost.engine.lists.reconcile import take_in_list
from milepost.engine.lists.source import Source
from milepost.engine.resend import Resender
from milepost.ports.ledger import Query
from milepost.ports.subscriber import Subscriber

ROUTE = archive.name
DISK, TAPE = (stage.name for stage in archive.stages)
HOUR_MS = 3_600_000
STEP_MS = 30 * 60_000
STEPS = 48 * HOUR_MS // STEP_MS
EVERY = 6
"""After so many steps the resender and the relay run: in earnest they never rest, but each of their turns is a write to a disk."""
NOON_IS_AT = 2
"""At which step it is noon: whatever the time is now, the made-up present is an hour before noon. The same past for everybody."""
LISTS = (0, 4, 8, 14, 40, 46, 54, 90)
"""At which steps a list comes: the last one three hours ago."""
CLEANED, SERVICED, ASKED = STEPS - 10, STEPS - 8, STEPS - 1
"""When a drive that had spoilt its tapes was clean again, from when the library in the north stands still, and when the other one
was last asked how far it is."""


class PastClock:
    """Two days behind `end`, and there when all steps are made."""

    def __init__(self, end: int) -> None:
        self._now = end - STEPS * STEP_MS

    def now(self) -> int:
        return self._now

    def step(self) -> None:
        self._now += STEP_MS


class PastChance:
    """Dice that fall the same way in every demo."""

    def __init__(self) -> None:
        self._random = Random(1)

    def jitter(self) -> float:
        return self._random.uniform(-1.0, 1.0)

    def token(self) -> str:
        return self._random.randbytes(8).hex()


def disk_says(number: int) -> Outcome | None:
    """What the disk store says of an asset when it comes to it; None: it never says a word."""
    if number % 211 == 17:
        return None
    if number % 173 == 11:
        return Reject("the checksum is not the one in the transfer", category="CHECKSUM")
    if number % 307 == 29:
        return Reject("the file is empty", category="EMPTY")
    return Done({"path": f"disk-{number % 8}/{key_of(number)}", "bytes": 20_000 + number * 7919 % 9_000_000})


def tape_says(number: int, step: int, tries: int) -> Outcome | None:
    """What the tape library says of an asset when it comes to it, or has come to it so many times before."""
    if number % 229 == 23:
        return None
    if number % 401 == 31:
        return Reject("the library takes no name of more than 255 characters", category="NAME")
    if number % 131 == 5 and step < CLEANED:
        return Retry("write error on tape T-0113", category="TAPE")
    if number % 37 == 3 and not tries:
        return Retry("no drive is free", category="BUSY")
    return Done({"tape": f"T-{100 + number // 40:04d}"})


def said_of(item: Item, step: int) -> Outcome | None:
    """What the partner of the stage says of an asset when it comes to it."""
    number = _number(item.key)
    return disk_says(number) if item.stage == DISK else tape_says(number, step, item.row.attempts)


def pace(step: int, peak: int) -> float:
    """How busy people are at a step, on the average 1: most at the hour `peak`, least twelve hours from then."""
    hour = 12 + (step - NOON_IS_AT) * STEP_MS / HOUR_MS
    return 1 + 0.8 * math.cos((hour - peak) * math.pi / 12)


def key_of(number: int) -> str:
    return f"asset-{number:04d}"


def the_lists(assets: int) -> list[bytes]:
    """All assets in as many lists as come; one of the lists repeats itself, and has two lines that nobody can read."""
    lists: list[list[bytes]] = [[] for _ in LISTS]
    for number in range(1, assets + 1):
        asset = {"id": key_of(number), "library": LIBRARIES[number % len(LIBRARIES)], "collection": f"C-{number % 12 + 1}"}
        lists[(number - 1) * len(LISTS) // assets].append(msgspec.json.encode(asset))
    lists[4] += [*lists[4][:3], b'{"library": "north"}', b'{"id": "asset-']
    return [b"\n".join(lines) + b"\n" for lines in lists]


class Past:
    """Two days of so many assets, up to the moment at which the clock ends. `ctx` goes by that clock."""

    def __init__(self, ctx: Context, clock: PastClock, assets: int, told: Subscriber) -> None:
        self._ctx, self._clock, self._assets = ctx, clock, assets
        self._plan = ctx.plan(ROUTE)
        self._lists = the_lists(assets)
        self._relay, self._resender = EventRelay(ctx, told, "past"), Resender(ctx)
        self._disk: deque[int] = deque()
        self._tape: dict[str, deque[int]] = {library: deque() for library in LIBRARIES}
        self._left: dict[str, float] = {}

    def make(self) -> None:
        """All of it, a step at a time."""
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
        """Those who bring lists, and those who see to what has failed."""
        if step in LISTS:
            number = LISTS.index(step)
            name = f"transfer-{number + 1}.jsonl"
            take_in_list(self._ctx, ROUTE, Source(io.BytesIO(self._lists[number]), name), name, by="ingest")
            bounds = [(place * self._assets + len(LISTS) - 1) // len(LISTS) for place in (number, number + 1)]
            self._disk.extend(range(bounds[0] + 1, bounds[1] + 1))
        if step == CLEANED:
            failed = Query(route=ROUTE, statuses=frozenset({Status.MAX_RETRIES_EXCEEDED}))
            again = [_number(item.key) for item in self._ctx.ledger.find(failed).items]
            act(self._ctx, "retry", ROUTE, query=failed, by="ops", reason="the drive has been cleaned")
            for number in again:
                self._tape[_library(number)].appendleft(number)
        if step == SERVICED:
            pause(self._ctx, ROUTE, TAPE, "north", by="ops", reason="the robot in the north is being serviced")

    def _partners(self, step: int) -> None:
        """Each comes to as many of its assets as it can, the oldest first. All that is said in a step is one write."""
        taken = self._next(DISK, self._disk, 1.02 * self._assets * pace(step, 14) / STEPS)
        for library, queue in self._tape.items():
            if library == "south" or step < SERVICED:
                taken += self._next(library, queue, 0.9 * self._assets * pace(step, 16) / STEPS / len(LIBRARIES))
        for row in self._heard(taken, lambda item: said_of(item, step)):
            if not row.terminal:
                queue = self._tape[row.lane]
                (queue.appendleft if row.attempts else queue.append)(_number(row.key))
        if step == ASKED:
            asked = list(self._tape["south"])[::2]
            self._heard(asked, lambda item: NotYet(after="6h", note=f"{_number(item.key) % 4 + 1} of 6 files on tape"))

    def _now_and_then(self) -> None:
        """What has gone quiet is seen to, and the subscriber is told."""
        self._resender.run_once()
        while self._relay.run_once().waiting:
            pass

    def _next(self, who: str, queue: deque[int], most: float) -> list[int]:
        """The first of a queue, as many as `who` can see to; what is left of an asset is seen to with the next."""
        able = self._left.get(who, 0.0) + most
        taken = [queue.popleft() for _ in range(min(int(able), len(queue)))]
        self._left[who] = able - len(taken) if queue else 0.0
        return taken

    def _heard(self, numbers: Sequence[int], said: Callable[[Item], Outcome | None]) -> list[Row]:
        """What partners say of these assets is taken, all in one write; the rows of those of which anything was said, as they then are."""
        now, jitter = self._clock.now(), self._ctx.chance.jitter

        def decision(item: Item) -> Change | Refusal:
            outcome = said(item)
            by = "disk store" if item.stage == DISK else f"tape library {item.lane}"
            return impossible("not a word") if outcome is None else confirm(item, item.stage, outcome, self._plan, now, jitter(), by=by)

        items = self._ctx.ledger.get([(ROUTE, key_of(number)) for number in numbers])
        return [row for row in apply_all(self._ctx, [(item, decision) for item in items if isinstance(item, Item)]) if isinstance(row, Row)]


def _number(key: str) -> int:
    return int(key.rpartition("-")[2])


def _library(number: int) -> str:
    return LIBRARIES[number % len(LIBRARIES)]
