"""Repair scan: reads a route's whole table at a set pace, carries out what the stream did not
deliver, and corrects counters.

It runs once a day and after a stream has lost records. Its position is a control document (kind
"repair", named after the route), written after every page by the process that holds the run; if
that process dies, another continues there. Processing a page twice is harmless: every write is
conditional on the row being as it was read. If another writer was first, nothing is lost: its
change has a stream record of its own, and so has every change made here, and the stream relay
handles what follows from them.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from math import ceil
from typing import Any

from msgspec import Struct, field, to_builtins
from msgspec.structs import replace

from milepost.core.errors import LedgerDamaged, LedgerReadOnly
from milepost.core.future import from_future
from milepost.core.item import Item, Row
from milepost.core.routes.plan import Plan
from milepost.core.status import FAILED, Reason, Status
from milepost.ports.documents import Document, read_as
from milepost.ports.runner import Clock
from milepost.ports.upkeep import FutureCount
from milepost_aws.ledger.apply import apply
from milepost_aws.ledger.claim.paused_lanes import partition, record_hold
from milepost_aws.ledger.foreign_rows.adoption import Adoption, adopt, carry_out
from milepost_aws.ledger.foreign_rows.confirmations import (
    confirmed_change,
    has_refused_answer,
    remove_refused_answer,
)
from milepost_aws.ledger.names import FAILED_SHARD, due_shard, ms
from milepost_aws.ledger.refused_rows import (
    concerns_one_row,
    forget_absent,
    known_in_quarantine,
    quarantine_copy,
    why_unreadable,
)
from milepost_aws.ledger.retention import finish, seal_for, write_seals
from milepost_aws.ledger.store import AwsStore
from milepost_aws.ledger.stream import clear_lost, lost_records
from milepost_aws.ledger.tables.conditional_write import Update, place_of
from milepost_aws.ledger.tables.counters import CounterTally, Snapshot
from milepost_aws.ledger.tables.item_rows import (
    attributes,
    content_of,
    copied_of,
    index_place,
    is_ours,
    row_of,
)
from milepost_aws.ledger.tables.journal import JournalEntry, named, uncopied
from milepost_aws.ledger.tables.keys import Image

REPAIR = "repair"
PAGE, LARGEST_PAGE = 200, 1000
"""Rows of one page, and of a page of a large table."""
PACE = 100.0
"""Read units per second, as long as the run ends in time: a larger table is read faster."""
SEALS, SEALS_PER_UNIT = 2000, 10
"""Seals that are read in one step, and about how many of them a read unit pays for."""
REPAIRED_UNITS = 4
"""Units for a repaired row beyond reading it: row, index, lines and their block."""
LEASE_MS = 60_000
EVERY_MS = 86_400_000

Attribute = dict[str, Any]
INDEXED = ("dueShard", "dueAt", "lookAt")
KNOWN_UNTIL = {Status.PROCESSING: "leaseUntil", Status.RETRY_SCHEDULED: "nextRetryAt"}
"""Attributes that show people when a row is due: used when its own index attributes are missing."""
EXAMPLES = 20


class Findings(Struct):
    """Result of one or several pages."""

    rows: int = 0
    mended: dict[str, int] = field(default_factory=dict)
    """Repaired, by kind: adopted, known, lines, confirmed, noted, indexed, held, kept, sealed,
    ended, set aside; counters at the end."""
    left: dict[str, int] = field(default_factory=dict)
    """Left for an operator, by kind: unknown stage, set aside."""
    from_future: int = 0
    """Rows that are not completed and are dated in the future, by a clock that was ahead."""
    examples: list[str] = field(default_factory=list)
    """Some of the rows left for an operator, by key, with the reason."""

    def mend(self, kind: str, n: int = 1) -> None:
        if n:
            self.mended[kind] = self.mended.get(kind, 0) + n

    def add(self, more: Findings) -> None:
        self.rows += more.rows
        self.from_future += more.from_future
        for kind, n in more.mended.items():
            self.mend(kind, n)
        for kind, n in more.left.items():
            self.left[kind] = self.left.get(kind, 0) + n
        self.examples = [*self.examples, *more.examples][:EXAMPLES]

    def leave(self, kind: str, key: str, why: str) -> None:
        self.left[kind] = self.left.get(kind, 0) + 1
        if len(self.examples) < EXAMPLES:
            self.examples.append(f"{key}: {why}")


# Rows ---------------------------------------------------------------------------------------------
class _ScannedRow(Struct):
    """A row of Milepost, its lines that may be undelivered, and whether some of them are not in the
    journal."""

    image: Image
    row: Row
    lines: list[JournalEntry]
    has_uncopied: bool = False
    place: int | None = None
    """Journal place of its last line, once looked up."""


class RowRepair:
    """Repairs the rows of one route: carries out what the stream should have triggered, derived
    from each row's present state."""

    def __init__(self, store: AwsStore, plan: Plan, jitter: Callable[[], float]) -> None:
        self._store, self._jitter = store, jitter
        self._layout = store.load_route(plan)
        self._plan = store.plan_with_offers(plan)
        self.reads = 0
        """Lines and seals that were read one by one."""

    def mend(self, images: Sequence[Image], tally: CounterTally, now: int) -> Findings:
        """Count each row in its present state and repair it. Raises LedgerError for a problem with
        AWS: then the page must be processed again. A fault in one row puts that row into quarantine
        and affects no other."""
        found = Findings(len(images))
        others, seen = self._read(images, tally, found, now)
        self._copy_out(seen, found)
        self._seal([one for one in seen if one.row.terminal], found, now)
        self._record_holds([one for one in seen if not one.row.terminal], found, now)
        jobs = [partial(self._adopt, image, now) for image in others]
        jobs += [partial(self._repair_row, one, now) for one in seen]
        for more in self._store.requests.each(jobs):
            found.add(more)
        return found

    def _read(
        self, images: Sequence[Image], tally: CounterTally, found: Findings, now: int
    ) -> tuple[list[Image], list[_ScannedRow]]:
        store, layout = self._store, self._layout
        others: list[Image] = []
        seen: list[_ScannedRow] = []
        for image in images:
            if not is_ours(image):
                others.append(image)
                continue
            try:
                row = row_of(image, layout, store.values)
                one = _ScannedRow(image, row, uncopied(image, row.key, layout, store.values))
            except Exception as error:
                self._quarantine(image, "its row cannot be read", error, found, now)
                continue
            tally.present(row)
            found.from_future += row.status is not Status.COMPLETED and from_future(row, now)
            if 0 <= now - row.updated_at < store.settings.resend_delay_ms:
                continue  # the stream relay may be handling it now
            if not row.terminal and row.stage not in self._plan.by_name:
                found.leave(
                    "unknown stage",
                    row.key,
                    f"its stage {row.stage!r} is not in the route; run 'milepost routes apply'",
                )
                continue
            seen.append(one)
        return others, seen

    # Lines and seals, for all rows together -------------------------------------------------------
    def _copy_out(self, seen: Sequence[_ScannedRow], found: Findings) -> None:
        """Write missing lines to the journal. Later lines of such an item are written again behind
        them, even if they were delivered: the order matters, and twice is better than never."""
        entries = [entry for one in seen for entry in one.lines]
        self.reads += len(entries)
        places = self._store.journal.placed(entries)
        missing: list[JournalEntry] = []
        for one in seen:
            first = next(
                (nth for nth, entry in enumerate(one.lines) if entry.ref not in places), None
            )
            if first is not None:
                one.has_uncopied = True
                missing += one.lines[first:]
        if missing:
            places |= dict(
                zip(
                    [entry.ref for entry in missing],
                    self._store.journal.append(missing),
                    strict=True,
                )
            )
        for one in seen:
            one.place = places.get(
                (one.row.route, named(one.row.key, one.row.life), one.row.version)
            )
        found.mend("lines", sum(one.has_uncopied for one in seen))

    def _seal(self, ended: Sequence[_ScannedRow], found: Findings, now: int) -> None:
        """Write the seals of ended rows where they are missing or differ; a route that forgets has
        removed the old ones on purpose."""
        forgotten = self._plan.route.remember_ms
        kept = [one for one in ended if forgotten is None or one.row.entered_at > now - forgotten]
        self.reads += len(kept)
        seals = self._store.seals(self._layout.route, [one.row.key for one in kept])
        fresh = [
            one
            for one in kept
            if one.row.key not in seals or seals[one.row.key].head != one.row.head
        ]
        if fresh:
            write_seals(
                self._store, [seal_for(self._store, one.row, one.place) for one in fresh], now
            )
        found.mend("sealed", len(fresh))

    def _record_holds(self, seen: Sequence[_ScannedRow], found: Findings, now: int) -> None:
        """Record that paused partitions may hold rows: without that record, resuming would not find
        them."""
        lanes = {(one.row.stage, one.row.lane): one.row for one in seen if _is_held(one)}
        found.mend("held", sum(record_hold(self._store, row, now) for row in lanes.values()))

    # One row --------------------------------------------------------------------------------------
    def _adopt(self, image: Image, now: int) -> Findings:
        """Adopt a row that another program put and that was never taken in. A quarantined one is
        left for an operator."""
        found = Findings()
        key = self._layout.key_of(image)
        known = known_in_quarantine(self._store, self._layout, image, now)
        if known is not None:
            found.leave("set aside", key, known.reason)
            return found
        try:
            adopted = adopt(self._store, self._layout, self._plan, key, image, None, now)
            if isinstance(adopted, Adoption):
                [adopted] = carry_out(self._store, [adopted], now)
            found.mend(adopted)
        except Exception as error:
            self._quarantine(image, "it cannot be adopted", error, found, now)
        return found

    def _repair_row(self, one: _ScannedRow, now: int) -> Findings:
        """Write what this row alone needs, if it needs anything."""
        found = Findings()
        try:
            if not one.row.terminal:
                kinds = self._repair_live(one, now)
            elif not (kinds := self._confirm(one, now)) and (
                _is_unfinished(one) or self._leaves_by_mistake(one)
            ):
                finish(self._store, [one.row], now)
                kinds = ["ended"]
            for kind in kinds:
                found.mend(kind)
        except Exception as error:
            self._quarantine(one.image, "it cannot be repaired", error, found, now)
        return found

    def _leaves_by_mistake(self, one: _ScannedRow) -> bool:
        """Whether an ended row has a time to live, as an earlier version gave to all of them,
        although the route lets no such row leave."""
        return "ttl" in one.image and one.row.status not in self._plan.route.keep

    def _repair_live(self, one: _ScannedRow, now: int) -> list[str]:
        row, image = one.row, one.image
        update = Update(self._layout, row.key)
        update.replace(
            {name: image[name] for name in INDEXED if name in image},
            self._index_attributes(one, now),
        )
        kinds = [] if update.empty else ["indexed"]
        if "ttl" in image:
            # It was started again after it had ended; an unfinished row must not leave by TTL.
            update.remove("ttl")
            kinds.append("kept")
        if one.has_uncopied:
            update.set("copied", {"N": str(row.version)})
            update.remove("trail")
        update.unchanged(image, "version", "head", "status", "queue", "lease", *INDEXED)
        if not update.empty and not update.written(self._store.requests):
            return []
        return kinds + self._confirm(one, now)

    def _confirm(self, one: _ScannedRow, now: int) -> list[str]:
        """Apply confirmations on the row that were not handled yet."""
        row, store = one.row, self._store
        if not row.kept and not has_refused_answer(row):
            return []
        content = content_of(one.image, self._layout, store.values)
        item = Item(row, content)
        change = confirmed_change(item, self._plan, now, self._jitter) or remove_refused_answer(
            store, item, self._plan, now, self._jitter
        )
        if change is None:
            return []
        ref, versions = (row.route, row.key), {self._plan.name: self._plan.version}
        if apply(store, [change], now, versions, {ref: content}, {ref: row.version})[0] is not None:
            return []
        noted = change.line is None or change.line.reason in (Reason.NOTED, Reason.NOT_YET)
        return ["noted" if noted else "confirmed"]

    def _index_attributes(self, one: _ScannedRow, now: int) -> Image:
        """The index attributes by which the row is found when it is due."""
        row, image = one.row, one.image
        if _is_held(one):
            return {name: image[name] for name in INDEXED if name in image}
        look_at = row.look_at
        place = index_place(row, self._layout)
        found = "dueAt" in image and place is not None and image.get("dueShard") == {"S": place[0]}
        if not found and row.status in (Status.PENDING, Status.QUEUED):
            # It is not known whether a message was sent: send another in any case, but not before
            # its time.
            look_at = row.not_before or min(now, row.entered_at)
        elif look_at is None:
            shown = image.get(KNOWN_UNTIL.get(row.status, ""), {}).get("S")
            look_at = now if shown is None else ms(shown)
        wanted = attributes(replace(row, look_at=look_at), self._layout)
        return {name: wanted[name] for name in INDEXED if name in wanted}

    def _quarantine(
        self, image: Image, what: str, error: Exception, found: Findings, now: int
    ) -> None:
        """Put a row with a fault of its own into quarantine, once. A problem with AWS or the
        route's version is raised."""
        if not concerns_one_row(error):
            raise error
        reason = f"{what}: {why_unreadable(error, image, self._layout)}"
        known = known_in_quarantine(self._store, self._layout, image, now)
        if known is None:
            quarantine_copy(self._store, self._layout, image, reason, now)
            found.mend("set aside")
        found.leave("set aside", self._layout.key_of(image), reason)


