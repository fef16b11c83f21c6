"""Kinds of stream records: what the images of a row, before and after, say about it."""

from __future__ import annotations

from enum import Enum, auto

from milepost.core.status import TERMINAL
from milepost_aws.ledger.tables.item_rows import is_ours
from milepost_aws.ledger.tables.keys import Image

ENDED = frozenset(status.value for status in TERMINAL)


class RecordKind(Enum):
    """A row is ours once Milepost has taken it in; until then it belongs to another program.

    | image before | image after | kind | its cause |
    |---|---|---|---|
    | none, or not ours | ours, first version | PUT | the item was added, or its row adopted |
    | none, or not ours | ours, later version | RESTORED | its row had left, or was overwritten |
    | ours | other version | CHANGED | a write with a history line |
    | ours | same version, other stage | RENAMED | `routes apply` renamed the stage |
    | ours | same version and stage | TOUCHED | a claim, a lease extension, a confirmation |
    | ours, ended | none | EXPIRED | its time to live was over |
    | ours, unfinished | none | REMOVED_BY_OTHERS | another program removed it |
    | ours | not ours | OVERWRITTEN | another program put it again |
    | none, or not ours | none, or not ours | FOREIGN | another program changed its own row |
    """

    PUT = auto()
    RESTORED = auto()
    CHANGED = auto()
    RENAMED = auto()
    TOUCHED = auto()
    EXPIRED = auto()
    REMOVED_BY_OTHERS = auto()
    OVERWRITTEN = auto()
    FOREIGN = auto()


UNCOUNTED = frozenset((RecordKind.RENAMED, RecordKind.OVERWRITTEN, RecordKind.FOREIGN))
"""Records that change no counter. The rename of a stage counts the rows itself, and an overwritten
row returns."""


def kind_of(old: Image | None, new: Image | None) -> RecordKind:
    """The kind of a record with these images. A row of ours must be readable (see `row_of`)."""
    before = old if old is not None and is_ours(old) else None
    after = new if new is not None and is_ours(new) else None
    if before is None:
        if after is None:
            return RecordKind.FOREIGN
        return RecordKind.RESTORED if _version(after) > 1 else RecordKind.PUT
    if new is None:
        ended = before["status"]["S"] in ENDED
        return RecordKind.EXPIRED if ended else RecordKind.REMOVED_BY_OTHERS
    if after is None:
        return RecordKind.OVERWRITTEN
    if _version(before) != _version(after):
        return RecordKind.CHANGED
    if before["queue"]["S"] != after["queue"]["S"]:
        return RecordKind.RENAMED
    return RecordKind.TOUCHED


def _version(image: Image) -> int:
    return int(image["version"]["N"])
