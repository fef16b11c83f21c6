"""Size limits of what a row carries beside its content: notes, and outcomes that wait for the item to be ready for them."""

from __future__ import annotations

from milepost.core.item import canonical_json
from milepost.core.outcome import Outcome

NOTE_LIMIT = 2_000
"""Characters of a note that are kept."""
OUTCOME_LIMIT = 1_048_576
"""Bytes of JSON of an outcome that is kept beside the row: an outside confirmation, or an outcome that waits to be decided."""


def cut_note(note: str | None) -> str | None:
    """The note, cut to size; its end then says how long it was."""
    if note is None or len(note) <= NOTE_LIMIT:
        return note
    marker = f"… (cut: {len(note):,} characters)"
    return note[: NOTE_LIMIT - len(marker)] + marker


def too_large(outcome: Outcome) -> str | None:
    """Why this outcome cannot be kept beside the row; None: it can."""
    size = len(canonical_json(outcome))
    if size <= OUTCOME_LIMIT:
        return None
    return f"it takes {size:,} bytes as JSON, and at most {OUTCOME_LIMIT:,} can be kept; keep the rest elsewhere, and give its address"
