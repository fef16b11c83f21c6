"""Intake of DOIs: lists that publishers deliver into the inbox are taken in, reconciled, reported
and archived."""

from __future__ import annotations

import re
import secrets
from datetime import UTC, datetime

import msgspec

import milepost as mp
import milepost.application as mpa
from milepost.blobs import Inbox, InboxFile, open_inbox
from milepost_deposits.list_files import names_a_doi, readable_list
from milepost_deposits.settings import DepositsSettings

ARCHIVED, QUARANTINE = "archived", "quarantine"
LONGEST_NAME = 150
"""Most bytes of a delivered file's name that its archived one keeps, from the end: a file system
allows 255 for the whole."""
ENDINGS = (".csv", ".txt", ".xlsx")
BY = "deposits"
_COMMAND = re.compile(r", as in: .* \| milepost submit ROUTE -")


class TakenList(msgspec.Struct, frozen=True):
    """A list that was taken in. `archived` is its name in the inbox now; empty if another process
    has moved it."""

    name: str
    archived: str
    report: mp.ListReport


class RefusedList(msgspec.Struct, frozen=True):
    """A file that is not a list of DOIs. `quarantined` is its name in the inbox now; empty where it
    stayed."""

    name: str
    quarantined: str
    reason: str


class IntakeReport(msgspec.Struct, frozen=True):
    """Results for the files in the inbox."""

    taken: list[TakenList] = []
    refused: list[RefusedList] = []
    """In quarantine, with the reason beside them."""
    unread: list[RefusedList] = []
    """Could not be read or moved now; the next intake tries again."""
    ignored: list[str] = []
    """Neither .csv nor .txt nor .xlsx."""
    growing: list[str] = []
    """Written to within the last moments; the next intake takes them."""

    @property
    def new(self) -> int:
        """DOIs that were not known."""
        return sum(one.report.counts["new"] for one in self.taken)

    @property
    def malformed(self) -> int:
        """Malformed lines of the lists that were taken in."""
        return sum(one.report.counts.get("malformed", 0) for one in self.taken)

    def followed_by(self, later: IntakeReport) -> IntakeReport:
        """Both reports as one: what is still in the inbox is as the later one has it."""
        return IntakeReport(
            [*self.taken, *later.taken],
            [*self.refused, *later.refused],
            later.unread,
            later.ignored,
            later.growing,
        )


def take_in_lists(
    app: mp.Operations, settings: DepositsSettings, now: datetime | None = None
) -> IntakeReport:
    """Take in every list in the inbox. A file that is no list goes into quarantine, and the others
    are taken in. Raises MilepostError if the inbox cannot be listed, or if the ledger is not
    available: then the file stays, and known DOIs are recognised next time."""
    inbox = open_inbox(settings.inbox)
    at = now or datetime.now(UTC)
    try:
        files = inbox.files(skip=(ARCHIVED, QUARANTINE))
    except OSError as error:
        raise mp.MilepostError(f"[deposits] inbox: {error}; make it, or name another") from error
    report = IntakeReport()
    quiet_s = mpa.span_ms(settings.inbox_quiet, "inbox_quiet") / 1000
    for file in files:
        if not file.name.lower().endswith(ENDINGS):
            report.ignored.append(_printable(file.name))
        elif file.modified_at is not None and abs(at.timestamp() - file.modified_at) < quiet_s:
            # A time far in the future is that of a wrong clock, and says nothing.
            report.growing.append(_printable(file.name))
        else:
            _take_in(app, settings, inbox, file, at, report)
    return report


def _take_in(
    app: mp.Operations,
    settings: DepositsSettings,
    inbox: Inbox,
    file: InboxFile,
    at: datetime,
    report: IntakeReport,
) -> None:
    shown = _printable(file.name)
    try:
        with inbox.open(file) as opened, readable_list(opened, shown) as lines:
            named = names_a_doi(lines)
        if not named:
            raise mp.UsageError(_why_no_list(app, settings, inbox, file))
        with inbox.open(file) as opened, readable_list(opened, shown) as lines:
            taken = app.submit_list(
                settings.route, lines, name=shown, full=settings.full_lists, by=BY
            )
        name = archive_name(ARCHIVED, shown, at, taken.id)
        inbox.write(
            f"{name}.report.json", msgspec.json.format(msgspec.json.encode(taken), indent=2)
        )
        report.taken.append(TakenList(shown, name if inbox.move(file, name) else "", taken))
    except mp.LedgerError:
        raise
    except mp.UsageError as mistake:
        report.refused.append(_quarantined(inbox, file, at, str(mistake)))
    except (mp.MilepostError, OSError) as error:
        report.unread.append(RefusedList(shown, "", _printable(str(error))))


def _why_no_list(
    app: mp.Operations, settings: DepositsSettings, inbox: Inbox, file: InboxFile
) -> str:
    """Why a file without a valid DOI is no list, whatever its form: it would be taken for one from
    which all DOIs have vanished."""
    shown = _printable(file.name)
    try:
        with inbox.open(file) as opened, readable_list(opened, shown) as lines:
            report = app.submit_list(settings.route, lines, name=shown, by=BY, dry_run=True)
    except mp.UsageError as mistake:
        return str(mistake)
    what = "no DOI in any line" if report.lines else "no lines"
    return f"{shown} has {what}; deliver it again, with a DOI on each line"


def _quarantined(inbox: Inbox, file: InboxFile, at: datetime, reason: str) -> RefusedList:
    shown = _printable(file.name)
    # The sentence for programmers ends with a command; a librarian has an inbox.
    reason = _COMMAND.sub(" and deliver it again", reason)
    name = archive_name(QUARANTINE, shown, at, secrets.token_hex(8))
    try:
        inbox.write(f"{name}.reason.txt", f"{reason}\n".encode(errors="replace"))
        return RefusedList(shown, name if inbox.move(file, name) else "", reason)
    except OSError as error:
        return RefusedList(shown, "", _printable(f"{reason} (and it cannot be moved: {error})"))


def archive_name(folder: str, name: str, at: datetime, id: str) -> str:
    """The name of a file that was dealt with: in `folder`, with time and id, so that no delivery
    replaces an earlier one."""
    place, _, last = name.rpartition("/")
    last = last.encode()[-LONGEST_NAME:].decode(errors="ignore")
    return "/".join(part for part in (folder, place, f"{at:%Y%m%dT%H%M%SZ}-{id}-{last}") if part)


def _printable(name: str) -> str:
    """The name as text that can be stored: a file system allows bytes in it that are no UTF-8."""
    return name.encode(errors="replace").decode()
