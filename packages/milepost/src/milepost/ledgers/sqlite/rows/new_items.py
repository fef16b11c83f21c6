"""Writes of new items: one statement for all similar rows, one for a batch's content and one for
its first lines.

The values that differ per row are packed into one value, which the statement cuts into pieces, and
common values are bound once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec.structs import replace

from milepost.core.item import Row
from milepost.ledgers.sqlite.rows.changes import CounterDeltas
from milepost.ledgers.sqlite.rows.codec import INPUT, encode, json_text, shared
from milepost.ledgers.sqlite.rows.names import Transaction
from milepost.ledgers.sqlite.rows.packed import write_contents, write_history
from milepost.ledgers.sqlite.rows.row_groups import DIGEST, FEW
from milepost.ports.items import NewItem

LONGEST = 65_535
"""Maximum bytes of a key or correlation id whose length fits into a packed number."""

# A number still used by lines of an item whose row has left is not reused.
NEXT_NUMBER = "SELECT max(coalesce((SELECT max(id) FROM item), 0), coalesce((SELECT max(item) FROM departed), 0)) + 1"
UNLESS_THERE = "ON CONFLICT (route, key) DO NOTHING"
COMMON = (
    "route, created_at, list_id, life, key_field, place, status, due_at, look_at, overdue_at, version, updated_at, entered_at, attempts,"
    " total_attempts, looks, losses, round, pass_no, flags, lease, holder, claimed_at, error_group, rest"
)
"""The columns that rows may have in common (see `_similar`)."""
COMMON_NAMES = COMMON.split(", ")
COLUMNS = f"{COMMON}, id, head, input_digest, key, correlation_id"
INSERT = f"INSERT INTO item ({COLUMNS}) VALUES ({', '.join('?' * 30)}) {UNLESS_THERE}"
# :first: the first number; :pieces: the packed pieces; :cuts: for each row, where its piece begins
# and how long its texts are.
INSERT_GROUP = (
    f"INSERT INTO item ({COLUMNS}) SELECT {', '.join(f':{name}' for name in COMMON_NAMES)},"
    " :first + json_each.key, substr(:pieces, value >> 32, 32), substr(:pieces, (value >> 32) + 32, 32),"
    " CAST(substr(:pieces, (value >> 32) + 64, (value >> 16) & 65535) AS TEXT),"
    " CAST(substr(:pieces, (value >> 32) + 64 + ((value >> 16) & 65535), value & 65535) AS TEXT)"
    f" FROM json_each(:cuts) WHERE true {UNLESS_THERE}"
)
NEW_OFFER = (
    "INSERT INTO offer (seq, body) SELECT h.seq, c.body FROM history h JOIN content c ON c.item = h.item AND c.kind = 0 AND c.stage = 0"
    " WHERE h.item = ?"
)


def write_new(tx: Transaction, new_items: Sequence[NewItem], tally: CounterDeltas) -> list[int]:
    """Write new items with different keys. Returns the places of those whose key already has a row;
    nothing is written for these. The unique index on keys finds them in the caller's transaction,
    so no look-up is needed before."""
    first: int = tx.execute(NEXT_NUMBER).fetchone()[0]
    written = _write_rows(tx, first, new_items)
    there: list[int] = []
    places: Sequence[int] = range(len(new_items))
    if written < len(new_items):
        taken = {
            number - first
            for (number,) in tx.execute("SELECT id FROM item WHERE id >= ?", (first,))
        }
        there = [place for place in places if place not in taken]
        places = [place for place in places if place in taken]
        new_items = [new_items[place] for place in places]
    changes = [new_item.change for new_item in new_items]
    numbers = [first + place for place in places]
    write_contents(tx, INPUT, 0, numbers, (encode(new_item.input) for new_item in new_items))
    write_history(
        tx,
        [
            (number, change.before.head, change.body)
            for number, change in zip(numbers, changes, strict=True)
        ],
    )
    offering = [
        (first + place,)
        for place, change in zip(places, changes, strict=True)
        if change.line and change.line.offered
    ]
    if offering:
        tx.executemany(NEW_OFFER, offering)
    tally.add(changes)
    return there


def _write_rows(tx: Transaction, first: int, new_items: Sequence[NewItem]) -> int:
    """Write the rows whose key has none yet, each under the number of its place; returns how
    many."""
    written = 0
    single: list[tuple[Any, ...]] = []
    rows = [new_item.change.after for new_item in new_items]
    for common, places in _similar(
        tx, rows, [_key_field(row.key, one.input) for row, one in zip(rows, new_items, strict=True)]
    ):
        if len(places) > FEW and (packed := _pack(rows, places)) is not None:
            pieces, cuts = packed
            bound = {
                "first": first,
                "pieces": pieces,
                "cuts": cuts,
                **dict(zip(COMMON_NAMES, common, strict=True)),
            }
            written += tx.execute(INSERT_GROUP, bound).rowcount
        else:
            for place in places:
                row = rows[place]
                single.append(
                    (
                        *common,
                        first + place,
                        row.head,
                        row.input_digest,
                        row.key,
                        row.correlation_id,
                    )
                )
    return written + tx.executemany(INSERT, single).rowcount if single else written


def _key_field(key: str, content: Any) -> str | None:
    """The field of an input that is the key and nothing else."""
    if type(content) is dict and len(content) == 1:
        [(field, value)] = content.items()
        if type(field) is str and type(value) is str and value == key:
            return field
    return None


def _similar(
    tx: Transaction, rows: Sequence[Row], key_fields: Sequence[str | None]
) -> Iterable[tuple[tuple[Any, ...], list[int]]]:
    """The columns that rows have in common, with the places of those rows."""
    groups: dict[tuple[Any, ...], list[int]] = {}
    last: Row | None = None
    last_field: str | None = None
    places: list[int] = []
    for place, (row, key_field) in enumerate(zip(rows, key_fields, strict=True)):
        bare = replace(row, key="", head=b"", correlation_id="", input_digest=b"")
        if key_field != last_field or bare != last:
            last, last_field = bare, key_field
            at = tx.names.place(tx.connection, row.route, row.stage, row.lane)
            common = (
                tx.names.routes[row.route],
                row.created_at,
                row.list_id,
                row.life,
                key_field,
                *shared(row, at),
            )
            places = groups.setdefault(common, [])
        places.append(place)
    return groups.items()


def _pack(rows: Sequence[Row], places: Sequence[int]) -> tuple[bytes, str] | None:
    """The values of these rows that differ, packed for INSERT_GROUP; None: one of them does not
    have the usual size."""
    pieces: list[bytes] = []
    cuts: dict[int, int] = {}
    at = 1
    for place in places:
        row = rows[place]
        head, digest, key, correlation_id = (
            row.head,
            row.input_digest,
            row.key.encode(),
            row.correlation_id.encode(),
        )
        long, longer = len(key), len(correlation_id)
        if not (len(head) == DIGEST == len(digest) and long <= LONGEST >= longer):
            return None
        pieces += (head, digest, key, correlation_id)
        cuts[place] = at << 32 | long << 16 | longer
        at += 2 * DIGEST + long + longer
    return b"".join(pieces), json_text(cuts)
