"""A station at work beside what is measured."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from milepost.engine.context import Context
from milepost.station import Station


@contextmanager
def at_work(ctx: Context) -> Iterator[None]:
    """As `milepost up` has it, in a thread of its own; it has stopped when this ends."""
    station = Station(ctx)
    thread = threading.Thread(target=station.run)
    thread.start()
    try:
        yield
    finally:
        station.stop()
        thread.join()
