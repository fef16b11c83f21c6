"""Worklist of manual deposits: the DOIs that failed after too many attempts, and those with two
items in DSpace, page by page, with last error, advice and claim.

A claim says "I do this one"; two people never both hold one. It is a signed line in the DOI's
history, added on the condition that the DOI has had no other line since it was read. It belongs to
one failure of the DOI: when the DOI is deposited, abandoned or requeued, the claim is over, also if
the DOI fails again later.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

import milepost as mp
from milepost_deposits.acts import FAILED, keys_of, search_first
from milepost_deposits.digest.mail import TWINS_CATEGORY, advice_of, csv_table
from milepost_deposits.doi import doi_or_none
from milepost_deposits.settings import DepositsApp
from milepost_deposits.status_names import METADATA, NOTES, result_in, word_of
from milepost_deposits.twins import Twins, twins, twins_of

LONGEST_NAME = 100
TRIES = 5
CLAIM, RELEASE = "claim", "release"
"""The field of a note's data that says what it is; its value is the name of the person who makes
the deposit."""


class ManualClaim(msgspec.Struct, frozen=True):
    """The person who makes a manual deposit, and since when."""

    doi: str
    name: str
    at: str


def claim(app: DepositsApp, doi: str, *, name: str, by: str | None = None) -> ManualClaim:
    """Claim a DOI for the person `name`, signed by `by` (the person, if it is not given). Raises
    mp.ActRefused if another person holds it, or if it needs no manual deposit. A person who claims
    the same DOI twice holds one claim."""
    name = person_name(name)
    for _ in range(TRIES):
        view = _failed_doi(app, doi)
        held = claim_in(view)
        if held is not None and held.name == name:
            return held
        if held is not None:
            raise mp.ActRefused(
                f"{held.doi} is claimed by {held.name}, since {held.at}; agree with them, or release the claim first"
            )
        if _noted(app, view, f"manual deposit claimed by {name}", {CLAIM: name}, by or name):
            return ManualClaim(view["key"], name, f"{app.now():%Y-%m-%dT%H:%M:%SZ}")
    raise mp.ActRefused(f"{doi} changes all the time; try again")


def release(app: DepositsApp, doi: str, *, by: str) -> ManualClaim | None:
    """End the claim on a DOI, so that another person can claim it; the claim that it was. None: the
    DOI was not claimed."""
    by = person_name(by)
    for _ in range(TRIES):
        view = _failed_doi(app, doi)
        held = claim_in(view)
        if held is None or _noted(
            app,
            view,
            f"manual deposit released: it was claimed by {held.name}",
            {RELEASE: held.name},
            by,
        ):
            return held
    raise mp.ActRefused(f"{doi} changes all the time; try again")


def claim_in(view: Mapping[str, Any]) -> ManualClaim | None:
    """The claim that a DOI's history holds, as `show` gives it; None: no person has claimed it
    since its last failure."""
    return _claim_of(view["key"], view.get("history") or ())


def _claim_of(doi: str, lines: Sequence[Mapping[str, Any]]) -> ManualClaim | None:
    for line in reversed(lines):
        kind, name = claim_note(line)
        if kind == CLAIM:
            return ManualClaim(doi, name, f"{line['at'][:19]}Z")
        if kind == RELEASE or line["reason"] not in NOTES:
            return None
    return None


def claim_note(line: Mapping[str, Any]) -> tuple[str, str]:
    """Whether a history line is a claim or its release, and the person whose claim it is; two empty
    texts: it is another line."""
    note = line.get("note")
    data: Any = (
        note.get("data") if line["reason"] == mp.Reason.NOTED and isinstance(note, dict) else None
    )
    named = data if isinstance(data, dict) else {}
    return next(
        ((kind, named[kind]) for kind in (CLAIM, RELEASE) if isinstance(named.get(kind), str)),
        ("", ""),
    )


def person_name(text: str) -> str:
    """A person's name with single blanks; raises mp.UsageError."""
    name = " ".join(text.split())
    if not name or len(name) > LONGEST_NAME:
        raise mp.UsageError(
            f"give the name of the person who makes the deposit, of at most {LONGEST_NAME} characters"
        )
    return name


def _failed_doi(app: DepositsApp, doi: str) -> dict[str, Any]:
    [key] = keys_of([doi])
    view = app.show(app.settings.route, key)
    if view is None:
        raise mp.ActRefused(f"{key} is not known here; take it in with a list first", "gone")
    if view["status"] not in FAILED and twins_of(app, key) is None:
        raise mp.ActRefused(
            f"{key} needs no manual deposit: its status is {word_of(view['status'])}"
        )
    if "version" not in view:
        raise mp.ActRefused(
            f"{key} has no row that can be written to: it was pruned, or is damaged", "gone"
        )
    return view


def _noted(
    app: DepositsApp, view: Mapping[str, Any], text: str, data: dict[str, str], by: str
) -> bool:
    """Add the line, unless the DOI has changed since it was read. False: it has."""
    try:
        app.note(app.settings.route, view["key"], text, by=by, data=data, version=view["version"])
    except mp.ActRefused as refusal:
        if refusal.kind != "changed-since":
            raise
        return False
    return True


# The worklist -------------------------------------------------------------------------------------
READ = 1_000_000
"""Most failed DOIs that are looked through."""
PAGE = 25
COLUMNS = (
    "doi",
    "title",
    "failed at",
    "stage",
    "attempts",
    "error",
    "what to do",
    "search DSpace first",
    "claimed by",
    "claimed at",
)

