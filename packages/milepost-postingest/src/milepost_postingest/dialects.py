"""Message formats of partners, to the letter: as in the design document ("seed"), or as the system
speaks today ("today")."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any
from uuid import UUID, uuid5

import msgspec

import milepost.application as mpa

INGESTED = "Asset has been ingested to the Preservation System."
ON_DISK = "Asset has been written to custodial copy disk."
UPDATE, COMPLETE = "preserve.digital.asset.ingest.update", "preserve.digital.asset.ingest.complete"
NAMESPACE = UUID("8d9f3c53-5b1c-5c0e-9d0c-1f1a3a0f6a57")
"""Our own namespace, which never changes: an id made in it is always the same."""

ALIASES: dict[str, tuple[str, str]] = {"seed": ("CC", "Scout"), "today": ("CC", "TC")}
"""The stages if none are configured."""
TEXTS: dict[str, dict[str, str]] = {
    "seed": {"CC": ON_DISK, "Scout": "Asset has been written to data tape."},
    "today": {"CC": ON_DISK, "TC": "Asset has been written to tape"},
}
"""Text of the notification when a stage has been confirmed."""

Form = Callable[[dict[str, Any]], dict[str, Any] | None]
Message = Callable[[dict[str, Any]], Any]


def message_id(key: str, stage: str, kind: str) -> str:
    """The notification's id: the same for an asset, a batch and a stage, however often it is
    sent."""
    return str(uuid5(NAMESPACE, f"{key}/{stage}/{kind}"))


def form_of(
    dialect: str, texts: Mapping[str, str], ingested: str = INGESTED, quiet: Sequence[str] = ()
) -> Form:
    """Formats the notifications; every other event stays as it is. A `quiet` stage sends no
    notification when it is done, and the stage before it is the one that completes."""
    first, last = next(iter(texts)), list(texts)[-1]

    def form(envelope: dict[str, Any]) -> dict[str, Any] | None:
        data = envelope["data"]
        kind, stage = data["reason"], data["stage"]
        if kind == "accepted":
            # A notification was already sent for an asset that was adopted at a later stage.
            return (
                _notification(dialect, envelope, UPDATE, "", ingested) if stage == first else None
            )
        if kind not in ("advanced", "confirmed", "completed"):
            return None
        if data["status"] != "COMPLETED":
            # Before the end behind a quiet stage: its last text is sent when it is complete.
            notified = stage not in quiet and not (data.get("to") in quiet and stage == last)
            return (
                _notification(dialect, envelope, UPDATE, stage, texts[stage])
                if notified and stage in texts
                else None
            )
        note = data.get("note")
        again = isinstance(note, dict) and note.get("completed") == "again"
        named = last if stage in quiet else stage
        if named not in texts:
            return None
        return _notification(dialect, envelope, UPDATE if again else COMPLETE, named, texts[named])

    return form


def _notification(
    dialect: str, envelope: dict[str, Any], kind: str, stage: str, text: str
) -> dict[str, Any]:
    key, correlation = envelope["data"]["key"], envelope["correlationid"]
    asset, batch = mpa.key_parts(key)
    parameters = {"assetId": asset, "status": text}
    if dialect == "seed":
        return {"body": {"properties": {"messageType": kind}, "parameters": parameters}}
    properties = {
        "executionId": batch,
        "messageId": message_id(key, stage, kind),
        # An asset without a correlation id is followed by its key.
        "parentMessageId": None if correlation == key else correlation,
        "timestamp": envelope["time"],
        "messageType": kind,
    }
    return {"properties": properties, "parameters": parameters}


def message_of(dialect: str) -> Message:
    """The message that a confirmer gets, the first time and every time."""
    return _seed_message if dialect == "seed" else _message_today


def _seed_message(offer: dict[str, Any]) -> Any:
    """The payload only. For one that is too large for a message, its place."""
    return {"payloadAt": offer["payloadAt"]} if "payloadAt" in offer else offer["payload"]


def _message_today(offer: dict[str, Any]) -> Any:
    confirm = offer["confirm"]
    body = {**confirm["key"], "resultAttrName": confirm["attribute"], "payload": offer["payload"]}
    return {**body, "payloadAt": offer["payloadAt"]} if "payloadAt" in offer else body


def as_json(payload: Any) -> Any:
    """A payload that is JSON text, parsed; any other value as it is."""
    if isinstance(payload, str):
        try:
            return msgspec.json.decode(payload)
        except msgspec.DecodeError:
            return payload
    return payload
