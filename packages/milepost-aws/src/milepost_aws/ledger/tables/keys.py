"""Keys of a route's table: item keys to and from the route's own key attributes, readable by
people."""

from __future__ import annotations

import re
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from msgspec import Struct

from milepost.core.decide import valid_confirmation
from milepost.core.routes.parsed_input import key_fields
from milepost.core.routes.plan import Plan
from milepost.core.routes.route import Route, Stage
from milepost.core.values.key_text import escape_part, unescape_part
from milepost_aws.ledger.requests.client import key_condition

Image = dict[str, dict[str, Any]]
"""A row in DynamoDB's form: attribute names and typed values."""

PREFIXES = {"seed": "ingested_", "today": "result_"}
"""Prefix of the attribute with a stage's confirmation, by dialect."""

WAITING = "waiting_"
"""Prefix, followed by the stage, of the attribute in which a confirmer lists what it still waits
for."""

CONFIRMED_BY = "confirmedBy_"
"""Prefix, followed by the stage, of the attribute in which a confirmer says who it is: name,
program and version."""

BY_ATTRIBUTE = "row attribute "
"""Beginning of the name of a confirmer that has not said who it is; the attribute's name
follows."""

PAIRS = ("pk", "sk")
"""Key of a route with four key fields: two pairs, each joined by '#' as in the item's own key."""

OWN = frozenset({
    "input", "status", "attempts", "totalAttempts", "queue", "firstQueued", "lastQueued", "nextRetryAt", "retryHistory",
    "maxRetriesExceeded", "maxRetriesExceededAt", "correlationId", "createdAt", "lastUpdatedAt", "enteredAt", "version", "round",
    "lease", "leaseUntil", "holder", "claimedAt", "lastLease", "createToken", "inputDigest", "head", "trail", "copied", "dueShard",
    "dueAt", "lookAt", "overdueAt", "ttl", "lane", "looks", "losses", "pass", "unknown", "alone", "handedOver", "again", "listId", "note",
    "lastError", "kept", "undecided", "through", "untold", "place", "fullKey", "notBefore", "contentDigest", "life",
})  # fmt: skip
"""Attribute names used by Milepost; a route's key field with such a name is called `key` in the
table."""


FULL_KEY = "fullKey"
"""The complete key, on rows whose last part is stored as a digest."""
LONGEST_PART = 900
"""Maximum bytes of the last of four fields (a URL, for example) to be stored in `sk` as it is."""
LONGEST = (2048, 1024)
"""Maximum bytes of a table's first and second key attribute in DynamoDB."""
_DIGEST = re.compile(r"#sha256:[0-9a-f]{64}\Z")


def key_attributes(route: Route) -> tuple[str, ...]:
    """The table's key: the one or two fields that make the route's key; four fields make two pairs,
    `pk` and `sk`; otherwise one attribute called `key`."""
    fields = tuple(key_fields(route.key))
    names = fields if len(fields) in (1, 2) else PAIRS if len(fields) == 4 else ("key",)
    taken = any(
        name in OWN or name.startswith((*PREFIXES.values(), WAITING, CONFIRMED_BY, "payload_"))
        for name in names
    )
    return ("key",) if taken or len(set(names)) < len(names) else names