def _is_held(one: _ScannedRow) -> bool:
    return "dueAt" in one.image and one.image.get("dueShard") == {"S": partition(one.row)}


def _is_unfinished(one: _ScannedRow) -> bool:
    """Whether an ended row has lines to be copied or is not in its right place: failed ones in
    their partition, others in no index."""
    image, row = one.image, one.row
    if one.has_uncopied or "trail" in image or copied_of(image) < row.version:
        return True
    if row.status in FAILED:
        return (
            image.get("dueShard") != {"S": due_shard(FAILED_SHARD, row.key)} or "dueAt" not in image
        )
    return "dueShard" in image


# The scan -----------------------------------------------------------------------------------------
class ScanPace(Struct, frozen=True):
    """How fast the rest of a table is read. `rows` and `ms`: the rows that are left, as far as they
    are known, and the time in which the run should end."""

    rows: int
    ms: int

    @property
    def page(self) -> int:
        """Rows of the next page: about those of a second."""
        return min(LARGEST_PAGE, max(PAGE, ceil(1000 * self.rows / max(1, self.ms))))

    def pause_ms(self, rows: int, units: float, pace: float) -> int:
        """Milliseconds from the beginning of a page to that of the next: by the pace, or shorter
        where the rest would not end in time."""
        by_units = 1000 * units / pace
        return round(min(by_units, max(0, self.ms) * rows / self.rows) if self.rows else by_units)


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
    rows: int = 0
    """The table's rows when the run began, by AWS's own count of the last hours; 0: not known."""
    finished: int | None = None
    holder: str = ""
    until: int = 0
    counts_future: bool = False
    """Every page so far has counted the rows that are dated in the future. A run that a process of
    an earlier version took part in has not."""
    future: FutureCount | None = None
    """The rows that are dated in the future, by the last run that counted them all."""


