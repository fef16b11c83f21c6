"""Packed writes of history lines and contents: one value holds those of many rows, and one
statement cuts it into pieces.

Binding values one by one costs more than SQLite's own work, and with one statement for each row the
threads of a process would hand over the interpreter once for each row.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from milepost.ledgers.sqlite.rows.codec import json_text
from milepost.ledgers.sqlite.rows.names import Transaction
from milepost.ledgers.sqlite.rows.row_groups import DIGEST, FEW

PORTION = 1 << 20
"""Approximate bytes packed into one value, so that a batch of large inputs is never in memory
twice."""
LINE = "INSERT INTO history (item, previous, body) VALUES (?, ?, ?)"
# :pieces: the packed pieces; :cuts: for each item's number, where its piece begins and how long it
# is.
LINES = (
    "INSERT INTO history (item, previous, body) SELECT CAST(json_each.key AS INTEGER), substr(:pieces, value >> 32, 32),"
    " substr(:pieces, (value >> 32) + 32, (value & 4294967295) - 32) FROM json_each(:cuts)"
)
REPLACED = "ON CONFLICT (kind, item, stage) DO UPDATE SET body = excluded.body"
CONTENT = f"INSERT INTO content (item, kind, stage, body) VALUES (?, ?, ?, ?) {REPLACED}"
CONTENTS = (
    "INSERT INTO content (item, kind, stage, body) SELECT CAST(json_each.key AS INTEGER), :kind, :stage,"
    f" substr(:pieces, value >> 32, value & 4294967295) FROM json_each(:cuts) WHERE true {REPLACED}"
)


def write_history(tx: Transaction, lines: Sequence[tuple[int, bytes, bytes]]) -> None:
    """Write lines of different items: item, digest of the line before, body."""
    if len(lines) <= FEW or any(len(previous) != DIGEST for _, previous, _ in lines):
        tx.executemany(LINE, lines)
        return
    for packed, cuts in _portions((item, previous + body) for item, previous, body in lines):
        tx.execute(LINES, {"pieces": packed, "cuts": cuts})


def write_contents(
    tx: Transaction, kind: int, stage: int, items: Collection[int], bodies: Iterable[bytes]
) -> None:
    """Write the contents of one kind of different items; what is there already is replaced."""
    pieces = zip(items, bodies, strict=True)
    if len(items) <= FEW:
        tx.executemany(CONTENT, [(item, kind, stage, body) for item, body in pieces])
        return
    for packed, cuts in _portions(pieces):
        tx.execute(CONTENTS, {"pieces": packed, "cuts": cuts, "kind": kind, "stage": stage})


def _portions(pieces: Iterable[tuple[int, bytes]]) -> Iterator[tuple[bytes, str]]:
    """The pieces of these items, packed; about PORTION bytes at a time."""
    packed: list[bytes] = []
    cuts: dict[int, int] = {}
    at = 1
    for item, piece in pieces:
        packed.append(piece)
        cuts[item] = at << 32 | len(piece)
        at += len(piece)
        if at > PORTION:
            yield b"".join(packed), json_text(cuts)
            packed, cuts, at = [], {}, 1
    if cuts:
        yield b"".join(packed), json_text(cuts)
