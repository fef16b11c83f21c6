"""Repair scan: reads a route's whole table at a set pace, carries out what the stream did not deliver, and corrects counters.

It runs once a day and after a stream has lost records. Its position is a control document (kind "repair", named after the route),
written after every page by the process that holds the run; if that process dies, another continues there. Processing a page
twice is harmless.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any

from msgspec import Struct, convert, field, to_builtins
from msgspec.structs import replace

from milepost.core.errors import LedgerDamaged, RouteChanged
from milepost.core.routes.plan import Plan
from milepost.ledgers.aws.refused_rows import forget_absent
from milepost.ledgers.aws.repair.row_pages import Findings, RowRepair
from milepost.ledgers.aws.store import AwsStore
from milepost.ledgers.aws.stream import clear_lost, lost_records
from milepost.ledgers.aws.tables.conditional_write import place_of
from milepost.ledgers.aws.tables.counters import CounterTally, Snapshot
from milepost.ledgers.aws.tables.keys import Image

REPAIR = "repair"
PAGE = 200
PACE = 100.0
"""Read units per second: a million rows of up to 4 KB take about three hours."""
REPAIRED_UNITS = 4
"""Units for a repaired row beyond reading it: row, index, lines and their block."""
LEASE_MS = 60_000
EVERY_MS = 86_400_000

Attribute = dict[str, Any]


class RepairRun(Struct, frozen=True):
    """Control document: the progress of a run, and which process holds it until when."""

    started: int
    snapshot: Attribute
    """The last write token of each counter cell when the run began; in a blob if long."""
    tally: Attribute
    """Tally of the rows read so far; in a blob if long."""
    found: Findings = field(default_factory=Findings)
    place: Image | None = None
    """The key of the last row read."""
    scanned: bool = False
    next_at: int = 0
    gap: int | None = None
    """The version of the document of lost records when the run began."""
    finished: int | None = None
    holder: str = ""
    until: int = 0


class Progress(Struct, frozen=True):
    """Progress of a run."""

    started: int
    found: Findings = field(default_factory=Findings)
    done: bool = False
    next_at: int | None = None
    """When to call again, to keep the pace. None: the run is finished, and the next call begins another."""
    standing_by: str | None = None
    """Why this call did nothing."""

    def __str__(self) -> str:
        mended = ", ".join(f"{n:,} {kind}" for kind, n in sorted(self.found.mended.items())) or "nothing to repair"
        left = "".join(f"; {n:,} {kind}, left for an operator" for kind, n in sorted(self.found.left.items()))
        return f"{self.found.rows:,} rows {'read' if self.done else 'so far'}: {mended}{left}"


class Repair:
    """The repair of one route, run by one process. Call `step` at the times it returns until it is done.

    Afterwards the counters are correct, except cells written during the run: they are left for a run that finds them unchanged. This
    requires that the stream reader is at most the resend delay (two minutes) behind when the scan ends; later changes
    would be counted twice and stay wrong until the next run.
    """

    def __init__(self, store: AwsStore, plan: Plan, jitter: Callable[[], float], *, pace: float = PACE, page: int = PAGE) -> None:
        self._store, self._route, self._plan, self._jitter = store, plan.name, plan, jitter
        self._pace, self._page = pace, page
        self._holder = secrets.token_urlsafe(9)
        self._run: RepairRun | None = None
        """The run held by this process, as last written."""
        self._version = 0

    def due(self, now: int) -> bool:
        """Whether a run is in progress, a day has passed since the last one began, or records were lost since."""
        document = self._store.control.get(REPAIR, self._route)
        if document is None:
            return True
        run = convert(document.value, RepairRun)
        return run.finished is None or not 0 <= now - run.started < EVERY_MS or self.urgent()

    def urgent(self) -> bool:
        """Whether stream records were lost unread."""
        return self._gap() is not None

    def step(self, now: int) -> Progress:
        """Process the next page, beginning a run if there is none. The last step corrects the counters.

        Raises LedgerError for a problem with AWS: the next step processes the page again. Raises RouteChanged when the ledger has a
        newer version of the route: a newer process must continue.
        """
        if self._store.outdated(self._route, self._plan.version, now) or self._store.takes_effect_at(self._route, now) is not None:
            raise RouteChanged(f"route {self._route!r} was just changed or is newer in the ledger; this process stands by")
        run = self._hold(now)
        if run is None:
            return Progress(now, next_at=now + LEASE_MS, standing_by="another process is repairing it")
        if now < run.next_at:
            return self._progress(run, "waiting: the scan keeps to its pace")
        try:
            snapshot, tally = (self._store.values.decode(kept) for kept in (run.snapshot, run.tally))
        except (FileNotFoundError, LedgerDamaged):
            # The run's blob is missing: begin again.
            next_run = replace(self._begin(now), holder=self._holder, until=now + LEASE_MS)
        else:
            read = CounterTally.from_json(tally)
            next_run = self._finish(run, snapshot, read, now) if run.scanned else self._read_page(run, read, now)
        if not self._save(next_run):
            return Progress(run.started, next_at=now + LEASE_MS, standing_by="another process has taken over this run")
        self._remove_blob(run.tally, next_run.tally)
        if next_run.finished is not None:
            self._remove_blob(run.snapshot, None)
            self._run = None
        return self._progress(next_run)

    # Lease on the run ---------------------------------------------------------------------------------------------------
    def _hold(self, now: int) -> RepairRun | None:
        """The run, leased to this process; None: another process holds it."""
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

    # Steps --------------------------------------------------------------------------------------------------------------
    def _begin(self, now: int) -> RepairRun:
        """Record counter tokens and known losses before the first row is read."""
        gap = self._gap()
        snapshot = [[*cell, token] for cell, token in self._store.counters.snapshot(self._route).items()]
        return RepairRun(now, self._keep(snapshot), self._keep(CounterTally().to_json()), gap=gap)

    def _read_page(self, run: RepairRun, tally: CounterTally, now: int) -> RepairRun:
        row_repair = RowRepair(self._store, self._plan, self._jitter)
        table = self._store.names.rows(self._route)
        answer = self._store.requests.page("scan", table, run.place, Limit=self._page, ConsistentRead=True, ReturnConsumedCapacity="TOTAL")
        found = row_repair.mend(answer["Items"], tally, now)
        units = answer.get("ConsumedCapacity", {}).get("CapacityUnits", found.rows) + row_repair.reads
        units += REPAIRED_UNITS * sum(found.mended.values())
        found.add(run.found)
        place = answer.get("LastEvaluatedKey")
        # After the last page, wait until changes made before their row was read are counted.
        next_at = now + (self._store.settings.resend_delay_ms if place is None else round(1000 * units / self._pace))
        return replace(
            run,
            tally=self._keep(tally.to_json()),
            found=found,
            place=place,
            scanned=place is None,
            next_at=next_at,
            until=next_at + LEASE_MS,
        )

    def _finish(self, run: RepairRun, tokens: Any, tally: CounterTally, now: int) -> RepairRun:
        store = self._store
        snapshot: Snapshot = {(kind, name): token for kind, name, token in tokens}
        wrong = store.counters.replace(self._route, tally, now, snapshot)
        found = Findings()
        found.mend("counters", wrong)
        found.add(run.found)
        forget_absent(store, self._route, run.started)
        if run.gap is not None:
            clear_lost(store.control, self._route, run.gap)
        nothing = self._keep([])
        return replace(run, snapshot=nothing, tally=nothing, found=found, finished=now, until=now)

    def _gap(self) -> int | None:
        lost = lost_records(self._store.control, self._route)
        return None if lost is None else lost.version

    # Blobs of the run ---------------------------------------------------------------------------------------------------
    def _keep(self, value: Any) -> Attribute:
        return self._store.values.encode(value, f"{REPAIR}/{place_of(self._route, '')}")

    def _remove_blob(self, old: Attribute, new: Attribute | None) -> None:
        if old != new:
            self._store.values.remove({"old": old})

    def _progress(self, run: RepairRun, standing_by: str | None = None) -> Progress:
        done = run.finished is not None
        return Progress(run.started, run.found, done, None if done else run.next_at, standing_by)
