"""Batch writes of similar rows: common values are bound once, and SQLite iterates over the rows.

Binding a value costs more than writing its column. So a statement for a group of rows takes the row
numbers as one JSON list, and the rows' own digests from one blob, by position in the list.
"""

from __future__ import annotations

from collections.abc import Sequence

FEW = 3
"""Up to this many rows one statement per row is as fast."""
DIGEST = 32
OWN_DIGEST = f"substr(?, 1 + {DIGEST} * json_each.key, {DIGEST})"
"""The row's own digest, out of the blob with those of all rows of the group."""

UPDATE_GROUP = (
    "UPDATE item SET place = ?, status = ?, due_at = ?, look_at = ?, overdue_at = ?, version = ?, updated_at = ?, entered_at = ?,"
    " attempts = ?, total_attempts = ?, looks = ?, losses = ?, round = ?, pass_no = ?, flags = ?, lease = ?, holder = ?,"
    f" claimed_at = ?, error_group = ?, rest = ?, head = {OWN_DIGEST} FROM json_each(?) WHERE item.id = json_each.value"
)
CLAIM = "UPDATE item SET status = ?, due_at = ?, look_at = ?, lease = ?, holder = ?, claimed_at = ? WHERE id = ?"
CLAIM_GROUP = CLAIM.replace("id = ?", "id IN (SELECT value FROM json_each(?))")
HISTORY_GROUP = (
    f"INSERT INTO history (item, previous, body) SELECT value, {OWN_DIGEST}, ? FROM json_each(?)"
)


def digests_of(digests: Sequence[bytes]) -> bytes | None:
    """Digests as one value to bind; None where one of them is damaged: such rows are written one by
    one."""
    joined = b"".join(digests)
    return joined if len(joined) == DIGEST * len(digests) else None
