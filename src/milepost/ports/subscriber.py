"""Subscribers: whoever is told. A topic, a webhook, a mailbox, a log, a Python function."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from milepost.core.events import Envelope


class Subscriber(Protocol):
    """One that is told. Its `name` is the name of its cursor: under another name it is somebody else."""

    name: str
    batch: int
    """How many events it likes to be told at once."""

    def tell(self, envelopes: Sequence[Envelope]) -> Sequence[Exception | None] | None:
        """Take these events. None: all are taken. A list has one entry for each: None, or why it was not taken.
        Raising says nothing about the single ones: each is told again by itself.

        No two of one call are of the same item, so an event that fails is never overtaken by that item's next.
        `milepost.core.errors.EventRefused`, returned or raised, means that this event will never be taken.
        """
