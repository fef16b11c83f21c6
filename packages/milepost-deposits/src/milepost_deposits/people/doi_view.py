"""One DOI for a page: status in librarians' words, metadata, files, links, and what happened.
Pure."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import quote

import msgspec

from milepost_deposits.digest.mail import error_text
from milepost_deposits.files import StoredFile
from milepost_deposits.people.worklist import CLAIM, claim_note
from milepost_deposits.status_names import CONTENT, METADATA, PRESENT, SUBMIT, result_in

_STARTED = {
    METADATA: "Fetching its metadata from Crossref",
    CONTENT: "Fetching its PDF from the publisher",
    SUBMIT: "Submitting it to DSpace",
}
_FAILED = {
    METADATA: "Metadata could not be fetched",
    CONTENT: "The PDF could not be fetched",
    SUBMIT: "The submission failed",
}
_DONE = {
    METADATA: "Metadata fetched from Crossref",
    CONTENT: "PDF fetched from the publisher",
    SUBMIT: "Deposited in DSpace",
}
_PRESENT = {METADATA: "Found in DSpace before anything was fetched", CONTENT: "No PDF was fetched"}
_WHAT = {
    "accepted": "Taken in",
    "completed": _DONE[SUBMIT],
    "confirmed": _DONE[SUBMIT],
    "handed-over": "Handed over to the submission service",
    "not-yet": "Looked for in DSpace: not there yet",
    "lost": "Its worker was lost",
    "given-back": "Its worker was stopped; another one goes on",
    "cancelled": "Abandoned",
    "operator-retry": "Requeued",
    "resent": "Due again",
    "overdue": "No result for too long",
    "noted": "Noted",
    "late": "A late result was noted",
    "kept": "An answer was kept until the worker ends",
}
_KINDS = {
    "completed": "done",
    "confirmed": "done",
    "advanced": "done",
    "retry": "fail",
    "exhausted": "fail",
    "rejected": "fail",
    "lost": "fail",
}
_QUIET = frozenset({"offered", "claimed"})


class DoiMoment(msgspec.Struct, frozen=True):
    """One entry of what happened."""

    at: str
    kind: str
    """The class of its dot: `done`, `fail` or none."""
    what: str
    error: str = ""
    by: str = ""
    why: str = ""


class DoiFile(msgspec.Struct, frozen=True):
    """A file of a DOI. `place` is its path or s3:// address."""

    what: str
    name: str
    place: str
    size: int
    md5: str


class DepositLinks(msgspec.Struct, frozen=True):
    """Addresses outside Milepost. None: there is none, or it is not known."""

    publisher: str
    item: str | None
    search: str | None


def moments_of(view: Mapping[str, Any]) -> list[DoiMoment]:
    """The entries of a DOI's history for its page, the first one first; `view` is as `show` gives
    it."""
    lines = [line for line in view.get("history") or () if line["reason"] not in _QUIET]
    present = bool(result_in(view, METADATA).get(PRESENT))
    return [_moment(line, present) for line in lines]


def _moment(line: Mapping[str, Any], present: bool) -> DoiMoment:
    """The entry of a line; `present`: DSpace had the DOI before anything was fetched."""
    reason, stage = line["reason"], line["stage"]
    # A worker's name says nothing to a librarian.
    by = "" if line.get("claimed_at") else line.get("by") or ""
    what = _WHAT.get(reason, reason)
    if reason == "advanced":
        what = _PRESENT.get(stage, what) if present else _DONE.get(stage, what)
    elif reason == "noted":
        what = _noted(line)
    elif reason == "not-yet" and isinstance(line.get("note"), str):
        what = f"Waits: {line['note']}"
    elif reason == "confirmed" and stage != SUBMIT:
        what = f"{stage} is not needed any more"
    elif line.get("attempt_number") is not None:
        ending = {
            "exhausted": "; that was the last try",
            "rejected": "; it is not tried again",
        }.get(reason, "")
        what = f"{_FAILED.get(stage, stage)}, try {line['attempt_number']}{ending}"
    return DoiMoment(
        line["at"], _KINDS.get(reason, ""), what, error_text(line), by, line.get("why") or ""
    )


def _noted(line: Mapping[str, Any]) -> str:
    kind, name = claim_note(line)
    if kind:
        return (
            f"{name} does this one" if kind == CLAIM else f"Released: {name} does not do this one"
        )
    note = line.get("note")
    text = note.get("text") if isinstance(note, Mapping) else note
    return f"Noted: {text}" if isinstance(text, str) else _WHAT["noted"]


def doing(view: Mapping[str, Any]) -> str:
    """The work that an unfinished DOI is at."""
    stage: str = view["stage"]
    return _STARTED.get(stage, stage)


def files_of(view: Mapping[str, Any]) -> list[DoiFile]:
    """The files that were stored for a DOI."""
    found = []
    for stage, what in ((METADATA, "Metadata"), (CONTENT, "PDF")):
        with suppress(msgspec.ValidationError):
            file = msgspec.convert(result_in(view, stage).get("file"), StoredFile)
            found.append(DoiFile(what, file.bitstream, file.place, file.size, file.md5))
    return found


def fields_of(metadata: Any) -> list[tuple[str, list[str]]]:
    """The fields of a metadata file in either form, each with its values; empty if it has another
    form."""
    found: dict[str, list[str]] = {}
    if isinstance(metadata, dict) and isinstance(metadata.get("metadata"), list):
        for one in metadata["metadata"]:
            found.setdefault(str(one.get("key")), []).append(str(one.get("value")))
    elif isinstance(metadata, dict):
        for name, values in metadata.items():
            found[name] = (
                [str(one.get("value")) for one in values if isinstance(one, dict)]
                if isinstance(values, list)
                else []
            )
    return list(found.items())


def links_of(doi: str, handle: str | None, site: str) -> DepositLinks:
    """The addresses of a DOI. `site` is the address of DSpace's own pages; without it the handle's
    resolver leads to the item."""
    site = site.rstrip("/")
    item = (
        None
        if not handle
        else f"{site}/handle/{quote(handle)}"
        if site
        else f"https://hdl.handle.net/{quote(handle)}"
    )
    exact = quote(f'"{doi}"')
    search = f"{site}/search?query={exact}" if site else None
    return DepositLinks(f"https://doi.org/{quote(doi)}", item, search)
