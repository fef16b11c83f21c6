"""Which shards a table's stream has, how far each has been read, and whose they are.

Every shard has a control document (kind "shard", name "<route>/<shard id>"): how far it has been read, and who may read on until
when. Every write of it is conditional on the version that the writer knows, so whoever lost a shard can move nothing on.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from milepost.core.errors import LedgerError
from milepost.ledgers.aws.requests.client import Requests
from milepost.ledgers.aws.tables.documents import Control

LEASE_MS = 60_000
LOOK_MS = 5_000
"""How old the list of shards may get before it is read again."""
SILENCE_MS = 23 * 3_600_000
"""A stream keeps its records for a day. Who comes after so long a silence cannot be sure to find them all."""
DAY_MS = 24 * 3_600_000
GAP, SHARD, POLLER = "gap", "shard", "poller"
"""Kinds of control documents: which shards' records of a route were lost unread; how far a shard is read; which processes read."""


class ShardPosition(Struct, frozen=True, omit_defaults=True):
    """A shard's document: read up to and including `seq` (None: from the oldest record on), by `holder` until `until`."""

    stream: str
    holder: str | None = None
    until: int = 0
    """The end of the lease; of a shard that nobody holds, when it was let go."""
    seq: str | None = None
    ended: int | None = None
    """When its last record had been handled; it is never read again."""

    def leased(self, now: int) -> bool:
        return self.holder is not None and self.until > now


class HeldShard(Struct):
    """A shard that is ours as far as we know. `version` is what its document must still have when we write it."""

    shard: str
    place: ShardPosition
    version: int
    iterator: str | None = None
    again: bool = True
    """What is read next may have been handled before: nothing has been since the place that is written down was read."""


class LostRecords(Struct, frozen=True):
    """Records were lost before they were read: of these shards, noticed then. Holds until it is `mended`."""

    shards: dict[str, int]
    version: int


def note_gap(control: Control, route: str, shards: list[str], now: int) -> LostRecords:
    """Write down that records of these shards were not carried out: the next repair scan of the route begins at once."""
    while True:
        document = control.get(GAP, route)
        noticed = {**(document.value if document else {}), **dict.fromkeys(shards, now)}
        written = control.put(GAP, route, noticed, document.version if document else 0)
        if written is not None:
            return LostRecords(noticed, written)


