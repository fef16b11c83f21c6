"""Subscriber that calls a Python function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from milepost.core.errors import UsageError


class CallSubscriber:
    """Calls `function(envelope)` for each event. Raising means "not now"; raising `EventRefused` means "never"."""

    batch = 1

    def __init__(self, function: Callable[[dict[str, Any]], object], *, name: str | None = None) -> None:
        given = name or getattr(function, "__name__", "")
        if not given or given == "<lambda>":
            raise UsageError(f"the subscriber {function!r} has no name; give it a permanent one: name='…'")
        self.name = given
        self._function = function

    def tell(self, envelopes: Sequence[dict[str, Any]]) -> None:
        for envelope in envelopes:
            self._function(envelope)
