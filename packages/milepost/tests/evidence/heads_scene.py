"""Days of the archive, and a subscriber that records daily heads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.evidence.evidence_scene import DAY, Scene

from milepost.engine.heads.daily import HeadKeeper
from milepost.evidence.signing import Signer

Envelope = dict[str, Any]


class RecordingSubscriber:
    """A subscriber that keeps what it is told."""

    name, batch = "ear", 10

    def __init__(self) -> None:
        self.heard: list[Envelope] = []

    def tell(self, envelopes: Sequence[Envelope]) -> None:
        self.heard += envelopes

    def heads(self) -> list[Envelope]:
        return [
            envelope
            for envelope in self.heard
            if envelope["type"] == "milepost.item.accepted" and "/heads" in envelope["source"]
        ]


def turn(scene: Scene, signer: Signer | None = None) -> None:
    HeadKeeper(scene.ctx, signer).turn()


def next_day(scene: Scene) -> None:
    scene.clock.advance_to((scene.clock.now() // DAY + 1) * DAY)
