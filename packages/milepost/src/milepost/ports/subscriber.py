"""Subscribers: receivers of events, such as a topic, a webhook, a log or a Python function."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from milepost.core.events import Envelope


class Subscriber(Protocol):
    """A receiver of events. Its `name` is the name of its cursor: under another name it starts
    anew."""

    name: str
    batch: int
    """Preferred number of events per call."""

    def tell(self, envelopes: Sequence[Envelope]) -> Sequence[Exception | None] | None:
        """Deliver these events. None: all are accepted. A list has one entry per event: None, or
        why it was not accepted. If it raises, each event is delivered again by itself.

        No two events of one call belong to the same item, so a failed event is never overtaken by
        that item's next. `milepost.core.errors.EventRefused`, returned or raised, means that this
        event will never be accepted.
        """
