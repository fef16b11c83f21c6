"""Errors of the DSpace client. None of them holds a password, a token or a part of an answer's body
beyond its message."""

from __future__ import annotations

from typing import Any

import milepost as mp

HELD_S = 1.0
"""Seconds until a DOI is due again whose login was refused. Until then, and after, the hold of its
stage keeps it from being tried."""


class DSpaceError(mp.MilepostError):
    """A call to DSpace failed. A handler may raise it: `permanent`, `retry_after`, `http_status`
    and `unknown` are the hints that a stage reads. `unknown`: DSpace may have carried out the
    request nevertheless."""

    category = "DSPACE"

    def __init__(
        self,
        message: str,
        *,
        http_status: int | None = None,
        retry_after: float | None = None,
        unknown: bool = False,
        permanent: bool = False,
    ) -> None:
        super().__init__(message)
        self.permanent = permanent
        self.http_status = http_status
        self.retry_after = retry_after
        self.unknown = unknown


class DSpaceLoginRefused(DSpaceError):
    """DSpace refuses the user and password. A person must correct it. It is not the item's fault,
    and counts no try."""

    category = "DSPACE_LOGIN_REFUSED"


class DSpaceLoginFailed(DSpaceError):
    """A request is refused for lack of a login, or the login has another result than the API
    promises."""

    category = "DSPACE_LOGIN"


class DSpaceForbidden(DSpaceError):
    """The user lacks the right to do it. A person must grant it. It is not the item's fault, and
    counts no try."""

    category = "DSPACE_FORBIDDEN"


class DSpaceRefused(DSpaceError):
    """DSpace refuses the request as it is: 400, 404, 422, … A write is refused for good; a search
    may succeed later."""

    category = "DSPACE_REFUSED"


class CollectionUnknown(DSpaceError):
    """DSpace knows no collection with the handle that the settings name. A person must correct it.
    It is not the item's fault."""

    category = "NO_COLLECTION"


class IndexUnusable(DSpaceError):
    """A search does not find an item that DSpace has: its index is being rebuilt, or is damaged,
    and an empty answer says nothing. It is not the item's fault."""

    category = "DSPACE_INDEX"


class ChecksumMismatch(DSpaceError):
    """DSpace has stored other bytes than were sent."""

    category = "CHECKSUM_MISMATCH"


class DSpaceUnavailable(DSpaceError):
    """DSpace cannot be reached now, is too slow, or answers 5xx or 429."""

    category = "DSPACE_UNAVAILABLE"


class DSpaceUnreadable(DSpaceError):
    """The answer is not what the API promises."""

    category = "DSPACE_UNREADABLE"


class ClaimLost(mp.MilepostError):
    """The claim of this DOI has ended, since its process was stopped for longer than the lease:
    another worker works on it, or has done so."""


def failed(
    said: str, error: DSpaceError | OSError, details: dict[str, Any] | None = None, *, left: bool
) -> mp.Outcome:
    """The outcome of an error. `left`: DSpace may have an item of this try; the next one begins
    with a search. A request that was refused would be refused again: people have to put right what
    is wrong with it."""
    if isinstance(error, DSpaceLoginRefused):
        # The stage is held (see login_hold): this try waits there like those that have not begun.
        return mp.NotYet(after=HELD_S, unknown=left, note=said)
    if isinstance(error, OSError):
        return mp.Retry(said, category="FILE_UNREADABLE", details=details, unknown=left)
    if error.permanent and not left:
        return mp.Reject(
            said, category=error.category, details=details, http_status=error.http_status
        )
    return mp.Retry(
        said,
        after=error.retry_after,
        category=error.category,
        details=details,
        http_status=error.http_status,
        unknown=left,
    )
