"""A fixed world: the time, random numbers and the machine's name are the same in every run. Only
the standard library is patched."""

from __future__ import annotations

import os
import platform
import random
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from milepost_testing import VirtualClock

HOST, PID = "golden-host", 4711


class FixedChance:
    """No jitter, and tokens of one length, numbered from 1."""

    def __init__(self) -> None:
        self._given = 0

    def jitter(self) -> float:
        return 0.0

    def token(self) -> str:
        self._given += 1
        return f"token-{self._given:05}"


@contextmanager
def fixed(folder: Path, clock: VirtualClock, seed: str) -> Iterator[None]:
    """Work in this folder, at the clock's time, in UTC, 80 columns wide. Tokens are numbered from 1
    and named after `seed`."""
    given = 0

    def token(length: int | None = None) -> str:
        nonlocal given
        given += 1
        return f"{seed}-{given:05}"

    state = random.getstate()
    random.seed(seed)
    with pytest.MonkeyPatch.context() as patch:
        for name in os.environ:
            if name.startswith(("MILEPOST_", "AWS_", "LC_")) or name in (
                "FORCE_COLOR",
                "NO_COLOR",
                "CLICOLOR_FORCE",
                "LINES",
            ):
                patch.delenv(name)
        patch.setenv("TZ", "UTC")
        patch.setenv("COLUMNS", "80")
        time.tzset()
        patch.chdir(folder)
        for name in ("time_ns", "monotonic_ns"):
            patch.setattr(time, name, lambda: clock.now() * 1_000_000)
        patch.setattr(time, "time", lambda: clock.now() / 1000)
        patch.setattr(platform, "node", lambda: HOST)
        patch.setattr(os, "getpid", lambda: PID)
        # The simulator asks how many milliseconds each handler call takes.
        patch.setattr(random.Random, "randrange", lambda *limits: 10)
        for name in ("token_hex", "token_urlsafe"):
            patch.setattr(secrets, name, token)
        try:
            yield
        finally:
            random.setstate(state)
    time.tzset()
