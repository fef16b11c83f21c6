"""A DynamoDB stream in memory: shards that split and end, records that are trimmed, and iterators
that expire."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any, NamedTuple
from zlib import crc32

from milepost_aws.aws_model.errors import AwsError, invalid
from milepost_aws.aws_model.values import Image, copy, size

PAGE, PAGE_BYTES = 1000, 1 << 20
ITERATOR_LIFE_S = 15 * 60


class Record(NamedTuple):
    """One change, as it is stored."""

    number: int
    at: float
    keys: Image
    old: Image | None
    new: Image | None
    by_ttl: bool


class Shard:
    """A part of the stream: all changes of its keys, in order."""

    def __init__(self, id: str, parent: str | None) -> None:
        self.id, self.parent = id, parent
        self.records: list[Record] = []
        self.trimmed = 0
        """Number of trimmed records."""
        self.trimmed_to = 0
        """The number of the newest trimmed record."""
        self.closed = False
        self.first: int | None = None
        """The number of its oldest record, trimmed ones included."""

    def place_after(self, number: int) -> int:
        """The place of the first record after this number, counting trimmed ones."""
        for nth, record in enumerate(self.records):
            if record.number > number:
                return self.trimmed + nth
        return self.trimmed + len(self.records)


class StreamModel:
    """The stream of one table. Records can be read at once, or, while it is held, after the
    release."""

    def __init__(
        self,
        table: str,
        arn: str,
        label: str,
        view: str,
        region: str,
        clock: Callable[[], float],
        numbers: Iterator[int],
    ) -> None:
        self.table, self.arn, self.label, self.view, self.region = table, arn, label, view, region
        self._clock, self._numbers = clock, numbers
        self.enabled = True
        self.shards: list[Shard] = []
        self._held_from: int | None = None
        self._open(None)

    # What a test can do to it ---------------------------------------------------------------------
    def split(self) -> None:
        """End every open shard; two new ones follow each."""
        for shard in [shard for shard in self.shards if not shard.closed]:
            shard.closed = True
            self._open(shard.id)
            self._open(shard.id)

    def trim(self, keep: int = 0) -> None:
        """Drop all but the newest records of each shard, as DynamoDB does after 24 hours; closed
        shards are removed when they are empty."""
        for shard in self.shards:
            gone = max(0, len(shard.records) - keep)
            if gone:
                shard.trimmed_to = shard.records[gone - 1].number
            del shard.records[:gone]
            shard.trimmed += gone
        self.shards = [shard for shard in self.shards if not shard.closed or shard.records]

    def hold(self) -> None:
        """Changes made from now on cannot be read before `release`."""
        self._held_from = next(self._numbers)

    def release(self) -> None:
        self._held_from = None

    # Writing --------------------------------------------------------------------------------------
    def add(
        self, keys: Image, old: Image | None, new: Image | None, at: float, *, by_ttl: bool = False
    ) -> None:
        if not self.enabled:
            return
        opened = [shard for shard in self.shards if not shard.closed]
        first = next(iter(keys.values()))
        shard = opened[0] if len(opened) == 1 else opened[crc32(repr(first).encode()) % len(opened)]
        record = Record(next(self._numbers), at, keys, old, new, by_ttl)
        shard.first = record.number if shard.first is None else shard.first
        shard.records.append(record)

    def _open(self, parent: str | None) -> None:
        self.shards.append(
            Shard(f"shardId-{next(self._numbers):020d}-{crc32(self.arn.encode()):08x}", parent)
        )

    # Reading --------------------------------------------------------------------------------------
    def describe(self, start: str | None, limit: int) -> dict[str, Any]:
        ids = [shard.id for shard in self.shards]
        begin = ids.index(start) + 1 if start in ids else 0
        page = self.shards[begin : begin + limit]
        answer = {
            "StreamArn": self.arn,
            "StreamLabel": self.label,
            "StreamStatus": "ENABLED" if self.enabled else "DISABLED",
            "StreamViewType": self.view,
            "TableName": self.table,
            "Shards": [_described(shard) for shard in page],
        }
        if begin + limit < len(self.shards):
            answer["LastEvaluatedShardId"] = page[-1].id
        return answer

    def shard(self, id: str) -> Shard:
        for shard in self.shards:
            if shard.id == id:
                return shard
        raise AwsError(
            "ResourceNotFoundException",
            f"Requested resource not found: Shard {id} in Stream {self.arn} not found",
        )

    def iterator(self, shard_id: str, kind: str, number: str | None) -> str:
        shard = self.shard(shard_id)
        if kind == "TRIM_HORIZON":
            place = shard.trimmed
        elif kind == "LATEST":
            place = shard.trimmed + len(shard.records)
        else:
            if number is None or not number.isdigit():
                raise invalid("Invalid SequenceNumber")
            after = int(number) - (kind == "AT_SEQUENCE_NUMBER")
            if after < shard.trimmed_to:
                raise AwsError(
                    "TrimmedDataAccessException",
                    f"Records past the sequence number {number} have been trimmed",
                )
            place = shard.place_after(after)
        return f"{self.arn}|{shard.id}|{place}|{self._clock():.3f}"

    def read(self, shard_id: str, place: int, made_at: float, limit: int) -> dict[str, Any]:
        """A page of records, and the iterator past it."""
        if self._clock() - made_at > ITERATOR_LIFE_S:
            raise AwsError(
                "ExpiredIteratorException",
                "The iterator has expired; it was made more than 15 minutes ago",
            )
        shard = self.shard(shard_id)
        if place < shard.trimmed:
            raise AwsError(
                "TrimmedDataAccessException", "The records at this iterator have been trimmed"
            )
        records: list[dict[str, Any]] = []
        length = 0
        for record in shard.records[
            place - shard.trimmed : place - shard.trimmed + min(limit, PAGE)
        ]:
            if self._held_from is not None and record.number > self._held_from:
                break
            length += size(record.new or {}) + size(record.old or {})
            if records and length > PAGE_BYTES:
                break
            records.append(self._shown(record))
        answer: dict[str, Any] = {"Records": records}
        place += len(records)
        if not shard.closed or place < shard.trimmed + len(shard.records):
            answer["NextShardIterator"] = f"{self.arn}|{shard.id}|{place}|{self._clock():.3f}"
        return answer

    def _shown(self, record: Record) -> dict[str, Any]:
        change: dict[str, Any] = {
            "ApproximateCreationDateTime": datetime.fromtimestamp(int(record.at), UTC),
            "Keys": copy(record.keys),
            "SequenceNumber": f"{record.number:021d}",
            "SizeBytes": size(record.keys) + size(record.new or {}) + size(record.old or {}),
            "StreamViewType": self.view,
        }
        if record.new is not None and self.view in ("NEW_IMAGE", "NEW_AND_OLD_IMAGES"):
            change["NewImage"] = copy(record.new)
        if record.old is not None and self.view in ("OLD_IMAGE", "NEW_AND_OLD_IMAGES"):
            change["OldImage"] = copy(record.old)
        shown: dict[str, Any] = {
            "eventID": f"{record.number:032x}",
            "eventName": "INSERT"
            if record.old is None
            else "REMOVE"
            if record.new is None
            else "MODIFY",
            "eventVersion": "1.1",
            "eventSource": "aws:dynamodb",
            "awsRegion": self.region,
            "dynamodb": change,
        }
        if record.by_ttl:
            shown["userIdentity"] = {"PrincipalId": "dynamodb.amazonaws.com", "Type": "Service"}
        return shown


def _described(shard: Shard) -> dict[str, Any]:
    numbers = {"StartingSequenceNumber": f"{shard.first or 0:021d}"}
    if shard.closed:
        numbers["EndingSequenceNumber"] = f"{shard.records[-1].number if shard.records else 0:021d}"
    described: dict[str, Any] = {"ShardId": shard.id, "SequenceNumberRange": numbers}
    if shard.parent is not None:
        described["ParentShardId"] = shard.parent
    return described


class DynamoDbStreams:
    """The operations of DynamoDB Streams."""

    def __init__(self, streams: Callable[[], list[StreamModel]]) -> None:
        self._streams = streams

    def describe_stream(self, params: dict[str, Any]) -> dict[str, Any]:
        stream = self._find(params["StreamArn"])
        return {
            "StreamDescription": stream.describe(
                params.get("ExclusiveStartShardId"), params.get("Limit", 100)
            )
        }

    def list_streams(self, params: dict[str, Any]) -> dict[str, Any]:
        table = params.get("TableName")
        named = (
            {"StreamArn": one.arn, "TableName": one.table, "StreamLabel": one.label}
            for one in self._streams()
        )
        return {"Streams": [one for one in named if table in (None, one["TableName"])]}

    def get_shard_iterator(self, params: dict[str, Any]) -> dict[str, Any]:
        stream = self._find(params["StreamArn"])
        return {
            "ShardIterator": stream.iterator(
                params["ShardId"], params["ShardIteratorType"], params.get("SequenceNumber")
            )
        }

    def get_records(self, params: dict[str, Any]) -> dict[str, Any]:
        parts = str(params["ShardIterator"]).split("|")
        if len(parts) != 4:
            raise invalid("Invalid ShardIterator")
        return self._find(parts[0]).read(
            parts[1], int(parts[2]), float(parts[3]), params.get("Limit", PAGE)
        )

    def _find(self, arn: str) -> StreamModel:
        for stream in self._streams():
            if stream.arn == arn:
                return stream
        raise AwsError(
            "ResourceNotFoundException", f"Requested resource not found: Stream: {arn} not found"
        )
