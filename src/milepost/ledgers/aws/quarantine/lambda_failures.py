"""Reads the messages that Lambda itself puts into quarantine when it gives up: a batch of a stream's records, or a delivered list."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

BATCH, LIST = "stream batch", "list"
CONDITIONS = {
    "RetryAttemptsExhausted": "it had failed as often as it may be tried",
    "RetriesExhausted": "it had failed as often as it may be tried",
    "RecordAgeExceeded": "it was older than 23 hours",
    "EventAgeExceeded": "it was older than it may become",
}


class GivenUp(Struct, frozen=True):
    """What Lambda gave up, and a sentence for people."""

    kind: str
    reason: str


def read_failure(body: Any) -> GivenUp | None:
    """Lambda's on-failure message; None: it is none."""
    if not isinstance(body, dict) or not isinstance(body.get("requestContext"), dict):
        return None
    condition = str(body["requestContext"].get("condition", ""))
    because = CONDITIONS.get(condition, condition or "Lambda does not say why")
    if isinstance(body.get("DDBStreamBatchInfo"), dict):
        return GivenUp(BATCH, _batch_reason(body["DDBStreamBatchInfo"], because))
    error = body.get("responsePayload")
    said = str(error.get("errorMessage", "")) if isinstance(error, dict) else ""
    if names := _objects(body.get("requestPayload")):
        return GivenUp(LIST, f"Lambda gave up taking in {', '.join(names)}: {because}{f'; the last error: {said}' if said else ''}")
    return None


def _batch_reason(batch: dict[str, Any], because: str) -> str:
    table, shard = batch_of({"DDBStreamBatchInfo": batch})
    first, last = batch.get("approximateArrivalOfFirstRecord"), batch.get("approximateArrivalOfLastRecord")
    return (
        f"Lambda gave up {batch.get('batchSize', 'some')} changes of the table {table}, made from {first} to {last}"
        f" (sequence numbers {batch.get('startSequenceNumber')} to {batch.get('endSequenceNumber')} of {shard}): {because}."
        " Replay this, and the repair scan finds their rows at once; it finds them within a day in any case"
    )


def batch_of(body: Any) -> tuple[str, str]:
    """The table and the shard of a stream's batch."""
    batch = body["DDBStreamBatchInfo"]
    return str(batch.get("streamArn", "")).partition(":table/")[2].partition("/")[0], str(batch.get("shardId", "an unknown shard"))


def _objects(event: Any) -> list[str]:
    """The objects that an S3 event tells of."""
    records = event.get("Records") if isinstance(event, dict) else None
    found = [record.get("s3") for record in records or () if isinstance(record, dict)]
    return [f"s3://{one['bucket']['name']}/{one['object']['key']}" for one in found if isinstance(one, dict)]
