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
from milepost.core.status import TERMINAL, Status
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
from milepost_aws.ledger.refused_rows import concerns_one_row, fault_in, why_unreadable
from milepost_aws.ledger.requests.client import RowRefused
from milepost_aws.ledger.requests.queues import Outgoing
from milepost_aws.ledger.retention import SEALED_FOR_MS, Sealing, seal_for, write_seals
from milepost_aws.ledger.store import AwsStore
from milepost_aws.ledger.stream import StreamRecord
from milepost_aws.ledger.tables.conditional_write import LONG_TRAIL, Update, places_of
from milepost_aws.ledger.tables.counters import RowChange
from milepost_aws.ledger.tables.item_rows import content_of, is_ours, links_of, row_of
from milepost_aws.ledger.tables.journal import JournalEntry, named, uncopied
from milepost_aws.ledger.tables.keys import FULL_KEY, Image, Layout
from milepost_aws.ledger.tables.values import has_blobs, plain

STALE_MS = 60_000
"""For a record older than this the row is read again before anything is offered."""
MOST_CUT = 200
"""Lines that one write removes from a trail; the size of an update expression is limited."""
ENDED = frozenset(status.value for status in TERMINAL)
LATER = (Status.WAITING, Status.RETRY_SCHEDULED)

log = logging.getLogger(__name__)


