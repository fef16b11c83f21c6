"""Records of a route's DynamoDB stream: row changes, in order per item, delivered at least once, kept for a day."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from msgspec import Struct

from milepost.core.errors import ConfigMistake, LedgerMissing
from milepost.ledgers.aws.requests.client import AwsRefused, Requests
from milepost.ledgers.aws.stream.shards import LEASE_MS, HeldShard, Shards
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
    again: bool = True
    """It may have been handled before, here or elsewhere. Only a poller that continues directly after its own last record knows that
    it was not."""


Handle = Callable[[list[StreamRecord]], str | None]
"""Handles records of one shard in order. None: all handled; else the seq of the first one that must be read again."""


class Stream:
    """Reads one route's stream together with any number of other pollers; each shard has one poller at a time.

    A shard's position moves only past handled records; later ones are read again, here or by the next poller of the shard. So a
    record may come more than once. Except after lost records, none is missed, and none comes for the first time after a later one of its
    item."""

    def __init__(self, requests: Requests, control: Control, route: str, table: str, holder: str) -> None:
        self._requests = requests
        self.shards = Shards(requests, control, route, table, holder)
        self.route = route

    def poll(self, handle: Handle, now: int) -> int:
        """Read one page of each held shard and pass it to `handle` in batches; returns how many records were handled.

        Each handled batch moves its shard's position. A failure in one shard leaves its position unchanged and does not stop the
        others; the first such error is raised at the end. A result above 0 means that more records may be available now."""
        errors: list[Exception] = []
        done = 0
        try:
            self.shards.refresh(now)
        except Exception as error:
            errors.append(error)
        for held in list(self.shards.held.values()):
            try:
                done += self._read_on(held, handle, now)
            except Exception as error:
                errors.append(error)
                if isinstance(error, LedgerMissing):
                    self.shards.refresh_soon()
        if errors:
            for other in errors[1:]:
                errors[0].add_note(f"and {type(other).__name__}: {other}")
            raise errors[0]
        return done

    def _read_on(self, held: HeldShard, handle: Handle, now: int) -> int:
        if now >= held.place.until - LEASE_MS // 2 and not self.shards.keep(held, now, held.place.seq):
            return 0
        page = self._page(held, now)
        if page is None:
            return 0
        # Whatever ends this early, the next poll begins at the saved position.
        held.iterator = None
        # The previous reader, perhaps this process, has handled at most one batch beyond that position.
        records = [_record(self.route, content, held.again and nth < BATCH) for nth, content in enumerate(page["Records"])]
        done = 0
        for start in range(0, len(records), BATCH):
            batch = records[start : start + BATCH]
            again = handle(batch)
            good = len(batch) if again is None else [record.seq for record in batch].index(again)
            done += good
            # No longer ours: the new poller reads from the last saved position, so read no further here.
            if good and not self.shards.keep(held, now, batch[good - 1].seq):
                return done
            if again is not None:
                return done
        held.again = held.again and not records
        held.iterator = page.get("NextShardIterator")
        if held.iterator is None:
            self.shards.finish(held, now)
        return done

    def _page(self, held: HeldShard, now: int) -> dict[str, Any] | None:
        """The next records; None if the shard is no longer ours. If the position is too old to be read, continues at the oldest record
        that exists."""
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
            self.shards.note_lost([held.shard], now)
            if not self.shards.keep(held, now, None):
                return None

    def _iterator(self, held: HeldShard) -> str:
        place = {"ShardIteratorType": "TRIM_HORIZON"}
        if held.place.seq is not None:
            place = {"ShardIteratorType": "AFTER_SEQUENCE_NUMBER", "SequenceNumber": held.place.seq}
        answer = self._requests.call("dynamodbstreams", "get_shard_iterator", StreamArn=self.shards.arn, ShardId=held.shard, **place)
        iterator: str = answer["ShardIterator"]
        return iterator


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
