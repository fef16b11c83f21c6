"""Repair of a page of rows: carries out what the stream should have triggered, derived from each row's present state.

Every write is conditional on the row being as it was read. If another writer was first, nothing is lost: its change has a stream
record of its own, and so has every change made here, and the stream relay handles what follows from them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from msgspec import Struct, field
from msgspec.structs import replace

from milepost.core.item import Item, Row
from milepost.core.routes.plan import Plan
from milepost.core.status import FAILED, Reason, Status
from milepost.ledgers.aws.apply import apply
from milepost.ledgers.aws.claim.paused_lanes import partition, record_hold
from milepost.ledgers.aws.foreign_rows.adoption import Adoption, adopt, carry_out
from milepost.ledgers.aws.foreign_rows.confirmations import confirmed_change, has_refused_answer, remove_refused_answer
from milepost.ledgers.aws.names import FAILED_SHARD, due_shard, ms
from milepost.ledgers.aws.refused_rows import concerns_one_row, known_in_quarantine, quarantine_copy, why_unreadable
from milepost.ledgers.aws.retention import finish, seal_for, write_seals
from milepost.ledgers.aws.store import AwsStore
from milepost.ledgers.aws.tables.conditional_write import Update
from milepost.ledgers.aws.tables.counters import CounterTally
from milepost.ledgers.aws.tables.item_rows import attributes, content_of, copied_of, index_place, is_ours, row_of
from milepost.ledgers.aws.tables.journal import JournalEntry, named, uncopied
from milepost.ledgers.aws.tables.keys import Image

INDEXED = ("dueShard", "dueAt", "lookAt")
KNOWN_UNTIL = {Status.PROCESSING: "leaseUntil", Status.RETRY_SCHEDULED: "nextRetryAt"}
"""Attributes that show people when a row is due: used when its own index attributes are missing."""
EXAMPLES = 20


class Findings(Struct):
    """Result of one or several pages."""

    rows: int = 0
    mended: dict[str, int] = field(default_factory=dict)
    """Repaired, by kind: adopted, known, lines, confirmed, noted, indexed, held, kept, sealed, ended, set aside; counters at the end."""
    left: dict[str, int] = field(default_factory=dict)
    """Left for an operator, by kind: unknown stage, set aside."""
    examples: list[str] = field(default_factory=list)
    """Some of the rows left for an operator, by key, with the reason."""

    def mend(self, kind: str, n: int = 1) -> None:
        if n:
            self.mended[kind] = self.mended.get(kind, 0) + n

    def add(self, more: Findings) -> None:
        self.rows += more.rows
        for kind, n in more.mended.items():
            self.mend(kind, n)
        for kind, n in more.left.items():
            self.left[kind] = self.left.get(kind, 0) + n
        self.examples = [*self.examples, *more.examples][:EXAMPLES]

    def leave(self, kind: str, key: str, why: str) -> None:
        self.left[kind] = self.left.get(kind, 0) + 1
        if len(self.examples) < EXAMPLES:
            self.examples.append(f"{key}: {why}")


class _ScannedRow(Struct):
    """A row of Milepost, its lines that may be undelivered, and whether some of them are not in the journal."""

    image: Image
    row: Row
    lines: list[JournalEntry]
    has_uncopied: bool = False
    place: int | None = None
    """Journal place of its last line, once looked up."""


class RowRepair:
    """Repairs the rows of one route."""

    def __init__(self, store: AwsStore, plan: Plan, jitter: Callable[[], float]) -> None:
        self._store, self._jitter = store, jitter
        self._layout = store.load_route(plan)
        self._plan = store.plan_with_offers(plan)
        self.reads = 0
        """Lines and seals that were read one by one."""

    def mend(self, images: Sequence[Image], tally: CounterTally, now: int) -> Findings:
        """Count each row in its present state and repair it. Raises LedgerError for a problem with AWS: then the page must be processed
        again. A fault in one row puts that row into quarantine and affects no other."""
        found = Findings(len(images))
        others, seen = self._read(images, tally, found, now)
        self._copy_out(seen, found)
        self._seal([one for one in seen if one.row.terminal], found, now)
        self._record_holds([one for one in seen if not one.row.terminal], found)
        jobs = [partial(self._adopt, image, now) for image in others]
        jobs += [partial(self._repair_row, one, now) for one in seen if self._needs_write(one, now)]
        for more in self._store.requests.each(jobs):
            found.add(more)
        return found

    def _read(self, images: Sequence[Image], tally: CounterTally, found: Findings, now: int) -> tuple[list[Image], list[_ScannedRow]]:
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
            if 0 <= now - row.updated_at < store.settings.resend_delay_ms:
                continue  # the stream relay may be handling it now
            if not row.terminal and row.stage not in self._plan.by_name:
                found.leave("unknown stage", row.key, f"its stage {row.stage!r} is not in the route; run 'milepost routes apply'")
                continue
            seen.append(one)
        return others, seen

    # Lines and seals, for all rows together -----------------------------------------------------------------------------
    def _copy_out(self, seen: Sequence[_ScannedRow], found: Findings) -> None:
        """Write missing lines to the journal. Later lines of such an item are written again behind them, even if they were delivered:
        the order matters, and twice is better than never."""
        entries = [entry for one in seen for entry in one.lines]
        self.reads += len(entries)
        places = self._store.journal.placed(entries)
        missing: list[JournalEntry] = []
        for one in seen:
            first = next((nth for nth, entry in enumerate(one.lines) if entry.ref not in places), None)
            if first is not None:
                one.has_uncopied = True
                missing += one.lines[first:]
        if missing:
            places |= dict(zip([entry.ref for entry in missing], self._store.journal.append(missing), strict=True))
        for one in seen:
            one.place = places.get((one.row.route, named(one.row.key, one.row.life), one.row.version))
        found.mend("lines", sum(one.has_uncopied for one in seen))

    def _seal(self, ended: Sequence[_ScannedRow], found: Findings, now: int) -> None:
        """Write the seals of ended rows where they are missing or differ; a route that forgets has removed the old ones on purpose."""
        forgotten = self._plan.route.remember_ms
        kept = [one for one in ended if forgotten is None or one.row.entered_at > now - forgotten]
        self.reads += len(kept)
        seals = self._store.seals(self._layout.route, [one.row.key for one in kept])
        fresh = [one for one in kept if one.row.key not in seals or seals[one.row.key].head != one.row.head]
        if fresh:
            write_seals(self._store, [seal_for(self._store, one.row, one.place) for one in fresh], now)
        found.mend("sealed", len(fresh))

    def _record_holds(self, seen: Sequence[_ScannedRow], found: Findings) -> None:
        """Record that paused partitions may hold rows: without that record, resuming would not find them."""
        lanes = {(one.row.stage, one.row.lane): one.row for one in seen if _is_held(one)}
        found.mend("held", sum(record_hold(self._store, row) for row in lanes.values()))

    # One row --------------------------------------------------------------------------------------------------------------
    def _adopt(self, image: Image, now: int) -> Findings:
        """Adopt a row that another program put and that was never taken in. A quarantined one is left for an operator."""
        found = Findings()
        key = self._layout.key_of(image)
        known = known_in_quarantine(self._store, self._layout, image, now)
        if known is not None:
            found.leave("set aside", key, known.reason)
            return found
        try:
            adopted = adopt(self._store, self._layout, self._plan, key, image, None, now)
            if isinstance(adopted, Adoption):
                adopted = "adopted" if carry_out(self._store, [adopted]) else "known"
            found.mend(adopted)
        except Exception as error:
            self._quarantine(image, "it cannot be adopted", error, found, now)
        return found

    def _needs_write(self, one: _ScannedRow, now: int) -> bool:
        """Whether this row needs a write of its own."""
        if one.row.terminal:
            return bool(one.row.kept or has_refused_answer(one.row) or _is_unfinished(one))
        return bool(one.has_uncopied or one.row.kept or has_refused_answer(one.row) or "ttl" in one.image or self._misplaced(one, now))

    def _repair_row(self, one: _ScannedRow, now: int) -> Findings:
        found = Findings()
        try:
            for kind in (self._confirm(one, now) or self._repair_ended(one, now)) if one.row.terminal else self._repair_live(one, now):
                found.mend(kind)
        except Exception as error:
            self._quarantine(one.image, "it cannot be repaired", error, found, now)
        return found

    def _repair_ended(self, one: _ScannedRow, now: int) -> list[str]:
        """Finish an ended row that no stream relay has finished."""
        if not _is_unfinished(one):
            return []
        finish(self._store, [one.row], now)
        return ["ended"]

    def _repair_live(self, one: _ScannedRow, now: int) -> list[str]:
        row, image = one.row, one.image
        kinds: list[str] = []
        update = Update(self._layout, row.key)
        misplaced = self._misplaced(one, now)
        update.set_all({name: value for name, value in misplaced.items() if value is not None})
        update.remove(*(name for name, value in misplaced.items() if value is None))
        if misplaced:
            kinds.append("indexed")
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
        change = confirmed_change(item, self._plan, now, self._jitter) or remove_refused_answer(store, item, self._plan, now, self._jitter)
        if change is None:
            return []
        ref, versions = (row.route, row.key), {self._plan.name: self._plan.version}
        if apply(store, [change], now, versions, {ref: content}, {ref: row.version})[0] is not None:
            return []
        noted = change.line is None or change.line.reason in (Reason.NOTED, Reason.NOT_YET)
        return ["noted" if noted else "confirmed"]

    def _misplaced(self, one: _ScannedRow, now: int) -> dict[str, dict[str, str] | None]:
        """Index attributes to set, or to remove (None), so that the row is found when it is due."""
        row, image = one.row, one.image
        if _is_held(one):
            return {}
        look_at = row.look_at
        place = index_place(row, self._layout)
        found = "dueAt" in image and place is not None and image.get("dueShard") == {"S": place[0]}
        if not found and row.status in (Status.PENDING, Status.QUEUED):
            # It is not known whether a message was sent: send another in any case, but not before its time.
            look_at = row.not_before or min(now, row.entered_at)
        elif look_at is None:
            shown = image.get(KNOWN_UNTIL.get(row.status, ""), {}).get("S")
            look_at = now if shown is None else ms(shown)
        wanted = attributes(replace(row, look_at=look_at), self._layout)
        return {name: wanted.get(name) for name in INDEXED if wanted.get(name) != image.get(name)}

    def _quarantine(self, image: Image, what: str, error: Exception, found: Findings, now: int) -> None:
        """Put a row with a fault of its own into quarantine, once. A problem with AWS or the route's version is raised."""
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
    """Whether an ended row has lines to be copied or is not in its right place: failed ones in their partition, others in no index."""
    image, row = one.image, one.row
    if one.has_uncopied or "trail" in image or copied_of(image) < row.version:
        return True
    if row.status in FAILED:
        return image.get("dueShard") != {"S": due_shard(FAILED_SHARD, row.key)} or "dueAt" not in image
    return "dueShard" in image
