"""Worklist of manual deposits: the DOIs that failed after too many attempts, with last error, advice and claim."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from milepost.applications.deposits.acts import FAILED, DepositsApp, may_be_deposited
from milepost.applications.deposits.csv_table import csv_table
from milepost.applications.deposits.digest.entries import advice_of
from milepost.applications.deposits.people.claims import LISTED, ManualClaim, claims
from milepost.applications.deposits.route import METADATA

COLUMNS = ("doi", "title", "failed at", "stage", "attempts", "error", "what to do", "search DSpace first", "claimed by", "claimed at")


class ManualDeposit(msgspec.Struct, frozen=True):
    """A DOI that needs a manual deposit."""

    doi: str
    title: str
    """Empty where its metadata could not be fetched."""
    stage: str
    attempts: int
    error: str
    failed_at: str
    advice: str
    search_first: bool
    """The result of the last try is unknown: DSpace may have the item."""
    claim: ManualClaim | None = None


def worklist(app: DepositsApp, *, prefix: str = "", most: int = LISTED) -> tuple[list[ManualDeposit], int]:
    """The DOIs that need a manual deposit, the latest failure first, `most` of them; and how many there are in all (of those whose DOI
    begins with `prefix`), counted up to 10,000."""
    rows = app.items(app.settings.route, statuses=FAILED, prefix=prefix or None, limit=LISTED)
    rows.sort(key=lambda row: (row["ended_at"], row["key"]), reverse=True)
    held = claims(app) if rows else {}
    return [_manual(app, row, held.get((row["key"], row["ended_at"]))) for row in rows[:most]], len(rows)


def _manual(app: DepositsApp, row: dict[str, Any], held: ManualClaim | None) -> ManualDeposit:
    error, stage = row["error"], row["stage"]
    view = None if stage == METADATA else app.show(app.settings.route, row["key"])
    return ManualDeposit(
        doi=row["key"],
        title=title_of(view),
        stage=stage,
        attempts=row["attempts"],
        error=(error or {}).get("message") or "no error is recorded",
        failed_at=row["ended_at"],
        advice=advice_of(error, stage),
        search_first=may_be_deposited(error, stage),
        claim=held,
    )


def title_of(view: dict[str, Any] | None) -> str:
    """The title of an article, as its metadata stage has found it; empty if it has not."""
    result = ((view or {}).get("results") or {}).get(METADATA)
    return str(result.get("title") or "") if isinstance(result, dict) else ""


def worklist_csv(found: Sequence[ManualDeposit]) -> bytes:
    """The worklist as a table for spreadsheet programs."""
    return csv_table(COLUMNS, [_cells(one) for one in found])


def _cells(one: ManualDeposit) -> tuple[object, ...]:
    first = "yes" if one.search_first else ""
    who = ("", "") if one.claim is None else (one.claim.name, one.claim.at)
    return (one.doi, one.title, one.failed_at, one.stage, one.attempts or "", one.error, one.advice, first, *who)
