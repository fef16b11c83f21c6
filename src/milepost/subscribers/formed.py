"""Subscriber filter: passes on only events whose route defines a format of its own."""

from __future__ import annotations

from collections.abc import Sequence

from milepost.core.events import Envelope
from milepost.ports.subscriber import Subscriber

PREFIX = "formed+"
"""Prefix of a subscriber's address: only events in a route's own form go there."""


class Formed:
    """Passes events that their route's `form` has formatted to `inner`. The cursor is that of `inner`."""

    def __init__(self, inner: Subscriber) -> None:
        self.name = inner.name
        self.batch = inner.batch
        self._inner = inner

    def tell(self, envelopes: Sequence[Envelope]) -> Sequence[Exception | None] | None:
        chosen = [place for place, envelope in enumerate(envelopes) if envelope.formed]
        if not chosen:
            return None
        inner_answers = self._inner.tell([envelopes[place] for place in chosen])
        if inner_answers is None:
            return None
        if len(inner_answers) != len(chosen):
            raise ValueError(f"it got {len(chosen)} events and returned {len(inner_answers)} answers")
        answers: list[Exception | None] = [None] * len(envelopes)
        for place, answer in zip(chosen, inner_answers, strict=True):
            answers[place] = answer
        return answers
