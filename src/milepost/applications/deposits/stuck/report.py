"""Stuck report: deposits whose submission has had no result for too long."""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec

import milepost as mp
from milepost.applications.deposits.settings import DepositsApp
from milepost.applications.deposits.stages import SUBMIT

MOST = 10_000


class StuckDeposit(msgspec.Struct, frozen=True):
    """A DOI that has been at the submit stage for too long. `since`: when it entered the stage."""

    doi: str
    status: str
    since: str


def stuck_deposits(app: DepositsApp) -> list[StuckDeposit]:
    """The DOIs that the submission service has had for longer than `answer_within`, without a result that ended their submission."""
    dss = app.settings.submit.dss
    if dss is None:
        return []
    before = app.now() - timedelta(milliseconds=mp.span_ms(dss.answer_within, "[deposits.submit] dss.answer_within"))
    rows = app.items(app.settings.route, statuses=("WAITING", "RETRY_SCHEDULED"), stages=(SUBMIT,), limit=MOST)
    return [
        StuckDeposit(row["key"], row["status"], row["entered_at"]) for row in rows if datetime.fromisoformat(row["entered_at"]) <= before
    ]
