"""X-Ray traces of sampled calls: route, stage and result of each.

Most calls are not sampled (only the first in each second, and one in twenty of the others), so the first sampled one loads the SDK.
Requests to AWS are not traced one by one: a call makes hundreds, from several threads, and their totals are in the log.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from milepost.lambdas.start import LambdaContext

MOST = 20
"""Maximum items named per call: a segment must fit into one datagram."""


class Trace:
    """The trace of one call; does nothing without a `segment`."""

    def __init__(self, segment: Any = None) -> None:
        self._segment = segment

    def annotate(self, **values: str | int | bool) -> None:
        """Add indexed values for searching traces, with few different values: names of routes, stages, functions."""
        if self._segment is not None:
            for name, value in values.items():
                self._segment.put_annotation(name, value)

    def note(self, **values: Any) -> None:
        """Add values that are not indexed."""
        if self._segment is not None:
            for name, value in values.items():
                self._segment.put_metadata(name, value, "milepost")

    def items(self, correlation_ids: Sequence[str]) -> None:
        if correlation_ids:
            self.note(correlation_ids=list(correlation_ids[:MOST]))


def is_sampled(header: str) -> bool:
    """Whether a call is sampled. `header` is Lambda's trace header: Root=…;Parent=…;Sampled=1."""
    return "Sampled=1" in header.split(";")


@contextmanager
def traced(call: LambdaContext) -> Iterator[Trace]:
    """A segment for the duration of the call, under the one that Lambda makes itself. It is sent as a datagram: a call is never slower
    and never fails because its trace cannot be sent."""
    if not is_sampled(os.environ.get("_X_AMZN_TRACE_ID", "")):
        yield Trace()
        return
    from aws_lambda_powertools import Tracer

    with Tracer(service="milepost", auto_patch=False).provider.in_subsegment("milepost") as segment:
        trace = Trace(segment)
        trace.annotate(function=call.function_name)
        yield trace
