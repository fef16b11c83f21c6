"""Quarantine queue: list entries without removing them, replay them, or discard them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from milepost.core.routes.plan import Plan
from milepost.ledgers.aws.quarantine.lambda_failures import BATCH, LIST, batch_of, read_failure
from milepost.ledgers.aws.quarantine.strays import adopt_at
from milepost.ledgers.aws.queues.messages import Outgoing, SqsMessage
from milepost.ledgers.aws.repair.row_pages import Mender
from milepost.ledgers.aws.store import AwsStore
from milepost.ledgers.aws.stream.shards import note_gap
from milepost.ledgers.aws.tables.counter_cells import CounterTally
from milepost.ledgers.aws.tables.item_rows import is_ours
from milepost.ledgers.aws.tables.keys import FULL_KEY
from milepost.ports.foreign_rows import Adopted, QuarantineEntry

IN_HAND_S = 30
"""Visibility timeout while entries are read; they are released as soon as that is done."""
MOST = 10_000
"""Maximum entries searched for a given id."""

Jitter = Callable[[], float]


class _Held(Struct, frozen=True):
    aside: QuarantineEntry
    message: SqsMessage


def look(store: AwsStore, most: int) -> tuple[list[QuarantineEntry], bool]:
    """Some of the entries, and whether there are more. All of them stay."""
    held = _take(store, most, None)
    store.queues.release([one.message for one in held])
    visible, in_flight, delayed = store.queues.depth(store.queues.quarantine())
    return sorted((one.aside for one in held), key=lambda aside: aside.at), visible + in_flight + delayed > len(held)


def drop(store: AwsStore, ids: Sequence[str]) -> list[str]:
    """Discard these; returns the ids that existed."""
    found, others = _find(store, ids)
    store.queues.delete([one.message for one in found])
    store.queues.release([one.message for one in others])
    return [one.aside.id for one in found]


def replay(store: AwsStore, plans: Mapping[str, Plan], jitter: Jitter, ids: Sequence[str], now: int, *, by: str, why: str) -> list[Adopted]:
    """Handle these again. An entry that succeeds is removed; the others are released with the reason."""
    found, others = _find(store, ids)
    answers = {one.aside.id: _again(store, plans, jitter, one.aside, now, by, why) for one in found}
    done = {id for id, answer in answers.items() if answer.done}
    store.queues.delete([one.message for one in found if one.aside.id in done])
    store.queues.release([one.message for one in (*found, *others) if one.aside.id not in done])
    absent = "there is no quarantine entry with this id; 'milepost quarantine list' shows them"
    return [answers.get(id) or Adopted(id, False, why=absent) for id in ids]


def _again(store: AwsStore, plans: Mapping[str, Plan], jitter: Jitter, aside: QuarantineEntry, now: int, by: str, why: str) -> Adopted:
    content = aside.content
    if not isinstance(content, dict) or "cut" in content:
        return Adopted(aside.id, False, why="its content was cut, or is not of a kind that can be replayed; drop it")
    if aside.kind == LIST:
        return Adopted(aside.id, False, why="upload the list again under the same name; then drop this entry")
    if aside.kind == BATCH:
        return _repair_soon(store, plans, aside, now)
    if aside.kind == "message":
        attributes = content.get("attributes") or {}
        again = Outgoing(
            str(content.get("url", "")), str(content.get("body", "")), attributes={name: str(attributes[name]) for name in attributes}
        )
        [refused] = store.queues.send([again])
        return Adopted(aside.id, refused is None, why=refused or "")
    route = str(content.get("route", ""))
    plan = plans.get(route)
    if plan is None:
        return Adopted(aside.id, False, why=f"its route {route!r} is not loaded; give --routes file.py")
    layout = store.know(plan)
    shown = content.get("row") or content.get("keys") or {}
    try:
        key = layout.key_of({name: {"S": shown[name]} for name in (*layout.key, FULL_KEY) if name in shown})
    except (KeyError, TypeError):
        return Adopted(aside.id, False, why="its key cannot be read; correct the row in the table, then drop this entry")
    image = store.images(route, [key]).get(key)
    if image is None:
        return Adopted(aside.id, False, why=f"the row of {key} no longer exists; drop this entry, or submit the item again")
    if not is_ours(image):
        adopted = adopt_at(store, layout, plan, image, now, by=by, why=why)
        return Adopted(aside.id, adopted.done, adopted.stage, adopted.why)
    found = Mender(store, plan, jitter).mend([image], CounterTally(), now)
    return Adopted(aside.id, not found.left, why="; ".join(found.examples))


def _repair_soon(store: AwsStore, plans: Mapping[str, Plan], aside: QuarantineEntry, now: int) -> Adopted:
    """Start the repair for stream records that the relay function gave up. The repair scan reads the whole table and so covers every
    sequence number of the batch."""
    table, shard = batch_of(aside.content)
    route = next((name for name in plans if store.names.rows(name) == table), None)
    if route is None:
        return Adopted(aside.id, False, why=f"the route of its table {table!r} is not loaded; give --routes file.py")
    note_gap(store.control, route, [shard], now)
    return Adopted(aside.id, True, why="the resender's next run scans the route's rows and carries out what these changes left open")


def _find(store: AwsStore, ids: Sequence[str]) -> tuple[list[_Held], list[_Held]]:
    """The received entries with these ids, and the other entries that had to be received to find them."""
    held = _take(store, MOST, frozenset(ids))
    wanted = set(ids)
    return [one for one in held if one.aside.id in wanted], [one for one in held if one.aside.id not in wanted]


def _take(store: AwsStore, most: int, wanted: frozenset[str] | None) -> list[_Held]:
    """Receive up to `most` entries, or until all `wanted` ones are found."""
    url = store.queues.quarantine()
    held: dict[str, _Held] = {}
    while len(held) < most and (wanted is None or not wanted <= held.keys()):
        answer = store.requests.call(
            "sqs",
            "receive_message",
            QueueUrl=url,
            MaxNumberOfMessages=min(10, most - len(held)),
            VisibilityTimeout=IN_HAND_S,
            MessageSystemAttributeNames=["SentTimestamp"],
        )
        fresh = [one for one in (_held(url, raw) for raw in answer.get("Messages") or ()) if one.aside.id not in held]
        if not fresh:
            break
        held |= {one.aside.id: one for one in fresh}
    return list(held.values())


def _held(url: str, raw: dict[str, Any]) -> _Held:
    body: Any = None
    try:
        body = msgspec.json.decode(raw.get("Body", ""))
    except msgspec.DecodeError:
        pass
    at = int(raw.get("Attributes", {}).get("SentTimestamp", 0))
    name = raw.get("MessageId", "")
    if isinstance(body, dict) and {"kind", "reason", "content"} <= body.keys():
        aside = QuarantineEntry(name, str(body["kind"]), str(body["reason"]), body["content"], at)
    elif (given_up := read_failure(body)) is not None:
        aside = QuarantineEntry(name, given_up.kind, given_up.reason, body, at)
    else:
        aside = QuarantineEntry(name, "unknown", "not written by Milepost", raw.get("Body", ""), at)
    return _Held(aside, SqsMessage(url, raw["ReceiptHandle"], {}, 1, name))
