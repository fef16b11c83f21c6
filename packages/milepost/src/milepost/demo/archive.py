"""Archive route of `milepost demo`: partners confirm assets on disk, then on tape; a catalogue
subscribes to the events.

It has no handlers: each asset is offered to partners, who confirm it, which may take a day.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from milepost.core.errors import EventRefused
from milepost.core.events import Envelope
from milepost.core.routes.backoff import Backoff
from milepost.core.routes.route import Route

LIBRARIES = ("north", "south")
UNKNOWN = "asset-0042"
"""The one asset that the catalogue refuses."""

archive = Route("archive", key="id", evidence=True)
archive.external("on-disk", resend_after="1d", overdue="12h", announce="It is on disk.")
archive.external(
    "on-tape",
    resend_after="1d",
    overdue="16h",
    retry=Backoff(attempts=3, base="10m", cap="1h"),
    lane=lambda content: content["library"],
    announce="It is on tape.",
)


class Catalogue:
    """Subscriber that writes one line per completed item to a file, and refuses one unknown
    asset."""

    name = "catalogue"
    batch = 500

    def __init__(self, path: Path) -> None:
        self._path = path

    def tell(self, envelopes: Sequence[Envelope]) -> list[Exception | None]:
        answers: list[Exception | None] = []
        lines = []
        for envelope in envelopes:
            unknown = envelope["subject"] == UNKNOWN
            answers.append(
                EventRefused(f"the catalogue has no entry for {UNKNOWN}") if unknown else None
            )
            if not unknown and envelope["data"]["status"] == "COMPLETED":
                lines.append(
                    msgspec.json.encode(
                        {
                            "route": envelope["data"]["route"],
                            "key": envelope["subject"],
                            "at": envelope["time"],
                        }
                    )
                )
        if lines:
            with self._path.open("ab") as file:
                file.write(b"\n".join(lines) + b"\n")
        return answers


catalogue = Catalogue(Path("catalogue.jsonl"))
