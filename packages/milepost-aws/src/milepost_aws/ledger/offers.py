"""SQS messages that offer an item to its stage: built here only, for the first send and for every
repeat."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import msgspec

from milepost.core.errors import LedgerBusy
from milepost.core.item import Item
from milepost.core.routes.route import Stage
from milepost_aws.ledger.requests.queues import Outgoing, sendable
from milepost_aws.ledger.store import AwsStore

LARGEST_PAYLOAD = 200_000
"""Larger payloads are sent as a reference, because they do not fit into an SQS message."""

_encode = msgspec.json.Encoder().encode


def message_for(
    store: AwsStore, item: Item, stage: Stage, delay_ms: int = 0, *, ahead: bool = False
) -> Outgoing:
    """The message for an item at a stage: for a worker of ours the item's name, for an external
    stage an offer with everything that a confirmer needs. `ahead`: the message is sent before the
    write that makes the item ready for it."""
    delay_s = min(-(-max(0, delay_ms) // 1000), store.settings.longest_delay_s)
    url = store.queues.url(item.route, stage.name, stage.queue)
    if stage.external:
        offer = _offer(store, item, stage)
        return Outgoing(
            url,
            _message_text(offer, stage),
            delay_s,
            item.lane,
            _labels(offer) if stage.message is not None else {},
        )
    body = message_body(
        item.route, item.key, stage.name, item.lane, version=item.row.version if ahead else 0
    )
    return Outgoing(url, sendable(_encode(body).decode()), delay_s, item.lane)


def message_body(
    route: str, key: str, stage: str, lane: str, copies: int = 0, version: int = 0
) -> dict[str, Any]:
    """The item to claim; everything else is in the row. `copies` counts how often the message was
    delayed. With a `version`, the message is for the row as of that version: a worker that receives
    it earlier finds the item still claimed or waiting."""
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
    assert layout is not None, "the item was read from its table"
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


def _message_text(offer: dict[str, Any], stage: Stage) -> str:
    """The text of the offer, formatted by the stage's own function if it has one."""
    message = offer if stage.message is None else stage.message(offer)
    if isinstance(message, str) and message and sendable(message) == message:
        return message
    # Text with characters that SQS does not accept is sent as JSON.
    return json.dumps(message) if isinstance(message, str) else sendable(_encode(message).decode())


def _labels(offer: dict[str, Any]) -> dict[str, str]:
    """Message attributes that a confirmer needs whatever the text is: how to confirm, and the
    work_id."""
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
    """Send all messages, else raise LedgerBusy, so that the caller does not record them as sent."""
    refused = [error for error in store.queues.send(outgoing) if error is not None]
    if refused:
        raise LedgerBusy(
            f"{len(refused):,} of {len(outgoing):,} messages could not be sent: {refused[0]}; Milepost sends them again later"
        )
