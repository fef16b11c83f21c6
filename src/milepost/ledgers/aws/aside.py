"""Rows that were set aside, remembered by what they said: the stream tells of each change once, but a scan meets them every day."""

from __future__ import annotations

from msgspec import Struct, convert, to_builtins
from msgspec.structs import replace

from milepost.core.item import digest_of
from milepost.ledgers.aws.keys import Image, Layout
from milepost.ledgers.aws.store import Store
from milepost.ledgers.aws.values import plain


class Aside(Struct, frozen=True):
    """A control document of kind "aside#<route>", named after the item's key."""

    digest: str
    """Of the whole row: one that has changed since is another matter."""
    reason: str
    at: int
    seen_at: int


def set_aside(store: Store, layout: Layout, image: Image, reason: str, now: int) -> None:
    """Put a copy of the row where people find it, with the reason, and remember that."""
    row = {name: plain(value) for name, value in image.items()}
    store.queues.set_aside("row", {"route": layout.route, "table": layout.table, "row": row}, reason)
    told = Aside(digest_of(row).hex(), reason, now, now)
    store.control.write(_kind(layout.route), layout.key_of(image), to_builtins(told))


def aside(store: Store, layout: Layout, image: Image, now: int) -> Aside | None:
    """What is remembered of this row, if it was set aside just as it is; and that it is still there."""
    key = layout.key_of(image)
    held = store.control.get(_kind(layout.route), key)
    if held is None:
        return None
    told = convert(held.value, Aside)
    if told.digest != digest_of({name: plain(value) for name, value in image.items()}).hex():
        return None
    store.control.write(_kind(layout.route), key, to_builtins(replace(told, seen_at=now)), held.version)
    return told


def forget(store: Store, route: str, before: int) -> None:
    """Rows that nobody has seen since then are gone, or were put right."""
    for key, held in store.control.read(_kind(route)).items():
        if convert(held.value, Aside).seen_at < before:
            store.control.write(_kind(route), key, None, held.version)


def _kind(route: str) -> str:
    return f"aside#{route}"
