"""The content that an item had before an operator replaced it, read from its history."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from milepost.core.history import Line
from milepost.core.status import Reason
from milepost.core.values.durations import iso
from milepost.engine.context import Context


def earlier_contents(ctx: Context, lines: Iterable[Line]) -> list[dict[str, Any]]:
    """What an item's content was before each replacement, oldest first: by whom, why, and the content itself. `content` is absent
    where its blob cannot be read any more."""
    found = []
    for line in lines:
        if line.reason is not Reason.REPLACED or not isinstance(line.note, dict) or "replaced" not in line.note:
            continue
        told = line.note["replaced"]
        entry: dict[str, Any] = {"line": line.version, "until": iso(line.at), "by": line.by, "why": line.why, "digest": told["digest"]}
        if "content" in told:
            entry["content"] = told["content"]
        elif "blob" in told:
            entry["blob"] = told["blob"]
            try:
                entry["content"] = msgspec.json.decode(b"".join(ctx.blobs.read(told["blob"])))
            except (OSError, msgspec.DecodeError):
                pass
        found.append(entry)
    return found
