"""Mending a page of rows: what the stream would have had carried out, had anybody read it, found by how the rows stand.

Every write is conditional on the row being as it was read. Where somebody was quicker nothing is lost: their change is a record of
its own, and so is every change made here. What follows from those is for whoever reads the stream.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from msgspec import Struct, field
from msgspec.structs import replace

from milepost.core.errors import LedgerDamaged, LedgerError
from milepost.core.item import Item, Row
from milepost.core.routes.plan import Plan
from milepost.core.status import FAILED, Reason, Status
from milepost.ledgers.aws.apply import apply
from milepost.ledgers.aws.claim.paused_lanes import partition, record_hold
from milepost.ledgers.aws.foreign_rows.adoption import adopt
from milepost.ledgers.aws.foreign_rows.aside import aside, set_aside
from milepost.ledgers.aws.foreign_rows.confirmations import has_refused, take_off
from milepost.ledgers.aws.journal.journal import JournalEntry
from milepost.ledgers.aws.journal.lines import named
from milepost.ledgers.aws.names import FAILED_SHARD, due_shard, ms
from milepost.ledgers.aws.requests.client import ConditionFailed, RowRefused
from milepost.ledgers.aws.retention.row_end import EndedRow, finish
from milepost.ledgers.aws.row_duties import answered, deciding, seal_for, uncopied
from milepost.ledgers.aws.store import AwsStore
from milepost.ledgers.aws.tables.conditional_write import Update
from milepost.ledgers.aws.tables.counter_cells import CounterTally
from milepost.ledgers.aws.tables.item_rows import attributes, content_of, copied_of, index_place, is_ours, row_of
from milepost.ledgers.aws.tables.keys import Image
from milepost.ledgers.aws.tables.row_faults import why_unreadable

INDEXED = ("dueShard", "dueAt", "lookAt")
KNOWN_UNTIL = {Status.PROCESSING: "leaseUntil", Status.RETRY_SCHEDULED: "nextRetryAt"}
"""Where people are shown when a row is due: of use when its own place for that is empty."""
EXAMPLES = 20


class Findings(Struct):
    """What a page, or several, came to."""

    rows: int = 0
    mended: dict[str, int] = field(default_factory=dict)
    """By kind: adopted, known, lines, confirmed, noted, indexed, held, kept, sealed, ended, set aside; counters at the end."""
    left: dict[str, int] = field(default_factory=dict)
    """What is not as it should be and is for people: unknown stage, set aside."""
    examples: list[str] = field(default_factory=list)

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


class _Seen(Struct):
    """A row of ours, what it has still to tell, and whether that includes what nobody has been told of."""

    image: Image
    row: Row
    lines: list[JournalEntry]
    untold: bool = False
    place: int | None = None
    """Of its last line, where that has been looked for."""


class Mender:
    """Mends the rows of one route."""

    def __init__(self, store: AwsStore, plan: Plan, jitter: Callable[[], float]) -> None:
        self._store, self._jitter = store, jitter
        self._layout = store.know(plan)
        self._plan = deciding(store, plan)
        self.asked = 0
        """How many lines and seals have been asked for, one by one."""

    def mend(self, images: Sequence[Image], tally: CounterTally, now: int) -> Findings:
        """Look at each row, count it as it stands, and mend it. Raises LedgerError when AWS is the trouble: then the page is to
        be gone through again. What is wrong with one row sets that row aside, and hinders no other."""
        found = Findings(len(images))
        others, seen = self._read(images, tally, found, now)
        self._copy_out(seen, found)
        self._seal([one for one in seen if one.row.terminal], found, now)
        self._record_holds([one for one in seen if not one.row.terminal], found)
        jobs = [partial(self._adopt, image, now) for image in others]
        jobs += [partial(self._mend, one, now) for one in seen if self._calls_for(one, now)]
        for more in self._store.requests.each(jobs):
            found.add(more)
        return found

    def _read(self, images: Sequence[Image], tally: CounterTally, found: Findings, now: int) -> tuple[list[Image], list[_Seen]]:
        store, layout = self._store, self._layout
        others: list[Image] = []
        seen: list[_Seen] = []
        for image in images:
            if not is_ours(image):
                others.append(image)
                continue
            try:
                row = row_of(image, layout, store.values)
                one = _Seen(image, row, uncopied(store, layout, row.key, image))
            except Exception as error:
                self._set_aside(image, "it cannot be read", error, found, now)
                continue
            tally.present(row)
            if 0 <= now - row.updated_at < store.settings.patience_ms:
                continue  # the stream's reader may be at it just now
            if not row.terminal and row.stage not in self._plan.by_name:
                found.leave(
                    "unknown stage", row.key, f"it is at {row.stage!r}, which is no stage of the route; run 'milepost routes apply'"
                )
                continue
            seen.append(one)
        return others, seen

    # Lines and seals, for all rows together -------------------------------------------------------------------------------
    def _copy_out(self, seen: Sequence[_Seen], found: Findings) -> None:
        """Lines that nobody has been told of are written to the journal. The later lines of such an item come again after them,
        though they may have been told: in order, and twice rather than not at all."""
        entries = [entry for one in seen for entry in one.lines]
        self.asked += len(entries)
        places = self._store.journal.placed(entries)
        missing: list[JournalEntry] = []
        for one in seen:
            first = next((nth for nth, entry in enumerate(one.lines) if entry.ref not in places), None)
            if first is not None:
                one.untold = True
                missing += one.lines[first:]
        if missing:
            places |= dict(zip([entry.ref for entry in missing], self._store.journal.append(missing), strict=True))
        for one in seen:
            one.place = places.get((one.row.route, named(one.row.key, one.row.life), one.row.version))
        found.mend("lines", sum(one.untold for one in seen))

    def _seal(self, ended: Sequence[_Seen], found: Findings, now: int) -> None:
        """Every row that has ended has a seal that says the same; but a route that forgets has let go of the old ones."""
        forgotten = self._plan.route.remember_ms
        kept = [one for one in ended if forgotten is None or one.row.entered_at > now - forgotten]
        self.asked += len(kept)
        seals = self._store.seals(self._layout.route, [one.row.key for one in kept])
        fresh = [one for one in kept if one.row.key not in seals or seals[one.row.key].head != one.row.head]
        if fresh:
            self._store.write_seals([seal_for(one.row, self._place(one)) for one in fresh], now)
        found.mend("sealed", len(fresh))

    def _place(self, one: _Seen) -> int | None:
        """Of its last line."""
        if one.place is not None:
            return one.place
        lines = self._store.journal.history(one.row.route, one.row.key, one.row.life)
        return lines[-1].seq if lines else None

    def _record_holds(self, seen: Sequence[_Seen], found: Findings) -> None:
        """Rows that stand apart in a paused lane are resumed only where it is on record that there may be any."""
        lanes = {(one.row.stage, one.row.lane): one.row for one in seen if _stands_apart(one)}
        found.mend("held", sum(record_hold(self._store, row) for row in lanes.values()))

    # One row --------------------------------------------------------------------------------------------------------------
    def _adopt(self, image: Image, now: int) -> Findings:
        """A row that somebody put and nobody took in. One that was set aside is for people, and is not set aside every day."""
        found = Findings()
        key = self._layout.key_of(image)
        told = aside(self._store, self._layout, image, now)
        if told is not None:
            found.leave("set aside", key, told.reason)
            return found
        try:
            found.mend(adopt(self._store, self._layout, self._plan, key, image, None, now))
        except Exception as error:
            self._set_aside(image, "it cannot be taken in", error, found, now)
        return found

    def _calls_for(self, one: _Seen, now: int) -> bool:
        """Is there anything to be written for this row alone?"""
        if one.row.terminal:
            return bool(one.row.kept or has_refused(one.row) or _ended_badly(one))
        return bool(one.untold or one.row.kept or has_refused(one.row) or "ttl" in one.image or self._misplaced(one, now))

    def _mend(self, one: _Seen, now: int) -> Findings:
        found = Findings()
        try:
            for kind in (self._answer(one, now) or self._end(one, now)) if one.row.terminal else self._go_on(one, now):
                found.mend(kind)
        except Exception as error:
            self._set_aside(one.image, "it cannot be mended", error, found, now)
        return found

    def _end(self, one: _Seen, now: int) -> list[str]:
        """It has ended, and no reader of the stream has finished it."""
        row = one.row
        if not _ended_badly(one):
            return []
        finish(self._store, [EndedRow(row.route, row.key, row.version, row.status, row.entered_at)], now)
        return ["ended"]

    def _go_on(self, one: _Seen, now: int) -> list[str]:
        row, image = one.row, one.image
        kinds: list[str] = []
        update = Update(self._layout, row.key)
        misplaced = self._misplaced(one, now)
        for name, value in misplaced.items():
            if value is None:
                update.remove(name)
            else:
                update.set(name, value)
        if misplaced:
            kinds.append("indexed")
        if "ttl" in image:
            # It was sent on its way again after it had ended; the row must not leave under way.
            update.remove("ttl")
            kinds.append("kept")
        if one.untold:
            update.set("copied", {"N": str(row.version)})
            update.remove("trail")
        if (kinds or one.untold) and not self._write(update, one):
            return []
        return kinds + self._answer(one, now)

    def _answer(self, one: _Seen, now: int) -> list[str]:
        """What outsiders have put on the row, and nobody has seen to."""
        row, store = one.row, self._store
        if not row.kept and not has_refused(row):
            return []
        content = content_of(one.image, self._layout, store.values)
        item = Item(row, content)
        change = answered(item, self._plan, now, self._jitter) or take_off(store, item, self._plan, now, self._jitter)
        if change is None:
            return []
        ref, versions = (row.route, row.key), {self._plan.name: self._plan.version}
        if apply(store, [change], now, versions, {ref: content}, {ref: row.version})[0] is not None:
            return []
        noted = change.line is None or change.line.reason in (Reason.NOTED, Reason.NOT_YET)
        return ["noted" if noted else "confirmed"]

    def _misplaced(self, one: _Seen, now: int) -> dict[str, dict[str, str] | None]:
        """What must be set, or removed (None), for the row to be found when it is due."""
        row, image = one.row, one.image
        if _stands_apart(one):
            return {}
        look_at = row.look_at
        place = index_place(row, self._layout)
        found = "dueAt" in image and place is not None and image.get("dueShard") == {"S": place[0]}
        if not found and row.status in (Status.PENDING, Status.QUEUED):
            # Whether its stage has been called is not known: it is called again, in any case, but not before its time.
            look_at = row.not_before or min(now, row.entered_at)
        elif look_at is None:
            shown = image.get(KNOWN_UNTIL.get(row.status, ""), {}).get("S")
            look_at = now if shown is None else ms(shown)
        wanted = attributes(replace(row, look_at=look_at), self._layout)
        return {name: wanted.get(name) for name in INDEXED if wanted.get(name) != image.get(name)}

    def _write(self, update: Update, one: _Seen) -> bool:
        for name in ("version", "head", "status", "queue", "lease", *INDEXED):
            update.equal(name, one.image.get(name))
        try:
            self._store.requests.call("dynamodb", "update_item", **update.params())
        except ConditionFailed:
            return False
        return True

    def _set_aside(self, image: Image, what: str, error: Exception, found: Findings, now: int) -> None:
        """What is wrong with this row alone is told once. What is wrong with AWS, or the route's version, is raised."""
        if isinstance(error, LedgerError) and not isinstance(error, (LedgerDamaged, RowRefused)):
            raise error
        reason = f"{what}: {why_unreadable(error, image, self._layout)}"
        told = aside(self._store, self._layout, image, now)
        if told is None:
            set_aside(self._store, self._layout, image, reason, now)
            found.mend("set aside")
        found.leave("set aside", self._layout.key_of(image), reason)


def _stands_apart(one: _Seen) -> bool:
    return "dueAt" in one.image and one.image.get("dueShard") == {"S": partition(one.row)}


def _ended_badly(one: _Seen) -> bool:
    return one.untold or not _ended_well(one.image, one.row)


def _ended_well(image: Image, row: Row) -> bool:
    """Is an ended row where it belongs: where failed ones are found, or in no index?"""
    place = image.get("dueShard")
    if "trail" in image or copied_of(image) < row.version:
        return False
    if row.status in FAILED:
        return place == {"S": due_shard(FAILED_SHARD, row.key)} and "dueAt" in image
    return place is None
