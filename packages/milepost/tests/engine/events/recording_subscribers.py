"""Subscribers that record their events and refuse those that a test chooses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tests.engine.world import World

from milepost.ports.documents import CURSOR, Cursor, read_as

Envelope = dict[str, Any]


class RecordingSubscriber:
    """A subscriber that remembers what it took, and takes what `takes` lets it."""

    def __init__(self, name: str = "ear", batch: int = 10) -> None:
        self.name = name
        self.batch = batch
        self.heard: list[Envelope] = []
        self.calls: list[int] = []
        self.takes: Callable[[Envelope], Exception | None] = lambda envelope: None

    def tell(self, envelopes: Sequence[Envelope]) -> list[Exception | None]:
        self.calls.append(len(envelopes))
        answers = [self.takes(envelope) for envelope in envelopes]
        self.heard += [
            envelope for envelope, error in zip(envelopes, answers, strict=True) if error is None
        ]
        return answers

    @property
    def ids(self) -> list[str]:
        return [envelope["id"] for envelope in self.heard]

    def of(self, key: str) -> list[str]:
        return [envelope["data"]["reason"] for envelope in self.heard if envelope["subject"] == key]


class Raises(RecordingSubscriber):
    """Raises as a whole, without saying for which event."""

    def tell(self, envelopes: Sequence[Envelope]) -> list[Exception | None]:
        self.calls.append(len(envelopes))
        for envelope in envelopes:
            error = self.takes(envelope)
            if error is not None:
                raise error
        self.heard += envelopes
        return [None] * len(envelopes)


def cursor(world: World, name: str = "ear") -> Cursor:
    return read_as(Cursor, world.ledger.read(CURSOR)[name].value)


def refuses(
    *keys: str, error: type[Exception] = ConnectionError
) -> Callable[[Envelope], Exception | None]:
    return lambda envelope: error("not now") if envelope["subject"] in keys else None
