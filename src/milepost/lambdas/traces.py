"""Traces: of a call that Lambda has chosen to trace, X-Ray is told for which route and stage it was, and what came of it.

Most calls are not chosen (a first one each second, and one in twenty of the others), so the SDK is loaded by the first that is. Requests
to AWS are not told one by one: a call makes hundreds, from several threads, and what they come to is in the log.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from milepost.lambdas.start import LambdaContext

MOST = 20
"""So many items of a call are named, at most: a segment has to fit into one datagram."""


class Trace:
    """What is told of one call; nothing, if there is no `segment`."""

    def __init__(self, segment: Any = None) -> None:
        self._segment = segment

    def annotate(self, **values: str | int | bool) -> None:
        """What traces are searched by. Words that there are few of: names of routes, stages, functions."""
        if self._segment is not None:
            for name, value in values.items():
                self._segment.put_annotation(name, value)

    def note(self, **values: Any) -> None:
        """What stands beside it."""
        if self._segment is not None:
            for name, value in values.items():
                self._segment.put_metadata(name, value, "milepost")

    def items(self, correlation_ids: Sequence[str]) -> None:
        if correlation_ids:
            self.note(correlation_ids=list(correlation_ids[:MOST]))


def chosen(header: str) -> bool:
    """Is a call to be traced? `header` is what Lambda says of its trace: Root=…;Parent=…;Sampled=1."""
    return "Sampled=1" in header.split(";")


@contextmanager
def traced(call: LambdaContext) -> Iterator[Trace]:
    """A segment for as long as the call lasts, under the one that Lambda makes itself. It goes out as a datagram that nobody waits
    for: a call is never slower, nor fails, because it cannot be told."""
    if not chosen(os.environ.get("_X_AMZN_TRACE_ID", "")):
        yield Trace()
        return
    from aws_lambda_powertools import Tracer

    with Tracer(service="milepost", auto_patch=False).provider.in_subsegment("milepost") as segment:
        trace = Trace(segment)
        trace.annotate(function=call.function_name)
        yield trace
