"""The ledger `mirrored:///FILE`: SQLite, with a text file that has every history line."""

from __future__ import annotations

from pathlib import Path
from typing import cast

from milepost import ports
from milepost_mirrored.ledger import MirroredLedger
from milepost_mirrored.mirror import Mirror

FORM = "mirrored:///FILE"


def open_mirrored(url: str, *, make: bool = True) -> tuple[ports.Ledger, ports.Blobs]:
    """The ledger of this URL and its blob store. Without `make`, a missing one raises
    LedgerMissing."""
    start, separator, path = url.partition(":///")
    if start != "mirrored" or not separator or not path:
        raise ports.ConfigMistake(f"{url!r} is no mirrored ledger; write {FORM}")
    if not make and not Path(path).exists():
        raise ports.LedgerMissing(f"there is no ledger at {path}")
    wrapped, blobs = ports.open_ledger(f"sqlite:///{path}", make=make)
    ledger = MirroredLedger(url, wrapped, Mirror(Path(f"{path}-history.txt")))
    # Most of its members are those of the ledger that it wraps, which type checkers cannot see.
    return cast(ports.Ledger, ledger), blobs


SCHEME = ports.LedgerScheme(open_mirrored, FORM)
