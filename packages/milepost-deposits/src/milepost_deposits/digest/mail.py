"""Digests: what has become of each DOI since the last one, as a mail: subject, plain text, HTML for
a phone's width, and a CSV. Pure."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from html import escape
from typing import Any, Literal

import msgspec

from milepost.subscribers.email import Mail, MailAttachment
from milepost_deposits.acts import is_item_known, search_first
from milepost_deposits.doi import doi_url
from milepost_deposits.dspace.errors import (
    CollectionUnknown,
    DSpaceForbidden,
    DSpaceLoginFailed,
    DSpaceUnavailable,
)
from milepost_deposits.settings import MailSettings
from milepost_deposits.status_names import (
    CONTENT,
    FAILED,
    IMPORTED,
    METADATA,
    NOTES,
    RETRIES,
    SUBMIT,
    SUCCESS,
    handle_in,
    result_in,
    word_of,
)
from milepost_deposits.twins import Twins, twins_note

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def csv_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> bytes:
    """A table in UTF-8 with a byte order mark, without which spreadsheet programs take it for
    another encoding."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\r\n")
    writer.writerow(columns)
    writer.writerows([_cell(value) for value in row] for row in rows)
    return _BYTE_ORDER_MARK + out.getvalue().encode()


def _cell(value: object) -> str:
    """The text of a cell, escaped so that no spreadsheet program runs it as a formula."""
    text = "" if value is None else str(value)
    return f"'{text}" if text[:1] in ("=", "+", "-", "@", "\t", "\r") else text


# Entries ------------------------------------------------------------------------------------------
_ADVICE = {
    METADATA: "Look the DOI up at Crossref. If its record is right, deposit metadata and PDF by hand.",
    CONTENT: "Fetch the PDF from the publisher by hand, and deposit it with its metadata.",
}
_SUBMIT = "Deposit it by hand."
_MENDED = {
    DSpaceLoginFailed.category: "When the user and password that Milepost has for DSpace are right",
    DSpaceForbidden.category: "When the user that Milepost has for DSpace has the right",
    CollectionUnknown.category: "When the collection in Milepost's settings is right",
    DSpaceUnavailable.category: "When DSpace answers again",
}
"""Errors at the submit stage that are no fault of the DOI, and what has to be mended."""
_ITEM_KNOWN = (
    "Correct the item in DSpace as the error says; another deposit would be a second item."
)
_SEARCH_INSTEAD = (
    "To deposit it by hand instead, search DSpace for the DOI first: a try may have succeeded."
)
TWINS_CATEGORY = "TWINS"
TWINS_ADVICE = "Delete the wrong item in DSpace; or note which one is right, and both stay: enter its handle as that of a deposit by hand."
_SEARCH_FIRST = "Search DSpace for the DOI first: the last try may have succeeded. Deposit it by hand only if it is not there."


class DigestEntry(msgspec.Struct, frozen=True):
    """One DOI in a digest: its status name, and what people have to know."""

    doi: str
    word: str
    stage: str = ""
    error: str = ""
    attempts: int = 0
    retry_at: str | None = None
    """When it is tried again; None: in the next round."""
    handle: str | None = None
    title: str = ""
    advice: str = ""
    kind: Literal["", "present", "twins"] = ""
    """"present": DSpace had it already; "twins": DSpace has two items of it."""


def latest_lines(lines: Iterable[dict[str, Any]], route: str) -> dict[str, dict[str, Any]]:
    """The last history line of each DOI of the route that says something new to people: deposited,
    failed, will be retried, or has two items in DSpace."""
    found: dict[str, dict[str, Any]] = {}
    for line in lines:
        if line["route"] == route and twins_note(line):
            found.pop(line["key"], None)
            found[line["key"]] = line
        if line["route"] != route or line["reason"] in NOTES:
            continue
        found.pop(line["key"], None)
        if line.get("status") is not None and word_of(line["status"]) in (SUCCESS, RETRIES, FAILED):
            found[line["key"]] = line
    return found


