"""How much randomised tests try: little in `make quick`, more in `make test`, most in `make
thorough`."""

from __future__ import annotations

import os
from typing import Any

import pytest

THOROUGH = os.environ.get("MILEPOST_THOROUGH") == "1"
"""`make thorough` sets this variable."""


def seeds(number: int, quick: int) -> list[Any]:
    """The seeds 0 to `number`, three times as many in `make thorough`; `make quick` leaves out
    those from `quick` on."""
    number *= 3 if THOROUGH else 1
    return [
        *range(quick),
        *(pytest.param(seed, marks=pytest.mark.thorough) for seed in range(quick, number)),
    ]


def examples(usual: int, thorough: int) -> int:
    """How many examples Hypothesis makes."""
    return thorough if THOROUGH else usual
