"""What changed in a route's table, as DynamoDB Streams tells it: in order for each item, at least once, within a day."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from msgspec import Struct

from milepost.core.errors import ConfigMistake, LedgerMissing
from milepost.ledgers.aws.requests.client import AwsRefused, Requests
from milepost.ledgers.aws.stream.shards import LEASE_MS, HeldShard, LostRecords, Shards
from milepost.ledgers.aws.tables.documents import Control
from milepost.ledgers.aws.tables.keys import Image

PAGE = 1000
BATCH = 100


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
    shard: str
    """Empty in a Lambda event, which does not tell."""
    by_ttl: bool = False
    again: bool = True
    """It may have been handled before, here or elsewhere. Only a poller that goes straight on from what it has just done knows that
    it was not."""


Handle = Callable[[list[StreamRecord]], str | None]
"""Takes records of one shard in their order. None: all done; else the seq of the first one that must be read again."""


class Stream:
    """Reads one route's stream together with any number of other pollers, each shard by one of them at a time.

    A shard is moved on only past what was handled; all after that is read again, by us or by whoever takes the shard over. So a
    record may be given more than once; but for a `gap` none is left out, or given for the first time after a later one of its item."""

    def __init__(self, requests: Requests, control: Control, route: str, table: str, holder: str) -> None:
        self._requests = requests
        self._shards = Shards(requests, control, route, table, holder)
        self.route = route

    @property
    def gap(self) -> LostRecords | None:
        """Set when records were lost unread, by whichever poller noticed; a scan of the table must find what they would have
        told. Say so to `mended` after it."""
        return self._shards.gap

    def mended(self, gap: LostRecords) -> None:
        """The scan for this gap is done; it began after the gap had been noticed."""
        self._shards.mended(gap)

    @property
    def held(self) -> list[str]:
        """The shards that are ours at present."""
        return list(self._shards.held)

    @property
    def doubtful(self) -> bool:
        """May there be records that nobody reads just now: of a shard whose reader may be dead, and whose lease still runs?"""
        return self._shards.doubtful

    def poll(self, handle: Handle, now: int) -> int:
        """Read on in each of our shards, one page each, and hand it over in batches; how many records were done.

        Each batch that is done moves its shard on. What fails in one shard leaves that shard where it was and does not hold up the
        others; the first such error is raised at the end. A result above 0 means that there may be more at once."""
        errors: list[Exception] = []
        done = 0
        try:
            self._shards.look(now)
        except Exception as error:
            errors.append(error)
        for held in list(self._shards.held.values()):
            try:
                done += self._read_on(held, handle, now)
            except Exception as error:
                errors.append(error)
                if isinstance(error, LedgerMissing):
                    self._shards.look_again()
        if errors:
            for other in errors[1:]:
                errors[0].add_note(f"and {type(other).__name__}: {other}")
            raise errors[0]
        return done

    def leave(self, now: int) -> None:
        """Stop reading here; others can take our shards over at once."""
        self._shards.leave(now)

    def _read_on(self, held: HeldShard, handle: Handle, now: int) -> int:
        if now >= held.place.until - LEASE_MS // 2 and not self._shards.keep(held, now, held.place.seq):
            return 0
        page = self._page(held, now)
        if page is None:
            return 0
        # Whatever ends this early, the next poll begins at the place that was written down.
        held.iterator = None
        # Whoever read here before us, perhaps we ourselves, has handled no more than one batch beyond that place.
        records = [_record(self.route, content, held.shard, held.again and nth < BATCH) for nth, content in enumerate(page["Records"])]
        done = 0
        for start in range(0, len(records), BATCH):
            batch = records[start : start + BATCH]
            again = handle(batch)
            good = len(batch) if again is None else [record.seq for record in batch].index(again)
            done += good
            # Ours no longer: whoever has the shard now reads from the last place that was written, so not one more from here.
            if good and not self._shards.keep(held, now, batch[good - 1].seq):
                return done
            if again is not None:
                return done
        held.again = held.again and not records
        held.iterator = page.get("NextShardIterator")
        if held.iterator is None:
            self._shards.finish(held, now)
        return done

    def _page(self, held: HeldShard, now: int) -> dict[str, Any] | None:
        """The next records; None if the shard is ours no longer. From a place that is too old to be read, on to the oldest record
        that there is."""
        trimmed = expired = False
        while True:
            try:
                if held.iterator is None:
                    held.again = True
                    held.iterator = self._iterator(held)
                return self._requests.call("dynamodbstreams", "get_records", ShardIterator=held.iterator, Limit=PAGE)
            except AwsRefused as error:
                held.iterator = None
                if error.code == "TrimmedDataAccessException" and not trimmed:
                    trimmed = True
                elif error.code == "ExpiredIteratorException" and not expired:
                    expired = True
                    continue
                else:
                    raise
            self._shards.missed([held.shard], now)
            if not self._shards.keep(held, now, None):
                return None

    def _iterator(self, held: HeldShard) -> str:
        place = {"ShardIteratorType": "TRIM_HORIZON"}
        if held.place.seq is not None:
            place = {"ShardIteratorType": "AFTER_SEQUENCE_NUMBER", "SequenceNumber": held.place.seq}
        answer = self._requests.call("dynamodbstreams", "get_shard_iterator", StreamArn=self._shards.arn, ShardId=held.shard, **place)
        iterator: str = answer["ShardIterator"]
        return iterator


def from_event(event: Mapping[str, Any], routes: Mapping[str, str] | Callable[[str], str | None]) -> list[StreamRecord]:
    """The records of a Lambda stream event, in their order; `routes` tells the route of a table by its name."""
    find = routes if callable(routes) else routes.get
    records = []
    for content in event["Records"]:
        table = content["eventSourceARN"].partition(":table/")[2].partition("/")[0]
        route = find(table)
        if route is None:
            raise ConfigMistake(
                f"a stream event came from {content['eventSourceARN']!r}, which is no table of a route here;"
                " take that event source off this function, or deploy the function with the route"
            )
        change = {
            name: _decoded({"M": value})["M"] if name in ("Keys", "OldImage", "NewImage") else value
            for name, value in content["dynamodb"].items()
        }
        records.append(_record(route, {**content, "dynamodb": change}, ""))
    return records


def _record(route: str, content: Mapping[str, Any], shard: str, again: bool = True) -> StreamRecord:
    change = content["dynamodb"]
    at = change.get("ApproximateCreationDateTime", 0)
    seconds = at.timestamp() if isinstance(at, datetime) else at
    # The API writes these names with capitals, Lambda without.
    actor = {name.lower(): value for name, value in (content.get("userIdentity") or {}).items()}
    return StreamRecord(
        route=route,
        name=content["eventName"],
        keys=change["Keys"],
        old=change.get("OldImage"),
        new=change.get("NewImage"),
        seq=change["SequenceNumber"],
        at=round(seconds * 1000),
        shard=shard,
        by_ttl=actor.get("type") == "Service" and actor.get("principalid") == "dynamodb.amazonaws.com",
        again=again,
    )


def _decoded(value: Mapping[str, Any]) -> dict[str, Any]:
    """An attribute value of an event, its bytes as bytes: JSON can only carry them as base64."""
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
