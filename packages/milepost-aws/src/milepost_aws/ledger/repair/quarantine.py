"""Quarantine queue: list its entries without removing them, replay them, or discard them."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec
from msgspec import Struct

from milepost.core.routes.plan import Plan
from milepost.ports.foreign_rows import Adopted, QuarantineEntry
from milepost_aws.ledger.foreign_rows.adoption import adopt_at
from milepost_aws.ledger.refused_rows import quarantine_row
from milepost_aws.ledger.repair.repair import RowRepair
from milepost_aws.ledger.requests.queues import Outgoing, SqsMessage
from milepost_aws.ledger.store import AwsStore
from milepost_aws.ledger.stream import note_lost
from milepost_aws.ledger.tables.counters import CounterTally
from milepost_aws.ledger.tables.item_rows import is_ours
from milepost_aws.ledger.tables.keys import FULL_KEY

IN_HAND_S = 30
"""Visibility timeout while entries are read; they are released as soon as that is done."""
MOST = 10_000
"""Maximum entries searched for a given id."""

BATCH, LIST = "stream batch", "list"
CONDITIONS = {
    "RetryAttemptsExhausted": "it failed on every allowed attempt",
    "RetriesExhausted": "it failed on every allowed attempt",
    "RecordAgeExceeded": "it was older than 23 hours",
    "EventAgeExceeded": "it exceeded its maximum age",
}

FOREIGN = (AttributeError, LookupError, TypeError)
"""Exceptions for the content of an entry that another program wrote."""

Jitter = Callable[[], float]


class _Received(Struct, frozen=True):
    entry: QuarantineEntry
    message: SqsMessage


class AwsQuarantine:
    """The quarantine queue of one deployment (see `ports.foreign_rows.QuarantineStore`)."""

    def __init__(self, store: AwsStore, jitter: Jitter = lambda: random.uniform(-1, 1)) -> None:
        self._store, self._jitter = store, jitter

    def put(self, refs: Sequence[tuple[str, str]], reason: str, now: int) -> None:
        for route, key in refs:
            layout, image = self._store.layout(route), self._store.images(route, [key]).get(key)
            if layout is not None and image is not None:
                quarantine_row(self._store, layout, image, reason, now)

    def entries(self, most: int) -> tuple[list[QuarantineEntry], bool]:
        queues, received = self._store.queues, _receive(self._store, most, None)
        queues.release([one.message for one in received])
        return sorted((one.entry for one in received), key=lambda entry: entry.at), sum(
            queues.depth(queues.quarantine())
        ) > len(received)

    def replay(
        self, plans: dict[str, Plan], ids: Sequence[str], now: int, *, by: str, why: str
    ) -> list[Adopted]:
        store = self._store
        found, others = _find(store, ids)
        answers = {one.entry.id: self._replay(plans, one.entry, now, by, why) for one in found}
        done = {id for id, answer in answers.items() if answer.done}
        store.queues.delete([one.message for one in found if one.entry.id in done])
        store.queues.release([one.message for one in (*found, *others) if one.entry.id not in done])
        absent = "there is no quarantine entry with this id; 'milepost quarantine list' shows them"
        return [answers.get(id) or Adopted(id, False, why=absent) for id in ids]

    def _replay(
        self, plans: Mapping[str, Plan], entry: QuarantineEntry, now: int, by: str, why: str
    ) -> Adopted:
        try:
            return _replay(self._store, plans, self._jitter, entry, now, by, why)
        except FOREIGN:
            return Adopted(
                entry.id, False, why="its content does not have the form of its kind; drop it"
            )

    def drop(self, ids: Sequence[str]) -> list[str]:
        found, others = _find(self._store, ids)
        self._store.queues.delete([one.message for one in found])
        self._store.queues.release([one.message for one in others])
        return [one.entry.id for one in found]


def _replay(
    store: AwsStore,
    plans: Mapping[str, Plan],
    jitter: Jitter,
    entry: QuarantineEntry,
    now: int,
    by: str,
    why: str,
) -> Adopted:
    content = entry.content
    if not isinstance(content, dict) or "cut" in content:
        return Adopted(
            entry.id,
            False,
            why="its content was cut, or is not of a kind that can be replayed; drop it",
        )
    if entry.kind == LIST:
        return Adopted(
            entry.id, False, why="upload the list again under the same name; then drop this entry"
        )
    if entry.kind == BATCH:
        return _repair_soon(store, plans, entry, now)
    if entry.kind == "message":
        url, attributes = (
            _stage_queue(store, plans, str(content.get("url", ""))),
            content.get("attributes") or {},
        )
        if url is None:
            return Adopted(
                entry.id,
                False,
                why="its queue is that of no stage of a loaded route; give --routes file.py, or drop it",
            )
        again = Outgoing(
            url,
            str(content.get("body", "")),
            attributes={name: str(attributes[name]) for name in attributes},
        )
        [refused] = store.queues.send([again])
        return Adopted(entry.id, refused is None, why=refused or "")
    route = str(content.get("route", ""))
    plan = plans.get(route)
    if plan is None:
        return Adopted(
            entry.id, False, why=f"its route {route!r} is not loaded; give --routes file.py"
        )
    layout = store.load_route(plan)
    shown = content.get("row") or content.get("keys") or {}
    try:
        key = layout.key_of(
            {name: {"S": shown[name]} for name in (*layout.key, FULL_KEY) if name in shown}
        )
    except (KeyError, TypeError):
        return Adopted(
            entry.id,
            False,
            why="its key cannot be read; correct the row in the table, then drop this entry",
        )
    image = store.images(route, [key]).get(key)
    if image is None:
        return Adopted(
            entry.id,
            False,
            why=f"the row of {key} no longer exists; drop this entry, or submit the item again",
        )
    if not is_ours(image):
        adopted = adopt_at(store, plan, image, now, by=by, why=why)
        return Adopted(entry.id, adopted.done, adopted.stage, adopted.why)
    found = RowRepair(store, plan, jitter).mend([image], CounterTally(), now)
    return Adopted(entry.id, not found.left, why="; ".join(found.examples))


def _stage_queue(store: AwsStore, plans: Mapping[str, Plan], url: str) -> str | None:
    """The stage's queue with this account and name; None: there is none. Any program that may write
    to the quarantine chooses the address."""
    queues = (
        store.queues.url(plan.name, stage.name, stage.queue)
        for plan in plans.values()
        for stage in plan.stages
    )
    return next(
        (queue for queue in queues if queue.rsplit("/", 2)[1:] == url.rsplit("/", 2)[1:]), None
    )


def _repair_soon(
    store: AwsStore, plans: Mapping[str, Plan], entry: QuarantineEntry, now: int
) -> Adopted:
    """Start the repair for stream records that the relay function gave up. The repair scan reads
    the whole table and so covers every sequence number of the batch."""
    table, shard = batch_of(entry.content)
    route = next((name for name in plans if store.names.rows(name) == table), None)
    if route is None:
        return Adopted(
            entry.id,
            False,
            why=f"the route of its table {table!r} is not loaded; give --routes file.py",
        )
    note_lost(store.control, route, [shard], now)
    return Adopted(
        entry.id,
        True,
        why="the resender's next run scans the route's rows and carries out what these changes left open",
    )


def _find(store: AwsStore, ids: Sequence[str]) -> tuple[list[_Received], list[_Received]]:
    """The received entries with these ids, and the other entries that had to be received to find
    them."""
    received = _receive(store, MOST, frozenset(ids))
    wanted = set(ids)
    return [one for one in received if one.entry.id in wanted], [
        one for one in received if one.entry.id not in wanted
    ]


def _receive(store: AwsStore, most: int, wanted: frozenset[str] | None) -> list[_Received]:
    """Receive up to `most` entries, or until all `wanted` ones are found."""
    url = store.queues.quarantine()
    received: dict[str, _Received] = {}
    while len(received) < most and (wanted is None or not wanted <= received.keys()):
        answer = store.requests.call(
            "sqs",
            "receive_message",
            QueueUrl=url,
            MaxNumberOfMessages=min(10, most - len(received)),
            VisibilityTimeout=IN_HAND_S,
            MessageSystemAttributeNames=["SentTimestamp"],
        )
        fresh = [
            one
            for one in (_entry_of(url, raw) for raw in answer.get("Messages") or ())
            if one.entry.id not in received
        ]
        if not fresh:
            break
        received |= {one.entry.id: one for one in fresh}
    return list(received.values())


def _entry_of(url: str, raw: dict[str, Any]) -> _Received:
    body: Any = None
    with suppress(msgspec.DecodeError, RecursionError):
        body = msgspec.json.decode(raw.get("Body", ""))
    at = int(raw.get("Attributes", {}).get("SentTimestamp", 0))
    name = raw.get("MessageId", "")
    if isinstance(body, dict) and {"kind", "reason", "content"} <= body.keys():
        entry = QuarantineEntry(name, str(body["kind"]), str(body["reason"]), body["content"], at)
    elif (given_up := read_failure(body)) is not None:
        entry = QuarantineEntry(name, *given_up, body, at)
    else:
        entry = QuarantineEntry(name, "unknown", "not written by Milepost", raw.get("Body", ""), at)
    return _Received(entry, SqsMessage(url, raw["ReceiptHandle"], {}, 1, name))


# Lambda's own failure messages: a batch of stream records, or a delivered list, that Lambda gave up
def read_failure(body: Any) -> tuple[str, str] | None:
    """The kind of event that Lambda gave up and a sentence for people, from its on-failure message;
    None if the message is not one."""
    try:
        condition = str(body["requestContext"].get("condition", ""))
        because = CONDITIONS.get(condition, condition or "Lambda does not say why")
        if "DDBStreamBatchInfo" in body:
            return BATCH, _batch_reason(body, because)
        objects = [record["s3"] for record in body["requestPayload"]["Records"]]
        names = ", ".join(f"s3://{one['bucket']['name']}/{one['object']['key']}" for one in objects)
    except FOREIGN:
        return None
    if not names:
        return None
    error = body.get("responsePayload")
    message = str(error.get("errorMessage", "")) if isinstance(error, dict) else ""
    return (
        LIST,
        f"Lambda gave up taking in {names}: {because}{f'; the last error: {message}' if message else ''}",
    )


def _batch_reason(body: dict[str, Any], because: str) -> str:
    batch, (table, shard) = body["DDBStreamBatchInfo"], batch_of(body)
    first, last = (
        batch.get("approximateArrivalOfFirstRecord"),
        batch.get("approximateArrivalOfLastRecord"),
    )
    return (
        f"Lambda gave up {batch.get('batchSize', 'some')} changes of the table {table}, made from {first} to {last}"
        f" (sequence numbers {batch.get('startSequenceNumber')} to {batch.get('endSequenceNumber')} of {shard}): {because}."
        " Replay this entry to start the repair scan now; otherwise it finds their rows within a day"
    )


def batch_of(body: Any) -> tuple[str, str]:
    """The table and the shard of a stream's batch."""
    batch = body["DDBStreamBatchInfo"]
    return str(batch.get("streamArn", "")).partition(":table/")[2].partition("/")[0], str(
        batch.get("shardId", "an unknown shard")
    )
