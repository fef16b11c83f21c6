"""How a route's items are named in its table: the route's own key attributes, readable by eye."""

from __future__ import annotations

import re
from hashlib import sha256
from typing import Any

from msgspec import Struct

from milepost.core.decide import valid_confirmation
from milepost.core.item import escape_part, unescape_part
from milepost.core.routes.plan import Plan
from milepost.core.routes.route import Route, Stage

Image = dict[str, dict[str, Any]]
"""A row as DynamoDB gives it: attribute names and typed values."""

PREFIXES = {"seed": "ingested_", "today": "result_"}
"""Under which names a stage's confirmation is put on the row, by dialect."""

WAITING = "waiting_"
"""Under which names a confirmer puts on the row what it still waits for, followed by the stage."""

PAIRS = ("pk", "sk")
"""The key of a route of four fields: two and two, each pair joined by '#' as in the item's own key."""

OWN = frozenset({
    "input", "status", "attempts", "totalAttempts", "queue", "firstQueued", "lastQueued", "nextRetryAt", "retryHistory",
    "maxRetriesExceeded", "maxRetriesExceededAt", "correlationId", "createdAt", "lastUpdatedAt", "enteredAt", "version", "round",
    "lease", "leaseUntil", "holder", "claimedAt", "lastLease", "createToken", "inputDigest", "head", "trail", "copied", "dueShard",
    "dueAt", "lookAt", "overdueAt", "ttl", "lane", "looks", "losses", "pass", "unknown", "alone", "handedOver", "again", "listId", "note",
    "lastError", "kept", "undecided", "through", "untold", "place", "fullKey", "notBefore", "contentDigest", "life",
})  # fmt: skip
"""The attributes that are ours; a route's key field of such a name is called `key` in the table."""


FULL_KEY = "fullKey"
"""The whole key, on rows whose last part stands as its digest."""
LONGEST_PART = 900
"""Bytes of the last of four fields (a URL, say) that stand in `sk` as they are."""
LONGEST = (2048, 1024)
"""Bytes that DynamoDB takes in a table's first and second key attribute."""
_DIGEST = re.compile(r"#sha256:[0-9a-f]{64}\Z")


def key_attributes(route: Route) -> tuple[str, ...]:
    """The table's key: the one field, or the two fields, that make the route's key; four make two pairs, `pk` and `sk`; else one
    attribute called `key`."""
    if isinstance(route.key, str):
        names: tuple[str, ...] = (route.key,)
    elif not callable(route.key) and len(route.key) == 4:
        names = PAIRS
    elif callable(route.key) or len(route.key) > 2:
        names = ("key",)
    else:
        names = tuple(route.key)
    taken = any(name in OWN or name.startswith((*PREFIXES.values(), WAITING, "payload_")) for name in names)
    return ("key",) if taken or len(set(names)) < len(names) else names


class Layout(Struct, frozen=True):
    """Where one route's rows are and what their attributes are called."""

    route: str
    table: str
    key: tuple[str, ...]
    prefix: str
    stages: dict[str, Stage] = {}
    """The stages with their own idea of a valid confirmation; empty where the route itself is not at hand."""

    @classmethod
    def of(cls, plan: Plan, table: str) -> Layout:
        return cls(plan.name, table, key_attributes(plan.route), PREFIXES[plan.route.dialect], plan.by_name)

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
        """What a new row needs to be known by: the key attributes, and the whole key where they do not tell it."""
        image = self.key_image(key)
        return image if self.key_of(image) == key else {**image, FULL_KEY: {"S": key}}

    def misfit(self, key: str) -> str | None:
        """Why no row of the table can have this key; None: one can."""
        try:
            image = self.key_image(key)
        except ValueError:
            return f"the key {key[:80]!r} has {key.count('#') + 1} parts; the table's key is made of {', '.join(self.key)}"
        for (name, value), longest in zip(image.items(), LONGEST, strict=False):
            size = len(value["S"].encode("utf-8", "surrogatepass"))
            if size == 0:
                return f"the key {key[:80]!r} makes a {name!r} of nothing, and DynamoDB takes none that is empty"
            if size > longest:
                return f"the key {key[:80]!r}… makes a {name!r} of {size:,} bytes, and DynamoDB takes {longest:,}; give it a shorter key"
        return None

    def stands_at(self, key: str, image: Image) -> bool:
        """Is this row, or this key of a row, where the item of that key is looked for?"""
        return self.misfit(key) is None and self.key_image(key) == {name: image[name] for name in self.key}

    def misnamed(self, image: Image) -> str | None:
        """Why a row that somebody else put cannot be known by its key; None: it can."""
        key = self.key_of(image)
        if not self.stands_at(key, image):
            return f"its key is not cut or written as here: a last part over {LONGEST_PART} bytes stands in 'sk' as sha256:<hex>"
        if self.key == PAIRS and _DIGEST.search(key):
            return f"its key ends in a digest, and {FULL_KEY!r}, which is to tell the whole key, does not fit it or is not there"
        return None

    def key_of(self, image: Image) -> str:
        """The item's key; KeyError or TypeError if the row has none of the right kind. An index does not tell a whole long key: but
        what it tells finds the same row."""
        parts = [_text(image[name]) for name in self.key]
        if self.key == PAIRS and FULL_KEY in image:
            key = _text(image[FULL_KEY])
            if self.stands_at(key, image):
                return key
        if len(parts) == 1 or self.key == PAIRS:
            return "#".join(parts)
        return "#".join(map(escape_part, parts))

    def partition(self, prefix: str) -> tuple[str, str] | None:
        """Where all rows stand together whose keys begin so: the first key attribute, and how the second begins. None: nowhere."""
        parts = prefix.split("#")
        of_first = 2 if self.key == PAIRS else 1
        if len(self.key) < 2 or len(parts) <= of_first:
            return None
        first, rest = parts[:of_first], "#".join(parts[of_first:])
        if self.key == PAIRS and len(parts) > 3:
            rest = f"{parts[2]}#"  # how the last part begins is not seen where it stands as its digest
        return ("#".join(first), rest) if self.key == PAIRS else (unescape_part(first[0]), unescape_part(rest))

    def valid(self, stage: str, value: Any, payload: Any = None) -> bool:
        """Does this value confirm the stage, which was given this to do? (None: that is not known yet.)"""
        return valid_confirmation(value, self.stages.get(stage), payload)

    def calls(self, stage: str) -> bool:
        """Are workers of ours called to this stage by messages? False where the route itself is not at hand."""
        return stage in self.stages and not self.stages[stage].external

    def judges(self, stage: str) -> bool:
        """Has the stage its own idea of a valid confirmation?"""
        return stage in self.stages and self.stages[stage].accepts is not None


def _shortened(part: str) -> str:
    """A part that would be too long as the digest of what it says (of a URL itself, not of how it is escaped here)."""
    if len(part.encode("utf-8", "surrogatepass")) <= LONGEST_PART:
        return part
    return f"sha256:{sha256(unescape_part(part).encode('utf-8', 'surrogatepass')).hexdigest()}"


def _text(value: dict[str, Any]) -> str:
    text = value.get("S")
    if not isinstance(text, str):
        raise TypeError(f"a key attribute is {'/'.join(value)}, not text")
    return text
