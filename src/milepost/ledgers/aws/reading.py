"""Reading rows that may not be what they should be: spoilt by somebody, or with a blob that is damaged or gone. That is the matter of
one item, and keeps nobody from the others."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from milepost.core.errors import LedgerDamaged
from milepost.core.item import Item, Row
from milepost.ledgers.aws.image import content_of, is_ours, row_of
from milepost.ledgers.aws.keys import Image, Layout
from milepost.ledgers.aws.row_faults import why_unreadable

if TYPE_CHECKING:
    from milepost.ledgers.aws.store import Store

SPOILT = (KeyError, TypeError, ValueError, AttributeError, FileNotFoundError, LedgerDamaged)
"""What reading one item raises if it cannot be read. Anything else is trouble with AWS, and everybody's."""

log = logging.getLogger(__name__)


def readable(store: Store, layout: Layout, image: Image) -> Row | None:
    """The row, if it is one of ours and can be read. The relay sets a change that spoils it aside, and so does the repair."""
    if not is_ours(image):
        return None
    try:
        return row_of(image, layout, store.values)
    except SPOILT as error:
        _tell(layout, image, error)
        return None


def whole(store: Store, layout: Layout, image: Image) -> Item | None:
    """The row with all that it carries, if that can be read."""
    row = readable(store, layout, image)
    if row is None:
        return None
    try:
        return Item(row, content_of(image, layout, store.values))
    except SPOILT as error:
        _tell(layout, image, error)
        return None


def _tell(layout: Layout, image: Image, error: Exception) -> None:
    log.warning("a row of %s cannot be read, %s: %s", layout.table, layout.key_of(image), why_unreadable(error, image, layout))
