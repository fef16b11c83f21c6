"""Events in the form that their route gives them: their JSON, and a filter that passes on only
those with a form of their own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from milepost.core.errors import EventRefused
from milepost.core.events import Envelope
from milepost.ports.subscriber import Subscriber

PREFIX = "formed+"
"""Prefix of a subscriber's address: only events in a route's own form go there."""
CURE = "'milepost subscribers release'"
"""The command that sends an event that was refused, once the cause is corrected."""


class Formed:
    """Passes events that their route's `form` has formatted to `inner`. The cursor is that of
    `inner`."""

    formed_only = True
    """For the cursor: whoever reads it knows that this subscriber gets no other events."""

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
            raise ValueError(
                f"it got {len(chosen)} events and returned {len(inner_answers)} answers"
            )
        answers: list[Exception | None] = [None] * len(envelopes)
        for place, answer in zip(chosen, inner_answers, strict=True):
            answers[place] = answer
        return answers


def event_json(
    envelope: Envelope, order: Literal["deterministic"] | None = "deterministic"
) -> bytes:
    """The event as JSON, with sorted names, so that a repeat has the same bytes; with `order=None`
    in the order of its form."""
    try:
        return msgspec.json.encode(msgspec.to_builtins(envelope, str_keys=True), order=order)
    except Exception as error:
        raise EventRefused(
            f"this event is not valid JSON ({error}); correct the form of route {envelope.event.route!r}, then {CURE}"
        ) from error
