"""Names on AWS (tables, queues, index shards) and values as text (times, digests)."""

from __future__ import annotations

import hashlib
import re
from base64 import b64decode, urlsafe_b64encode
from datetime import datetime, timedelta
from functools import lru_cache
from zlib import crc32

from milepost.core.errors import ConfigMistake

SHARDS = 8
"""Partitions of the index `due` per stage. Never change it for a table with rows: readers query
exactly these, and a row keeps its shard."""

FAILED_SHARD = "failed"
"""Index name of failed rows, used instead of their stage from the write that fails them."""

_EPOCH = datetime(1970, 1, 1)
_LATEST = 253_402_300_799_999
_RESERVED = {"history", "seen", "control"}
_PREFIX = re.compile(r"[A-Za-z0-9_-]{1,40}")
_TABLE = re.compile(r"[A-Za-z0-9_.-]{3,255}")
_QUEUE = re.compile(r"[A-Za-z0-9_-]{1,80}")


@lru_cache(maxsize=4096)
def _second(seconds: int) -> str:
    return (_EPOCH + timedelta(seconds=seconds)).isoformat() + "."


@lru_cache(maxsize=4096)
def _start_ms(text: str) -> int:
    """The start of a second in this exact format; ValueError for any other."""
    seconds = (datetime.fromisoformat(text[:19]).replace(tzinfo=None) - _EPOCH) // timedelta(
        seconds=1
    )
    if seconds < 0 or _second(seconds) != text:
        raise ValueError(text)
    return seconds * 1000


def iso(ms: int) -> str:
    """A time as fixed-width ISO-8601 in UTC, so that text sorts like time. A time before 1970 or
    after 9999 becomes the first or last possible one: it still sorts correctly, and a wrong clock
    makes no row fail."""
    seconds, rest = divmod(min(max(ms, 0), _LATEST), 1000)
    return f"{_second(seconds)}{rest:03d}Z"


def ms(text: str) -> int:
    """The time in text made by `iso`; ValueError for any other text."""
    rest = text[20:23]
    if len(text) == 24 and text[23] == "Z" and rest.isdigit() and rest.isascii():
        try:
            return _start_ms(text[:20]) + int(rest)
        except ValueError:
            pass
    raise ValueError(f"{text!r} is not a time such as '2026-11-15T19:30:00.123Z'")


def b64(content: bytes) -> str:
    """A digest as text: base64url without padding."""
    return urlsafe_b64encode(content).rstrip(b"=").decode("ascii")


def unb64(text: str) -> bytes:
    """The bytes of text made by `b64`; ValueError for any other text."""
    content = b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    if b64(content) != text:
        raise ValueError(f"{text!r} is not base64url without padding")
    return content


QUEUED_SHARD, MARKED_SHARD = "queued", "marked"
"""Index partitions of items that wait for Milepost's own workers, by the time at which their
message expires; items with an overdue mark have their own, by that mark. So a backlog never delays
the resender's other rows."""


def fitted_key(text: str, longest: int) -> str:
    """The text as a key attribute: where it has more bytes than DynamoDB accepts, its beginning and
    its digest."""
    data = text.encode()
    if len(data) <= longest:
        return text
    return f"{data[: longest - 70].decode(errors='ignore')}#{hashlib.sha256(data).hexdigest()}"


def due_shard(stage: str, key: str) -> str:
    """The item's partition in the index `due`, the same in every process."""
    return f"{stage}#{crc32(key.encode('utf-8', 'surrogatepass')) % SHARDS}"


class ResourceNames:
    """The names of one deployment's tables, queues and topic; all begin with its prefix."""

    def __init__(self, prefix: str) -> None:
        if not _PREFIX.fullmatch(prefix):
            raise ConfigMistake(
                f"the ledger's prefix is {prefix!r}; use 1 to 40 letters, digits, '-' or '_': dynamodb://REGION/PREFIX"
            )
        self.prefix = prefix
        self.history = f"{prefix}-history"
        self.seen = f"{prefix}-seen"
        self.control = f"{prefix}-control"
        self.quarantine = f"{prefix}-quarantine"
        self.topic = f"{prefix}-events"
        self._queues: dict[str, tuple[str, str]] = {}

    def rows(self, route: str) -> str:
        """The table that holds the route's rows."""
        name = f"{self.prefix}-{route}"
        return (
            name if route not in _RESERVED and _TABLE.fullmatch(name) else self._fitted(255, route)
        )

    def queue(self, route: str, stage: str) -> str:
        """The queue of one stage."""
        name = f"{self.prefix}-{route}-{stage}"
        if not _QUEUE.fullmatch(name):
            name = self._fitted(80, route, stage)
        other = self._queues.setdefault(name, (route, stage))
        if other != (route, stage):
            # 'a-b' + 'c' and 'a' + 'b-c': two stages would receive each other's messages.
            raise ConfigMistake(
                f"stage {stage!r} of route {route!r} and stage {other[1]!r} of route {other[0]!r} would both use the queue {name!r};"
                " rename one of them, or give one a queue of its own"
            )
        return name

    def _fitted(self, longest: int, *parts: str) -> str:
        """A valid AWS name for parts that are not: as much of them as fits, and a digest that makes
        it unique."""
        digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:8]
        plain = re.sub(r"[^A-Za-z0-9_-]", "-", "-".join((self.prefix, *parts)))
        return f"{plain[: longest - 9]}-{digest}"
