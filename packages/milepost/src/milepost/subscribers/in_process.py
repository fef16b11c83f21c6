"""Subscribers in this process: a Python function, and a log with one line of JSON for each
event."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Sequence
from typing import Any, TextIO

import msgspec

from milepost.core.errors import UsageError


class CallSubscriber:
    """Calls `function(envelope)` for each event. Raising means "not now"; raising `EventRefused`
    means "never"."""

    batch = 1

    def __init__(
        self, function: Callable[[dict[str, Any]], object], *, name: str | None = None
    ) -> None:
        given = name or getattr(function, "__name__", "")
        if not given or given == "<lambda>":
            raise UsageError(
                f"the subscriber {function!r} has no name; give it a permanent one: name='…'"
            )
        self.name = given
        self._function = function

    def tell(self, envelopes: Sequence[dict[str, Any]]) -> None:
        for envelope in envelopes:
            self._function(envelope)


class LogSubscriber:
    """Writes to `logger` if given, else to `stream`, else to the present standard output."""

    batch = 500

    def __init__(
        self,
        stream: TextIO | None = None,
        *,
        logger: logging.Logger | None = None,
        name: str = "log",
    ) -> None:
        self.name = name
        self._stream = stream
        self._logger = logger

    def tell(self, envelopes: Sequence[dict[str, Any]]) -> None:
        lines = [msgspec.json.encode(envelope).decode() for envelope in envelopes]
        if self._logger is not None:
            for line in lines:
                self._logger.info("%s", line)
            return
        stream = self._stream or sys.stdout
        stream.write("\n".join(lines) + "\n")
        # An event counts as delivered when this returns, so it must not be in a buffer any more.
        stream.flush()
