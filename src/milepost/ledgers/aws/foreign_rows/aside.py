"""Rows that were set aside, remembered by what they said: the stream tells of each change once, but a scan meets them every day."""

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
"""Characters of one attribute that are shown of a row that was set aside."""

ASIDE = "aside#"
"""With a route's name: the kind of these control documents."""


class AsideDocument(Struct, frozen=True):
    """A control document of kind "aside#<route>", named after the item's key."""

    digest: str
    """Of the whole row: one that has changed since is another matter."""
    reason: str
    at: int
    seen_at: int


def put_aside(store: AwsStore, layout: Layout, image: Image, reason: str, now: int) -> None:
    """Set a row aside that can be neither used nor written: it leaves the index of what is due, so that it is not met again at once.
    The repair scan puts it back there and sees to it again, and so does an operator's replay."""
    if aside(store, layout, image, now) is None:
        set_aside(store, layout, image, reason, now)
    update = Update(layout, layout.key_of(image))
    update.remove("dueShard")
    for name in ("version", "lease", "dueShard"):
        update.equal(name, image.get(name))
    try:
        store.requests.call("dynamodb", "update_item", **update.params())
    except ConditionFailed:
        return  # somebody has changed it meanwhile, so that it can be written after all


def set_aside(store: AwsStore, layout: Layout, image: Image, reason: str, now: int) -> None:
    """Put a copy of the row where people find it, with the reason, and remember that. Long values are cut: what is needed to find
    the row again must fit into a message."""
    row = {name: plain(value) for name, value in image.items()}
    names = (*layout.key, FULL_KEY)
    shown = {name: value if name in names else _cut(value) for name, value in row.items()}
    store.queues.set_aside("row", {"route": layout.route, "table": layout.table, "row": shown}, reason)
    told = AsideDocument(digest_of(row).hex(), reason, now, now)
    store.control.write(_kind(layout.route), layout.key_of(image), to_builtins(told))


def aside(store: AwsStore, layout: Layout, image: Image, now: int) -> AsideDocument | None:
    """What is remembered of this row, if it was set aside just as it is; and that it is still there."""
    key = layout.key_of(image)
    held = store.control.get(_kind(layout.route), key)
    if held is None:
        return None
    told = convert(held.value, AsideDocument)
    if told.digest != digest_of({name: plain(value) for name, value in image.items()}).hex():
        return None
    store.control.write(_kind(layout.route), key, to_builtins(replace(told, seen_at=now)), held.version)
    return told


def forget(store: AwsStore, route: str, before: int) -> None:
    """Rows that nobody has seen since then are gone, or were put right."""
    for key, held in store.control.read(_kind(route)).items():
        if convert(held.value, AsideDocument).seen_at < before:
            store.control.write(_kind(route), key, None, held.version)


def _cut(value: Any) -> Any:
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return value if len(text) <= LONGEST else f"{text[:LONGEST]}… (cut: {len(text):,} characters)"


def _kind(route: str) -> str:
    return ASIDE + route
