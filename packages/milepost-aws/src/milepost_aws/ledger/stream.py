"""DynamoDB stream of a route's table: its shards with their read positions, and its records.

Records are row changes, in order per item, delivered at least once and kept for a day. Every shard
has a control document (kind "shard", name "<route>/<shard id>") with its position, the process that
holds it, and the lease's end. Every write of it is conditional on the version that the writer
knows, so a process that has lost a shard cannot move its position. The counts of the records up to
a position are written with it, in one transaction: so a batch that two processes have read is
counted once.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import groupby
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from milepost.core.errors import ConfigMistake, LedgerError, LedgerMissing
from milepost.ports.documents import Document, sort_out, update
from milepost.ports.runner import Clock
from milepost_aws.ledger.requests.client import AwsRefused, Requests
from milepost_aws.ledger.tables.counters import MOST_CELLS, Counters, CounterTally, RowChange
from milepost_aws.ledger.tables.documents import Control
from milepost_aws.ledger.tables.keys import Image

PAGE, BATCH = 1000, 100
"""Records of one request, and those that are handled together."""
LEASE_MS = 60_000
LOOK_MS = 5_000
"""Maximum age of the list of shards."""
SILENCE_MS = 23 * 3_600_000
"""A stream keeps its records for a day. After such a silence some records may be gone."""
DAY_MS = 24 * 3_600_000
GAP, SHARD, POLLER = "gap", "shard", "poller"
"""Kinds of control documents: shards whose records were lost unread; position of a shard; processes
that read."""


class ShardPosition(Struct, frozen=True, omit_defaults=True):
    """A shard's document: read up to and including `seq` (None: from the oldest record), by
    `holder` until `until`."""

    stream: str
    holder: str | None = None
    until: int = 0
    """End of the lease; for a shard without a holder, when it was released."""
    seq: str | None = None
    ended: int | None = None
    """When its last record was handled; it is never read again."""

    def leased(self, now: int) -> bool:
        return self.holder is not None and self.until > now


Positions = dict[str, tuple[ShardPosition, int]]
"""Documents by shard, each with its version."""


class HeldShard(Struct):
    """A shard that is ours as far as we know. `version` is the version its document must have when
    we write it."""

    shard: str
    place: ShardPosition
    version: int
    iterator: str | None = None
    again: bool = True
    """The next records may have been handled before: none was since the saved position was read."""


def note_lost(control: Control, route: str, shards: list[str], now: int) -> None:
    """Record that changes of these shards were not carried out: the route's next repair scan begins
    at once. This is written before reading continues, so that a crash does not hide it."""

    def noted(present: dict[str, int] | None) -> dict[str, int]:
        return {**(present or {}), **dict.fromkeys(shards, now)}

    update(control, GAP, route, dict[str, int], noted)


def lost_records(control: Control, route: str) -> Document | None:
    """Shards whose records were lost unread and are not repaired yet, with the time at which that
    was noticed; None: there are none. The repair scan clears the document (`clear_lost`)."""
    document = control.read_one(GAP, route)
    return document if document and document.value else None


def clear_lost(control: Control, route: str, version: int) -> None:
    """Clear the lost records of this version after their repair. Records that were lost since then
    stay."""
    control.write(GAP, route, {}, version)


class Shards:
    """The shards of one route's stream that `holder` reads; only one poller at a time uses a
    holder's name. Not thread-safe."""

    def __init__(
        self, requests: Requests, control: Control, route: str, table: str, holder: str
    ) -> None:
        self._requests, self._control = requests, control
        self.route, self.table, self.holder = route, table, holder
        self.arn = ""
        self.held: dict[str, HeldShard] = {}
        self.maybe_unread = False
        """Whether the reader of a shard may be dead: another process's lease has been neither
        renewed nor ended since we first saw it, or the process that the shard is left to has not
        taken it yet."""
        self._others: dict[str, ShardPosition] = {}
        """Other processes' shards, as they were when each reader was first seen."""
        self._refreshed_at: int | None = None
        self._found_at: int | None = None
        self._announced_until = 0
        self._missing: dict[str, int] = {}

    def refresh(self, now: int) -> None:
        """Refresh the list of shards, at most every few seconds: forget lost ones, take free and
        readable ones, release one when other pollers have too few."""
        if self._refreshed_at is not None and 0 <= now - self._refreshed_at < LOOK_MS:
            return
        listed = self._list(now)
        positions = self._read(SHARD)
        documents, damaged = sort_out(positions, SHARD, ShardPosition)
        # A shard whose position is damaged is read anew: a change that is handled twice has no
        # second effect.
        documents |= {
            shard: (ShardPosition(self._stream, until=now), positions[shard].version)
            for shard in damaged
        }
        live = self._pollers(documents, now)
        self._forget_lost(documents)
        self._forget_gone(listed, documents, now)
        left = self._share(listed, documents, live, now)
        self.maybe_unread = self._has_silent_reader(listed, documents, now) or left
        self._refreshed_at = now

    def refresh_soon(self) -> None:
        """Make the next `refresh` refresh at once."""
        self._refreshed_at = None

    def keep(
        self, held: HeldShard, now: int, seq: str | None, counts: Sequence[dict[str, Any]] = ()
    ) -> bool:
        """Renew the lease, with everything up to `seq` read and, in the same transaction, counted.
        False: nothing was written; the shard is no longer ours and must not be read further."""
        return self._put(
            held, replace(held.place, holder=self.holder, until=now + LEASE_MS, seq=seq), counts
        )

    def finish(self, held: HeldShard, now: int) -> None:
        """All its records are handled, and no more will come: its children may be read."""
        self._put(held, replace(held.place, holder=None, until=now, ended=now))
        self.held.pop(held.shard, None)
        self.refresh_soon()

    def leave(self, now: int) -> None:
        """Release all shards, so that other pollers need not wait for the leases to end."""
        for held in list(self.held.values()):
            self._release(held, now)
        self._control.write(POLLER, self._name(self.holder), None)
        self._announced_until = 0
        self.refresh_soon()

    def _name(self, part: str) -> str:
        return f"{self.route}/{part}"

    def _put(
        self, held: HeldShard, place: ShardPosition, counts: Sequence[dict[str, Any]] = ()
    ) -> bool:
        if counts:
            written = (
                self._control.put_with(
                    SHARD, self._name(held.shard), msgspec.to_builtins(place), held.version, counts
                )
                is not None
            )
        else:
            written = self._write(held.shard, place, held.version)
        if not written:
            self.held.pop(held.shard, None)
            self.refresh_soon()
            return False
        held.place, held.version = place, held.version + 1
        return True

    def _write(self, shard: str, place: ShardPosition | None, version: int) -> bool:
        value = None if place is None else msgspec.to_builtins(place)
        return self._control.write(SHARD, self._name(shard), value, expect=version)

    def _release(self, held: HeldShard, now: int) -> None:
        self._put(held, replace(held.place, holder=None, until=now))
        self.held.pop(held.shard, None)

    # List of shards -------------------------------------------------------------------------------
    def _list(self, now: int) -> dict[str, str | None]:
        """All shards of the stream, oldest first, each with its parent."""
        if self._found_at is None or not 0 <= now - self._found_at < LEASE_MS:
            self.arn, self._found_at = self._find(), now
        # If this fails, the stream may have been replaced: look it up again the next time.
        found_at, self._found_at = self._found_at, None
        shards: dict[str, str | None] = {}
        further: dict[str, Any] = {}
        while True:
            answer = self._requests.call(
                "dynamodbstreams", "describe_stream", StreamArn=self.arn, **further
            )["StreamDescription"]
            shards.update(
                (shard["ShardId"], shard.get("ParentShardId")) for shard in answer["Shards"]
            )
            if not answer.get("LastEvaluatedShardId"):
                self._found_at = found_at
                return shards
            further = {"ExclusiveStartShardId": answer["LastEvaluatedShardId"]}

    def _find(self) -> str:
        table = self._requests.call("dynamodb", "describe_table", TableName=self.table)["Table"]
        stream = table.get("StreamSpecification", {})
        if not stream.get("StreamEnabled") or stream.get("StreamViewType") != "NEW_AND_OLD_IMAGES":
            found = stream.get("StreamViewType") if stream.get("StreamEnabled") else "none"
            raise LedgerError(
                f"table {self.table!r} of route {self.route!r} has the stream {found!r}, so its changes cannot be read;"
                " switch its stream on with the view type NEW_AND_OLD_IMAGES"
            )
        arn: str = table["LatestStreamArn"]
        return arn

    @property
    def _stream(self) -> str:
        """Label that distinguishes this stream from an earlier one of the same table."""
        return self.arn.rpartition("/")[2]

    def _read(self, kind: str) -> dict[str, Document]:
        """The documents of this route, by shard or holder."""
        ours = self._name("")
        return {
            name.removeprefix(ours): document
            for name, document in self._control.read(kind).items()
            if name.startswith(ours)
        }

    def _pollers(self, documents: Positions, now: int) -> set[str]:
        """The present readers of this stream, including this process from now on."""
        pollers, _ = sort_out(self._read(POLLER), POLLER, int)
        last = max(
            [place.until for place, _ in documents.values()]
            + [until for until, _ in pollers.values()],
            default=now,
        )
        if documents and last < now - SILENCE_MS:
            note_lost(self._control, self.route, sorted(documents), now)
        for holder, (until, version) in pollers.items():
            if until < now - DAY_MS and holder != self.holder:
                self._control.write(POLLER, self._name(holder), None, expect=version)
        if not LEASE_MS // 2 < self._announced_until - now <= LEASE_MS:
            self._control.write(POLLER, self._name(self.holder), now + LEASE_MS)
            self._announced_until = now + LEASE_MS
        return {holder for holder, (until, _) in pollers.items() if until > now} | {self.holder}

    # Holders --------------------------------------------------------------------------------------
    def _forget_lost(self, documents: Positions) -> None:
        for shard, held in list(self.held.items()):
            place, version = documents.get(shard, (held.place, 0))
            if version != held.version or place.holder != self.holder:
                del self.held[shard]

    def _forget_gone(self, listed: dict[str, str | None], documents: Positions, now: int) -> None:
        """Shards that have left the list, and those of a stream that was switched off: their unread
        records are lost."""
        self._missing = {
            shard: at
            for shard, at in self._missing.items()
            if shard in documents and shard not in listed
        }
        for shard, (place, version) in list(documents.items()):
            replaced = place.stream != self._stream
            if not replaced and shard in listed:
                continue
            # A list may be incomplete for a moment; a shard counts as gone only after it was
            # missing for this long.
            if not replaced and now - self._missing.setdefault(shard, now) < LEASE_MS:
                continue
            if place.leased(now) and place.holder != self.holder and place.ended is None:
                continue
            self.held.pop(shard, None)
            if place.ended is None:
                note_lost(self._control, self.route, [shard], now)
            if shard in listed:
                changed: ShardPosition | None = ShardPosition(self._stream)
            elif place.ended is None:
                changed = replace(place, holder=None, until=now, ended=now)
            elif replaced or place.ended < now - DAY_MS:
                changed = None
            else:
                continue
            if not self._write(shard, changed, version):
                continue
            if changed is None:
                del documents[shard]
            else:
                documents[shard] = changed, version + 1

    def _has_silent_reader(
        self, listed: dict[str, str | None], documents: Positions, now: int
    ) -> bool:
        """Whether a reader is known only by an old lease. A reader that renews its lease is
        alive."""
        known, self._others = self._others, {}
        for shard, (place, _) in documents.items():
            if (
                shard in listed
                and shard not in self.held
                and place.holder != self.holder
                and place.leased(now)
            ):
                first = known.get(shard, place)
                self._others[shard] = first if first.holder == place.holder else place
        return any(first == documents[shard][0] for shard, first in self._others.items())

    def _share(
        self, listed: dict[str, str | None], documents: Positions, live: set[str], now: int
    ) -> bool:
        """Take free shards up to our share; release one when other pollers have too few. Returns
        whether any was left to others."""
        counts = dict.fromkeys(live, 0)
        for place, _ in documents.values():
            if place.holder is not None and place.holder != self.holder and place.leased(now):
                counts[place.holder] = counts.get(place.holder, 0) + 1
        left = False
        for shard, parent in listed.items():
            counts[self.holder] = len(self.held)
            place, version = documents.get(shard, (ShardPosition(self._stream), 0))
            if shard in self.held or place.ended is not None or place.stream != self._stream:
                continue
            if parent is not None and not self._read_through(parent, listed, documents):
                continue
            if place.holder != self.holder:
                if place.leased(now):
                    continue
                # The poller with the fewest shards takes the free one; the others would have to
                # release it again.
                if counts[self.holder] > min(counts.values()):
                    left = True
                    continue
            place = replace(place, holder=self.holder, until=now + LEASE_MS)
            written = self._control.put(
                SHARD, self._name(shard), msgspec.to_builtins(place), version
            )
            if written is not None:
                self.held[shard] = HeldShard(shard, place, written)
        counts[self.holder] = len(self.held)
        # One shard at a time, by one poller at a time, and only when no free shard is left for the
        # others.
        first = max(sorted(counts), key=counts.__getitem__)
        if not left and first == self.holder and counts[first] - min(counts.values()) > 1:
            self._release(self.held[next(reversed(self.held))], now)
        return left

    @staticmethod
    def _read_through(shard: str, listed: dict[str, str | None], documents: Positions) -> bool:
        """Whether the shard is read completely, so that later changes of its items may be read."""
        known = documents.get(shard)
        return shard not in listed if known is None else known[0].ended is not None


