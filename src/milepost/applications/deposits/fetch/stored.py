"""Storage of fetched files: a DOI whose file the store does not take waits, and no try of it is counted."""

from __future__ import annotations

import errno
from collections.abc import Callable

import milepost as mp
from milepost.applications.deposits.files import TAKES_NO_FILE, FileStore, StoreFault

LATER = "5m"
"""When a DOI is looked at again whose file could not be stored."""
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


def waits_for_store(files: FileStore, fetch: Callable[[], mp.Outcome]) -> mp.Outcome:
    """The outcome of `fetch`, which asks a partner and stores a file. Where the store takes none, the DOI waits: neither the DOI nor the
    partner is at fault, and the tries of all DOIs would be used up. Once one file was refused, no partner is asked until the store
    takes files again."""
    try:
        files.check()
        return fetch()
    except StoreFault as fault:
        return mp.NotYet(after=LATER, note=str(fault))
    except OSError as error:
        # A file comes by way of a temporary one.
        if error.errno not in _FULL:
            raise
        return mp.NotYet(after=LATER, note=f"the folder for temporary files {TAKES_NO_FILE}: {error.strerror}")
