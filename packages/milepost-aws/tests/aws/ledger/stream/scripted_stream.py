"""A stream with any number of shards: answers the four requests of a stream reader from lists."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from typing import Any

from milepost.core.errors import LedgerMissing
from milepost_aws.ledger.requests.client import AwsRefused


class Shard:
    def __init__(self, parent: str | None) -> None:
        self.parent = parent
        self.records: list[dict[str, Any]] = []
        self.trimmed = 0
        self.closed = False


class Reader:
    """In the place of Requests. Records are numbered through all shards, as on AWS; a split closes
    a shard and opens two."""

    def __init__(self, *shards: str) -> None:
        self.shards = {shard: Shard(None) for shard in shards}
        self.hidden: set[str] = set()
        self.label = "2026-11-15T19:30:00.123"
        self.view: str | None = "NEW_AND_OLD_IMAGES"
        self.counts: Counter[str] = Counter()
        self.failing: dict[str, Exception] = {}
        self._seq = 10**20
        self._iterators: dict[str, tuple[str, int]] = {}

    # What happens to it ---------------------------------------------------------------------------
    def write(self, shard: str, key: str, **more: Any) -> str:
        assert not self.shards[shard].closed
        self._seq += 1
        change = {
            "Keys": {"key": {"S": key}},
            "NewImage": {"key": {"S": key}, "n": {"N": str(self._seq)}},
            "SequenceNumber": str(self._seq),
            "ApproximateCreationDateTime": datetime(2026, 11, 15, 19, 30, tzinfo=UTC),
        }
        self.shards[shard].records.append({"eventName": "INSERT", "dynamodb": change, **more})
        return str(self._seq)

    def split(self, shard: str, *children: str) -> None:
        self.shards[shard].closed = True
        self.shards |= {child: Shard(shard) for child in children}

    def trim(self, shard: str, left: int = 0) -> None:
        """All but the last few records have become a day old."""
        self.shards[shard].trimmed = len(self.shards[shard].records) - left

    def expire_iterators(self) -> None:
        self._iterators.clear()

    # What it is asked -----------------------------------------------------------------------------
    def call(self, service: str, operation: str, /, **params: Any) -> dict[str, Any]:
        assert service == ("dynamodb" if operation == "describe_table" else "dynamodbstreams")
        self.counts[operation] += 1
        if operation in self.failing:
            raise self.failing[operation]
        answer: dict[str, Any] = getattr(self, f"_{operation}")(**params)
        return answer

    @property
    def arn(self) -> str:
        return f"arn:aws:dynamodb:eu-central-1:000000000000:table/rows/stream/{self.label}"

    def _describe_table(self, TableName: str) -> dict[str, Any]:
        stream = {"StreamEnabled": True, "StreamViewType": self.view}
        return {
            "Table": {"LatestStreamArn": self.arn, "StreamSpecification": stream}
            if self.view
            else {}
        }

    def _describe_stream(
        self, StreamArn: str, ExclusiveStartShardId: str | None = None
    ) -> dict[str, Any]:
        """Two shards a page, the newest first: a reader must not rely on an order."""
        self._check(StreamArn)
        names = [name for name in reversed(self.shards) if name not in self.hidden]
        start = 0 if ExclusiveStartShardId is None else names.index(ExclusiveStartShardId) + 1
        page = [self._told(name) for name in names[start : start + 2]]
        last = {"LastEvaluatedShardId": page[-1]["ShardId"]} if start + 2 < len(names) else {}
        return {"StreamDescription": {"StreamArn": self.arn, "Shards": page, **last}}

    def _told(self, name: str) -> dict[str, str]:
        parent = self.shards[name].parent
        return {"ShardId": name} | ({"ParentShardId": parent} if parent else {})

    def _get_shard_iterator(
        self,
        StreamArn: str,
        ShardId: str,
        ShardIteratorType: str,
        SequenceNumber: str | None = None,
    ) -> dict[str, Any]:
        self._check(StreamArn, ShardId)
        shard = self.shards[ShardId]
        place = shard.trimmed
        if ShardIteratorType != "TRIM_HORIZON":
            assert ShardIteratorType == "AFTER_SEQUENCE_NUMBER"
            place = [record["dynamodb"]["SequenceNumber"] for record in shard.records].index(
                SequenceNumber
            ) + 1
            if place <= shard.trimmed:
                raise AwsRefused("trimmed", "TrimmedDataAccessException")
        return {"ShardIterator": self._iterator(ShardId, place)}

    def _get_records(self, ShardIterator: str, Limit: int) -> dict[str, Any]:
        if ShardIterator not in self._iterators:
            raise AwsRefused("expired", "ExpiredIteratorException")
        name, place = self._iterators[ShardIterator]
        self._check(self.arn, name)
        shard = self.shards[name]
        if place < shard.trimmed:
            raise AwsRefused("trimmed", "TrimmedDataAccessException")
        page = shard.records[place : place + Limit]
        at_end = shard.closed and place + len(page) == len(shard.records)
        return {"Records": page} | (
            {} if at_end else {"NextShardIterator": self._iterator(name, place + len(page))}
        )

    def _iterator(self, shard: str, place: int) -> str:
        token = f"iterator {shard} {place}"
        self._iterators[token] = shard, place
        return token

    def _check(self, arn: str, shard: str | None = None) -> None:
        if arn != self.arn or (shard is not None and shard not in self.shards):
            raise LedgerMissing("no such stream or shard")
