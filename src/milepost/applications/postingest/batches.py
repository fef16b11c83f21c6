"""Batches of an asset: it is complete when all of its batches are, because other systems delete their copies then."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import milepost as mp

STAGE = "batches"
SHOWN = 3


class OtherBatches:
    """Handler of a stage after all others. An item waits there while another batch of its asset has not arrived there and is not
    completed; a failed batch is waited for, since an operator will correct it. The first batch to arrive does not delay the others."""

    def __init__(self) -> None:
        self._look: Callable[[str], Sequence[mp.Item]] | None = None

    def attach(self, look: Callable[[str], Sequence[mp.Item]]) -> None:
        """Called by the ledger's context with the function that finds the route's other items."""
        self._look = look

    def __call__(self, item: mp.Item) -> mp.Outcome:
        assert self._look is not None, "attach() was called when the route was opened"
        asset = item.key.partition("#")[0]
        behind = [other.key for other in self._look(f"{asset}#") if other.key != item.key and not _through(other)]
        if not behind:
            return mp.Done()
        named = ", ".join(key.partition("#")[2] for key in sorted(behind)[:SHOWN]) + (", …" if len(behind) > SHOWN else "")
        return mp.NotYet(note=f"all its stages are confirmed; other batches of the asset are not completed: {named}")


def _through(item: mp.Item) -> bool:
    return item.stage == STAGE or item.status in (mp.Status.COMPLETED, mp.Status.CANCELLED)
