"""What a confirmer that stands alone decides without asking anyone: what a message wants, what is written on the row, how long to wait."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec

import milepost as mp
from milepost.applications.postingest.dialects import as_json

PREFIXES = {"seed": "ingested_", "today": "result_"}
"""How the confirmation's attribute begins, by dialect."""
WORKERS = {"CC": "ocfl", "Scout": "scoutam", "TC": "scoutam"}
"""By the stage that the attribute names."""
KEY = ("assetId", "batchId")
LONGEST_S = 43_200 - 60
"""SQS hides a message for twelve hours at most, counted from when it was received; a little is left for the request itself."""
_WAITS = mp.Backoff(base="10m", cap="12h", jitter=0.0)
_FOREVER = "36500d"


class PayloadAt(msgspec.Struct, frozen=True):
    """Where a payload is that was too large for its message."""

    attribute: str


class CheckRequest(msgspec.Struct, frozen=True):
    """What a message wants: the row that waits for an answer, and what is to be checked, or where on the row that stands."""

    key: dict[str, str]
    payload: Any = None
    payload_at: str | None = None


def split(attribute: str) -> tuple[str, str]:
    """The dialect and the stage of a confirmation's attribute."""
    for dialect, prefix in PREFIXES.items():
        if attribute.startswith(prefix) and attribute != prefix:
            return dialect, attribute.removeprefix(prefix)
    raise mp.ConfigMistake(f"DYNAMO_ATTRIBUTE_NAME is {attribute!r}; write ingested_<stage> or result_<stage>, such as result_CC")


def read_message(raw: Mapping[str, Any]) -> CheckRequest | str:
    """What is wanted, or why it cannot be read. A message is as it is written today, with the row's key and the payload in it; or
    it is the payload alone, and the key is a label of the message."""
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
    if not isinstance(key, dict) or len(key) not in (1, 2) or not all(isinstance(part, str) and part for part in key.values()):
        return f"the row's key is {key!r}; expected one or two texts by name, such as assetId and batchId"
    try:
        place = None if payload_at is None else msgspec.convert(payload_at, PayloadAt).attribute
    except msgspec.ValidationError as error:
        return f"payloadAt does not say where the payload is: {error}"
    return CheckRequest(key, payload, place)


def confirmation(dialect: str, attribute: str, done: mp.Done, room: int | None = None) -> dict[str, str]:
    """What is set on the row, by attribute: JSON text. As the design document has it, the next stage's input is rewritten with the
    confirmation; as it is today, what the next stage works on stands in the confirmation. An output of more than `room` bytes
    (None: any) is left out, where there is a payload to confirm with."""
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


def seconds(span: float | int | str) -> float:
    """A span as an outcome has it."""
    # A backoff's first pause is its base, whatever a span is written like.
    return mp.Backoff(base=span, cap=_FOREVER).exponential_ms(0) / 1000


def wait_s(received: int, after: float | int | str | None, held_s: float) -> int:
    """How long a message is to stay hidden from now on: by how often it was received, unless `after` says it. `held_s`: for so
    long it has been hidden already."""
    wanted = seconds(after) if after is not None else _WAITS.exponential_ms(max(received, 1) - 1) / 1000
    return int(max(0.0, min(wanted, LONGEST_S - held_s)))


def set_aside(url: str, raw: Mapping[str, Any], reason: str) -> str:
    """The message as it is kept in a quarantine: in the form of Milepost's own, whose commands can then show it and send it again.
    ASCII alone, so that SQS takes it whatever it holds."""
    labels = {name: label["StringValue"] for name, label in raw.get("MessageAttributes", {}).items() if "StringValue" in label}
    content = {"url": url, "id": raw.get("MessageId", ""), "body": raw.get("Body", ""), "attributes": labels}
    return json.dumps({"kind": "message", "reason": reason[:2000], "content": content}, separators=(",", ":"))