def entry_of(
    line: Mapping[str, Any], view: Mapping[str, Any] | None, *, rounds: bool
) -> DigestEntry | None:
    """The entry of a DOI whose last line is `line`; `view` is the item as `show` gives it, None if
    its row has left. None: the DOI has moved on since, and a later digest names it, or another
    system has deposited it, which is no news."""
    doi, word = line["key"], word_of(line["status"])
    if view is not None and word_of(view["status"]) != word:
        return None
    title = str(result_in(view, METADATA).get("title") or "")
    if word == SUCCESS and result_in(view, SUBMIT).get("via") == IMPORTED:
        return None
    if word == SUCCESS:
        present = present_text(view)
        return DigestEntry(
            doi,
            word,
            handle=handle_in(view),
            title=title,
            error=present,
            kind="present" if present else "",
        )
    error = (view or {}).get("error") or {
        "category": line.get("error_category", ""),
        "message": error_text(line),
    }
    stage = line["stage"]
    entry = DigestEntry(
        doi,
        word,
        stage,
        error["message"],
        int((view or line).get("attempts") or line.get("attempt_number") or 0),
        title=title,
    )
    if word == RETRIES:
        return msgspec.structs.replace(
            entry, retry_at=None if rounds else (view or {}).get("due_at")
        )
    return msgspec.structs.replace(entry, advice=advice_of(error, stage))


def advice_of(error: dict[str, Any] | None, stage: str) -> str:
    """The advice to a person about a DOI that failed at this stage with this error."""
    if (error or {}).get("category") == TWINS_CATEGORY:
        return TWINS_ADVICE
    if stage == SUBMIT and is_item_known(error):
        return _ITEM_KNOWN
    search = search_first(error, stage)
    mended = _MENDED.get((error or {}).get("category", "")) if stage == SUBMIT else None
    if mended is not None:
        return f"{mended}, requeue it. {_SEARCH_INSTEAD if search else 'Or deposit it by hand.'}"
    return _SEARCH_FIRST if search else _ADVICE.get(stage, _SUBMIT)


def error_text(line: Mapping[str, Any]) -> str:
    """The error of a history line; empty if it has none."""
    details = line.get("error_details")
    return str(details.get("message") or "") if isinstance(details, Mapping) else ""


def twins_entry(
    line: Mapping[str, Any], view: Mapping[str, Any] | None, recorded: Twins | None
) -> DigestEntry | None:
    """The entry of a DOI whose line says that it has two items; None: a person has settled that
    since."""
    if recorded is None:
        return None
    title = str(result_in(view, METADATA).get("title") or "")
    return DigestEntry(
        line["key"],
        SUCCESS,
        error=recorded.text,
        handle=handle_in(view),
        title=title,
        advice=TWINS_ADVICE,
        kind="twins",
    )


def present_text(view: Mapping[str, Any] | None) -> str:
    """Says with which file DSpace had a DOI already; empty: Milepost has deposited it, be it with a
    try whose answer was lost."""
    result = result_in(view, SUBMIT)
    if result.get("found") is not True:
        return ""
    others, same = result.get("others") or [], result.get("same_file")
    if same and not others and (view or {}).get("total_attempts"):
        return ""
    names = ", ".join(str(file.get("name")) for file in result.get("files") or ()) or "no file"
    compared = {
        True: "It has the publisher's PDF",
        False: f"It has another file than the publisher's PDF: {names}",
        None: f"It has {names}",
    }
    further = f"; further items of this DOI: {', '.join(map(str, others))}" if others else ""
    return f"{compared[same if isinstance(same, bool) else None]}{further}"


class Digest(msgspec.Struct, frozen=True):
    """Content of a mail: the DOIs by their result, and the number of all DOIs by status name."""

    id: str
    to: tuple[str, ...]
    """The addresses when it was collected. It goes to those that the settings have when it is sent:
    see `recipients_of`."""
    owner: str
    """The DOI prefix whose owners get it; empty: everything that has no owner of its own."""
    deposited: tuple[DigestEntry, ...]
    retries: tuple[DigestEntry, ...]
    manual: tuple[DigestEntry, ...]
    counts: dict[str, int]
    notes: tuple[str, ...] = ()
    """Sentences about the digest itself and about all DOIs: where it begins, runs that were
    interrupted, partners that ask us to slow down."""
    twins: tuple[DigestEntry, ...] = ()
    """DOIs that have two items in DSpace."""
    present: tuple[DigestEntry, ...] = ()
    """DOIs that DSpace had already, with which file."""
    files: tuple[str, ...] = ()
    """Sentences about files that were refused or ignored, and about malformed lines."""

    @property
    def empty(self) -> bool:
        """Does it name no DOI and no file?"""
        return not (
            self.files
            or self.deposited
            or self.retries
            or self.manual
            or self.twins
            or self.present
        )


