"""Waiting for a condition that another thread or process brings about."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

TIMEOUT_S = 120.0
"""Generous: only a broken test waits for so long, on however busy a machine."""


def wait_until(
    look: Callable[[], T],
    timeout_s: float = TIMEOUT_S,
    otherwise: Callable[[], str] = lambda: "",
    pause_s: float = 0.01,
) -> T:
    """The first true value that `look` returns. After the timeout the test fails with the text of
    `otherwise`."""
    end = time.monotonic() + timeout_s
    while not (found := look()):
        assert time.monotonic() < end, otherwise() or f"not within {timeout_s:g} s"
        time.sleep(pause_s)
    return found
