"""CSV tables that spreadsheet programs open: digests' attachments and the worklist's export."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def csv_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> bytes:
    """A table in UTF-8 with a byte order mark, without which spreadsheet programs take it for another encoding."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\r\n")
    writer.writerow(columns)
    writer.writerows([_cell(value) for value in row] for row in rows)
    return _BYTE_ORDER_MARK + out.getvalue().encode()


def _cell(value: object) -> str:
    """A cell that no spreadsheet program takes for a formula."""
    text = "" if value is None else str(value)
    return f"'{text}" if text[:1] in ("=", "+", "-", "@", "\t", "\r") else text
