"""Recording of a list: what is written of it while it is taken in, or noted in a dry run."""

from __future__ import annotations

import errno
from collections.abc import Collection, Iterator

from msgspec.structs import replace

from milepost.core.errors import LedgerError, LedgerFull
from milepost.core.item import digest_of
from milepost.core.routes.route import Route
from milepost.engine.context import Context
from milepost.engine.intake import TakenBatch
from milepost.engine.lists.formats import LineBatch
from milepost.engine.lists.keys import SortedKeys, pack
from milepost.ports.documents import LIST, ListRecord

NUMBER, DIGEST = 12, 16
"""Characters of the line number and of the content digest in a dry run's note of each new line."""
NOTE = NUMBER + DIGEST


class ListRecording:
    """Records a list: its record before its first item, its keys and its counts at the end."""

    dry_run = False

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._begun = False

    def id_of(self, record: ListRecord) -> str:
        return record.id

    def begin(self, record: ListRecord) -> None:
        """Called before each batch. The list is recorded before its first item, so that an item's
        list can be found even if the list is interrupted."""
        if not self._begun:
            self._ctx.ledger.write(LIST, record.id, record)
            self._begun = True

    def note_new(self, batch: LineBatch, taken: TakenBatch) -> Collection[int]:
        """None: the ledger recognises a key that comes again."""
        return ()

    def repeated_with_other_content(self) -> Iterator[tuple[int, str]]:
        """None: these lines are known as changed already."""
        return iter(())

    def store_keys(self, record: ListRecord, blocks: Iterator[list[str]]) -> ListRecord:
        """Store the keys; returns the record with their place."""
        record = replace(record, keys_blob=f"lists/{record.id}")
        try:
            self._ctx.blobs.write(record.keys_blob, pack(blocks))
        except OSError as error:
            full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            cause = "the disk is full" if full else str(error)
            raise (LedgerFull if full else LedgerError)(
                f"the keys of the list {record.name!r} cannot be stored: {cause}; its items are recorded. Submit it again: recorded items are recognised"
            ) from error
        return record

    def finish(self, record: ListRecord) -> None:
        self._ctx.ledger.write(LIST, record.id, record)


class ListPreview:
    """The recording of a dry run: nothing is written. So the ledger cannot recognise a key that
    comes again, and the lines with new keys are noted here."""

    dry_run = True

    def __init__(self, route: Route, new_lines: SortedKeys) -> None:
        self._route, self._new_lines = route, new_lines

    def id_of(self, record: ListRecord) -> str:
        return ""

    def begin(self, record: ListRecord) -> None:
        pass

    def note_new(self, batch: LineBatch, taken: TakenBatch) -> Collection[int]:
        """Note key, line and digest of each line with a new key. Returns their places."""
        new_keys = {receipt.key for receipt in taken.others.values() if receipt.answer == "new"}
        keys: dict[int, str] = {}
        marks: list[str] = []
        for place, receipt in taken.others.items():
            if receipt.key in new_keys:
                content = self._route.read(batch.inputs[place]).content
                keys[place] = receipt.key
                marks.append(
                    f"{batch.numbers[place]:0{NUMBER}d}{digest_of(content).hex()[:DIGEST]}"
                )
        self._new_lines.add(list(keys.values()), marks)
        return keys.keys()

    def repeated_with_other_content(self) -> Iterator[tuple[int, str]]:
        """The numbers and keys of lines that differ from the first line with their key."""
        last = first = ""
        for key, mark in self._new_lines.all():
            if key != last:
                last, first = key, mark[NUMBER:]
            elif mark[NUMBER:] != first:
                yield int(mark[:NUMBER]), key

    def store_keys(self, record: ListRecord, blocks: Iterator[list[str]]) -> ListRecord:
        """Have the keys counted."""
        for _ in blocks:
            pass
        return record

    def finish(self, record: ListRecord) -> None:
        pass
