"""Reading rows that may not be what they should be: spoilt by somebody, or with a blob that is damaged or gone. That is the matter of
one item, and keeps nobody from the others."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from milepost.core.errors import LedgerDamaged
from milepost.core.item import Item, Row
from milepost.ledgers.aws.tables.item_rows import content_of, is_ours, row_of
from milepost.ledgers.aws.tables.keys import Image, Layout
from milepost.ledgers.aws.tables.row_faults import why_unreadable
from milepost.ports.ledger import Refused

if TYPE_CHECKING:
    from milepost.ledgers.aws.store import AwsStore

SPOILT = (KeyError, TypeError, ValueError, AttributeError, FileNotFoundError, LedgerDamaged)
"""What reading one item raises if it cannot be read. Anything else is trouble with AWS, and everybody's."""

log = logging.getLogger(__name__)


def readable(store: AwsStore, layout: Layout, image: Image) -> Row | None:
    """The row, if it is one of ours and can be read. The relay sets a change that spoils it aside, and so does the repair."""
    row = row_or_refused(store, layout, image)
    return row if isinstance(row, Row) else None


def whole(store: AwsStore, layout: Layout, image: Image) -> Item | Refused | None:
    """The row with all that it carries; Refused: it cannot be read; None: it is not one of ours."""
    row = row_or_refused(store, layout, image)
    if not isinstance(row, Row):
        return row
    try:
        return Item(row, content_of(image, layout, store.values))
    except SPOILT as error:
        _tell(layout, image, error)
        return Refused(f"what it carries cannot be read: {why_unreadable(error, image, layout)}", row.key, row)


def row_or_refused(store: AwsStore, layout: Layout, image: Image) -> Row | Refused | None:
    """The row; Refused: it cannot be read; None: it is not one of ours."""
    if not is_ours(image):
        return None
    try:
        return row_of(image, layout, store.values)
    except SPOILT as error:
        _tell(layout, image, error)
        return Refused(f"its row cannot be read: {why_unreadable(error, image, layout)}", layout.key_of(image))


def _tell(layout: Layout, image: Image, error: Exception) -> None:
    log.warning("a row of %s cannot be read, %s: %s", layout.table, layout.key_of(image), why_unreadable(error, image, layout))