Place = tuple[str, str]
"""Place of a DOI in the worklist: the time of its failure, and the DOI."""


class ManualDeposit(msgspec.Struct, frozen=True):
    """A DOI that needs a manual deposit."""

    doi: str
    title: str
    """Empty where its metadata could not be fetched."""
    stage: str
    """Where it failed; empty: it is deposited, and DSpace has two items of it."""
    attempts: int
    error: str
    failed_at: str
    advice: str
    search_first: bool
    """The result of the last try is unknown: DSpace may have the item."""
    claim: ManualClaim | None = None


class WorklistPage(msgspec.Struct, frozen=True):
    """Some of the DOIs that need a manual deposit, the latest failure first."""

    waiting: int
    """All DOIs that need a manual deposit."""
    found: int
    """DOIs that the search finds; all of them without a search."""
    first: int
    """The number of the first one here among those that were found, from 1; 0: there is none."""
    deposits: list[ManualDeposit]
    before: str | None = None
    """Pass it as `before` for the page before this one; None: this is the first."""
    after: str | None = None
    """Pass it as `after` for the page after this one; None: this is the last."""


def worklist_page(
    app: DepositsApp, *, search: str = "", after: str = "", before: str = "", most: int = PAGE
) -> WorklistPage:
    """A page of the worklist: the first one, or that after or before a place that another page has
    given. `search` is a part of the DOI.

    Places are of failures, not numbers: while people work on one page, DOIs that leave the list or
    join it move no other DOI past them."""
    waiting = _failed_rows(app)
    rows = _searched(waiting, search)
    start, end = page_bounds(
        [_place(row) for row in rows], _read_place(after), _read_place(before), most
    )
    shown = rows[start:end]
    return WorklistPage(
        waiting=len(waiting),
        found=len(rows),
        first=start + 1 if shown else 0,
        deposits=[_manual(app, row) for row in shown],
        before=_place_text(shown[0]) if start else None,
        after=_place_text(shown[-1]) if end < len(rows) else None,
    )


def whole_worklist(app: DepositsApp, search: str = "") -> list[ManualDeposit]:
    """All DOIs that need a manual deposit, for an export."""
    return [_manual(app, row) for row in _searched(_failed_rows(app), search)]


def page_bounds(
    places: Sequence[Place], after: Place | None, before: Place | None, most: int
) -> tuple[int, int]:
    """Where a page begins and ends in a list of places, the latest first. Neither `after` nor
    `before` need be in the list any more; where nothing is left after a place, the page is the last
    one."""
    if before is not None:
        end = sum(place > before for place in places)
        # A first page that is not full is filled up from the next one.
        return (0, min(most, len(places))) if end <= most else (end - most, end)
    start = 0 if after is None else sum(place >= after for place in places)
    if start == len(places):
        start = max(0, start - most)
    return start, min(start + most, len(places))


def title_of(view: dict[str, Any] | None) -> str:
    """The title of an article, as its metadata stage has found it; empty if it has not."""
    return str(result_in(view, METADATA).get("title") or "")


def worklist_csv(found: Iterable[ManualDeposit]) -> bytes:
    """The worklist as a table for spreadsheet programs."""
    return csv_table(COLUMNS, [_cells(one) for one in found])


def _failed_rows(app: DepositsApp) -> list[dict[str, Any]]:
    rows = app.items(app.settings.route, statuses=FAILED, limit=READ)
    rows += [_twins_row(doi, recorded) for doi, recorded in twins(app).items()]
    rows.sort(key=_place, reverse=True)
    return rows


def _twins_row(doi: str, recorded: Twins) -> dict[str, Any]:
    """The row of a DOI that has two items, as that of a failed one."""
    error = {"category": TWINS_CATEGORY, "message": recorded.text}
    return {"key": doi, "stage": "", "attempts": 0, "error": error, "ended_at": recorded.at}


def _searched(rows: list[dict[str, Any]], search: str) -> list[dict[str, Any]]:
    # The DOI in the text, in any form in which people write one, or the text itself.
    text = doi_or_none(search) or search.strip().lower()
    return [row for row in rows if text in row["key"]] if text else rows


def _place(row: dict[str, Any]) -> Place:
    return row["ended_at"], row["key"]


def _place_text(row: dict[str, Any]) -> str:
    return " ".join(_place(row))


def _read_place(text: str) -> Place | None:
    if not text:
        return None
    at, _, doi = text.partition(" ")
    if not doi:
        raise mp.UsageError(f"{text!r} is no place in the worklist; take it from another page")
    return at, doi


def _manual(app: DepositsApp, row: dict[str, Any]) -> ManualDeposit:
    error, stage = row["error"], row["stage"]
    view = app.show(app.settings.route, row["key"])
    return ManualDeposit(
        doi=row["key"],
        title=title_of(view),
        stage=stage,
        attempts=row["attempts"],
        error=(error or {}).get("message") or "no error is recorded",
        failed_at=row["ended_at"],
        advice=advice_of(error, stage),
        search_first=search_first(error, stage),
        claim=None if view is None else claim_in(view),
    )


def _cells(one: ManualDeposit) -> tuple[object, ...]:
    first = "yes" if one.search_first else ""
    who = ("", "") if one.claim is None else (one.claim.name, one.claim.at)
    return (
        one.doi,
        one.title,
        one.failed_at,
        one.stage,
        one.attempts or "",
        one.error,
        one.advice,
        first,
        *who,
    )
