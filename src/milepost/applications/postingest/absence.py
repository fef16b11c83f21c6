"""The usual outcome for what was looked for and is not there: it is not there yet."""

from __future__ import annotations

import milepost as mp


def waits(note: str) -> mp.Outcome:
    """The asset waits for the next look."""
    return mp.NotYet(note=note)
