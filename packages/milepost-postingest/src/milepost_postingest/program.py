"""The program that checks assets, by name and version, as the record of a confirmation names it."""

from __future__ import annotations

import milepost as mp


def program_of(kind: str) -> str:
    """The program with this kind of worker, such as "milepost 1.0.0, ocfl"."""
    return f"milepost {mp.__version__}, {kind}"
