"""Acts of people on deposits: requeue, abandon, and mark as deposited by hand. Commands and pages
call these.

Each act is in the DOI's history with name and reason.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import milepost as mp
from milepost_deposits.doi import DoiMistake, normalise
from milepost_deposits.settings import DepositsApp
from milepost_deposits.status_names import CONTENT, METADATA, SUBMIT, handle_in
from milepost_deposits.twins import settle

STAGES = (METADATA, CONTENT, SUBMIT)
FAILED = ("MAX_RETRIES_EXCEEDED", "REJECTED")
SETTLED = frozenset(
    {
        "METADATA",
        "NO_PDF",
        "NO_COLLECTION",
        "DSPACE_FORBIDDEN",
        "DSPACE_REFUSED",
        "DSS_REJECTED",
        "NO_FILES",
    }
)
"""Categories of errors after which DSpace certainly has no item of the last try."""
ITEM_KNOWN = frozenset({"INCOMPLETE_ITEM", "WITHDRAWN", "HIDDEN_ITEM"})
"""Categories of errors that name an item in DSpace which people have to correct."""
_HANDLE = re.compile(r"[0-9][0-9A-Za-z.]*/\S{1,200}")
_HANDLE_URL = re.compile(r"https?://hdl\.handle\.net/", re.IGNORECASE)


def requeue(
    app: DepositsApp, dois: Sequence[str], *, by: str, reason: str, send_again: bool = False
) -> dict[str, str]:
    """Start the present stage of these DOIs again, with all of its tries. The answer says for each
    DOI that was refused, why.

    Where it is not known whether the last submission was carried out, DSpace is asked first, and a
    message that the submission service can still read is waited for. `send_again`: the operator
    says that it will not be read; DSpace is still searched before the next message.
    """
    report = app.act(
        "retry", app.settings.route, keys=keys_of(dois), by=by, reason=reason, as_new=send_again
    )
    return dict(report.refused)


def abandon(app: DepositsApp, dois: Sequence[str], *, by: str, reason: str) -> dict[str, str]:
    """Take these DOIs off the route: they are not deposited, and no person need act on them. The
    answer gives the reason for each refused DOI."""
    return dict(
        app.act("cancel", app.settings.route, keys=keys_of(dois), by=by, reason=reason).refused
    )


def mark_deposited(app: DepositsApp, doi: str, handle: str, *, by: str, reason: str) -> None:
    """Note that a person has deposited the DOI, as the item with this handle. Raises mp.UsageError
    or mp.ActRefused.

    Of a DOI that has two items, it says which one is right. The stages that the DOI has not been
    through are confirmed with it. The answer for the last stage is given first, so that no worker
    submits the DOI meanwhile.
    """
    [key] = keys_of([doi])
    handle = handle_of(handle)
    route = app.settings.route
    view = app.show(route, key)
    if view is None:
        raise mp.ActRefused(f"{key} is not known here; take it in with a list first", "gone")
    if view["status"] == "COMPLETED" and settle(app, key) is not None:
        app.note(
            route, key, f"of the items of this DOI, {handle} is the right one", by=by, reason=reason
        )
        return
    if view["status"] == "COMPLETED":
        known = handle_in(view) or "an item whose handle is not known"
        raise mp.ActRefused(f"{key} is deposited already, as {known}", "ended")
    if view["stage"] not in STAGES:
        raise mp.ActRefused(
            f"{key} is at {view['stage']!r}, which is no stage of deposits; run 'milepost routes apply'"
        )
    value: dict[str, Any] = {
        "handle": handle,
        "last_modified": None,
        "files": [],
        "via": "hand",
        "by": by,
    }
    left = STAGES[STAGES.index(view["stage"]) :]
    if len(left) > 1 and view["status"] != "CANCELLED":
        app.confirm(route, key, SUBMIT, value, by=by)
    for stage in left:
        _confirm(app, key, stage, value if stage == SUBMIT else {"by_hand": True}, by, reason)


def _confirm(app: DepositsApp, key: str, stage: str, value: Any, by: str, reason: str) -> None:
    """Confirm one stage as an operator. A worker that has the item gets the answer when it is done:
    the answer takes precedence."""
    route = app.settings.route
    try:
        app.confirm(route, key, stage, value, by=by, force=True, reason=reason)
    except mp.ActRefused:
        view = app.show(route, key)
        if view is not None and view["status"] == "COMPLETED":
            return
        if view is None or view["status"] != "PROCESSING":
            raise
        app.confirm(route, key, stage, value, by=by)


def keys_of(dois: Sequence[str]) -> list[str]:
    """The keys of DOIs as people write them; raises mp.UsageError that names the one that is no
    DOI."""
    keys = []
    for doi in dois:
        try:
            keys.append(normalise(doi))
        except DoiMistake as mistake:
            raise mp.UsageError(f"{doi!r}: {mistake}") from None
    return keys


def handle_of(text: str) -> str:
    """A handle as people write it, without the address of a resolver; raises mp.UsageError."""
    handle = _HANDLE_URL.sub("", text.strip(), count=1)
    if _HANDLE.fullmatch(handle) is None:
        raise mp.UsageError(
            f"{text!r} is not a handle, such as 1721.1/400778 or https://hdl.handle.net/1721.1/400778"
        )
    return handle


def is_item_known(error: dict[str, Any] | None) -> bool:
    """Does the error name an item in DSpace, and say what people have to do with it? Then there is
    nothing to search for."""
    details = (error or {}).get("details")
    mismatch = isinstance(details, dict) and "files" in details
    return error is not None and (
        error["category"] in ITEM_KNOWN or (error["category"] == "CHECKSUM_MISMATCH" and mismatch)
    )


def search_first(error: dict[str, Any] | None, stage: str) -> bool:
    """Must people search DSpace before they deposit a failed DOI?"""
    return may_be_deposited(error, stage) and not is_item_known(error)


def may_be_deposited(error: dict[str, Any] | None, stage: str) -> bool:
    """May a failed DOI be in DSpace nevertheless? Then people must search there before they deposit
    it. `error` and `stage` are as `items` and `show` give them."""
    return stage == SUBMIT and error is not None and error["category"] not in SETTLED
