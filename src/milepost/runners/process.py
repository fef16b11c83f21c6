"""Settings for a process that does nothing but Milepost's work (`milepost up`, `work`, and `submit` of a list); never made in a program that imports it."""

from __future__ import annotations

import gc
import sys


def settle_in() -> None:
    """Collect garbage more rarely: a batch of items is thousands of objects and not one cycle, and looking for cycles among
    them costs a tenth of the time. What was imported is not looked at again. And let threads that wait for the interpreter have it
    after 1 ms, not 5: where handlers keep it busy, the server and the worker need it often and for short."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)
    sys.setswitchinterval(0.001)