class Shards:
    """The shards of one route's stream that `holder` reads; a holder's name is used by one poller at a time.
    Not for several threads."""

    def __init__(self, requests: Requests, control: Control, route: str, table: str, holder: str) -> None:
        self._requests, self._control = requests, control
        self.route, self.table, self.holder = route, table, holder
        self.arn = ""
        self.held: dict[str, HeldShard] = {}
        self.gap: LostRecords | None = None
        self.doubtful = False
        """Is there a shard whose reader may be dead? Somebody else's lease on it has neither been renewed nor run out since we first saw
        it, or it is left to somebody who has not taken it yet."""
        self._others: dict[str, ShardPosition] = {}
        """Others' shards, as they were when each reader of theirs was first seen."""
        self._looked_at: int | None = None
        self._found_at: int | None = None
        self._announced_until = 0
        self._missing: dict[str, int] = {}

    def look(self, now: int) -> None:
        """See which shards there are, unless that was seen a few seconds ago: forget those that were lost, take those that
        are free and can be read, let go of one when others have too few."""
        if self._looked_at is not None and 0 <= now - self._looked_at < LOOK_MS:
            return
        listed = self._list(now)
        documents = self._documents()
        live = self._pollers(documents, now)
        self._forget_lost(documents)
        self._see_to_the_gone(listed, documents, now)
        left = self._share(listed, documents, live, now)
        self.doubtful = self._watch(listed, documents, now) or left
        self._read_gap()
        self._looked_at = now

    def look_again(self) -> None:
        """Something has changed: the next `look` does not wait."""
        self._looked_at = None

    def keep(self, held: HeldShard, now: int, seq: str | None) -> bool:
        """Hold the shard for another lease, read up to `seq`. False: it is not ours any more, and must be read no further."""
        return self._put(held, replace(held.place, holder=self.holder, until=now + LEASE_MS, seq=seq))

    def finish(self, held: HeldShard, now: int) -> None:
        """All its records have been handled, and there will be no more: its children may be read."""
        self._put(held, replace(held.place, holder=None, until=now, ended=now))
        self.held.pop(held.shard, None)
        self.look_again()

    def leave(self, now: int) -> None:
        """Let go of everything, so that others need not wait for the leases to run out."""
        for held in list(self.held.values()):
            self._let_go(held, now)
        self._control.write(POLLER, self._name(self.holder), None)
        self._announced_until = 0
        self.look_again()

    def missed(self, shards: list[str], now: int) -> None:
        """Records of these shards are lost. It is written down before anybody reads on, so that a crash does not hide it."""
        self.gap = note_gap(self._control, self.route, shards, now)

    def mended(self, gap: LostRecords) -> None:
        """What that gap lost has been found by other means. What was noticed since then stays."""
        self._control.write(GAP, self.route, {}, expect=gap.version)
        self._read_gap()

    def _read_gap(self) -> None:
        document = self._control.get(GAP, self.route)
        self.gap = LostRecords(document.value, document.version) if document and document.value else None

    def _name(self, part: str) -> str:
        return f"{self.route}/{part}"

    def _put(self, held: HeldShard, place: ShardPosition) -> bool:
        if not self._write(held.shard, place, held.version):
            self.held.pop(held.shard, None)
            self.look_again()
            return False
        held.place, held.version = place, held.version + 1
        return True

    def _write(self, shard: str, place: ShardPosition | None, version: int) -> bool:
        value = None if place is None else msgspec.to_builtins(place)
        return self._control.write(SHARD, self._name(shard), value, expect=version)

    def _let_go(self, held: HeldShard, now: int) -> None:
        self._put(held, replace(held.place, holder=None, until=now))
        self.held.pop(held.shard, None)

    # What there is ----------------------------------------------------------------------------------------------------
    def _list(self, now: int) -> dict[str, str | None]:
        """All shards of the stream, oldest first, each with its parent."""
        if self._found_at is None or not 0 <= now - self._found_at < LEASE_MS:
            self.arn, self._found_at = self._find(), now
        # Should this fail, the stream may be another by now: it is looked for at once the next time.
        found_at, self._found_at = self._found_at, None
        shards: dict[str, str | None] = {}
        further: dict[str, Any] = {}
        while True:
            answer = self._requests.call("dynamodbstreams", "describe_stream", StreamArn=self.arn, **further)["StreamDescription"]
            shards.update((shard["ShardId"], shard.get("ParentShardId")) for shard in answer["Shards"])
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
                f"table {self.table!r} of route {self.route!r} has the stream {found!r}, so nobody is told what changes in it;"
                " switch its stream on with the view type NEW_AND_OLD_IMAGES"
            )
        arn: str = table["LatestStreamArn"]
        return arn

    @property
    def _stream(self) -> str:
        """What tells this stream from an earlier one of the same table."""
        return self.arn.rpartition("/")[2]

    def _documents(self) -> dict[str, tuple[ShardPosition, int]]:
        documents = self._control.read(SHARD).items()
        ours = self._name("")
        return {
            name.removeprefix(ours): (msgspec.convert(document.value, ShardPosition), document.version)
            for name, document in documents
            if name.startswith(ours)
        }

    def _pollers(self, documents: dict[str, tuple[ShardPosition, int]], now: int) -> set[str]:
        """Who reads this stream at present; we are one of them from now on."""
        ours = self._name("")
        heard = {name.removeprefix(ours): document for name, document in self._control.read(POLLER).items() if name.startswith(ours)}
        last = max([place.until for place, _ in documents.values()] + [document.value for document in heard.values()], default=now)
        if documents and last < now - SILENCE_MS:
            self.missed(sorted(documents), now)
        for holder, document in heard.items():
            if document.value < now - DAY_MS and holder != self.holder:
                self._control.write(POLLER, self._name(holder), None, expect=document.version)
        if not LEASE_MS // 2 < self._announced_until - now <= LEASE_MS:
            self._control.write(POLLER, self._name(self.holder), now + LEASE_MS)
            self._announced_until = now + LEASE_MS
        return {holder for holder, document in heard.items() if document.value > now} | {self.holder}

    # Whose they are ---------------------------------------------------------------------------------------------------
    def _forget_lost(self, documents: dict[str, tuple[ShardPosition, int]]) -> None:
        for shard, held in list(self.held.items()):
            place, version = documents.get(shard, (held.place, 0))
            if version != held.version or place.holder != self.holder:
                del self.held[shard]

    def _see_to_the_gone(self, listed: dict[str, str | None], documents: dict[str, tuple[ShardPosition, int]], now: int) -> None:
        """Shards that have left the list, and those of a stream that was switched off: what had not been read is lost."""
        self._missing = {shard: at for shard, at in self._missing.items() if shard in documents and shard not in listed}
        for shard, (place, version) in list(documents.items()):
            replaced = place.stream != self._stream
            if not replaced and shard in listed:
                continue
            # A list may be incomplete for a moment. One that lacks a shard for so long is believed.
            if not replaced and now - self._missing.setdefault(shard, now) < LEASE_MS:
                continue
            if place.leased(now) and place.holder != self.holder and place.ended is None:
                continue
            self.held.pop(shard, None)
            if place.ended is None:
                self.missed([shard], now)
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

    def _watch(self, listed: dict[str, str | None], documents: dict[str, tuple[ShardPosition, int]], now: int) -> bool:
        """Is there anybody of whom only an old lease is known? Who renews it lives, and reads on."""
        known, self._others = self._others, {}
        for shard, (place, _) in documents.items():
            if shard in listed and shard not in self.held and place.holder != self.holder and place.leased(now):
                first = known.get(shard, place)
                self._others[shard] = first if first.holder == place.holder else place
        return any(first == documents[shard][0] for shard, first in self._others.items())

    def _share(self, listed: dict[str, str | None], documents: dict[str, tuple[ShardPosition, int]], live: set[str], now: int) -> bool:
        """Take what is free and ours to take, let go of one when others have too few. Was anything left to others?"""
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
                # Whoever has the fewest takes what is free; the others would have to give it up again.
                if counts[self.holder] > min(counts.values()):
                    left = True
                    continue
            place = replace(place, holder=self.holder, until=now + LEASE_MS)
            written = self._control.put("shard", self._name(shard), msgspec.to_builtins(place), version)
            if written is not None:
                self.held[shard] = HeldShard(shard, place, written)
        counts[self.holder] = len(self.held)
        # One at a time, by one poller at a time, and only once there is nothing free that others could take.
        first = max(sorted(counts), key=counts.__getitem__)
        if not left and first == self.holder and counts[first] - min(counts.values()) > 1:
            self._let_go(self.held[next(reversed(self.held))], now)
        return left

    @staticmethod
    def _read_through(shard: str, listed: dict[str, str | None], documents: dict[str, tuple[ShardPosition, int]]) -> bool:
        """Nothing more is to come of this shard: a later change of an item may be read."""
        known = documents.get(shard)
        return shard not in listed if known is None else known[0].ended is not None
