"""Claims: a person says "I do this one" of a DOI that needs a manual deposit. Two people never both hold a claim.

A claim is a signed line in the DOI's history, added on the condition that the DOI has had no other line since it was read. It belongs to one
failure of the DOI: when the DOI is deposited, abandoned or requeued, the claim is over, also if the DOI fails again later.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

import milepost as mp
from milepost.applications.deposits.acts import FAILED, keys_of
from milepost.applications.deposits.settings import DepositsApp
from milepost.applications.deposits.words import NOTES, word_of

LONGEST_NAME = 100
TRIES = 5
CLAIM, RELEASE = "claim", "release"
"""The field of a note's data that says what it is; its value is the name of the person who makes the deposit."""


class ManualClaim(msgspec.Struct, frozen=True):
    """The person who makes a manual deposit, and since when."""

    doi: str
    name: str
    at: str


def claim(app: DepositsApp, doi: str, *, name: str, by: str | None = None) -> ManualClaim:
    """Claim a DOI for the person `name`, signed by `by` (the person, if it is not given). Raises mp.ActRefused if another person holds it,
    or if it needs no manual deposit. A person who claims the same DOI twice holds one claim."""
    name = person_name(name)
    for _ in range(TRIES):
        view = _failed_doi(app, doi)
        held = claim_in(view)
        if held is not None and held.name == name:
            return held
        if held is not None:
            raise mp.ActRefused(f"{held.doi} is claimed by {held.name}, since {held.at}; agree with them, or release the claim first")
        if _noted(app, view, f"manual deposit claimed by {name}", {CLAIM: name}, by or name):
            return ManualClaim(view["key"], name, f"{app.now():%Y-%m-%dT%H:%M:%SZ}")
    raise mp.ActRefused(f"{doi} changes all the time; try again")


def release(app: DepositsApp, doi: str, *, by: str) -> ManualClaim | None:
    """End the claim on a DOI, so that another person can claim it; the claim that it was. None: the DOI was not claimed."""
    by = person_name(by)
    for _ in range(TRIES):
        view = _failed_doi(app, doi)
        held = claim_in(view)
        if held is None or _noted(app, view, f"manual deposit released: it was claimed by {held.name}", {RELEASE: held.name}, by):
            return held
    raise mp.ActRefused(f"{doi} changes all the time; try again")


def claim_in(view: Mapping[str, Any]) -> ManualClaim | None:
    """The claim that a DOI's history holds, as `show` gives it; None: no person has claimed it since its last failure."""
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
    """Whether a history line is a claim or its release, and the person whose claim it is; two empty texts: it is another line."""
    note = line.get("note")
    data: Any = note.get("data") if line["reason"] == mp.Reason.NOTED and isinstance(note, dict) else None
    named = data if isinstance(data, dict) else {}
    return next(((kind, named[kind]) for kind in (CLAIM, RELEASE) if isinstance(named.get(kind), str)), ("", ""))


def person_name(text: str) -> str:
    """A person's name with single blanks; raises mp.UsageError."""
    name = " ".join(text.split())
    if not name or len(name) > LONGEST_NAME:
        raise mp.UsageError(f"give the name of the person who makes the deposit, of at most {LONGEST_NAME} characters")
    return name


def _failed_doi(app: DepositsApp, doi: str) -> dict[str, Any]:
    [key] = keys_of([doi])
    view = app.show(app.settings.route, key)
    if view is None:
        raise mp.ActRefused(f"{key} is not known here; take it in with a list first", "gone")
    if view["status"] not in FAILED:
        raise mp.ActRefused(f"{key} needs no manual deposit: its status is {word_of(view['status'])}")
    if "version" not in view:
        raise mp.ActRefused(f"{key} has no row that can be written to: it was pruned, or is damaged", "gone")
    return view


def _noted(app: DepositsApp, view: Mapping[str, Any], text: str, data: dict[str, str], by: str) -> bool:
    """Add the line, unless the DOI has changed since it was read. False: it has."""
    try:
        app.note(app.settings.route, view["key"], text, by=by, data=data, version=view["version"])
    except mp.ActRefused as refusal:
        if refusal.kind != "changed-since":
            raise
        return False
    return True
