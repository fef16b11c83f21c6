"""Health checks of stored documents: the format of the tables, and documents that are damaged."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from milepost.core.admission.breakers import BreakerRecord
from milepost.core.admission.controls import Hold, Limit
from milepost.core.errors import LedgerReadOnly
from milepost.engine.alerts.record import AlertRecord
from milepost.engine.health.findings import BAD, OK, WARN, CheckResult, CheckRun, Finding
from milepost.engine.progress import ProgressNotes
from milepost.engine.upgrade import older_processes
from milepost.engine.views.items import SIGNED, counted
from milepost.ports import documents as kinds
from milepost.ports.documents import sort_out

FORMS: Mapping[str, type[Any]] = {
    kinds.ROUTE: kinds.RouteVersion,
    kinds.HOLD: Hold,
    kinds.LIMIT: Limit,
    kinds.BREAKER: BreakerRecord,
    kinds.PROCESS: kinds.Process,
    kinds.CURSOR: kinds.Cursor,
    kinds.PARKED: kinds.Parked,
    kinds.ACT: kinds.Act,
    kinds.LIST: kinds.ListRecord,
    kinds.BACK_FILL: kinds.BackFill,
    kinds.ALERT: AlertRecord,
    kinds.PROGRESS: ProgressNotes,
}
"""The kinds of documents that loops read together, with their forms."""
EFFECTS = {
    kinds.ROUTE: "no process works on this route",
    kinds.HOLD: "what it pauses stays paused until it is resumed",
    kinds.LIMIT: "what it limits counts as paused; set the limit anew",
    kinds.CURSOR: "nothing counts as delivered to this subscriber",
    kinds.PARKED: "the item's events wait for 'milepost subscribers release'",
    kinds.BACK_FILL: "this back-fill waits",
}
"""What follows from a damaged document, where more follows than that it is left out."""
NAMED = 5


def tables_format(run: CheckRun) -> Iterator[CheckResult]:
    """Whether the tables have the newest format that this version knows."""
    tables = run.ctx.ledger.format()
    if tables is None:
        return
    older = older_processes(run.ctx, tables.known)
    if tables.number == tables.known and older:
        what = f"running processes of an earlier version do not see pauses and rates of tables with format {tables.number}: {', '.join(older)}"
        yield _result(BAD, "tables", what, "stop them, or give them this version of Milepost")
    if tables.number == tables.known and not tables.old_documents:
        yield _result(OK, "tables", f"the tables have format {tables.number}")
        return
    cure = f"milepost upgrade {SIGNED}"
    if tables.number == tables.known:
        what = f"{counted(tables.old_documents, 'pause or rate')} in the form of an earlier version: they are honoured all the same"
    else:
        what = f"the tables have format {tables.number}; with format {tables.known} the worker of one route can write no other's pauses and rates"
        cure = (
            f"replace these processes of an earlier version: {', '.join(older)}; then: {cure}"
            if older
            else cure
        )
    yield _result(WARN, "tables", what, cure)


def damaged_documents(run: CheckRun) -> Iterator[CheckResult]:
    """Documents that cannot be read. Each affects nothing but what it is about."""
    for kind, form in FORMS.items():
        try:
            _, damaged = sort_out(run.ctx.ledger.read(kind), kind, form)
        except LedgerReadOnly:
            continue  # this role may not read them
        if not damaged:
            continue
        shown = "; ".join(list(damaged.values())[:NAMED])
        count = counted(len(damaged), "document")
        what = f"{count} of the kind {kind!r} {'is' if len(damaged) == 1 else 'are'} damaged ({EFFECTS.get(kind, 'left out')}): {shown}"
        yield _result(
            BAD, "documents", what, "correct what is named, or remove it; everything else goes on"
        )


def _result(level: str, about: str, what: str, next: str = "") -> CheckResult:
    return CheckResult(Finding(level, about, what, next))
