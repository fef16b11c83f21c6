"""How a route's items are named in its table: the route's own key attributes, readable by eye."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from milepost.core.outside import valid_confirmation
from milepost.core.plan import Plan
from milepost.core.route import Route, Stage

Image = dict[str, dict[str, Any]]
"""A row as DynamoDB gives it: attribute names and typed values."""

PREFIXES = {"seed": "ingested_", "today": "result_"}
"""Under which names a stage's confirmation is put on the row, by dialect."""

PAIRS = ("pk", "sk")
"""The key of a route of four fields: two and two, each pair joined by '#' as in the item's own key."""

OWN = frozenset({
    "input", "status", "attempts", "totalAttempts", "queue", "firstQueued", "lastQueued", "nextRetryAt", "retryHistory",
    "maxRetriesExceeded", "maxRetriesExceededAt", "correlationId", "createdAt", "lastUpdatedAt", "enteredAt", "version", "round",
    "lease", "leaseUntil", "holder", "claimedAt", "lastLease", "createToken", "inputDigest", "head", "trail", "copied", "dueShard",
    "dueAt", "lookAt", "overdueAt", "ttl", "lane", "looks", "losses", "pass", "unknown", "alone", "handedOver", "again", "listId", "note",
    "lastError", "kept", "undecided", "through", "untold", "place",
})  # fmt: skip
"""The attributes that are ours; a route's key field of such a name is called `key` in the table."""


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
    taken = any(name in OWN or name.startswith((*PREFIXES.values(), "payload_")) for name in names)
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
            parts = ["#".join(parts[:2]), "#".join(parts[2:])]
        else:
            parts = [part.replace("%23", "#").replace("%25", "%") for part in parts]
        return {name: {"S": part} for name, part in zip(self.key, parts, strict=True)}

    def key_of(self, image: Image) -> str:
        """The item's key; KeyError or TypeError if the row has none of the right kind."""
        parts = [_text(image[name]) for name in self.key]
        if len(parts) == 1 or self.key == PAIRS:
            return "#".join(parts)
        return "#".join(part.replace("%", "%25").replace("#", "%23") for part in parts)

    def valid(self, stage: str, value: Any) -> bool:
        """Does this value confirm the stage?"""
        return valid_confirmation(value, self.stages.get(stage))


def _text(value: dict[str, Any]) -> str:
    text = value.get("S")
    if not isinstance(text, str):
        raise TypeError(f"a key attribute is {'/'.join(value)}, not text")
    return text
