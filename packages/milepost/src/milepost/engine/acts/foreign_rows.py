"""Foreign rows and quarantine: operators adopt rows of other programs, and replay or drop
quarantined entries."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from msgspec import Struct, field

from milepost.core.errors import UsageError
from milepost.core.values.durations import iso
from milepost.core.values.redaction import redacted
from milepost.engine.act_log import enter, finish, record, signed
from milepost.engine.apply import unreadable
from milepost.engine.context import Context
from milepost.engine.intake import check_open
from milepost.ports.foreign_rows import Adopted, ForeignRow, ForeignRowStore
from milepost.ports.items import Refused

BATCH = 100
SHOWN = 100
ALL = 10_000
"""Most quarantine entries that are read at once."""

Progress = Callable[[int, int | None], None]
"""Called with the number of rows read and the approximate total, if known."""
Pause = Callable[[int], None]
"""Called with the number of rows just adopted; waits to keep the pace."""


class AdoptReport(Struct):
    """Result of an adoption; with `dry_run`, the result it would have."""

    route: str
    dry_run: bool = False
    rows: int = 0
    """Rows read."""
    adopted: int = 0
    stages: dict[str, int] = field(default_factory=dict)
    """Adopted rows by stage."""
    refused: list[tuple[str, str]] = field(default_factory=list)
    """The first hundred refused rows: (key, reason)."""
    refused_count: int = 0
    id: str = ""

    def take(self, answer: Adopted) -> None:
        if answer.done:
            self.adopted += 1
            self.stages[answer.stage] = self.stages.get(answer.stage, 0) + 1
            return
        self.refused_count += 1
        if len(self.refused) < SHOWN:
            self.refused.append((answer.key, answer.why))


def adopt(
    ctx: Context,
    route: str,
    keys: Sequence[str] | None,
    *,
    by: str,
    reason: str,
    dry_run: bool = False,
    on_progress: Progress | None = None,
    pause: Pause | None = None,
) -> AdoptReport:
    """Adopt foreign rows: those with these keys, or all in the route's table (None). Each enters at
    the stage that it names, or is refused with a reason. Adopted rows are skipped, so that the same
    call again continues an interrupted one."""
    plan, foreign_rows = ctx.plan(route), ctx.ledger.foreign_rows
    if foreign_rows is None:
        raise UsageError(
            "other programs cannot write to this ledger, so there are no rows to adopt"
        )
    check_open(plan)
    report = AdoptReport(route, dry_run)
    act = None
    if not dry_run:
        signed(by, reason)
        act = enter(ctx, "adopt", route, by, reason, {"keys": "all" if keys is None else len(keys)})
        report.id = act.id
    for rows, strays in _foreign_rows(ctx, foreign_rows, route, keys, report):
        report.rows += rows
        good = [foreign.key for foreign in strays if foreign.wrong is None]
        for foreign in strays:
            if foreign.wrong is not None:
                report.take(Adopted(foreign.key, False, foreign.stage, foreign.wrong))
            elif dry_run:
                report.take(Adopted(foreign.key, True, foreign.stage))
        for start in range(0, 0 if dry_run else len(good), BATCH):
            batch = good[start : start + BATCH]
            for answer in foreign_rows.adopt(plan, batch, ctx.clock.now(), by=by, why=reason):
                report.take(answer)
            if pause is not None:
                pause(len(batch))
        if on_progress is not None:
            on_progress(report.rows, None if keys is None else len(keys))
    if act is not None:
        finish(ctx, act, report.adopted)
    return report


def _foreign_rows(
    ctx: Context,
    foreign_rows: ForeignRowStore,
    route: str,
    keys: Sequence[str] | None,
    report: AdoptReport,
) -> Iterator[tuple[int, list[ForeignRow]]]:
    """The foreign rows in batches, each with the number of rows read. Given keys without one are
    refused here."""
    plan = ctx.plan(route)
    if keys is None:
        after = None
        while True:
            part = foreign_rows.scan(plan, after)
            yield part.rows, part.found
            if part.next is None:
                return
            after = part.next
    for start in range(0, len(keys), BATCH):
        batch = list(dict.fromkeys(keys[start : start + BATCH]))
        found = foreign_rows.get(plan, batch)
        for key, foreign in zip(batch, found, strict=True):
            if foreign is None:
                there = ctx.ledger.get([(route, key)])[0]
                why = "no row with this key"
                if isinstance(there, Refused):
                    why = unreadable(there).text
                elif there is not None:
                    why = f"already adopted ({there.row.status} at {there.stage!r})"
                report.take(Adopted(key, False, why=why))
        yield len(batch), [foreign for foreign in found if foreign is not None]


class QuarantineEntryView(Struct, frozen=True):
    """A quarantine entry: its kind (`row`, `record` or `message`), reason, time and content."""

    id: str
    kind: str
    reason: str
    at: str | None
    content: Any


class Quarantine(Struct, frozen=True):
    """Quarantine entries, oldest first; `more`: there are further ones."""

    set_aside: list[QuarantineEntryView]
    more: bool


def quarantine_view(ctx: Context, most: int) -> Quarantine:
    """The quarantine as a view; apparent secrets in the content are replaced by `…`."""
    found, more = ctx.ledger.quarantine.entries(most)
    views = [
        QuarantineEntryView(
            entry.id, entry.kind, entry.reason, iso(entry.at), redacted(entry.content)
        )
        for entry in found
    ]
    return Quarantine(views, more)


def all_ids(ctx: Context) -> list[str]:
    """Ids of all quarantine entries, up to `ALL`."""
    return [entry.id for entry in ctx.ledger.quarantine.entries(ALL)[0]]


def replay(ctx: Context, ids: Sequence[str], *, by: str, reason: str) -> list[Adopted]:
    """Process quarantine entries again; recorded with name and reason."""
    signed(by, reason)
    answers = ctx.ledger.quarantine.replay(ctx.plans, ids, ctx.clock.now(), by=by, why=reason)
    record(
        ctx,
        "replay",
        "",
        by,
        reason,
        {"ids": list(ids)[:SHOWN]},
        sum(answer.done for answer in answers),
    )
    return answers


def drop(ctx: Context, ids: Sequence[str], *, by: str, reason: str) -> list[str]:
    """Delete quarantine entries; recorded with name and reason. Returns the ids that existed."""
    signed(by, reason)
    dropped = ctx.ledger.quarantine.drop(ids)
    record(ctx, "drop", "", by, reason, {"ids": dropped[:SHOWN]}, len(dropped))
    return dropped
