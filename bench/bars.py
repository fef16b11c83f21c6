"""The bars for the SQLite section: what each figure is held to. All of them are here, and `report`
looks each figure up by its name."""

from __future__ import annotations

import operator
from typing import NamedTuple

BARS: dict[str, tuple[str, float]] = {
    # Processing: items a second through three stages, over those of the raw limit.
    "processing / raw": (">=", 0.50),
    "processing, CPU µs an item": ("<=", 80),
    "processing with outputs / raw": (">=", 0.40),
    "processing with async handlers / raw": (">=", 0.40),
    "processing / DBOS tuned": (">=", 30),
    "two processes / one, handlers of 1 ms of CPU": (">=", 1.6),
    # Not slower than before like rows were written in groups. By CPU, so that the disk's delay for
    # each commit does not hide what the engine costs.
    "processing with retries / raw, by CPU": (">=", 0.19),
    "processing in 50 lanes / raw, by CPU": (">=", 0.23),
    "processing with few in hand / raw, by CPU": (">=", 0.50),
    "processing in batches / raw, by CPU": (">=", 0.29),
    "one at a time, submitted and processed / raw, by CPU": (">=", 0.60),
    # What is already in the ledger.
    "processing cost, items there / empty, by the clock": ("<=", 1.10),
    "processing cost, items there / empty, by CPU": ("<=", 1.10),
    # Intake: lines a second, over those of the raw limit.
    "intake / raw": (">=", 0.55),
    "second intake / INSERT, by the clock": (">=", 0.60),
    "second intake / INSERT, by CPU": (">=", 0.60),
    "second intake / SELECT, by the clock": (">=", 0.35),
    "second intake / SELECT, by CPU": (">=", 0.35),
    # Size.
    "peak memory, MB": ("<", 150),
    "bytes per finished item": ("<=", 1_240),
    # The command line and the background.
    "milepost --help, CPU ms": ("<=", 80),
    "milepost status --json, CPU ms": ("<=", 120),
    "resender's run, many items queued / few, by CPU": ("<=", 2),
}
"""Name of the figure: relation, bar."""

_RELATIONS = {">=": operator.ge, "<=": operator.le, "<": operator.lt}


class Figure(NamedTuple):
    """One measured figure, and the bar that its name has."""

    name: str
    case: str
    measured: float
    more: str = ""

    @property
    def wanted(self) -> str:
        relation, bar = BARS[self.name]
        return f"{relation} {bar:,.2f}" if bar < 10 else f"{relation} {bar:,}"

    @property
    def good(self) -> bool:
        relation, bar = BARS[self.name]
        return bool(_RELATIONS[relation](self.measured, bar))
