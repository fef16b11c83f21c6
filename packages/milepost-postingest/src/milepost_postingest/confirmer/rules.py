"""Rules of the standalone confirmer: read its settings, parse a message, build the confirmation,
and compute the visibility timeout. Pure functions."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping
from typing import Any

import msgspec

import milepost as mp
import milepost.application as mpa
from milepost_postingest.dialects import as_json
from milepost_postingest.program import program_of

MAX_MESSAGES = 50
NEEDED = {
    "SQS_QUEUE_URL": "the URL of the queue of messages",
    "DYNAMO_TABLE_NAME": "the table whose rows are confirmed",
    "DYNAMO_ATTRIBUTE_NAME": "the attribute of a confirmation, such as result_CC or ingested_CC",
}


class ConfirmerSettings(msgspec.Struct, frozen=True):
    """The queue of messages, and the table whose rows are confirmed, as `attribute` in the format
    of `dialect`. `blobs` is as for `Rows`."""

    queue_url: str
    table: str
    attribute: str
    dialect: str
    worker: str
    max_messages: int = MAX_MESSAGES
    quarantine_url: str | None = None
    blobs: str | None = None

    @property
    def author(self) -> str:
        """Who confirms, by name, program and version."""
        return f"{platform.node() or 'confirmer'} ({program_of(self.worker)})"


def read_settings(env: Mapping[str, str]) -> ConfirmerSettings:
    """Raises mp.ConfigMistake with a sentence for every missing setting."""
    missing = [
        f"{name} is not set; expected {what}" for name, what in NEEDED.items() if not env.get(name)
    ]
    if missing:
        raise mp.ConfigMistake("\n".join(missing))
    url, table, attribute = (env[name] for name in NEEDED)
    dialect, stage = split(attribute)
    worker, most = (
        _worker(stage, attribute, env.get("CONFIRMER", "")),
        env.get("MAX_MESSAGES") or str(MAX_MESSAGES),
    )
    if not most.isdecimal() or int(most) < 1:
        raise mp.ConfigMistake(f"MAX_MESSAGES is {most!r}; expected a whole number from 1 up")
    quarantine, blobs = env.get("QUARANTINE_URL") or None, env.get("MILEPOST_BLOBS") or None
    return ConfirmerSettings(url, table, attribute, dialect, worker, int(most), quarantine, blobs)


def _worker(stage: str, attribute: str, said: str) -> str:
    kinds = sorted(set(WORKERS.values()))
    if said and said not in kinds:
        raise mp.ConfigMistake(f"CONFIRMER is {said!r}; expected {' or '.join(kinds)}")
    worker = said or WORKERS.get(stage)
    if worker is None:
        raise mp.ConfigMistake(
            f"DYNAMO_ATTRIBUTE_NAME is {attribute!r}, which does not say which worker confirms it; set CONFIRMER to {' or '.join(kinds)}"
        )
    return worker


# Messages and confirmations -----------------------------------------------------------------------
PREFIXES = {"seed": "ingested_", "today": "result_"}
"""Prefix of the confirmation's attribute, by dialect."""
WORKERS = {"CC": "ocfl", "Scout": "scoutam", "TC": "scoutam"}
"""By the stage that the attribute names."""
KEY = ("assetId", "batchId")
LONGEST_S = 43_200 - 60
"""SQS hides a message for at most twelve hours, counted from its receipt; a little is left for the
request itself."""
_WAITS = mp.Backoff(base="10m", cap="12h", jitter=0.0)


class PayloadAt(msgspec.Struct, frozen=True):
    """Place of a payload that was too large for its message."""

    attribute: str


class CheckRequest(msgspec.Struct, frozen=True):
    """Content of a message: the row that waits for an answer, and the payload to check, or its
    place on the row."""

    key: dict[str, str]
    payload: Any = None
    payload_at: str | None = None


