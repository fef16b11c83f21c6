"""An asset that was ingested in several batches is complete when all of them are through: others delete their copies then."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import milepost as mp

STAGE = "batches"
SHOWN = 3


class OtherBatches:
    """A stage behind all others. An item waits there while another batch of its asset is neither there too nor through; one that
    has failed is waited for, since somebody will put it right. Whoever is there first does not hold up the others."""

    def __init__(self) -> None:
        self._look: Callable[[str], Sequence[mp.Item]] | None = None

    def attach(self, look: Callable[[str], Sequence[mp.Item]]) -> None:
        """Told by the ledger that this works on how the route's other items are found."""
        self._look = look

    def __call__(self, item: mp.Item) -> mp.Outcome:
        assert self._look is not None, "the route is in use"
        asset = item.key.partition("#")[0]
        behind = [other.key for other in self._look(f"{asset}#") if other.key != item.key and not _through(other)]
        if not behind:
            return mp.Done()
        named = ", ".join(key.partition("#")[2] for key in sorted(behind)[:SHOWN]) + (", …" if len(behind) > SHOWN else "")
        return mp.NotYet(note=f"all its stages are confirmed; other batches of the asset are not through: {named}")


def _through(item: mp.Item) -> bool:
    return item.stage == STAGE or item.status in (mp.Status.COMPLETED, mp.Status.CANCELLED)
