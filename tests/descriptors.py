"""File descriptors of the test's own process: how many are open, and a moment without a free
one."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager


def open_descriptors() -> int:
    return len(os.listdir("/dev/fd"))


@contextmanager
def no_free_descriptor() -> Iterator[None]:
    """Lower the limit of this process to what it has open: each further file fails with EMFILE."""
    lowest_free = os.open(os.devnull, os.O_RDONLY)
    os.close(lowest_free)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
