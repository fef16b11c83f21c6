"""Stuck report: deposits whose submission has had no result for too long."""

from __future__ import annotations

import msgspec

from milepost.applications.deposits.acts import DepositsApp
from milepost.applications.deposits.route import SUBMIT

MOST = 200


class StuckDeposit(msgspec.Struct, frozen=True):
    """A DOI that has been at the submit stage for long. `since`: when it entered the stage. `note`: what it waits for."""

    doi: str
    status: str
    since: str
    note: str | None


def stuck_deposits(app: DepositsApp, most: int = MOST) -> list[StuckDeposit]:
    """The DOIs whose submission has no result and is overdue, at most so many."""
    route = app.settings.route
    found = []
    for row in app.items(route, statuses=("WAITING", "RETRY_SCHEDULED"), stages=(SUBMIT,), limit=most):
        view = app.show(route, row["key"])
        # The mark is taken away when the item has been reported as overdue.
        if view is not None and view["overdue_at"] is None and view["stage"] == SUBMIT and not view["ended_at"]:
            found.append(StuckDeposit(row["key"], row["status"], row["entered_at"], view["note"]))
    return found
