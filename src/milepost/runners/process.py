"""Settings for a process that does nothing but Milepost's work (`milepost up` and `work`); never made in somebody else's."""

from __future__ import annotations

import gc


def settle_in() -> None:
    """Collect garbage more rarely: a batch of items is thousands of objects and not one cycle, and looking for cycles among
    them costs a tenth of the time. What was imported is not looked at again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)