def split(attribute: str) -> tuple[str, str]:
    """The dialect and the stage of a confirmation's attribute."""
    for dialect, prefix in PREFIXES.items():
        if attribute.startswith(prefix) and attribute != prefix:
            return dialect, attribute.removeprefix(prefix)
    raise mp.ConfigMistake(
        f"DYNAMO_ATTRIBUTE_NAME is {attribute!r}; write ingested_<stage> or result_<stage>, such as result_CC"
    )


def read_message(raw: Mapping[str, Any]) -> CheckRequest | str:
    """The request, or why the message cannot be read. A message has today's format, with the row's
    key and the payload in it; or it is the payload only, and the key is a message attribute."""
    label = raw.get("MessageAttributes", {}).get("key", {}).get("StringValue")
    try:
        body, named = as_json(raw.get("Body", "")), as_json(label)
    except (ValueError, RecursionError) as error:
        return f"the message cannot be read: {error}"
    if isinstance(body, dict) and set(KEY) <= body.keys():
        key = {name: body[name] for name in KEY}
        if "payload" not in body and "payloadAt" not in body:
            return "the message names a row, but has no payload"
        return _asked(key, body.get("payload"), body.get("payloadAt"))
    if label is None:
        return f"the message names no row: it has neither {' and '.join(KEY)} nor the message attribute 'key'"
    if isinstance(body, dict) and body.keys() == {"payloadAt"}:
        return _asked(named, None, body["payloadAt"])
    return _asked(named, body, None)


def _asked(key: Any, payload: Any, payload_at: Any) -> CheckRequest | str:
    if (
        not isinstance(key, dict)
        or len(key) not in (1, 2)
        or not all(isinstance(part, str) and part for part in key.values())
    ):
        return f"the row's key is {key!r}; expected one or two texts by name, such as assetId and batchId"
    try:
        place = None if payload_at is None else msgspec.convert(payload_at, PayloadAt).attribute
    except msgspec.ValidationError as error:
        return f"payloadAt does not say where the payload is: {error}"
    return CheckRequest(key, payload, place)


def confirmation(
    dialect: str, attribute: str, done: mp.Done, room: int | None = None
) -> dict[str, str]:
    """The attributes to set on the row: JSON text. In the seed dialect, the next stage's input is
    rewritten with the confirmation; in today's dialect, the confirmation contains the next stage's
    payload. An output of more than `room` bytes (None: any) is left out, if there is a payload to
    confirm with."""
    output = _text(True if done.output is None else done.output)
    if done.payload is msgspec.UNSET:
        return {attribute: output}
    payload = _text(done.payload)
    if not isinstance(done.output, dict) or not isinstance(done.payload, dict):
        output = payload if dialect == "today" else output
    elif dialect == "today":
        output = _text({**done.payload, **done.output, **done.payload})
    if room is not None and len(output.encode()) > room:
        output = payload
    return {attribute: output} if dialect == "today" else {attribute: output, "input": payload}


def _text(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def wait_s(received: int, after: float | int | str | None, held_s: float) -> int:
    """Seconds for which a message stays hidden from now on: by its number of receipts, unless
    `after` says it. `held_s`: for how long it has been hidden already."""
    wanted_ms = (
        _WAITS.exponential_ms(max(received, 1) - 1)
        if after is None
        else mpa.span_ms(after, "after")
    )
    return int(max(0.0, min(wanted_ms / 1000, LONGEST_S - held_s)))


def set_aside(url: str, raw: Mapping[str, Any], reason: str) -> str:
    """The message as it is stored in a quarantine queue: in Milepost's own format, so that
    Milepost's commands can show it and send it again. ASCII only, so that SQS accepts any
    content."""
    labels = {
        name: label["StringValue"]
        for name, label in raw.get("MessageAttributes", {}).items()
        if "StringValue" in label
    }
    content = {
        "url": url,
        "id": raw.get("MessageId", ""),
        "body": raw.get("Body", ""),
        "attributes": labels,
    }
    return json.dumps(
        {"kind": "message", "reason": reason[:2000], "content": content}, separators=(",", ":")
    )
