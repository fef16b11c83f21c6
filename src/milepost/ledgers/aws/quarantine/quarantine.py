"""What was set aside: looked at without taking it away, seen to again, or thrown away."""

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
"""For so long nobody else sees what is being looked at; it is given back at once when that is done."""
MOST = 10_000
"""Of what is set aside, so much is gone through for one of a given id."""

Jitter = Callable[[], float]


class _Held(Struct, frozen=True):
    aside: QuarantineEntry
    message: SqsMessage


def look(store: AwsStore, most: int) -> tuple[list[QuarantineEntry], bool]:
    """Some of what is set aside, and whether there is more. All of it stays."""
    held = _take(store, most, None)
    store.queues.release([one.message for one in held])
    visible, in_flight, delayed = store.queues.depth(store.queues.quarantine())
    return sorted((one.aside for one in held), key=lambda aside: aside.at), visible + in_flight + delayed > len(held)


def drop(store: AwsStore, ids: Sequence[str]) -> list[str]:
    """Throw these away; those that there were."""
    found, others = _find(store, ids)
    store.queues.delete([one.message for one in found])
    store.queues.release([one.message for one in others])
    return [one.aside.id for one in found]


def replay(store: AwsStore, plans: Mapping[str, Plan], jitter: Jitter, ids: Sequence[str], now: int, *, by: str, why: str) -> list[Adopted]:
    """See to these again. What could be seen to is set aside no more; the rest is given back with the reason."""
    found, others = _find(store, ids)
    answers = {one.aside.id: _again(store, plans, jitter, one.aside, now, by, why) for one in found}
    done = {id for id, answer in answers.items() if answer.done}
    store.queues.delete([one.message for one in found if one.aside.id in done])
    store.queues.release([one.message for one in (*found, *others) if one.aside.id not in done])
    absent = "nothing of this id is set aside; 'milepost quarantine list' shows what is"
    return [answers.get(id) or Adopted(id, False, why=absent) for id in ids]


def _again(store: AwsStore, plans: Mapping[str, Plan], jitter: Jitter, aside: QuarantineEntry, now: int, by: str, why: str) -> Adopted:
    content = aside.content
    if not isinstance(content, dict) or "cut" in content:
        return Adopted(aside.id, False, why="it was too long to be kept whole, or says nothing that can be seen to; drop it")
    if aside.kind == LIST:
        return Adopted(aside.id, False, why="put the list again under the same name, which has it taken in anew; then drop this")
    if aside.kind == BATCH:
        return _repair_soon(store, plans, aside, now)
    if aside.kind == "message":
        told = content.get("attributes") or {}
        again = Outgoing(str(content.get("url", "")), str(content.get("body", "")), attributes={name: str(told[name]) for name in told})
        [refused] = store.queues.send([again])
        return Adopted(aside.id, refused is None, why=refused or "")
    route = str(content.get("route", ""))
    plan = plans.get(route)
    if plan is None:
        return Adopted(aside.id, False, why=f"it is of route {route!r}, which is not given here; give --routes file.py")
    layout = store.know(plan)
    shown = content.get("row") or content.get("keys") or {}
    try:
        key = layout.key_of({name: {"S": shown[name]} for name in (*layout.key, FULL_KEY) if name in shown})
    except (KeyError, TypeError):
        return Adopted(aside.id, False, why="its key cannot be read; put the row right in the table, and drop this")
    image = store.images(route, [key]).get(key)
    if image is None:
        return Adopted(aside.id, False, why=f"the row of {key} is gone, so there is nothing to see to; drop it, or submit the item again")
    if not is_ours(image):
        adopted = adopt_at(store, layout, plan, image, now, by=by, why=why)
        return Adopted(aside.id, adopted.done, adopted.stage, adopted.why)
    found = Mender(store, plan, jitter).mend([image], CounterTally(), now)
    return Adopted(aside.id, not found.left, why="; ".join(found.examples))


def _repair_soon(store: AwsStore, plans: Mapping[str, Plan], aside: QuarantineEntry, now: int) -> Adopted:
    """Changes that the relay function gave up: a gap in the stream, like any other. The repair scan goes through the whole table, so it
    covers every sequence number of the batch."""
    table, shard = batch_of(aside.content)
    route = next((name for name in plans if store.names.rows(name) == table), None)
    if route is None:
        return Adopted(aside.id, False, why=f"it is of the table {table!r}, whose route is not given here; give --routes file.py")
    note_gap(store.control, route, [shard], now)
    return Adopted(aside.id, True, why="the resender's next run goes through the route's rows and mends what these changes left open")


def _find(store: AwsStore, ids: Sequence[str]) -> tuple[list[_Held], list[_Held]]:
    """Those of these ids, in hand, and whatever else had to be taken in hand to find them."""
    held = _take(store, MOST, frozenset(ids))
    wanted = set(ids)
    return [one for one in held if one.aside.id in wanted], [one for one in held if one.aside.id not in wanted]


def _take(store: AwsStore, most: int, wanted: frozenset[str] | None) -> list[_Held]:
    """Take up to so many in hand, or until all that are wanted have been."""
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
        aside = QuarantineEntry(name, "unknown", "somebody else put it here", raw.get("Body", ""), at)
    return _Held(aside, SqsMessage(url, raw["ReceiptHandle"], {}, 1, name))