def first_note(since: datetime) -> str:
    """The sentence of the first digest of a ledger that has an older history."""
    return (
        f"This is the first digest. It begins on {since:%Y-%m-%d} at {since:%H:%M} UTC, and does not name what happened earlier; "
        "all manual deposits are on the worklist."
    )


def digests_of(
    entries: Iterable[DigestEntry],
    id: str,
    to: tuple[str, ...],
    owners: Mapping[str, tuple[str, ...]],
    counts: Mapping[str, int],
    notes: Iterable[str] = (),
    *,
    news: bool = False,
    files: tuple[str, ...] = (),
) -> list[Digest]:
    """One digest for each owner of a DOI prefix (the longest prefix wins) and one for all other
    DOIs. None is empty, except with `news`: then the notes are a digest by themselves. `files` are
    for the one without an owner."""
    by_owner: dict[str, list[DigestEntry]] = {"": []} if news or files else {}
    said = tuple(notes)
    prefixes = sorted(owners, key=len, reverse=True)
    for entry in entries:
        owner = next((prefix for prefix in prefixes if entry.doi.startswith(prefix.lower())), "")
        by_owner.setdefault(owner, []).append(entry)
    found = []
    for owner, own in sorted(by_owner.items()):
        own.sort(key=lambda entry: entry.doi)
        found.append(
            Digest(
                id=f"{id}{'-' if owner else ''}{owner}",
                to=owners.get(owner, to),
                owner=owner,
                deposited=tuple(one for one in own if one.word == SUCCESS and not one.kind),
                twins=tuple(one for one in own if one.kind == "twins"),
                present=tuple(one for one in own if one.kind == "present"),
                retries=tuple(one for one in own if one.word == RETRIES),
                manual=tuple(one for one in own if one.word == FAILED),
                counts=dict(counts),
                notes=said,
                files=() if owner else files,
            )
        )
    return [digest for digest in found if not digest.empty or (news and not digest.owner)]


# The mail -----------------------------------------------------------------------------------------
SHOWN = 100
"""Most DOIs of one kind in the text of a mail; the CSV has all."""
COLUMNS = ("doi", "status", "handle", "title", "stage", "attempts", "error", "what to do")
_PAGE = "the page of manual deposits"
_COMMAND = "milepost deposits deposited DOI --handle HANDLE --by YOU --reason '…'"
_MUTED, _RED, _GREEN, _AMBER = "#5b6470", "#b42318", "#1e7a3c", "#9a6700"


def recipients_of(owner: str, mail: MailSettings) -> tuple[str, ...]:
    """The addresses of a digest as the settings have them now; those of `to` for an owner that has
    none any more."""
    return mail.owners.get(owner) or mail.to


def mail_of(digest: Digest, to: Sequence[str], sender: str, dashboard: str = "") -> Mail:
    """The mail of a digest to these addresses. It links to the page of manual deposits where the
    URL of the dashboard is known."""
    page = f"{dashboard.rstrip('/')}/deposits/worklist" if dashboard else ""
    return Mail(
        id=digest.id,
        sender=sender,
        to=tuple(to),
        subject=subject_of(digest),
        text=text_of(digest, page),
        html=html_of(digest, page),
        attachments=[MailAttachment("deposits.csv", csv_of(digest), "text/csv")],
    )


