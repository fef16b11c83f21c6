"""Notes: signed lines that a person or a program adds to an item's history, and that change nothing else."""

from __future__ import annotations

from typing import Any

from milepost.core import operators
from milepost.core.errors import UsageError
from milepost.core.item import Row
from milepost.core.values.json import canonical_json
from milepost.core.values.refusal import Refusal
from milepost.engine.acts.bulk import absent
from milepost.engine.apply import apply_all, unreadable
from milepost.engine.context import Context
from milepost.ports.items import Refused

LARGEST = 4_096
"""Bytes of a note, its data included: the line is copied to every subscriber and into the evidence."""


def note(
    ctx: Context, route: str, key: str, text: str, *, by: str, data: Any = None, reason: str = "", version: int | None = None
) -> Row | Refusal:
    """Add a note to an item's history; the row as it then is, or why nothing was written. `version`: only if no other line was added since
    the item had it."""
    if not by.strip() or not text.strip():
        raise UsageError("a note needs a text and the name of its author")
    size = len(canonical_json([text, data]))
    if size > LARGEST:
        raise UsageError(f"the note has {size:,} bytes; at most {LARGEST:,} are kept")
    ctx.plan(route)
    [item] = ctx.ledger.get([(route, key)])
    if item is None:
        return absent(ctx, route, key)
    if isinstance(item, Refused):
        return unreadable(item)
    given = {"text": text, "data": data, "version": version, "by": by, "why": reason or None}
    [answer] = apply_all(ctx, [(item, lambda now_there: operators.note(now_there, ctx.clock.now(), **given))])
    return answer
