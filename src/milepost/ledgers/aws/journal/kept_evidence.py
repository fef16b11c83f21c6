"""Evidence kept at sealing: the row leaves later by TTL, when no process of Milepost is involved."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from milepost.core.errors import LedgerError
from milepost.core.item import Item
from milepost.evidence.record import kept
from milepost.ledgers.aws.refused_rows import UNREADABLE
from milepost.ledgers.aws.tables.item_rows import content_of, correlation_of, is_ours, life_of, links_of, offered_by, row_of
from milepost.ledgers.aws.tables.keys import Image, Layout
from milepost.ports.feed import HistoryEntry
from milepost.ports.retention import Leaving

if TYPE_CHECKING:
    from milepost.ledgers.aws.store import AwsStore, Sealing

log = logging.getLogger(__name__)

RowsRead = Mapping[tuple[str, str], tuple[Image, int]]
"""Ended rows by route and key, as the sealing process has just read them, with the place of the last line."""


def keep_evidence(store: AwsStore, seals: Sequence[Sealing], rows_read: RowsRead) -> None:
    """Keep evidence of items about to be sealed, for routes that want it. A repeat writes the same; a row that has changed since is
    sealed and kept again. Rows missing in `rows_read` are read."""
    wanted: dict[str, list[str]] = {}
    for sealing in seals:
        plan = store.plans.get(sealing.route)
        if plan is not None and plan.route.evidence:
            wanted.setdefault(sealing.route, []).append(sealing.seal.key)
    for route, keys in wanted.items():
        layout = store.layout(route)
        if layout is None:
            continue
        seen = {key: rows_read[route, key] for key in keys if (route, key) in rows_read}
        read = store.images(route, [key for key in keys if key not in seen])
        found: list[tuple[Image, int | None]] = [*seen.values(), *((image, None) for image in read.values() if is_ours(image))]
        store.requests.each([partial(_keep, store, layout, image, place) for image, place in found])


def _keep(store: AwsStore, layout: Layout, image: Image, place: int | None) -> None:
    try:
        going = leaving(store, layout, image, placed=place is None)
        item, lines = going.item, going.lines
        last = place or (lines[-1].seq if lines else 0)
        name, body = kept(item, [written.body for written in lines], last)
    except UNREADABLE as error:
        # Its lines stay in the history table; it must not stop others from being sealed.
        log.error("cannot keep the evidence of %s in %s: %s", layout.key_of(image), layout.table, error)
        return
    try:
        store.blobs.write(name, [body])
    except OSError as error:
        raise LedgerError(f"cannot keep the evidence of {item.route}/{item.key}; it is sealed later: {error}") from error


def leaving(store: AwsStore, layout: Layout, image: Image, *, placed: bool = True) -> Leaving:
    """The item in this image with its lines, and with their places if `placed`."""
    item = Item(row_of(image, layout, store.values), content_of(image, layout, store.values))
    lines = history(store, item.route, item.key, image, placed=placed)
    return Leaving(item, lines[: item.row.version])


def history(
    store: AwsStore, route: str, key: str, image: Image | None, *, placed: bool = True, payloads: bool = False
) -> list[HistoryEntry]:
    """Lines in the history table, followed by those still on the row, which have no place yet."""
    life = life_of(image) if image is not None else _sealed_life(store, route, key)
    written = store.journal.history(route, key, life, placed=placed, payloads=payloads)
    if image is None or not is_ours(image):
        return written
    newest = written[-1].line.version if written else 0
    fresh = [link for link in links_of(image, store.values) if link.version > newest]
    layout = store.layout(route)
    offered = offered_by(fresh, image, layout, store.values) if payloads and layout is not None else {}
    correlation_id = correlation_of(image, key)
    return written + [HistoryEntry(0, route, key, correlation_id, link.previous, link.body, offered.get(link.version)) for link in fresh]


def _sealed_life(store: AwsStore, route: str, key: str) -> int:
    """The life of the key that a removed row belonged to."""
    seal = store.seals(route, [key]).get(key)
    return 0 if seal is None else seal.life
