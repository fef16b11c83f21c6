"""Import of DOIs that another system has finished: deposited ones become Success here, failed ones
go to the worklist, and nothing is fetched."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping
from typing import BinaryIO, Literal

import msgspec

import milepost as mp
import milepost.application as mpa
from milepost_deposits.acts import handle_of
from milepost_deposits.doi import DELIMITERS, FIELD, DoiMistake, normalise
from milepost_deposits.list_files import readable_list
from milepost_deposits.settings import DepositsApp
from milepost_deposits.status_names import CONTENT, IMPORTED, METADATA, SUBMIT

COLUMNS = {
    "doi": FIELD,
    "status": "status",
    "status_code": "status",
    "handle": "handle",
    "attempts": "attempts",
    "process_attempts": "attempts",
}
"""Columns by their names in the first line, those of the table of wiley-deposits among them."""
Ending = Literal["deposited", "failed", "unfinished"]
ENDINGS: Mapping[str, Ending] = {
    **dict.fromkeys(("success", "completed", "deposited", "3"), "deposited"),
    **dict.fromkeys(
        ("failed", "failed after too many attempts", "max_retries_exceeded", "4"), "failed"
    ),
    **dict.fromkeys(
        ("processing", "failed and will retry", "unprocessed", "message_sent", "1", "2"),
        "unfinished",
    ),
}
"""Statuses by what has become of the DOI; the numbers are those of wiley-deposits."""
PORTION = 500
HELD = "1d"
"""Items start so late: no worker fetches anything between their intake and their confirmation."""
LONGEST_HANDLE = 300


class ImportedDoi(msgspec.Struct, frozen=True):
    """One line of an import."""

    line: int
    doi: str
    ending: Ending
    handle: str | None
    attempts: int


class WrongLine(msgspec.Struct, frozen=True):
    line: int
    reason: str


class ImportReport(msgspec.Struct, frozen=True):
    """Results of an import. It is on record as a list with this id."""

    id: str = ""
    name: str = ""
    lines: int = 0
    deposited: int = 0
    failed: int = 0
    known: int = 0
    """DOIs that were finished here already; nothing of them was changed."""
    unfinished: int = 0
    """Left out: they are taken in by the next list."""
    malformed: list[WrongLine] = []
    refused: dict[str, str] = {}
    """DOIs that could not be noted, with the reason."""


def read_import(lines: BinaryIO, name: str) -> tuple[list[ImportedDoi], list[WrongLine]]:
    """The DOIs of a file with a first line of names, and the lines that cannot be used. A DOI that
    comes twice counts once. Raises mp.UsageError for a file without the columns doi and status."""
    text = io.TextIOWrapper(lines, encoding="utf-8-sig", errors="replace", newline="")
    head = text.readline()
    delimiter, columns = _columns(head, name)
    dois: dict[str, ImportedDoi] = {}
    wrong: list[WrongLine] = []
    for line, row in enumerate(csv.reader(text, delimiter=delimiter), 2):
        if not any(cell.strip() for cell in row):
            continue
        values = {
            column: row[place].strip() for column, place in columns.items() if place < len(row)
        }
        try:
            entry = _imported(line, values)
            dois.setdefault(entry.doi, entry)
        except (DoiMistake, mp.UsageError) as mistake:
            wrong.append(WrongLine(line, str(mistake)))
    return list(dois.values()), wrong


def _columns(head: str, name: str) -> tuple[str, dict[str, int]]:
    for delimiter in DELIMITERS:
        cells = [cell.strip().lower() for cell in next(csv.reader([head], delimiter=delimiter), [])]
        columns = {COLUMNS[cell]: place for place, cell in enumerate(cells) if cell in COLUMNS}
        if {FIELD, "status"} <= columns.keys():
            return delimiter, columns
    raise mp.UsageError(
        f"{name}: the first line must name the columns doi and status, and may name handle and attempts; it is {head.strip()[:200]!r}"
    )


def _imported(line: int, values: Mapping[str, str]) -> ImportedDoi:
    doi = normalise(values.get(FIELD, ""))
    ending = ENDINGS.get(values.get("status", "").lower())
    if ending is None:
        raise mp.UsageError(
            f"the status {values.get('status', '')[:50]!r} is not known; write SUCCESS, FAILED or PROCESSING"
        )
    attempts = values.get("attempts") or "0"
    if not attempts.isdecimal() or len(attempts) > 9:
        raise mp.UsageError(f"the attempts {attempts[:50]!r} are no number")
    handle = values.get("handle") or None
    return ImportedDoi(
        line,
        doi,
        ending,
        None if handle is None else handle_of(handle[:LONGEST_HANDLE]),
        int(attempts),
    )


def import_dois(
    app: DepositsApp, stream: BinaryIO, name: str, *, by: str, reason: str, dry_run: bool = False
) -> ImportReport:
    """Take in the finished DOIs of a file, and note how each has ended. What is finished here
    already stays as it is. A repeat after an interruption continues."""
    by, reason = mpa.check_signed(by, reason)
    with readable_list(stream, name) as lines:
        dois, wrong = read_import(lines, name)
    done = [entry for entry in dois if entry.ending != "unfinished"]
    report = ImportReport(
        name=name, lines=len(dois) + len(wrong), unfinished=len(dois) - len(done), malformed=wrong
    )
    if dry_run or not done:
        return msgspec.structs.replace(report, **_counts(done))
    app.record_act("import", app.settings.route, by=by, reason=reason)
    content = "".join([f"{FIELD}\n", *(f"{entry.doi}\n" for entry in done)]).encode()
    listed = app.submit_list(
        app.settings.route, io.BytesIO(content), name=f"{name} (import)", by=by, not_before=HELD
    )
    finished = (
        {entry.doi for entry in done if _is_finished(app, entry.doi)}
        if listed.counts["new"] < len(done)
        else set()
    )
    refused: dict[str, str] = {}
    left = [entry for entry in done if entry.doi not in finished]
    for portion in _portions(left):
        refused |= _confirmed(app, portion, by, reason)
    counts = _counts([entry for entry in left if entry.doi not in refused])
    return msgspec.structs.replace(
        report, id=listed.id, known=len(finished), refused=refused, **counts
    )


def _counts(dois: list[ImportedDoi]) -> dict[str, int]:
    deposited = sum(entry.ending == "deposited" for entry in dois)
    return {"deposited": deposited, "failed": len(dois) - deposited}


def _is_finished(app: DepositsApp, doi: str) -> bool:
    view = app.show(app.settings.route, doi)
    return view is not None and mp.Status(view["status"]) in (
        mp.Status.COMPLETED, mp.Status.MAX_RETRIES_EXCEEDED, mp.Status.REJECTED, mp.Status.CANCELLED,
    )  # fmt: skip


def _portions(dois: list[ImportedDoi]) -> Iterator[list[ImportedDoi]]:
    for start in range(0, len(dois), PORTION):
        yield dois[start : start + PORTION]


def _confirmed(app: DepositsApp, dois: list[ImportedDoi], by: str, reason: str) -> dict[str, str]:
    """Note how these DOIs have ended; by DOI, why that was refused."""
    refused: dict[str, str] = {}
    failed: dict[str, mp.Outcome] = {
        entry.doi: _rejected(entry, reason) for entry in dois if entry.ending == "failed"
    }
    deposited = [entry for entry in dois if entry.ending == "deposited"]
    by_hand: dict[str, mp.Outcome] = {entry.doi: mp.Done({"by_hand": True}) for entry in deposited}
    results: dict[str, mp.Outcome] = {
        entry.doi: mp.Done(_result(entry, by, reason)) for entry in deposited
    }
    for stage, outcomes in ((METADATA, failed | by_hand), (CONTENT, by_hand), (SUBMIT, results)):
        answers = app.confirm_all(app.settings.route, stage, outcomes, by=by) if outcomes else {}
        for doi, answer in answers.items():
            # A stage that a DOI had passed before is refused here; its last one counts.
            if isinstance(answer, mp.ActRefused) and (stage == SUBMIT or doi in failed):
                refused[doi] = str(answer)
    return refused


def _rejected(entry: ImportedDoi, reason: str) -> mp.Reject:
    tries = f" after {entry.attempts} attempts" if entry.attempts else ""
    return mp.Reject(
        f"the system before had failed{tries} ({reason})",
        category="IMPORTED",
        details={"attempts": entry.attempts},
    )


def _result(entry: ImportedDoi, by: str, reason: str) -> dict[str, object]:
    return {
        "handle": entry.handle, "last_modified": None, "files": [], "via": IMPORTED, "by": by, "reason": reason, "attempts": entry.attempts,
    }  # fmt: skip