class Progress(Struct, frozen=True):
    """Progress of a run."""

    started: int
    found: Findings = field(default_factory=Findings)
    done: bool = False
    next_at: int | None = None
    """When to call again, to keep the pace. None: the run is finished, and the next call begins
    another."""
    standing_by: str | None = None
    """Why this call did nothing."""

    def __str__(self) -> str:
        mended = (
            ", ".join(f"{n:,} {kind}" for kind, n in sorted(self.found.mended.items()))
            or "nothing to repair"
        )
        left = "".join(
            f"; {n:,} {kind}, left for an operator" for kind, n in sorted(self.found.left.items())
        )
        return f"{self.found.rows:,} rows {'read' if self.done else 'so far'}: {mended}{left}"


def counted_future(store: AwsStore, route: str) -> FutureCount | None:
    """The rows of a route that are dated in the future, by the last run that counted them; None:
    none has."""
    document = store.control.read_one(REPAIR, route)
    run = None if document is None else _run_in(document)
    return None if run is None else run.future


def _run_in(document: Document) -> RepairRun | None:
    """None: the record is damaged, and the next run begins anew."""
    try:
        return read_as(RepairRun, document.value)
    except LedgerDamaged:
        return None


class Repair:
    """The repair of one route, run by one process. Call `step` at the times it returns until it is
    done.

    Afterwards the counters are correct, except cells written during the run: they are left for a
    run that finds them unchanged. This requires that the stream reader is at most the resend delay
    (two minutes) behind when the scan ends; later changes would be counted twice and stay wrong
    until the next run.
    """

    def __init__(
        self,
        store: AwsStore,
        plan: Plan,
        jitter: Callable[[], float],
        *,
        pace: float = PACE,
        page: int | None = None,
    ) -> None:
        self._store, self._route, self._plan, self._jitter = store, plan.name, plan, jitter
        self._pace, self._page = pace, page
        self._holder = secrets.token_urlsafe(9)
        self._blob_place = f"{REPAIR}/{place_of(self._route, '')}"
        self._run: RepairRun | None = None
        """The run held by this process, as last written."""
        self._version = 0

    def due(self, now: int) -> bool:
        """Whether a run is in progress, a day has passed since the last one began, records were
        lost since, or old seals are not noted."""
        if not self._store.left.complete(self._route):
            return True
        document = self._store.control.read_one(REPAIR, self._route)
        if document is None:
            return True
        run = _run_in(document)
        return (
            run is None
            or run.finished is None
            or not 0 <= now - run.started < EVERY_MS
            or self.urgent()
        )

    def urgent(self) -> bool:
        """Whether stream records were lost unread."""
        return self._gap() is not None

    def step(self, clock: Clock) -> Progress:
        """Process the next page, beginning a run if there is none. The last step corrects the
        counters. A page may take minutes, so the lease is renewed, and the pace kept, by the time
        at its end.

        Raises LedgerError for a problem with AWS: the next step processes the page again. Raises
        RouteChanged when the ledger has a newer version of the route: a newer process must
        continue.
        """
        now = clock.now()
        self._store.check_current(self._plan, now)
        run = self._hold(now)
        if run is None:
            return Progress(
                now, next_at=now + LEASE_MS, standing_by="another process is repairing it"
            )
        if now < run.next_at:
            return self._progress(run, "waiting: the scan keeps to its pace")
        if not self._store.left.complete(self._route):
            return self._note_seals(run, now)
        try:
            snapshot, tally = (
                self._store.values.decode(kept) for kept in (run.snapshot, run.tally)
            )
        except (FileNotFoundError, LedgerDamaged):
            # The run's blob is missing: begin again.
            next_run = replace(self._begin(now), holder=self._holder, until=now + LEASE_MS)
        else:
            read = CounterTally.from_json(tally)
            next_run = (
                self._finish(run, snapshot, read, now)
                if run.scanned
                else self._read_page(run, read, clock)
            )
        if not self._save(next_run):
            return Progress(
                run.started,
                next_at=now + LEASE_MS,
                standing_by="another process has taken over this run",
            )
        self._remove_blob(run.tally, next_run.tally)
        if next_run.finished is not None:
            self._remove_blob(run.snapshot, None)
            self._run = None
        return self._progress(next_run)

    def _note_seals(self, run: RepairRun, now: int) -> Progress:
        """Before the rows, once in the life of a deployment: note the failed items whose rows had
        left before there were notes."""
        seals = self._store.left.note_page(self._route, SEALS)
        next_at = now + round(1000 * max(1, seals // SEALS_PER_UNIT) / self._pace)
        if not self._save(replace(run, next_at=next_at, until=next_at + LEASE_MS)):
            return Progress(
                run.started,
                next_at=now + LEASE_MS,
                standing_by="another process has taken over this run",
            )
        return Progress(run.started, run.found, next_at=next_at)

    # Lease on the run -----------------------------------------------------------------------------
    def _hold(self, now: int) -> RepairRun | None:
        """The run, leased to this process; None: another process holds it."""
        if self._run is not None and now < self._run.until:
            return self._run
        document = self._store.control.read_one(REPAIR, self._route)
        self._version = 0 if document is None else document.version
        run = None if document is None else _run_in(document)
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

    # Steps ----------------------------------------------------------------------------------------
    def _begin(self, now: int) -> RepairRun:
        """Record counter tokens and known losses before the first row is read."""
        gap = self._gap()
        snapshot = [
            [*cell, token] for cell, token in self._store.counters.snapshot(self._route).items()
        ]
        return RepairRun(
            now,
            self._keep(snapshot),
            self._keep(CounterTally().to_json()),
            gap=gap,
            rows=self._rows(),
            counts_future=True,
            future=counted_future(self._store, self._route),
        )

    def _rows(self) -> int:
        with suppress(
            LedgerReadOnly
        ):  # a role of an older stack: then the scan keeps to its usual pace
            table = self._store.requests.call(
                "dynamodb", "describe_table", TableName=self._store.names.rows(self._route)
            )
            return int(table["Table"].get("ItemCount", 0))
        return 0

    def _read_page(self, run: RepairRun, tally: CounterTally, clock: Clock) -> RepairRun:
        row_repair = RowRepair(self._store, self._plan, self._jitter)
        table, began = self._store.names.rows(self._route), clock.now()
        # A tenth of the time is left for what takes longer than expected.
        ends = run.started + self._store.settings.repair_within_ms * 9 // 10
        rest = ScanPace(max(0, run.rows - run.found.rows), ends - began)
        page = self._page or rest.page
        answer = self._store.requests.page(
            "scan",
            table,
            run.place,
            Limit=page,
            ConsistentRead=True,
            ReturnConsumedCapacity="TOTAL",
        )
        found = row_repair.mend(answer["Items"], tally, began)
        now = clock.now()
        units = (
            answer.get("ConsumedCapacity", {}).get("CapacityUnits", found.rows) + row_repair.reads
        )
        units += REPAIRED_UNITS * sum(found.mended.values())
        found.add(run.found)
        place = answer.get("LastEvaluatedKey")
        # After the last page, wait until changes made before their row was read are counted.
        pause = rest.pause_ms(len(answer["Items"]), units, self._pace)
        next_at = (
            now + self._store.settings.resend_delay_ms if place is None else max(now, began + pause)
        )
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
        future = FutureCount(found.from_future, run.started) if run.counts_future else run.future
        return replace(
            run,
            snapshot=nothing,
            tally=nothing,
            found=found,
            finished=now,
            until=now,
            future=future,
        )

    def _gap(self) -> int | None:
        lost = lost_records(self._store.control, self._route)
        return None if lost is None else lost.version

    # Blobs of the run -----------------------------------------------------------------------------
    def _keep(self, value: Any) -> Attribute:
        return self._store.values.encode(value, self._blob_place)

    def _remove_blob(self, old: Attribute, new: Attribute | None) -> None:
        if old != new:
            self._store.values.remove({"old": old}, self._blob_place)

    def _progress(self, run: RepairRun, standing_by: str | None = None) -> Progress:
        done = run.finished is not None
        return Progress(run.started, run.found, done, None if done else run.next_at, standing_by)
