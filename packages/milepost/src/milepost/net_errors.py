"""Errors of the HTTP client as Milepost's own, where Milepost or an application hands settings to
it.

`milepost_net` knows nothing of Milepost: an argument that is wrong is its `NetUsageError`, a call
that failed its `NetError`. Here they become `UsageError` and `MilepostError`, so that a command
ends with one line and an endpoint answers 400. A handler does not need this: it may let a
`NetError` through. Nothing here loads `milepost_net`: most commands do without it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from milepost.core.errors import MilepostError, UsageError

FACTS = ("permanent", "unknown", "http_status", "retry_after")
"""What a stage reads of an exception (`core.outcome`). A translated error keeps them, and so has
the outcome that it had before."""


@contextmanager
def translated_net_errors() -> Iterator[None]:
    """Raise errors of `milepost_net` as `UsageError` (an argument is wrong) or `MilepostError` (a
    call failed, a signature does not match), with the same message: in a `with`, or as a decorator
    of a function that is not async."""
    try:
        yield
    except Exception as error:
        translated = milepost_error(error)
        if translated is None:
            raise
        raise translated from error


def milepost_error(error: BaseException) -> MilepostError | None:
    """Milepost's own error for one of `milepost_net`; None: it is none of `milepost_net`."""
    if "milepost_net.errors" not in sys.modules:  # what raises one of them has loaded them
        return None
    from milepost_net.errors import NetError, NetUsageError, SignatureRefused

    if not isinstance(error, (NetError, NetUsageError, SignatureRefused)):
        return None
    translated = (
        UsageError(str(error)) if isinstance(error, NetUsageError) else MilepostError(str(error))
    )
    for fact in FACTS:
        if hasattr(error, fact):
            setattr(translated, fact, getattr(error, fact))
    return translated
