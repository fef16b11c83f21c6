"""History lines as rows of the history table: hash key `item` ("<route>/<key>"), range key `version`."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from hashlib import sha256
from typing import Any

from msgspec import UNSET, Struct

from milepost.ledgers.aws.names import b64, unb64
from milepost.ledgers.aws.tables.conditional_write import place_of
from milepost.ledgers.aws.tables.item_rows import correlation_of
from milepost.ledgers.aws.tables.keys import Image
from milepost.ledgers.aws.tables.values import Values
from milepost.ports.feed import HistoryEntry

LONGEST_ITEM = 2048
"""Maximum bytes of a DynamoDB hash key."""

log = logging.getLogger(__name__)

Ref = tuple[str, str, int]
"""(route, name, version): one line. The name is the item's key, with its life where a key can have several (`named`)."""


class JournalEntry(Struct, frozen=True):
    """A line to be written, with the payload that it offers, if any."""

    route: str
    key: str
    correlation_id: str
    version: int
    previous: bytes
    body: bytes
    payload: Any = UNSET
    life: int = 0

    @property
    def ref(self) -> Ref:
        return self.route, named(self.key, self.life), self.version


class JournalBatch(Struct):
    """Entries that receive their places together. `after` is the newest place when they were written."""

    token: str
    entries: Sequence[JournalEntry]
    after: int


def named(key: str, life: int) -> str:
    """The name for an item's lines: separate for each life of a key. (A key has no control characters.)"""
    return f"{key}\t{life}" if life else key


def key_in(name: str) -> str:
    """The key in a name made by `named`."""
    key, separator, life = name.rpartition("\t")
    return key if separator and life.isdecimal() else name


def line_key(route: str, name: str, version: int) -> Image:
    return {"item": {"S": item_name(route, name)}, "version": {"N": str(version)}}


def line_at(image: Image) -> tuple[str, int]:
    """The item and version of a line's image."""
    return image["item"]["S"], int(image["version"]["N"])


def item_name(route: str, name: str) -> str:
    item = f"{route}/{name}"
    data = item.encode()
    if len(data) <= LONGEST_ITEM:
        return item
    return f"{data[: LONGEST_ITEM - 70].decode(errors='ignore')}#{sha256(data).hexdigest()}"


def images_of(batch: JournalBatch, values: Values) -> list[Image]:
    """The rows of a batch's lines. Large values go to blobs separate from the item's, because a line may outlive its row."""
    images = []
    for nth, entry in enumerate(batch.entries):
        place = f"history/{place_of(entry.route, named(entry.key, entry.life))}"
        image: Image = {
            **line_key(*entry.ref),
            "previous": {"S": b64(entry.previous)},
            "body": values.encode_text(entry.body, place),
            "batch": {"S": batch.token},
            "nth": {"N": str(nth)},
            "after": {"N": str(batch.after)},
        }
        if entry.correlation_id != entry.key:
            image["correlationId"] = {"S": entry.correlation_id}
        if entry.payload is not UNSET:
            image["payload"] = values.encode(entry.payload, place)
        images.append(image)
    return images


def batch_of(image: Image) -> tuple[str, int, int]:
    """The token of a line's batch, its number in it, and the newest place when it was written."""
    return image["batch"]["S"], int(image["nth"]["N"]), int(image["after"]["N"])


def unreadable(image: Image, seq: int, route: str, key: str, error: Exception) -> HistoryEntry:
    """Substitute for a line whose blob is damaged or missing. It is not delivered and blocks no other; the chain shows the break."""
    log.error("cannot read line %s of %s/%s: %s: %s", image["version"]["N"], route, key, type(error).__name__, error)
    body = f"{type(error).__name__}: {error}".encode()
    return HistoryEntry(seq, route, key, correlation_of(image, key), unb64(image["previous"]["S"]), body)


def written_of(image: Image, seq: int, route: str, key: str, values: Values, *, payload: bool = False) -> HistoryEntry:
    """The line in an image; with `payload`, also the payload it offered."""
    offered = values.decode(image["payload"]) if payload and "payload" in image else None
    return HistoryEntry(seq, route, key, correlation_of(image, key), unb64(image["previous"]["S"]), values.text(image["body"]), offered)