# Records ------------------------------------------------------------------------------------------
class StreamRecord(Struct, frozen=True):
    """One change of one row."""

    route: str
    name: str
    """INSERT, MODIFY or REMOVE."""
    keys: Image
    old: Image | None
    new: Image | None
    seq: str
    at: int
    again: bool = True
    """It may have been handled before, here or elsewhere. Only a poller that continues directly
    after its own last record knows that it was not."""


class HandledBatch(Struct, frozen=True):
    """What became of a batch of records."""

    changes: Sequence[RowChange] = ()
    """Changes to be counted with the position, in the order of the records."""
    again: str | None = None
    """The seq of the first record that must be read again; None: all are handled."""
    counted: Callable[[], None] = lambda: None
    """Called when the changes are counted and the position is written."""


Handle = Callable[[list[StreamRecord]], HandledBatch | None]
"""Handles records of one shard in order. None: all handled, and nothing is to be counted."""


class Stream:
    """Reads one route's stream together with any number of other pollers; each shard has one poller
    at a time.

    A shard's position moves only past handled records; later ones are read again, here or by the
    next poller of the shard. So a record may come more than once. Except after lost records, none
    is missed, and none comes for the first time after a later one of its item."""

    def __init__(
        self, requests: Requests, control: Control, route: str, table: str, holder: str
    ) -> None:
        self._requests, self._control = requests, control
        self._counters = Counters(requests, control.names)
        self.shards = Shards(requests, control, route, table, holder)
        self.route = route

    def poll(self, handle: Handle, clock: Clock) -> int:
        """Read one page of each held shard and pass it to `handle` in batches; returns how many
        records were handled.

        Each handled batch moves its shard's position. A failure in one shard leaves its position
        unchanged and does not stop the others; the first such error is raised at the end. A result
        above 0 means that more records may be available now. A page may take minutes, so the lease
        is renewed by the clock, not by the time at which the poll began."""
        errors: list[Exception] = []
        done = 0
        try:
            self.shards.refresh(clock.now())
        except Exception as error:
            errors.append(error)
        for held in list(self.shards.held.values()):
            try:
                done += self._read_on(held, handle, clock)
            except Exception as error:
                errors.append(error)
                if isinstance(error, LedgerMissing):
                    self.shards.refresh_soon()
        if errors:
            for other in errors[1:]:
                errors[0].add_note(f"and {type(other).__name__}: {other}")
            raise errors[0]
        return done

    def _read_on(self, held: HeldShard, handle: Handle, clock: Clock) -> int:
        if not self._has_time(held, clock):
            return 0
        page = self._page(held, clock)
        if page is None:
            return 0
        # Whatever ends this early, the next poll begins at the saved position.
        held.iterator = None
        # The previous reader, perhaps this process, has handled at most one batch beyond that
        # position.
        records = [
            _record(self.route, content, held.again and nth < BATCH)
            for nth, content in enumerate(page["Records"])
        ]
        done = 0
        for start in range(0, len(records), BATCH):
            # No longer ours: the new poller reads from the last saved position, so read no further
            # here.
            if not self._has_time(held, clock):
                return done
            batch = records[start : start + BATCH]
            handled = handle(batch) or HandledBatch()
            good = (
                len(batch)
                if handled.again is None
                else [record.seq for record in batch].index(handled.again)
            )
            done += good
            if good and not self._move(held, clock, batch[good - 1].seq, handled.changes):
                return done
            handled.counted()
            if handled.again is not None:
                return done
        held.again = held.again and not records
        held.iterator = page.get("NextShardIterator")
        if held.iterator is None:
            self.shards.finish(held, clock.now())
        return done

    def _has_time(self, held: HeldShard, clock: Clock) -> bool:
        """Whether at least half of the lease is left for the next step, after renewing it if need
        be. False: the shard is no longer ours."""
        now = clock.now()
        return now < held.place.until - LEASE_MS // 2 or self.shards.keep(held, now, held.place.seq)

    def _move(self, held: HeldShard, clock: Clock, seq: str, changes: Sequence[RowChange]) -> bool:
        """Move the position up to `seq`, and count these changes with it. False: the shard is no
        longer ours."""
        if not changes:
            return self.shards.keep(held, clock.now(), seq)
        for last, tally in _portions(changes, seq):
            if not self.shards.keep(held, clock.now(), last, self._counters.writes(tally)):
                return False
            self._counters.note_last(tally)
        return True

    def _page(self, held: HeldShard, clock: Clock) -> dict[str, Any] | None:
        """The next records; None if the shard is no longer ours. If the position is too old to be
        read, continues at the oldest record that exists."""
        trimmed = expired = False
        while True:
            try:
                if held.iterator is None:
                    held.again = True
                    held.iterator = self._iterator(held)
                return self._requests.call(
                    "dynamodbstreams", "get_records", ShardIterator=held.iterator, Limit=PAGE
                )
            except AwsRefused as error:
                held.iterator = None
                if error.code == "TrimmedDataAccessException" and not trimmed:
                    trimmed = True
                elif error.code == "ExpiredIteratorException" and not expired:
                    expired = True
                    continue
                else:
                    raise
            note_lost(self._control, self.route, [held.shard], clock.now())
            if not self.shards.keep(held, clock.now(), None):
                return None

    def _iterator(self, held: HeldShard) -> str:
        place = {"ShardIteratorType": "TRIM_HORIZON"}
        if held.place.seq is not None:
            place = {"ShardIteratorType": "AFTER_SEQUENCE_NUMBER", "SequenceNumber": held.place.seq}
        answer = self._requests.call(
            "dynamodbstreams",
            "get_shard_iterator",
            StreamArn=self.shards.arn,
            ShardId=held.shard,
            **place,
        )
        iterator: str = answer["ShardIterator"]
        return iterator