def subject_of(digest: Digest) -> str:
    """The subject, with the most important first: manual deposits, then retries, then successes."""
    parts = []
    if digest.manual:
        parts.append(
            f"{len(digest.manual):,} {'needs' if len(digest.manual) == 1 else 'need'} a manual deposit"
        )
    if digest.twins:
        parts.append(
            f"{len(digest.twins):,} {'has' if len(digest.twins) == 1 else 'have'} two items in DSpace"
        )
    if digest.retries:
        parts.append(f"{len(digest.retries):,} will be retried")
    if digest.deposited:
        parts.append(f"{len(digest.deposited):,} deposited")
    if digest.present:
        parts.append(
            f"{len(digest.present):,} {'was' if len(digest.present) == 1 else 'were'} in DSpace already"
        )
    if digest.files:
        parts.append(
            f"{len(digest.files):,} {'file needs' if len(digest.files) == 1 else 'files need'} attention"
        )
    parts = parts or [note.partition(";")[0] for note in digest.notes[:1]]
    return f"Deposits{f' {digest.owner}' if digest.owner else ''}: {', '.join(parts)}"


def text_of(digest: Digest, page: str = "") -> str:
    """For programs that show text. `page` is the URL of the manual deposits, if it is known."""
    parts = [subject_of(digest), *digest.notes]
    if digest.files:
        parts.append("\n".join(["FILES", *(f"  {sentence}" for sentence in digest.files)]))
    if digest.manual:
        lines = []
        for entry in digest.manual[:SHOWN]:
            lines += [f"  {entry.doi}", f"    {_failed(entry)}", f"    {entry.advice}"]
        parts.append("\n".join(["NEEDS A MANUAL DEPOSIT", *lines, *_more(digest.manual)]))
    if digest.twins:
        lines = [
            f"  {entry.doi}\n    {entry.error}\n    {entry.advice}"
            for entry in digest.twins[:SHOWN]
        ]
        parts.append("\n".join(["TWO ITEMS IN DSPACE", *lines, *_more(digest.twins)]))
    if digest.retries:
        lines = [
            f"  {entry.doi}\n    {_failed(entry)}; next try {_when(entry)}"
            for entry in digest.retries[:SHOWN]
        ]
        parts.append("\n".join(["WILL BE RETRIED", *lines, *_more(digest.retries)]))
    if digest.deposited:
        lines = [
            f"  {entry.doi}  {_link(entry.handle) or 'no handle yet: DSpace reviews it'}"
            for entry in digest.deposited[:SHOWN]
        ]
        parts.append("\n".join(["DEPOSITED", *lines, *_more(digest.deposited)]))
    if digest.present:
        lines = [
            f"  {entry.doi}  {_link(entry.handle) or ''}\n    {entry.error}"
            for entry in digest.present[:SHOWN]
        ]
        parts.append("\n".join(["WERE IN DSPACE ALREADY", *lines, *_more(digest.present)]))
    parts.append(
        "\n".join(["ALL DOIS", *(f"  {word}: {count:,}" for word, count in digest.counts.items())])
    )
    parts.append("The attached CSV has every DOI of this digest.")
    if digest.manual:
        parts.append(
            f"After a manual deposit, note its handle on {_PAGE}{page and f', {page}'}, or with\n  {_COMMAND}"
        )
    return "\n\n".join(parts) + "\n"


