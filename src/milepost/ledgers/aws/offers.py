"""Telling a stage that there is work: the one place where such a message is made, for the first time as for every repeat."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import msgspec

from milepost.core.errors import LedgerBusy
from milepost.core.item import Item
from milepost.core.routes.plan import Plan
from milepost.core.routes.route import Stage
from milepost.ledgers.aws.queues.messages import Outgoing, sendable
from milepost.ledgers.aws.store import AwsStore

LARGEST_PAYLOAD = 200_000
"""What would not fit into a queue's message is told where it is instead."""

_encode = msgspec.json.Encoder().encode


def call_of(store: AwsStore, item: Item, stage: Stage, delay_ms: int = 0, *, ahead: bool = False) -> Outgoing:
    """The message for an item at a stage: a call for one of our own workers, or an offer with all that a confirmer needs. `ahead`:
    the call is sent before the write that makes the item ready for it."""
    delay_s = min(-(-max(0, delay_ms) // 1000), store.settings.longest_delay_s)
    url = store.queues.url(item.route, stage.name, stage.queue)
    if stage.external:
        offer = _offer(store, item, stage)
        return Outgoing(url, _worded(offer, stage), delay_s, item.lane, _labels(offer) if stage.message is not None else {})
    body = call_body(item.route, item.key, stage.name, item.lane, version=item.row.version if ahead else 0)
    return Outgoing(url, sendable(_encode(body).decode()), delay_s, item.lane)


def call_body(route: str, key: str, stage: str, lane: str, copies: int = 0, version: int = 0) -> dict[str, Any]:
    """Who is called for: the row itself has everything else. `copies` counts how often it was put off. With a `version`, the call
    is for the row as it will be then: who comes before that write finds it in other hands still, or waiting for a later time."""
    body: dict[str, Any] = {"route": route, "key": key, "stage": stage}
    if lane:
        body["lane"] = lane
    if copies:
        body["copies"] = copies
    if version:
        body["version"] = version
    return body


def _offer(store: AwsStore, item: Item, stage: Stage) -> dict[str, Any]:
    layout = store.layout(item.route)
    assert layout is not None, "an item's route is known"
    body: dict[str, Any] = {
        "route": item.route,
        "key": item.key,
        "stage": stage.name,
        "workId": item.work_id,
        "correlationId": item.correlation_id,
        "confirm": {
            "table": layout.table,
            "key": {name: value["S"] for name, value in layout.key_image(item.key).items()},
            "attribute": layout.prefix + stage.name,
        },
        "payload": item.payload,
    }
    size = len(_encode(item.payload))
    if size > LARGEST_PAYLOAD:
        body["payload"] = None
        body["payloadAt"] = {"attribute": f"payload_{stage.name}", "size": size}
    return body


def _worded(offer: dict[str, Any], stage: Stage) -> str:
    """The offer as it is sent: in the stage's own words, where it has some."""
    said = offer if stage.message is None else stage.message(offer)
    if isinstance(said, str) and said and sendable(said) == said:
        return said
    # Text that no queue takes is sent as JSON.
    return json.dumps(said) if isinstance(said, str) else sendable(_encode(said).decode())


def _labels(offer: dict[str, Any]) -> dict[str, str]:
    """What a confirmer must know, whatever the message itself says: how to confirm, and which work it is."""
    confirm = offer["confirm"]
    return {
        "route": offer["route"],
        "stage": offer["stage"],
        "key": sendable(_encode(confirm["key"]).decode()),
        "attribute": confirm["attribute"],
        "workId": offer["workId"],
        "correlationId": offer["correlationId"],
    }


def send(store: AwsStore, outgoing: Sequence[Outgoing]) -> None:
    """Send all, or say that it could not be done: whoever would have written that they are sent must not write it then."""
    refused = [error for error in store.queues.send(outgoing) if error is not None]
    if refused:
        raise LedgerBusy(f"{len(refused):,} of {len(outgoing):,} messages could not be sent: {refused[0]}; they are sent again later")


def stage_of(plans: dict[str, Plan], route: str, stage: str) -> Stage | None:
    """The stage as this process knows it."""
    plan = plans.get(route)
    return None if plan is None else plan.by_name.get(stage)
