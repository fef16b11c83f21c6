"""Default outcome for a file or object that is missing: not yet there."""

from __future__ import annotations

import milepost as mp


def waits(note: str) -> mp.Outcome:
    """The asset waits for the next check."""
    return mp.NotYet(note=note)
