"""Lambda's own failure messages in quarantine: a batch of stream records, or a delivered list, that Lambda gave up."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

BATCH, LIST = "stream batch", "list"
CONDITIONS = {
    "RetryAttemptsExhausted": "it failed on every allowed attempt",
    "RetriesExhausted": "it failed on every allowed attempt",
    "RecordAgeExceeded": "it was older than 23 hours",
    "EventAgeExceeded": "it exceeded its maximum age",
}


class GivenUp(Struct, frozen=True):
    """The kind of event that Lambda gave up, and a sentence for people."""

    kind: str
    reason: str


def read_failure(body: Any) -> GivenUp | None:
    """The content of Lambda's on-failure message; None if the message is not one."""
    if not isinstance(body, dict) or not isinstance(body.get("requestContext"), dict):
        return None
    condition = str(body["requestContext"].get("condition", ""))
    because = CONDITIONS.get(condition, condition or "Lambda does not say why")
    if isinstance(body.get("DDBStreamBatchInfo"), dict):
        return GivenUp(BATCH, _batch_reason(body["DDBStreamBatchInfo"], because))
    error = body.get("responsePayload")
    message = str(error.get("errorMessage", "")) if isinstance(error, dict) else ""
    if names := _objects(body.get("requestPayload")):
        return GivenUp(LIST, f"Lambda gave up taking in {', '.join(names)}: {because}{f'; the last error: {message}' if message else ''}")
    return None


def _batch_reason(batch: dict[str, Any], because: str) -> str:
    table, shard = batch_of({"DDBStreamBatchInfo": batch})
    first, last = batch.get("approximateArrivalOfFirstRecord"), batch.get("approximateArrivalOfLastRecord")
    return (
        f"Lambda gave up {batch.get('batchSize', 'some')} changes of the table {table}, made from {first} to {last}"
        f" (sequence numbers {batch.get('startSequenceNumber')} to {batch.get('endSequenceNumber')} of {shard}): {because}."
        " Replay this entry to start the repair scan now; otherwise it finds their rows within a day"
    )


def batch_of(body: Any) -> tuple[str, str]:
    """The table and the shard of a stream's batch."""
    batch = body["DDBStreamBatchInfo"]
    return str(batch.get("streamArn", "")).partition(":table/")[2].partition("/")[0], str(batch.get("shardId", "an unknown shard"))


def _objects(event: Any) -> list[str]:
    """The names of the objects in an S3 event."""
    records = event.get("Records") if isinstance(event, dict) else None
    found = [record.get("s3") for record in records or () if isinstance(record, dict)]
    return [f"s3://{one['bucket']['name']}/{one['object']['key']}" for one in found if isinstance(one, dict)]