class Layout(Struct, frozen=True):
    """The table of one route and the names of its attributes."""

    route: str
    table: str
    key: tuple[str, ...]
    prefix: str
    stages: Mapping[str, Stage] = {}
    """The stages with their own rule for a valid confirmation; empty where the route itself is not
    loaded."""
    columns: tuple[str, ...] = ()
    """Attributes that every row of the route has, for people and programs that read the table (see
    `Route`)."""

    @classmethod
    def of(cls, plan: Plan, table: str) -> Layout:
        key = key_attributes(plan.route)
        columns = tuple(name for name in plan.route.columns if name not in key)
        return cls(plan.name, table, key, PREFIXES[plan.route.dialect], plan.by_name, columns)

    def key_image(self, key: str) -> Image:
        """The key attributes of an item."""
        if len(self.key) == 1:
            return {self.key[0]: {"S": key}}
        parts = key.split("#")
        if self.key == PAIRS:
            *others, last = parts[2:]
            parts = ["#".join(parts[:2]), "#".join((*others, _shortened(last)))]
        else:
            parts = [unescape_part(part) for part in parts]
        return {name: {"S": part} for name, part in zip(self.key, parts, strict=True)}

    def naming(self, key: str) -> Image:
        """The attributes that identify a new row: the key attributes, and the complete key where
        they do not contain it."""
        image = self.key_image(key)
        return image if self.key_of(image) == key else {**image, FULL_KEY: {"S": key}}

    def key_fault(self, key: str) -> str | None:
        """Why no row of the table can have this key; None if one can."""
        try:
            image = self.key_image(key)
        except ValueError:
            return f"the key {key[:80]!r} has {key.count('#') + 1} parts; the table's key is made of {', '.join(self.key)}"
        for (name, value), longest in zip(image.items(), LONGEST, strict=False):
            size = len(value["S"].encode("utf-8", "surrogatepass"))
            if size == 0:
                return f"the key {key[:80]!r} gives an empty {name!r}; DynamoDB does not accept an empty key attribute"
            if size > longest:
                return f"the key {key[:80]!r}… gives a {name!r} of {size:,} bytes; DynamoDB accepts {longest:,}; use a shorter key"
        return None

    def has_key(self, key: str, image: Image) -> bool:
        """Whether this row, or this key of a row, has the key attributes of the item `key`."""
        return self.key_fault(key) is None and self.key_image(key) == {
            name: image[name] for name in self.key
        }

    def foreign_key_fault(self, image: Image) -> str | None:
        """Why a row written by another program cannot be found by its key; None if it can."""
        key = self.key_of(image)
        if not self.has_key(key, image):
            return f"its key is not in Milepost's form: a last part of more than {LONGEST_PART} bytes must be in 'sk' as sha256:<hex>"
        if self.key == PAIRS and _DIGEST.search(key):
            return f"its key ends in a digest, and {FULL_KEY!r}, which must hold the complete key, is missing or does not match the digest"
        return None

    def key_of(self, image: Image) -> str:
        """The item's key; raises KeyError or TypeError if the row has no key of the right type. An
        index entry lacks the complete long key, but its shortened key finds the same row."""
        parts = [_text(image[name]) for name in self.key]
        if self.key == PAIRS and FULL_KEY in image:
            key = _text(image[FULL_KEY])
            if self.has_key(key, image):
                return key
        if len(parts) == 1 or self.key == PAIRS:
            return "#".join(parts)
        return "#".join(map(escape_part, parts))

    def partition(self, prefix: str) -> tuple[str, str] | None:
        """The partition that holds all rows whose keys begin so: first key attribute and prefix of
        the second. None: there is none."""
        parts = prefix.split("#")
        of_first = 2 if self.key == PAIRS else 1
        if len(self.key) < 2 or len(parts) <= of_first:
            return None
        first, rest = parts[:of_first], "#".join(parts[of_first:])
        if self.key == PAIRS and len(parts) > 3:
            rest = f"{parts[2]}#"  # a part stored as a digest cannot be matched by prefix
        return (
            ("#".join(first), rest)
            if self.key == PAIRS
            else (unescape_part(first[0]), unescape_part(rest))
        )

    def valid(self, stage: str, value: Any, payload: Any = None) -> bool:
        """Whether this value confirms the stage for this payload (None: not known yet)."""
        return valid_confirmation(value, self.stages.get(stage), payload)

    def calls(self, stage: str) -> bool:
        """Whether messages in a queue call workers to this stage. False where the route itself is
        not loaded."""
        return stage in self.stages and not self.stages[stage].external

    def has_own_rule(self, stage: str) -> bool:
        """Whether the stage has its own rule for a valid confirmation."""
        return stage in self.stages and self.stages[stage].accepts is not None


def due_query(shard: str, before: str | None = None) -> dict[str, Any]:
    """Parameters of a query of one partition of the index `due`: all its rows, or those that are
    due up to a time."""
    if before is None:
        return {"IndexName": "due", **key_condition("#dueShard = :shard", shard=shard)}
    return {
        "IndexName": "due",
        **key_condition("#dueShard = :shard AND #dueAt <= :before", shard=shard, before=before),
    }


def _shortened(part: str) -> str:
    """The part, or its digest if it is too long (digest of the URL itself, not of its escaped
    form)."""
    if len(part.encode("utf-8", "surrogatepass")) <= LONGEST_PART:
        return part
    return f"sha256:{sha256(unescape_part(part).encode('utf-8', 'surrogatepass')).hexdigest()}"


def _text(value: dict[str, Any]) -> str:
    text = value.get("S")
    if not isinstance(text, str):
        raise TypeError(f"a key attribute is {'/'.join(value)}, not text")
    return text
