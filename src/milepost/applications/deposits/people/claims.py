"""Claims: a person says "I do this one" of a DOI that needs a manual deposit. Two people never both hold a claim.

A claim is a document in the ledger, written on the condition that no other one is there. It belongs to one failure of the DOI: when the DOI is
deposited, abandoned or requeued, the claim is over, also if the DOI fails again later.
"""

from __future__ import annotations

from hashlib import sha256

import msgspec

import milepost as mp
from milepost.applications.deposits.acts import FAILED, DepositsApp, keys_of
from milepost.applications.deposits.words import word_of

PREFIX = "claim/"
LONGEST_NAME = 100
LISTED = 10_000


class ManualClaim(msgspec.Struct, frozen=True):
    """The person who makes a manual deposit, and since when. `failed_at` is the time of the failure that it belongs to."""

    doi: str
    name: str
    at: str
    failed_at: str


def claim(app: DepositsApp, doi: str, *, name: str) -> ManualClaim:
    """Claim a DOI for this person. Raises mp.ActRefused if another person holds it, or if it needs no manual deposit. A person who claims
    the same DOI twice holds one claim."""
    name = " ".join(name.split())
    if not name or len(name) > LONGEST_NAME:
        raise mp.UsageError(f"give the name of the person who makes the deposit, of at most {LONGEST_NAME} characters")
    [key] = keys_of([doi])
    view = app.show(app.settings.route, key)
    if view is None:
        raise mp.ActRefused(f"{key} is not known here; take it in with a list first", "gone")
    if view["status"] not in FAILED:
        raise mp.ActRefused(f"{key} needs no manual deposit: its status is {word_of(view['status'])}")
    wanted = ManualClaim(key, name, f"{app.now():%Y-%m-%dT%H:%M:%SZ}", view["ended_at"])
    held = app.documents.get(_document(key))
    if held is None or _claim(held.value).failed_at != wanted.failed_at:
        if app.documents.put(_document(key), msgspec.to_builtins(wanted), expect=0 if held is None else held.version):
            _remove_old(app)
            return wanted
        held = app.documents.get(_document(key))
    holder = None if held is None else _claim(held.value)
    if holder is None or holder.name != name:
        who = "another person" if holder is None else f"{holder.name}, since {holder.at}"
        raise mp.ActRefused(f"{key} is claimed by {who}; agree with them, or release the claim first")
    return holder


def release(app: DepositsApp, doi: str) -> bool:
    """End the claim on a DOI, so that another person can claim it. False: it was not claimed, or changed in this moment."""
    [key] = keys_of([doi])
    held = app.documents.get(_document(key))
    return held is not None and app.documents.remove(_document(key), expect=held.version)


def claims(app: DepositsApp) -> dict[tuple[str, str], ManualClaim]:
    """All claims by DOI and time of its failure."""
    found = [_claim(document.value) for document in app.documents.find(PREFIX).values()]
    return {(one.doi, one.failed_at): one for one in found}


def _remove_old(app: DepositsApp) -> None:
    """Remove claims whose DOI has left the worklist, so that the documents stay few."""
    failed = {(row["key"], row["ended_at"]) for row in app.items(app.settings.route, statuses=FAILED, limit=LISTED)}
    for name, document in app.documents.find(PREFIX).items() if len(failed) < LISTED else ():
        one = _claim(document.value)
        if (one.doi, one.failed_at) not in failed:
            app.documents.remove(name, expect=document.version)


def _document(key: str) -> str:
    # A DOI may be longer than a document's name.
    return f"{PREFIX}{sha256(key.encode()).hexdigest()[:40]}"


def _claim(value: object) -> ManualClaim:
    return msgspec.convert(value, ManualClaim)
