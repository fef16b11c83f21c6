"""A subscriber for those who know one form only: it is told what the route gives a form of its own, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence

from milepost.core.events import Envelope
from milepost.ports.subscriber import Subscriber

PREFIX = "formed+"
"""Before a subscriber's address: only what has a form of its own goes there."""


class Formed:
    """Passes on to `inner` the events that their route's `form` has given a form. The cursor is that of `inner`."""

    def __init__(self, inner: Subscriber) -> None:
        self.name = inner.name
        self.batch = inner.batch
        self._inner = inner

    def tell(self, envelopes: Sequence[Envelope]) -> Sequence[Exception | None] | None:
        chosen = [place for place, envelope in enumerate(envelopes) if envelope.formed]
        if not chosen:
            return None
        said = self._inner.tell([envelopes[place] for place in chosen])
        if said is None:
            return None
        if len(said) != len(chosen):
            raise ValueError(f"it was told {len(chosen)} events and answered for {len(said)}")
        answers: list[Exception | None] = [None] * len(envelopes)
        for place, answer in zip(chosen, said, strict=True):
            answers[place] = answer
        return answers