def _portions(changes: Sequence[RowChange], seq: str) -> Iterator[tuple[str, CounterTally]]:
    """The changes of a batch in portions that fit into a transaction each, with the last record of
    each; the last portion ends at `seq`."""
    whole = CounterTally.of(changes)
    if whole.cells <= MOST_CELLS:
        yield seq, whole
        return
    portion: list[RowChange] = []
    for _, of_record in groupby(changes, key=lambda change: change.seq):
        added = list(of_record)
        if portion and CounterTally.of([*portion, *added]).cells > MOST_CELLS:
            yield portion[-1].seq, CounterTally.of(portion)
            portion = []
        portion += added
    yield seq, CounterTally.of(portion)


def from_event(event: Mapping[str, Any], routes: Mapping[str, str]) -> list[StreamRecord]:
    """The records of a Lambda stream event, in order; `routes` gives the route of a table."""
    records = []
    for content in event["Records"]:
        table = content["eventSourceARN"].partition(":table/")[2].partition("/")[0]
        route = routes.get(table)
        if route is None:
            raise ConfigMistake(
                f"a stream event came from {content['eventSourceARN']!r}, which is not the table of a route of this function;"
                " remove that event source from the function, or deploy the function with the route"
            )
        change = {
            name: _decoded({"M": value})["M"] if name in ("Keys", "OldImage", "NewImage") else value
            for name, value in content["dynamodb"].items()
        }
        records.append(_record(route, {**content, "dynamodb": change}))
    return records


def _record(route: str, content: Mapping[str, Any], again: bool = True) -> StreamRecord:
    change = content["dynamodb"]
    at = change.get("ApproximateCreationDateTime", 0)
    seconds = at.timestamp() if isinstance(at, datetime) else at
    return StreamRecord(
        route=route,
        name=content["eventName"],
        keys=change["Keys"],
        old=change.get("OldImage"),
        new=change.get("NewImage"),
        seq=change["SequenceNumber"],
        at=round(seconds * 1000),
        again=again,
    )


def _decoded(value: Mapping[str, Any]) -> dict[str, Any]:
    """An attribute value of an event with base64 text decoded to bytes."""
    ((kind, content),) = value.items()
    if kind == "B":
        return {"B": b64decode(content)}
    if kind == "BS":
        return {"BS": [b64decode(one) for one in content]}
    if kind == "L":
        return {"L": [_decoded(one) for one in content]}
    if kind == "M":
        return {"M": {name: _decoded(one) for name, one in content.items()}}
    return dict(value)
