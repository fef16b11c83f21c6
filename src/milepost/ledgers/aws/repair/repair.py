"""The repair: goes through a route's whole table at a set pace, mends what the stream would have told and nobody has read, and
sets the counters right. Once a day, and whenever a stream has lost records.

Its place is a control document (kind "repair", named after the route), written after every page by whoever holds the run: after
a death somebody else goes on from there. A page that is gone through twice does no harm.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any

from msgspec import Struct, convert, field, to_builtins
from msgspec.structs import replace

from milepost.core.errors import LedgerDamaged, RouteChanged
from milepost.core.routes.plan import Plan
from milepost.ledgers.aws.foreign_rows.aside import forget
from milepost.ledgers.aws.repair.row_pages import Findings, Mender
from milepost.ledgers.aws.store import AwsStore
from milepost.ledgers.aws.stream.shards import GAP
from milepost.ledgers.aws.tables.conditional_write import place_of
from milepost.ledgers.aws.tables.counter_cells import CounterTally
from milepost.ledgers.aws.tables.counters import Snapshot
from milepost.ledgers.aws.tables.keys import Image

REPAIR = "repair"
PAGE = 200
PACE = 100.0
"""Units a second: a million rows of 4 KB or less take about three hours."""
MENDED_UNITS = 4
"""What a mended row costs beside having been read: its row, the index, its lines and their place."""
LEASE_MS = 60_000
EVERY_MS = 86_400_000

Attribute = dict[str, Any]


class RepairRun(Struct, frozen=True):
    """The document: how far a run has come, and who holds it until when."""

    started: int
    snapshot: Attribute
    """Which write each counter had last when the run began; kept apart where it is long."""
    tally: Attribute
    """What the rows gone through so far add up to; kept apart where it is long."""
    found: Findings = field(default_factory=Findings)
    place: Image | None = None
    """The key of the last row gone through."""
    scanned: bool = False
    next_at: int = 0
    gap: int | None = None
    """The version of what was known to be lost when the run began."""
    finished: int | None = None
    holder: str = ""
    until: int = 0


class Progress(Struct, frozen=True):
    """What a run has come to so far."""

    route: str
    started: int
    rows: int = 0
    mended: dict[str, int] = {}
    left: dict[str, int] = {}
    examples: list[str] = []
    """Of what is left, a few by key, with the reason."""
    done: bool = False
    next_at: int | None = None
    """When to call again: that keeps the pace. None: the run is done, and the next call begins another."""
    standing_by: str | None = None
    """Why this call did nothing."""

    def __str__(self) -> str:
        mended = ", ".join(f"{n:,} {kind}" for kind, n in sorted(self.mended.items())) or "nothing to mend"
        left = "".join(f"; {n:,} {kind}, left to people" for kind, n in sorted(self.left.items()))
        return f"{self.rows:,} rows {'gone through' if self.done else 'so far'}: {mended}{left}"


class Repair:
    """One route's repair, as one process does it. Call `step` until it says that it is done, each time when it says.

    Counters are right afterwards but for cells that were counted on since the run began, which are left as they are: what was
    wrong with such a cell is set right by the first run that finds it at rest. That rests on the stream's reader being no
    further behind than the ledger's patience (two minutes) when the rows have been gone through; what it counts later than that
    was counted here already, and stays wrong until the next run.
    """

    def __init__(
        self, store: AwsStore, route: str, plan: Plan, jitter: Callable[[], float], *, pace: float = PACE, page: int = PAGE
    ) -> None:
        self._store, self._route, self._plan, self._jitter = store, route, plan, jitter
        self._pace, self._page = pace, page
        self._holder = secrets.token_urlsafe(9)
        self._run: RepairRun | None = None
        """The run that is ours, as we wrote it last."""
        self._version = 0

    def due(self, now: int) -> bool:
        """Is it time: is a run under way, has a day passed since the last began, or have records been lost since?"""
        document = self._store.control.get(REPAIR, self._route)
        if document is None:
            return True
        run = convert(document.value, RepairRun)
        return run.finished is None or not 0 <= now - run.started < EVERY_MS or self._gap() is not None

    def urgent(self) -> bool:
        """Have records of the stream been lost unread?"""
        return self._gap() is not None

    def step(self, now: int) -> Progress:
        """Go on by one page; begin a run if there is none. The last step sets the counters right.

        Raises LedgerError when AWS is the trouble: then the page is gone through again by the next step; and RouteChanged when
        the ledger holds a newer version of the route: then a newer process is to go on.
        """
        if self._store.outdated(self._route, self._plan.version, now) or self._store.notice(self._route, now) is not None:
            raise RouteChanged(f"route {self._route!r} has just been changed, or is newer than here; this process stands by")
        run = self._hold(now)
        if run is None:
            return Progress(self._route, now, next_at=now + LEASE_MS, standing_by="another process repairs it now")
        if now < run.next_at:
            return self._progress(run, "it is not time yet: the pace is set")
        try:
            snapshot, tally = (self._store.values.decode(kept) for kept in (run.snapshot, run.tally))
        except (FileNotFoundError, LedgerDamaged):
            # What the run had kept apart is gone; it begins again.
            further = replace(self._begin(now), holder=self._holder, until=now + LEASE_MS)
        else:
            further = (
                self._finish(run, snapshot, CounterTally.of(tally), now) if run.scanned else self._go_on(run, CounterTally.of(tally), now)
            )
        if not self._save(further):
            return Progress(self._route, run.started, next_at=now + LEASE_MS, standing_by="another process has taken it over")
        self._let_go(run.tally, further.tally)
        if further.finished is not None:
            self._let_go(run.snapshot, None)
            self._run = None
        return self._progress(further)

    # Whose run it is --------------------------------------------------------------------------------------------------
    def _hold(self, now: int) -> RepairRun | None:
        """The run, ours for a while; None: somebody else has it."""
        if self._run is not None and now < self._run.until:
            return self._run
        document = self._store.control.get(REPAIR, self._route)
        self._version = 0 if document is None else document.version
        run = None if document is None else convert(document.value, RepairRun)
        if run is None or run.finished is not None:
            run = self._begin(now)
        elif run.holder != self._holder and now < run.until:
            return None
        run = replace(run, holder=self._holder, until=max(now, run.next_at) + LEASE_MS)
        return run if self._save(run) else None

    def _save(self, run: RepairRun) -> bool:
        version = self._store.control.put(REPAIR, self._route, to_builtins(run), self._version)
        if version is None:
            self._run = None
            return False
        self._run, self._version = run, version
        return True

    # What it does -----------------------------------------------------------------------------------------------------
    def _begin(self, now: int) -> RepairRun:
        """What is known of counters and lost records is written down before the first row is read."""
        gap = self._gap()
        snapshot = [[*cell, token] for cell, token in self._store.counters.snapshot(self._route).items()]
        return RepairRun(now, self._keep(snapshot), self._keep(CounterTally().told()), gap=gap)

    def _go_on(self, run: RepairRun, tally: CounterTally, now: int) -> RepairRun:
        more = {} if run.place is None else {"ExclusiveStartKey": run.place}
        mender = Mender(self._store, self._plan, self._jitter)
        answer = self._store.requests.call(
            "dynamodb",
            "scan",
            TableName=self._store.names.rows(self._route),
            Limit=self._page,
            ConsistentRead=True,
            ReturnConsumedCapacity="TOTAL",
            **more,
        )
        found = mender.mend(answer["Items"], tally, now)
        units = answer.get("ConsumedCapacity", {}).get("CapacityUnits", found.rows) + mender.asked
        units += MENDED_UNITS * sum(found.mended.values())
        found.add(run.found)
        place = answer.get("LastEvaluatedKey")
        # After the last page, whatever was changed before its row was read is given time to be counted.
        next_at = now + (self._store.settings.patience_ms if place is None else round(1000 * units / self._pace))
        return replace(
            run,
            tally=self._keep(tally.told()),
            found=found,
            place=place,
            scanned=place is None,
            next_at=next_at,
            until=next_at + LEASE_MS,
        )

    def _finish(self, run: RepairRun, told: Any, tally: CounterTally, now: int) -> RepairRun:
        store = self._store
        snapshot: Snapshot = {(kind, name): token for kind, name, token in told}
        wrong = store.counters.replace(self._route, tally, now, snapshot)
        found = Findings()
        found.mend("counters", wrong)
        found.add(run.found)
        forget(store, self._route, run.started)
        if run.gap is not None:
            # Emptied as `Shards.mended` does, if nothing more has been lost since the run began.
            store.control.write(GAP, self._route, {}, run.gap)
        nothing = self._keep([])
        return replace(run, snapshot=nothing, tally=nothing, found=found, finished=now, until=now)

    def _gap(self) -> int | None:
        document = self._store.control.get(GAP, self._route)
        return document.version if document is not None and document.value else None

    # What is kept apart -----------------------------------------------------------------------------------------------
    def _keep(self, value: Any) -> Attribute:
        return self._store.values.encode(value, f"{REPAIR}/{place_of(self._route, '')}")

    def _let_go(self, old: Attribute, new: Attribute | None) -> None:
        if old != new:
            self._store.values.remove({"old": old})

    def _progress(self, run: RepairRun, standing_by: str | None = None) -> Progress:
        found = run.found
        done = run.finished is not None
        next_at = None if done else run.next_at
        return Progress(
            self._route, run.started, found.rows, found.mended, found.left, found.examples, done, next_at, standing_by=standing_by
        )