def html_of(digest: Digest, page: str = "") -> str:
    """For programs that show HTML: one column, no pictures, nothing from elsewhere. `page` is the
    URL of the manual deposits, if it is known."""
    sections = [
        _section(
            "Needs a manual deposit",
            _RED,
            digest.manual,
            lambda entry: f"{escape(_failed(entry))}<br><b>{escape(entry.advice)}</b>",
        ),
        _section(
            "Two items in DSpace",
            _RED,
            digest.twins,
            lambda entry: f"{escape(entry.error)}<br><b>{escape(entry.advice)}</b>",
        ),
        _section(
            "Will be retried",
            _AMBER,
            digest.retries,
            lambda entry: f"{escape(_failed(entry))}<br>Next try {escape(_when(entry))}",
        ),
        _section("Deposited", _GREEN, digest.deposited, _deposited_html),
        _section(
            "Were in DSpace already",
            _AMBER,
            digest.present,
            lambda entry: f"{_deposited_html(entry)}<br>{escape(entry.error)}",
        ),
    ]
    if digest.files:
        sections.insert(
            0,
            f'<h2 style="font-size:16px;margin:24px 0 8px;color:{_RED}">Files ({len(digest.files):,})</h2>'
            + _paragraphs(digest.files),
        )
    notes = "".join(
        f'<p style="margin:0 0 12px;color:{_MUTED};word-break:break-word">{escape(one)}</p>'
        for one in digest.notes
    )
    link = f'<a href="{escape(page)}">{_PAGE}</a>' if page else _PAGE
    command = f'<code style="word-break:break-word">{escape(_COMMAND)}</code>'
    afterwards = (
        f" After a manual deposit, note its handle on {link}, or with<br>{command}"
        if digest.manual
        else ""
    )
    counts = "".join(
        f'<tr><td style="padding:2px 16px 2px 0;color:{_MUTED}">{escape(word)}</td>'
        f'<td style="padding:2px 0;text-align:right">{count:,}</td></tr>'
        for word, count in digest.counts.items()
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>{escape(subject_of(digest))}</title></head>"
        '<body style="margin:0;padding:16px;font:16px/1.45 system-ui,-apple-system,Segoe UI,sans-serif;color:#1c2128;background:#fff">'
        '<div style="max-width:640px;margin:0 auto">'
        f'<h1 style="font-size:20px;margin:0 0 16px">{escape(subject_of(digest))}</h1>{notes}{"".join(sections)}'
        f'<h2 style="font-size:16px;margin:24px 0 4px">All DOIs</h2><table style="border-collapse:collapse">{counts}</table>'
        f'<p style="color:{_MUTED};font-size:14px;margin:24px 0 0">The attached CSV has every DOI of this digest.{afterwards}</p>'
        "</div></body></html>"
    )


def csv_of(digest: Digest) -> bytes:
    """Every DOI of the digest, as a table that spreadsheet programs open."""
    entries = (*digest.manual, *digest.twins, *digest.retries, *digest.deposited, *digest.present)
    return csv_table(
        COLUMNS,
        [
            (
                one.doi,
                one.word,
                one.handle,
                one.title,
                one.stage,
                one.attempts or "",
                one.error,
                one.advice,
            )
            for one in entries
        ],
    )


def _section(
    title: str, colour: str, entries: tuple[DigestEntry, ...], body: Callable[[DigestEntry], str]
) -> str:
    if not entries:
        return ""
    shown = "".join(
        f'<div style="margin:0 0 12px;padding:8px 12px;border-left:3px solid {colour};background:#f6f8fa">'
        f'<div style="font-weight:600;word-break:break-all">{_doi_html(entry.doi)}</div>'
        f"{f'<div style=color:{_MUTED}>{escape(entry.title)}</div>' if entry.title else ''}"
        f'<div style="word-break:break-word">{body(entry)}</div></div>'
        for entry in entries[:SHOWN]
    )
    more = "".join(
        f'<p style="margin:0;color:{_MUTED}">{escape(line.strip())}</p>' for line in _more(entries)
    )
    return f'<h2 style="font-size:16px;margin:24px 0 8px;color:{colour}">{title} ({len(entries):,})</h2>{shown}{more}'


def _paragraphs(sentences: Iterable[str]) -> str:
    return "".join(
        f'<p style="margin:0 0 12px;word-break:break-word">{escape(one)}</p>' for one in sentences
    )


def _deposited_html(entry: DigestEntry) -> str:
    link = _link(entry.handle)
    return (
        f'Handle <a href="{escape(link)}">{escape(entry.handle or "")}</a>'
        if link
        else "No handle yet: DSpace reviews it."
    )


def _doi_html(doi: str) -> str:
    return f'<a href="{escape(doi_url(doi))}" style="color:inherit">{escape(doi)}</a>'


def _link(handle: str | None) -> str | None:
    return None if not handle else f"https://hdl.handle.net/{handle}"


def _failed(entry: DigestEntry) -> str:
    tries = (
        f" after {entry.attempts} {'try' if entry.attempts == 1 else 'tries'}"
        if entry.attempts
        else ""
    )
    return f"Failed at {entry.stage}{tries}: {entry.error or 'no reason is recorded'}"


def _when(entry: DigestEntry) -> str:
    return (
        "in the next run"
        if entry.retry_at is None
        else f"at {entry.retry_at[:16].replace('T', ' ')} UTC"
    )


def _more(entries: Sequence[DigestEntry]) -> list[str]:
    left = len(entries) - SHOWN
    return [f"  and {left:,} more: see the CSV"] if left > 0 else []
