"""Settings for a process that does nothing but Milepost's work (`milepost up`, `work`, and `submit` of a list); never made in a program that imports it."""

from __future__ import annotations

import gc
import sys


def settle_in() -> None:
    """Collect garbage more rarely: a batch of items is thousands of objects and not one cycle, and looking for cycles among
    them costs a tenth of the time. What was imported is not looked at again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)


def hand_over_soon() -> None:
    """Give the interpreter to a waiting thread after 1 ms instead of 5, in a process that serves calls: its event loop needs it often
    and for short, and so does the worker among handlers that compute."""
    sys.setswitchinterval(0.001)
