"""Reading of rows that may be damaged (wrong attributes, missing or changed blobs): such a row affects its own item only."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from milepost.core.errors import LedgerDamaged
from milepost.core.item import Item, Row
from milepost.ledgers.aws.tables.item_rows import content_of, is_ours, row_of
from milepost.ledgers.aws.tables.keys import Image, Layout
from milepost.ledgers.aws.tables.row_faults import why_unreadable
from milepost.ports.items import Refused

if TYPE_CHECKING:
    from milepost.ledgers.aws.store import AwsStore

SPOILT = (KeyError, TypeError, ValueError, AttributeError, FileNotFoundError, LedgerDamaged)
"""Exceptions that mean one item is unreadable. Any other is a problem with AWS and concerns all items."""

log = logging.getLogger(__name__)


def readable(store: AwsStore, layout: Layout, image: Image) -> Row | None:
    """The row, if Milepost wrote it and it is readable. Relay and repair put an unreadable one into quarantine."""
    row = row_or_refused(store, layout, image)
    return row if isinstance(row, Row) else None


def whole(store: AwsStore, layout: Layout, image: Image) -> Item | Refused | None:
    """The row with its content; Refused: unreadable; None: not a row of Milepost."""
    row = row_or_refused(store, layout, image)
    if not isinstance(row, Row):
        return row
    try:
        return Item(row, content_of(image, layout, store.values))
    except SPOILT as error:
        _warn(layout, image, error)
        return Refused(f"its content cannot be read: {why_unreadable(error, image, layout)}", row.key, row)


def row_or_refused(store: AwsStore, layout: Layout, image: Image) -> Row | Refused | None:
    """The row; Refused: unreadable; None: not a row of Milepost."""
    if not is_ours(image):
        return None
    try:
        return row_of(image, layout, store.values)
    except SPOILT as error:
        _warn(layout, image, error)
        return Refused(f"its row cannot be read: {why_unreadable(error, image, layout)}", layout.key_of(image))


def _warn(layout: Layout, image: Image, error: Exception) -> None:
    log.warning("cannot read a row of %s, key %s: %s", layout.table, layout.key_of(image), why_unreadable(error, image, layout))
