"""Seeds for randomised tests: a few for every run, and many more for thorough ones."""

from __future__ import annotations

from typing import Any

import pytest


def seeds(number: int, quick: int) -> list[Any]:
    """The seeds 0 to `number`; from `quick` on they are left out of `make quick`."""
    return [*range(quick), *(pytest.param(seed, marks=pytest.mark.thorough) for seed in range(quick, number))]
