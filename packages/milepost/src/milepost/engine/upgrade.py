"""Upgrade: raise the format of the ledger's tables, as one act with a name and a reason."""

from __future__ import annotations

from msgspec import Struct

from milepost.core.errors import UsageError
from milepost.engine.act_log import enter, finish, signed
from milepost.engine.context import Context
from milepost.engine.views.items import counted, live_processes

VERB = "upgrade"


class Upgraded(Struct, frozen=True):
    """The format of the tables before and after. None: the ledger has no such number, and brings
    its form up to date by itself."""

    before: int | None
    after: int | None
    documents: int = 0
    """So many documents got the form of the new format, or would get it."""
    older_processes: list[str] = []
    """Running processes that do not know the new format."""
    dry_run: bool = False


def upgrade(
    ctx: Context, *, by: str, reason: str, dry_run: bool = False, force: bool = False
) -> Upgraded:
    """Raise the format to the newest one that this version knows. Refused while a process runs that
    does not know it, unless `force`: such a process does not see pauses any more. A repeat
    continues an interrupted upgrade."""
    tables = ctx.ledger.format()
    if tables is None:
        return Upgraded(None, None, dry_run=dry_run)
    older = older_processes(ctx, tables.known)
    if dry_run:
        return Upgraded(tables.number, tables.known, tables.old_documents, older, dry_run=True)
    signed(by, reason)
    if older and not force:
        raise UsageError(
            f"{counted(len(older), 'running process')} of an earlier version would not see new pauses: {', '.join(older)}; replace"
            " them first ('milepost doctor' lists the processes)"
        )
    if tables.number == tables.known and not tables.old_documents:
        return Upgraded(tables.number, tables.known)
    act = enter(ctx, VERB, "", by, reason, {"from": tables.number, "to": tables.known})
    documents = ctx.ledger.raise_format()
    finish(ctx, act, documents)
    return Upgraded(tables.number, tables.known, documents, older)


def older_processes(ctx: Context, number: int) -> list[str]:
    """Running processes that do not know this format."""
    return [process.holder for process in live_processes(ctx) if process.known_format < number]
