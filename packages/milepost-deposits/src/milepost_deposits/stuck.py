"""Deposits whose submission has no known result: the stuck report, and a search for those that have
failed."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import msgspec

import milepost as mp
import milepost.application as mpa
from milepost_deposits.acts import FAILED, may_be_deposited
from milepost_deposits.controls import LedgerControls, moment_s
from milepost_deposits.dspace.api import DSpace, open_dspace
from milepost_deposits.dspace.errors import DSpaceLoginRefused, DSpaceRefused
from milepost_deposits.dspace.login import LoginHold
from milepost_deposits.dspace.record import SubmissionRecords
from milepost_deposits.dspace.submission import deposited, same_file
from milepost_deposits.files import FileStore, StoredFile
from milepost_deposits.settings import DepositsApp
from milepost_deposits.status_names import CONTENT, SUBMIT, result_in

MOST_LISTED = 10_000
MOST_SEARCHED = 200
"""Searches of one call, the latest failures first."""
SINCE = timedelta(days=7)
"""Failures that are older are not searched for again: what DSpace makes late, it makes within
hours."""
BY = "search in DSpace"

log = logging.getLogger(__name__)


def stuck_deposits(app: DepositsApp) -> list[dict[str, Any]]:
    """The rows of DOIs that the submission service has had for longer than `answer_within`, without
    a result that ended their submission."""
    dss = app.settings.submit.dss
    if dss is None:
        return []
    before = app.now() - timedelta(
        milliseconds=mpa.span_ms(dss.answer_within, "[deposits.submit] dss.answer_within")
    )
    rows = app.items(
        app.settings.route,
        statuses=("WAITING", "RETRY_SCHEDULED"),
        stages=(SUBMIT,),
        limit=MOST_LISTED,
    )
    return [row for row in rows if datetime.fromisoformat(row["entered_at"]) <= before]


def find_late_deposits(
    app: DepositsApp, dspace: DSpace | None = None, environment: Mapping[str, str] | None = None
) -> list[str]:
    """Search DSpace for DOIs that failed at the submit stage with an unknown result, for good or a
    moment ago, and complete those that it has. The DOIs that were found. Without this a DOI would
    be on the list for manual deposits although its last try has succeeded. None is searched for
    while DSpace refuses the login."""
    settings = app.settings
    url = settings.submit.dspace or settings.submit.search
    if url is None:
        return []
    listed = app.items(
        settings.route,
        statuses=[*FAILED, mp.Status.RETRY_SCHEDULED],
        stages=(SUBMIT,),
        limit=MOST_LISTED,
    )
    after = app.now() - SINCE
    rows = [
        row
        for row in listed
        if too_early(app, row) or (row["ended_at"] and _may_be_late(row, after))
    ]
    if not rows:
        return []
    rows = sorted(rows, key=lambda row: str(row["entered_at"]), reverse=True)[:MOST_SEARCHED]
    controls = LedgerControls(settings)
    controls.open(app)
    environment = os.environ if environment is None else environment
    client = dspace or open_dspace(
        settings, environment, url, now=app.time, guard=LoginHold(settings, controls)
    )
    found: list[str] = []
    try:
        for row in rows:
            if _complete(app, client, row["key"]):
                found.append(row["key"])
    except DSpaceLoginRefused as refusal:
        log.warning("DOIs that failed with an unknown result are not searched for: %s", refusal)
    finally:
        if dspace is None:
            client.close()
    return found


def _may_be_late(row: dict[str, Any], after: datetime) -> bool:
    return (
        may_be_deposited(row["error"], SUBMIT) and datetime.fromisoformat(row["ended_at"]) >= after
    )


def too_early(app: DepositsApp, row: dict[str, Any]) -> bool:
    """Has a DOI failed so short a time ago, with an unknown result, that DSpace's index need not
    show its item yet?"""
    if row["status"] != mp.Status.RETRY_SCHEDULED or not may_be_deposited(row["error"], SUBMIT):
        return False
    submit = app.settings.submit
    apart = submit.apart if submit.dss is None else submit.dss.apart
    ended_at = moment_s(row["error"]["at"])
    if submit.dss is not None:
        # The service may have answered long before its result was read.
        ended_at = (
            SubmissionRecords(FileStore(app.settings.files)).get(row["key"]).answered_at or ended_at
        )
    return 0 <= app.time() - ended_at < mpa.span_ms(apart, "[deposits.submit] apart") / 1000


def _complete(app: DepositsApp, dspace: DSpace, doi: str) -> bool:
    try:
        items = dspace.find(doi)
    except DSpaceRefused as error:
        log.warning("the search for %s failed, and the others follow: %s", doi, error)
        return False
    item = next((one for one in items if one.discoverable and not one.withdrawn), None)
    files = [] if item is None else dspace.files(item.uuid)
    if item is None or not files:
        return False
    sent = result_in(app.show(app.settings.route, doi), CONTENT).get("file")
    same = (
        None
        if not sent
        else any(same_file(file, msgspec.convert(sent, StoredFile)) for file in files)
    )
    value: dict[str, Any] = {**deposited(item, files), "found": True, "same_file": same}
    try:
        app.confirm(app.settings.route, doi, SUBMIT, value, by=BY)
    except mp.ActRefused as refusal:
        log.warning(
            "%s is in DSpace as %s, but stays failed: %s", doi, item.handle or item.uuid, refusal
        )
        return False
    log.info("%s is in DSpace as %s: its last try had succeeded", doi, item.handle or item.uuid)
    return True