class _ItemRecords(Struct):
    """The records of one item in a batch, and what they contain: lines, changes and removed
    rows."""

    layout: Layout
    plan: Plan
    records: list[StreamRecord] = []
    entries: list[JournalEntry] = []
    changes: list[RowChange] = []
    """Its changes, to be counted."""
    older: list[JournalEntry] = []
    """Lines missed by earlier records; the write that follows now removes them from the row."""
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
        seen = self._by_item(records, self._forgotten(records, now))
        self._add_missed_lines(seen)
        entries = [entry for one in seen.values() for entry in one.entries]
        # Lines may have a place already: in repeated records, and on a row that was removed or
        # overwritten.
        again = any(record.again for record in records) or any(
            one.gone or one.restored for one in seen.values()
        )
        places = dict(
            zip(
                [entry.ref for entry in entries],
                self._store.journal.append(entries, again=again),
                strict=True,
            )
        )
        ended = self._carry_out(seen, places, now)
        self._cut_trails(seen)
        order = {record.seq: nth for nth, record in enumerate(records)}
        changes = sorted(
            (change for one in seen.values() for change in one.changes),
            key=lambda change: order[change.seq],
        )
        return RelayedBatch(ended, changes, _lost_blobs(seen))

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
        seen: dict[Ref, _ItemRecords] = {}
        for record in records:
            plan = self._plans.get(record.route)
            if plan is None:
                continue
            try:
                self._add_record(record, self._store.plan_with_offers(plan), seen, forgotten)
            except Exception as error:
                if not concerns_one_row(error):
                    raise
                self._quarantine(record, f"it cannot be read: {self._fault(error, record)}")
        return seen

    def _fault(self, error: Exception, record: StreamRecord) -> str:
        """The wrong attribute in the record's images, or else the error itself."""
        layout = self._store.load_route(self._plans[record.route])
        for image in (record.new, record.old):
            if image is not None and (fault := fault_in(image, layout)):
                return fault
        return why_unreadable(error, None, layout)

    def _add_record(
        self, record: StreamRecord, plan: Plan, seen: dict[Ref, _ItemRecords], forgotten: set[Ref]
    ) -> None:
        store = self._store
        layout = store.load_route(self._plans[plan.name])
        key = self._key_of(record)
        old = record.old if record.old is not None and is_ours(record.old) else None
        new = record.new if record.new is not None and is_ours(record.new) else None
        before = NOTHING if old is None else row_of(old, layout, store.values)
        after = None if new is None else row_of(new, layout, store.values)
        ref = plan.name, key
        one = seen.get(ref) or _ItemRecords(layout, plan)
        if ref not in forgotten:
            self._add_lines(one, key, record, before, after)
        seen[ref] = one
        one.records.append(record)
        if after is not None:
            # Only the rename of a stage moves a row without a line, and the rename counts it
            # itself.
            if before.version != after.version or before.stage == after.stage:
                one.changes.append(RowChange(before, after, record.seq))
        elif record.new is None and old is not None:
            one.changes.append(RowChange(before, None, record.seq))
            if not before.terminal:
                self._quarantine(
                    record,
                    f"another program removed the row of an unfinished item ({before.status} at {before.stage!r})",
                )

    def _add_lines(
        self, one: _ItemRecords, key: str, record: StreamRecord, before: Row, after: Row | None
    ) -> None:
        """Add the lines of a record that are to be copied to the journal."""
        store, layout = self._store, one.layout
        old = record.old if before is not NOTHING else None
        new = record.new if after is not None else None
        keep_input(store, layout, record)
        # Lines that a removed row had not delivered are delivered too.
        shown = new or (old if record.new is None else None)
        on_old = (
            {link.version for link in links_of(old, store.values)}
            if old is not None and old is not shown
            else set()
        )
        lines = uncopied(shown, key, layout, store.values) if shown is not None else []
        one.restored = one.restored or (old is None and after is not None and after.version > 1)
        known = {entry.version for entry in one.entries}
        one.entries += [entry for entry in lines if entry.version not in known | on_old]
        leaving = after is not None and (
            after.terminal
            or after.kept
            or after.status is Status.PENDING
            or _has_long_trail(record.new)
        )
        one.older = [entry for entry in lines if entry.version in on_old] if leaving else []

    def _add_missed_lines(self, seen: dict[Ref, _ItemRecords]) -> None:
        """Add lines that are missing in the journal because their stream record was lost, with the
        later lines behind them: a line may leave its row only after it is in the journal."""
        older = [entry for one in seen.values() for entry in one.older]
        if not older:
            return
        placed = self._store.journal.placed(older)
        for one in seen.values():
            known = {entry.version for entry in one.entries}
            missing = [
                entry.version
                for entry in one.older
                if entry.ref not in placed and entry.version not in known
            ]
            if missing:
                one.entries = [
                    entry
                    for entry in one.older
                    if entry.version >= missing[0] and entry.version not in known
                ] + one.entries

    # Consequences ---------------------------------------------------------------------------------
    def _carry_out(
        self, seen: dict[Ref, _ItemRecords], places: dict[tuple[str, str, int], int], now: int
    ) -> list[Row]:
        changes: list[Change] = []
        contents: dict[Ref, Content] = {}
        copied: dict[Ref, int] = {}
        messages: list[Outgoing] = []
        adoptions: list[Adoption] = []
        ended: list[Row] = []
        seals: list[Sealing] = []
        images = self._present_rows(seen, now)
        for ref, one in seen.items():
            image = images.get(ref)
            if image is None:
                continue
            try:
                if not is_ours(image):
                    adopted = adopt(self._store, one.layout, one.plan, ref[1], image, one.ours, now)
                    adoptions += [adopted] if isinstance(adopted, Adoption) else []
                    continue
                row = row_of(image, one.layout, self._store.values)
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
                    content_of(image, one.layout, self._store.values)
                    if needs_content
                    else Content(),
                )
                change = self._next_change(one, item, image, now)
            except Exception as error:
                if not concerns_one_row(error):
                    raise
                self._quarantine(
                    one.last,
                    f"its next change cannot be decided: {why_unreadable(error, image, one.layout)}",
                )
                continue
            if change is not None:
                changes.append(change)
                if needs_content:
                    contents[ref] = item.content
                if needs_content and image is one.last.new:
                    copied[ref] = row.version
            elif not row.terminal:
                messages += self._delayed_messages(one, item, now)
        if seals:
            write_seals(self._store, seals, now)
        if messages:
            send(self._store, messages)
        if adoptions:
            carry_out(self._store, adoptions, now)
        if changes:
            self._write(changes, seen, now, contents, copied)
        return ended

    def _write(
        self,
        changes: list[Change],
        seen: dict[Ref, _ItemRecords],
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
                    seen[row.route, row.key].last, f"it cannot be written: {answer.reason}"
                )

    def _cut_trails(self, seen: dict[Ref, _ItemRecords]) -> None:
        """Remove lines that are in the journal from rows with long trails; otherwise an item with a
        new answer at every look would keep growing. Lines are only appended, so this stays correct
        whatever was written since."""
        jobs = [
            partial(self._cut_trail, one) for one in seen.values() if _has_long_trail(one.last.new)
        ]
        self._store.requests.each(jobs)

    def _cut_trail(self, one: _ItemRecords) -> None:
        image = one.last.new
        assert image is not None
        trail = image["trail"]["L"][:MOST_CUT]
        last = links_of({"trail": {"L": [trail[-1]]}}, self._store.values)[-1].version
        update = Update(one.layout, one.layout.key_of(image))
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

    def _present_rows(self, seen: dict[Ref, _ItemRecords], now: int) -> dict[Ref, Image | None]:
        """The rows as in the records, or read again where a record is old."""
        old = {
            ref: one
            for ref, one in seen.items()
            if one.last.new is not None and not 0 <= now - one.last.at <= STALE_MS
        }
        stale = {ref for ref, one in old.items() if one.layout.has_key(ref[1], one.last.keys)}
        again = self._store.rows(stale)
        return {ref: again.get(ref) if ref in stale else one.last.new for ref, one in seen.items()}

    def _next_change(self, one: _ItemRecords, item: Item, image: Image, now: int) -> Change | None:
        """The one write that follows from the row's present state."""
        row, plan = item.row, one.plan
        stage = plan.by_name.get(row.stage)
        if stage is None:
            return None  # `routes apply` moves it
        change = confirmed_change(item, plan, now, self._jitter) or disputed(
            row, image, one.layout, one.records, self._store.values, now
        )
        change = (
            change
            or remove_refused_answer(self._store, item, plan, now, self._jitter)
            or still_waiting(row, image, plan, now)
        )
        if change is None and row.status is Status.PENDING and not row.later_than(now):
            return offered(row, stage, now)
        return change

    def _delayed_messages(self, one: _ItemRecords, item: Item, now: int) -> list[Outgoing]:
        """Delayed messages for looks in the near future; later looks are left to the resender."""
        row = item.row
        stage = one.plan.by_name.get(row.stage)
        if stage is None or stage.external or row.look_at is None:
            return []
        wait_ms = row.look_at - now
        first = next((change.before for change in one.changes if change.after is not None), None)
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


def _lost_blobs(seen: Mapping[Ref, _ItemRecords]) -> list[tuple[str, str, Image]]:
    """The last images of rows that ended and left, where they have blobs; those of an unfinished
    row are kept with its quarantine entry."""
    return [
        (route, key, record.old)
        for (route, key), one in seen.items()
        if all(row.terminal for row in one.gone)
        for record in one.records
        if record.new is None and record.old is not None and has_blobs(record.old)
    ]


def _batch_name(records: Sequence[StreamRecord]) -> str | None:
    """The same for a batch that comes again."""
    return f"{records[0].seq}-{records[-1].seq}" if records else None


def _has_long_trail(image: Image | None) -> bool:
    """Whether a row has so many lines that those in the journal should leave it. (An ended row
    loses all when they are delivered.)"""
    return (
        image is not None
        and len(image.get("trail", {}).get("L", ())) > LONG_TRAIL
        and image.get("status", {}).get("S") not in ENDED
    )
