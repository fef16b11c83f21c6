"""Memory of quarantined rows by digest: the stream delivers each change once, but the repair scan meets the row every day."""

from __future__ import annotations

import json
from typing import Any

from msgspec import Struct, convert, to_builtins
from msgspec.structs import replace

from milepost.core.item import digest_of
from milepost.ledgers.aws.requests.client import ConditionFailed
from milepost.ledgers.aws.store import AwsStore
from milepost.ledgers.aws.tables.conditional_write import Update
from milepost.ledgers.aws.tables.keys import FULL_KEY, Image, Layout
from milepost.ledgers.aws.tables.values import plain

LONGEST = 4_000
"""Characters shown of one attribute of a quarantined row."""

ASIDE = "aside#"
"""Kind of these control documents, followed by the route's name."""


class AsideDocument(Struct, frozen=True):
    """A control document of kind "aside#<route>", named after the item's key."""

    digest: str
    """Digest of the whole row: after a change the row is judged again."""
    reason: str
    at: int
    seen_at: int


def put_aside(store: AwsStore, layout: Layout, image: Image, reason: str, now: int) -> None:
    """Quarantine a row that can be neither used nor written, and remove it from the due index, so that it is not found again at once.
    The repair scan and an operator's replay put it back and try again."""
    if aside(store, layout, image, now) is None:
        set_aside(store, layout, image, reason, now)
    update = Update(layout, layout.key_of(image))
    update.remove("dueShard")
    for name in ("version", "lease", "dueShard"):
        update.equal(name, image.get(name))
    try:
        store.requests.call("dynamodb", "update_item", **update.params())
    except ConditionFailed:
        return  # another process has changed it, so that it can be written after all


def set_aside(store: AwsStore, layout: Layout, image: Image, reason: str, now: int) -> None:
    """Put a copy of the row with the reason into quarantine, and remember that. Long values are cut: the part that identifies the
    row must fit into a message."""
    row = {name: plain(value) for name, value in image.items()}
    names = (*layout.key, FULL_KEY)
    shown = {name: value if name in names else _cut(value) for name, value in row.items()}
    store.queues.set_aside("row", {"route": layout.route, "table": layout.table, "row": shown}, reason)
    document = AsideDocument(digest_of(row).hex(), reason, now, now)
    store.control.write(_kind(layout.route), layout.key_of(image), to_builtins(document))


def aside(store: AwsStore, layout: Layout, image: Image, now: int) -> AsideDocument | None:
    """The document of this row, if it was quarantined in exactly this state; also records that the row still exists."""
    key = layout.key_of(image)
    held = store.control.get(_kind(layout.route), key)
    if held is None:
        return None
    document = convert(held.value, AsideDocument)
    if document.digest != digest_of({name: plain(value) for name, value in image.items()}).hex():
        return None
    store.control.write(_kind(layout.route), key, to_builtins(replace(document, seen_at=now)), held.version)
    return document


def forget(store: AwsStore, route: str, before: int) -> None:
    """Remove documents of rows not seen since then: they are gone or were corrected."""
    for key, held in store.control.read(_kind(route)).items():
        if convert(held.value, AsideDocument).seen_at < before:
            store.control.write(_kind(route), key, None, held.version)


def _cut(value: Any) -> Any:
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return value if len(text) <= LONGEST else f"{text[:LONGEST]}… (cut: {len(text):,} characters)"


def _kind(route: str) -> str:
    return ASIDE + route
