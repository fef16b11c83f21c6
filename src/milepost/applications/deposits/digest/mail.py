"""Form of a digest: subject, plain text, HTML for a phone's width, and a CSV with every DOI. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape

from milepost.applications.deposits.csv_table import csv_table
from milepost.applications.deposits.digest.entries import Digest, DigestEntry
from milepost.applications.deposits.doi import doi_url
from milepost.subscribers.email import Mail, MailAttachment

SHOWN = 100
"""Most DOIs of one kind in the text of a mail; the CSV has all."""
COLUMNS = ("doi", "status", "handle", "title", "stage", "attempts", "error", "what to do")
_PAGE = "the page of manual deposits"
_COMMAND = "milepost deposits deposited DOI --handle HANDLE --by YOU --reason '…'"
_MUTED, _RED, _GREEN, _AMBER = "#5b6470", "#b42318", "#1e7a3c", "#9a6700"


def mail_of(digest: Digest, sender: str, dashboard: str = "") -> Mail:
    """The mail of a digest. It links to the page of manual deposits where the URL of the dashboard is known."""
    page = f"{dashboard.rstrip('/')}/deposits/worklist" if dashboard else ""
    return Mail(
        id=digest.id,
        sender=sender,
        to=digest.to,
        subject=subject_of(digest),
        text=text_of(digest, page),
        html=html_of(digest, page),
        attachments=[MailAttachment("deposits.csv", csv_of(digest), "text/csv")],
    )


def subject_of(digest: Digest) -> str:
    """The subject, with the most important first: manual deposits, then retries, then successes."""
    parts = []
    if digest.manual:
        parts.append(f"{len(digest.manual):,} {'needs' if len(digest.manual) == 1 else 'need'} a manual deposit")
    if digest.retries:
        parts.append(f"{len(digest.retries):,} will be retried")
    if digest.deposited:
        parts.append(f"{len(digest.deposited):,} deposited")
    parts = parts or [note.partition(";")[0] for note in digest.notes[:1]]
    return f"Deposits{f' {digest.owner}' if digest.owner else ''}: {', '.join(parts)}"


def text_of(digest: Digest, page: str = "") -> str:
    """For programs that show text. `page` is the URL of the manual deposits, if it is known."""
    parts = [subject_of(digest), *digest.notes]
    if digest.manual:
        lines = []
        for entry in digest.manual[:SHOWN]:
            lines += [f"  {entry.doi}", f"    {_failed(entry)}", f"    {entry.advice}"]
        parts.append("\n".join(["NEEDS A MANUAL DEPOSIT", *lines, *_more(digest.manual)]))
    if digest.retries:
        lines = [f"  {entry.doi}\n    {_failed(entry)}; next try {_when(entry)}" for entry in digest.retries[:SHOWN]]
        parts.append("\n".join(["WILL BE RETRIED", *lines, *_more(digest.retries)]))
    if digest.deposited:
        lines = [f"  {entry.doi}  {_link(entry.handle) or 'no handle yet: DSpace reviews it'}" for entry in digest.deposited[:SHOWN]]
        parts.append("\n".join(["DEPOSITED", *lines, *_more(digest.deposited)]))
    parts.append("\n".join(["ALL DOIS", *(f"  {word}: {count:,}" for word, count in digest.counts.items())]))
    parts.append("The attached CSV has every DOI of this digest.")
    if digest.manual:
        parts.append(f"After a manual deposit, note its handle on {_PAGE}{page and f', {page}'}, or with\n  {_COMMAND}")
    return "\n\n".join(parts) + "\n"


def html_of(digest: Digest, page: str = "") -> str:
    """For programs that show HTML: one column, no pictures, nothing from elsewhere. `page` is the URL of the manual deposits, if it is
    known."""
    sections = [
        _section("Needs a manual deposit", _RED, digest.manual, lambda entry: f"{escape(_failed(entry))}<br><b>{escape(entry.advice)}</b>"),
        _section("Will be retried", _AMBER, digest.retries, lambda entry: f"{escape(_failed(entry))}<br>Next try {escape(_when(entry))}"),
        _section("Deposited", _GREEN, digest.deposited, _deposited_html),
    ]
    notes = "".join(f'<p style="margin:0 0 12px;color:{_MUTED};word-break:break-word">{escape(one)}</p>' for one in digest.notes)
    link = f'<a href="{escape(page)}">{_PAGE}</a>' if page else _PAGE
    command = f'<code style="word-break:break-word">{escape(_COMMAND)}</code>'
    afterwards = f" After a manual deposit, note its handle on {link}, or with<br>{command}" if digest.manual else ""
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
    entries = (*digest.manual, *digest.retries, *digest.deposited)
    return csv_table(
        COLUMNS,
        [(one.doi, one.word, one.handle, one.title, one.stage, one.attempts or "", one.error, one.advice) for one in entries],
    )


def _section(title: str, colour: str, entries: tuple[DigestEntry, ...], body: Callable[[DigestEntry], str]) -> str:
    if not entries:
        return ""
    shown = "".join(
        f'<div style="margin:0 0 12px;padding:8px 12px;border-left:3px solid {colour};background:#f6f8fa">'
        f'<div style="font-weight:600;word-break:break-all">{_doi_html(entry.doi)}</div>'
        f"{f'<div style=color:{_MUTED}>{escape(entry.title)}</div>' if entry.title else ''}"
        f'<div style="word-break:break-word">{body(entry)}</div></div>'
        for entry in entries[:SHOWN]
    )
    more = "".join(f'<p style="margin:0;color:{_MUTED}">{escape(line.strip())}</p>' for line in _more(entries))
    return f'<h2 style="font-size:16px;margin:24px 0 8px;color:{colour}">{title} ({len(entries):,})</h2>{shown}{more}'


def _deposited_html(entry: DigestEntry) -> str:
    link = _link(entry.handle)
    return f'Handle <a href="{escape(link)}">{escape(entry.handle or "")}</a>' if link else "No handle yet: DSpace reviews it."


def _doi_html(doi: str) -> str:
    return f'<a href="{escape(doi_url(doi))}" style="color:inherit">{escape(doi)}</a>'


def _link(handle: str | None) -> str | None:
    return None if not handle else f"https://hdl.handle.net/{handle}"


def _failed(entry: DigestEntry) -> str:
    tries = f" after {entry.attempts} {'try' if entry.attempts == 1 else 'tries'}" if entry.attempts else ""
    return f"Failed at {entry.stage}{tries}: {entry.error or 'no reason is recorded'}"


def _when(entry: DigestEntry) -> str:
    return "in the next run" if entry.retry_at is None else f"at {entry.retry_at[:16].replace('T', ' ')} UTC"


def _more(entries: Sequence[DigestEntry]) -> list[str]:
    left = len(entries) - SHOWN
    return [f"  and {left:,} more: see the CSV"] if left > 0 else []
