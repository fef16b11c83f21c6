"""Stream relay: carries out the consequences of each row change that the DynamoDB stream delivers.

Level-triggered: it acts on the row's present state, so a record may come twice, late, or from a
program that does not know Milepost.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial

from msgspec import Struct

from milepost.core.change import Change
from milepost.core.decide import NOTHING
from milepost.core.due import has_new_look, offered
from milepost.core.errors import LedgerError
from milepost.core.item import Content, Item, Row
from milepost.core.routes.plan import Plan
from milepost.core.status import Status
from milepost.ports.items import Refused
from milepost_aws.ledger.apply import Ref, apply
from milepost_aws.ledger.foreign_rows.adoption import Adoption, adopt, carry_out
from milepost_aws.ledger.foreign_rows.confirmations import (
    confirmed_change,
    disputed,
    has_refused_answer,
    keep_input,
    remove_refused_answer,
    still_waiting,
)
from milepost_aws.ledger.offers import message_for, send
from milepost_aws.ledger.record_kinds import ENDED, UNCOUNTED, RecordKind, kind_of
from milepost_aws.ledger.refused_rows import concerns_one_row, fault_in, why_unreadable
from milepost_aws.ledger.requests.client import RowRefused
from milepost_aws.ledger.requests.queues import Outgoing
from milepost_aws.ledger.retention import SEALED_FOR_MS, Sealing, seal_for, write_seals
from milepost_aws.ledger.store import AwsStore
from milepost_aws.ledger.stream import StreamRecord
from milepost_aws.ledger.tables.attribute_rules import LONG_TRAIL
from milepost_aws.ledger.tables.conditional_write import Update, places_of
from milepost_aws.ledger.tables.counters import RowChange
from milepost_aws.ledger.tables.item_rows import content_of, is_ours, links_of, row_of
from milepost_aws.ledger.tables.journal import JournalEntry, named, uncopied
from milepost_aws.ledger.tables.keys import FULL_KEY, Image, Layout
from milepost_aws.ledger.tables.values import has_blobs, plain

STALE_MS = 60_000
"""For a record older than this the row is read again before anything is offered."""
MOST_CUT = 200
"""Lines that one write removes from a trail; the size of an update expression is limited."""
LATER = (Status.WAITING, Status.RETRY_SCHEDULED)

log = logging.getLogger(__name__)


class _ItemRecords(Struct):
    """The records of one item in a batch, and what they contain: lines, changes and removed
    rows."""

    layout: Layout
    plan: Plan
    key: str
    records: list[StreamRecord] = []
    entries: list[JournalEntry] = []
    changes: list[RowChange] = []
    """Its changes, to be counted."""
    older: list[JournalEntry] = []
    """Lines of earlier records that are still on the row after its last record, if the write that
    follows now removes them."""
    restored: bool = False
    """Another program had overwritten the row; it is restored, with lines that may have been
    delivered already."""

    @property
    def last(self) -> StreamRecord:
        return self.records[-1]

    @property
    def gone(self) -> list[Row]:
        """Rows that have left the table."""
        return [change.before for change in self.changes if change.after is None]

    def add_lines(
        self, entries: Sequence[JournalEntry], older: Sequence[JournalEntry] = ()
    ) -> None:
        """Add the lines of its next record, and replace the older ones by those that this record
        still shows."""
        known = {entry.version for entry in self.entries}
        self.entries += [entry for entry in entries if entry.version not in known]
        self.older = list(older)

    @property
    def ours(self) -> Image | None:
        """The row before another program overwrote it; None if it was not ours or was removed in
        between."""
        for record in reversed(self.records):
            if record.new is None or (record.old is not None and is_ours(record.old)):
                return None if record.new is None else record.old
        return None


class RelayedBatch(Struct):
    """A batch whose consequences are carried out. Its changes are still to be counted, and then its
    blobs to be removed."""

    ended: list[Row]
    changes: list[RowChange]
    """In the order of the records."""
    blobs: list[tuple[str, str, Image]]
    """Route, key and last image of rows that are gone and had blobs."""


class StreamRelay:
    """Takes batches of records of one or several routes; records of routes that are not loaded here
    are left to other processes."""

    def __init__(
        self, store: AwsStore, plans: Mapping[str, Plan], jitter: Callable[[], float]
    ) -> None:
        self._store = store
        self._plans = plans
        self._jitter = jitter

    def handle(self, records: Sequence[StreamRecord], now: int) -> list[Row]:
        """Carry out a batch, and count it cell by cell; returns the ended rows. For a caller
        without a position in the stream of its own."""
        batch = self.carry_out(records, now)
        # Last, because a repeat of these is not always recognised; the repair scan corrects what a
        # crash here leaves.
        self._store.counters.add(batch.changes, _batch_name(records))
        self.remove_blobs(batch)
        return batch.ended

    def carry_out(self, records: Sequence[StreamRecord], now: int) -> RelayedBatch:
        """Copy lines to the journal, send offers, apply confirmations, adopt rows of other
        programs, seal ended items.

        Raises LedgerError for a problem with AWS, and RouteChanged when the ledger has a newer
        version of a route: then nothing of the batch counts as handled, and all of it is delivered
        again, here or to a newer process. A fault in one record puts that record into quarantine
        with its images and the reason; the other records are not affected.
        """
        for route in {record.route for record in records} & self._plans.keys():
            self._store.check_current(self._plans[route], now)
        by_item = self._by_item(records, self._forgotten(records, now))
        self._add_missed_lines(by_item)
        entries = [entry for item_records in by_item.values() for entry in item_records.entries]
        # Lines may have a place already: in repeated records, and on a row that was removed or
        # overwritten.
        again = any(record.again for record in records) or any(
            item_records.gone or item_records.restored for item_records in by_item.values()
        )
        places = dict(
            zip(
                [entry.ref for entry in entries],
                self._store.journal.append(entries, again=again),
                strict=True,
            )
        )
        ended = self._carry_out(by_item, places, now)
        self._cut_trails(by_item)
        order = {record.seq: nth for nth, record in enumerate(records)}
        changes = sorted(
            (change for item_records in by_item.values() for change in item_records.changes),
            key=lambda change: order[change.seq],
        )
        return RelayedBatch(ended, changes, _lost_blobs(by_item))

    def remove_blobs(self, batch: RelayedBatch) -> None:
        """Remove the blobs of rows that ended and left. Not before the batch is counted: a record
        that comes again is read with them."""
        try:
            for route, key, image in batch.blobs:
                # The key may have been added again with the same content: then the blobs belong to
                # the new row.
                if key not in self._store.images(route, [key]):
                    self._store.values.remove(
                        image, *places_of(self._store.load_route(self._plans[route]), key)
                    )
        except LedgerError as error:
            log.error(
                "cannot remove blobs of rows that are gone; they only take up space: %s", error
            )

    # Reading the records --------------------------------------------------------------------------
    def _forgotten(self, records: Sequence[StreamRecord], now: int) -> set[Ref]:
        """The items of these records whose content was removed. Their lines were carried out before
        that, and would bring it back: an item is forgotten an hour after its end at the earliest,
        so only old records are looked at."""
        keys: dict[str, list[str]] = {}
        for record in records:
            if record.route in self._plans and record.at <= now - SEALED_FOR_MS // 2:
                with suppress(KeyError, TypeError):  # such a record is quarantined
                    keys.setdefault(record.route, []).append(self._key_of(record))
        seals = {route: self._store.seals(route, of_route) for route, of_route in keys.items()}
        return {
            (route, key)
            for route, found in seals.items()
            for key, seal in found.items()
            if seal.forgotten
        }

    def _key_of(self, record: StreamRecord) -> str:
        """The key of a record's item. A program that overwrites our row may leave out the complete
        long key: then it is that of the row before."""
        layout = self._store.load_route(self._plans[record.route])
        return layout.key_of(
            next(
                (
                    image
                    for image in (record.new, record.old)
                    if image is not None and FULL_KEY in image
                ),
                record.keys,
            )
        )

    def _by_item(
        self, records: Sequence[StreamRecord], forgotten: set[Ref]
    ) -> dict[Ref, _ItemRecords]:
        by_item: dict[Ref, _ItemRecords] = {}
        for record in records:
            plan = self._plans.get(record.route)
            if plan is None:
                continue
            try:
                self._add_record(record, self._store.plan_with_offers(plan), by_item, forgotten)
            except Exception as error:
                if not concerns_one_row(error):
                    raise
                self._quarantine(record, f"it cannot be read: {self._fault(error, record)}")
        return by_item

    def _fault(self, error: Exception, record: StreamRecord) -> str:
        """The wrong attribute in the record's images, or else the error itself."""
        layout = self._store.load_route(self._plans[record.route])
        for image in (record.new, record.old):
            if image is not None and (fault := fault_in(image, layout)):
                return fault
        return why_unreadable(error, None, layout)

    def _add_record(
        self,
        record: StreamRecord,
        plan: Plan,
        by_item: dict[Ref, _ItemRecords],
        forgotten: set[Ref],
    ) -> None:
        layout = self._store.load_route(self._plans[plan.name])
        key = self._key_of(record)
        ref = plan.name, key
        before = self._row_in(record.old, layout) or NOTHING
        after = self._row_in(record.new, layout)
        kind = kind_of(record.old, record.new)
        item_records = by_item.get(ref) or _ItemRecords(layout, plan, key)
        if ref not in forgotten:
            self._add_lines(item_records, kind, record, after)
        by_item[ref] = item_records
        item_records.records.append(record)
        if kind not in UNCOUNTED:
            item_records.changes.append(RowChange(before, after, record.seq))
        if kind is RecordKind.REMOVED_BY_OTHERS:
            self._quarantine(
                record,
                f"another program removed the row of an unfinished item ({before.status} at {before.stage!r})",
            )

    def _row_in(self, image: Image | None, layout: Layout) -> Row | None:
        """The row in an image of a record; None: there is none, or it is not ours."""
        if image is None or not is_ours(image):
            return None
        return row_of(image, layout, self._store.values)

    def _add_lines(
        self, item_records: _ItemRecords, kind: RecordKind, record: StreamRecord, after: Row | None
    ) -> None:
        """Add the lines of a record that are to be copied to the journal."""
        old, new = record.old or {}, record.new or {}
        match kind:
            case RecordKind.PUT:
                item_records.add_lines(self._uncopied(item_records, new))
            case RecordKind.RESTORED:
                item_records.add_lines(self._uncopied(item_records, new))
                item_records.restored = True
            case RecordKind.CHANGED:
                self._add_lines_since(item_records, old, new, after)
            case RecordKind.RENAMED | RecordKind.TOUCHED:
                keep_input(self._store, item_records.layout, old, new)
                self._add_lines_since(item_records, old, new, after)
            case RecordKind.EXPIRED | RecordKind.REMOVED_BY_OTHERS:
                # Lines that the row had not delivered are delivered too.
                item_records.add_lines(self._uncopied(item_records, old))
            case RecordKind.OVERWRITTEN:
                # Nothing is due yet: the row is restored with its lines, so they must be readable.
                links_of(old, self._store.values)
                item_records.add_lines([])
            case RecordKind.FOREIGN:
                item_records.add_lines([])

    def _add_lines_since(
        self, item_records: _ItemRecords, old: Image, new: Image, after: Row | None
    ) -> None:
        """Add the lines that the row did not have before: the others came with earlier records."""
        earlier = {link.version for link in links_of(old, self._store.values)}
        lines = self._uncopied(item_records, new)
        added = [entry for entry in lines if entry.version not in earlier]
        older = [entry for entry in lines if entry.version in earlier]
        leaving = after is not None and _loses_lines(after, new)
        item_records.add_lines(added, older if leaving else [])

    def _uncopied(self, item_records: _ItemRecords, image: Image) -> list[JournalEntry]:
        return uncopied(image, item_records.key, item_records.layout, self._store.values)

    def _add_missed_lines(self, by_item: dict[Ref, _ItemRecords]) -> None:
        """Add lines that are missing in the journal because their stream record was lost, with the
        later lines behind them: a line may leave its row only after it is in the journal."""
        older = [entry for item_records in by_item.values() for entry in item_records.older]
        if not older:
            return
        placed = self._store.journal.placed(older)
        for item_records in by_item.values():
            known = {entry.version for entry in item_records.entries}
            missing = [
                entry.version
                for entry in item_records.older
                if entry.ref not in placed and entry.version not in known
            ]
            if missing:
                item_records.entries = [
                    entry
                    for entry in item_records.older
                    if entry.version >= missing[0] and entry.version not in known
                ] + item_records.entries

    # Consequences ---------------------------------------------------------------------------------
    def _carry_out(
        self, by_item: dict[Ref, _ItemRecords], places: dict[tuple[str, str, int], int], now: int
    ) -> list[Row]:
        changes: list[Change] = []
        contents: dict[Ref, Content] = {}
        copied: dict[Ref, int] = {}
        messages: list[Outgoing] = []
        adoptions: list[Adoption] = []
        ended: list[Row] = []
        seals: list[Sealing] = []
        images = self._present_rows(by_item, now)
        for ref, item_records in by_item.items():
            image = images.get(ref)
            if image is None:
                continue
            try:
                if not is_ours(image):
                    adopted = adopt(
                        self._store,
                        item_records.layout,
                        item_records.plan,
                        ref[1],
                        image,
                        item_records.ours,
                        now,
                    )
                    adoptions += [adopted] if isinstance(adopted, Adoption) else []
                    continue
                row = row_of(image, item_records.layout, self._store.values)
                place = (
                    places.get((row.route, named(row.key, row.life), row.version))
                    if row.terminal
                    else None
                )
                if place is not None:
                    ended.append(row)
                    seals.append(seal_for(self._store, row, place, image))
                needs_content = row.kept or row.status is Status.PENDING or has_refused_answer(row)
                item = Item(
                    row,
                    content_of(image, item_records.layout, self._store.values)
                    if needs_content
                    else Content(),
                )
                change = self._next_change(item_records, item, image, now)
            except Exception as error:
                if not concerns_one_row(error):
                    raise
                self._quarantine(
                    item_records.last,
                    f"its next change cannot be decided: {why_unreadable(error, image, item_records.layout)}",
                )
                continue
            if change is not None:
                changes.append(change)
                if needs_content:
                    contents[ref] = item.content
                if needs_content and image is item_records.last.new:
                    copied[ref] = row.version
            elif not row.terminal:
                messages += self._delayed_messages(item_records, item, now)
        if seals:
            write_seals(self._store, seals, now)
        if messages:
            send(self._store, messages)
        if adoptions:
            carry_out(self._store, adoptions, now)
        if changes:
            self._write(changes, by_item, now, contents, copied)
        return ended

    def _write(
        self,
        changes: list[Change],
        by_item: dict[Ref, _ItemRecords],
        now: int,
        contents: dict[Ref, Content],
        copied: dict[Ref, int],
    ) -> None:
        """On a conflict another writer was first, and the stream delivers its change too. A refused
        change goes into quarantine."""
        versions = {plan.name: plan.version for plan in self._plans.values()}
        for change, answer in zip(
            changes, apply(self._store, changes, now, versions, contents, copied), strict=True
        ):
            if isinstance(answer, Refused):
                row = change.before
                self._quarantine(
                    by_item[row.route, row.key].last, f"it cannot be written: {answer.reason}"
                )

    def _cut_trails(self, by_item: dict[Ref, _ItemRecords]) -> None:
        """Remove lines that are in the journal from rows with long trails; otherwise an item with a
        new answer at every look would keep growing. Lines are only appended, so this stays correct
        whatever was written since."""
        jobs = [
            partial(self._cut_trail, item_records)
            for item_records in by_item.values()
            if _has_long_trail(item_records.last.new)
        ]
        self._store.requests.each(jobs)

    def _cut_trail(self, item_records: _ItemRecords) -> None:
        image = item_records.last.new
        assert image is not None
        trail = image["trail"]["L"][:MOST_CUT]
        last = links_of({"trail": {"L": [trail[-1]]}}, self._store.values)[-1].version
        update = Update(item_records.layout, item_records.layout.key_of(image))
        name = update.name("trail")
        for place in range(len(trail)):
            update.remove_at("trail", place)
        update.only_if(f"{name}[0] = {update.value(trail[0])}")
        update.only_if(f"{name}[{len(trail) - 1}] = {update.value(trail[-1])}")
        update.unchanged(image, "copied")
        update.set("copied", {"N": str(last)})
        with suppress(RowRefused):
            update.written(
                self._store.requests
            )  # False: another writer has cut or packed it; the stream delivers that change too

    def _present_rows(self, by_item: dict[Ref, _ItemRecords], now: int) -> dict[Ref, Image | None]:
        """The rows as in the records, or read again where a record is old."""
        old = {
            ref: item_records
            for ref, item_records in by_item.items()
            if item_records.last.new is not None and not 0 <= now - item_records.last.at <= STALE_MS
        }
        stale = {
            ref
            for ref, item_records in old.items()
            if item_records.layout.has_key(ref[1], item_records.last.keys)
        }
        again = self._store.rows(stale)
        return {
            ref: again.get(ref) if ref in stale else item_records.last.new
            for ref, item_records in by_item.items()
        }

    def _next_change(
        self, item_records: _ItemRecords, item: Item, image: Image, now: int
    ) -> Change | None:
        """The one write that follows from the row's present state."""
        row, plan = item.row, item_records.plan
        stage = plan.by_name.get(row.stage)
        if stage is None:
            return None  # `routes apply` moves it
        change = confirmed_change(item, plan, now, self._jitter) or disputed(
            row, image, item_records.layout, item_records.records, self._store.values, now
        )
        change = (
            change
            or remove_refused_answer(self._store, item, plan, now, self._jitter)
            or still_waiting(row, image, plan, now)
        )
        if change is None and row.status is Status.PENDING and not row.later_than(now):
            return offered(row, stage, now)
        return change

    def _delayed_messages(self, item_records: _ItemRecords, item: Item, now: int) -> list[Outgoing]:
        """Delayed messages for looks in the near future; later looks are left to the resender."""
        row = item.row
        stage = item_records.plan.by_name.get(row.stage)
        if stage is None or stage.external or row.look_at is None:
            return []
        wait_ms = row.look_at - now
        first = next(
            (change.before for change in item_records.changes if change.after is not None), None
        )
        if (
            first is None
            or wait_ms > self._store.settings.longest_delay_s * 1000
            or not (row.status in LATER or row.later_than(now))
        ):
            return []
        return [message_for(self._store, item, stage, wait_ms)] if has_new_look(first, row) else []

    def _quarantine(self, record: StreamRecord, reason: str) -> None:
        """Put a record that cannot be handled into quarantine, with its images and the reason."""
        log.warning("quarantined a stream record of route %s: %s", record.route, reason)
        images = {
            name: image and plain({"M": image})
            for name, image in (("keys", record.keys), ("old", record.old), ("new", record.new))
        }
        self._store.queues.set_aside(
            "record",
            {"route": record.route, "name": record.name, "seq": record.seq, **images},
            reason,
        )


def _lost_blobs(by_item: Mapping[Ref, _ItemRecords]) -> list[tuple[str, str, Image]]:
    """The last images of rows that ended and left, where they have blobs; those of an unfinished
    row are kept with its quarantine entry."""
    return [
        (route, key, record.old)
        for (route, key), item_records in by_item.items()
        if all(row.terminal for row in item_records.gone)
        for record in item_records.records
        if record.new is None and record.old is not None and has_blobs(record.old)
    ]


def _batch_name(records: Sequence[StreamRecord]) -> str | None:
    """The same for a batch that comes again."""
    return f"{records[0].seq}-{records[-1].seq}" if records else None


def _loses_lines(row: Row, image: Image) -> bool:
    """Whether the write that follows from this row removes the lines that are in the journal."""
    if row.terminal or row.kept or row.status is Status.PENDING:
        return True
    return _has_long_trail(image)


def _has_long_trail(image: Image | None) -> bool:
    """Whether a row has so many lines that those in the journal should leave it. (An ended row
    loses all when they are delivered.)"""
    return (
        image is not None
        and len(image.get("trail", {}).get("L", ())) > LONG_TRAIL
        and image.get("status", {}).get("S") not in ENDED
    )
