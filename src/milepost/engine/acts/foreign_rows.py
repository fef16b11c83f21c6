"""Rows that others put, and what was set aside: taken in, seen to again, or thrown away, by people with a name and a reason."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from msgspec import Struct, field

from milepost.core.errors import UsageError
from milepost.core.values.durations import iso
from milepost.engine.act_log import enter, finish, record, signed
from milepost.engine.apply import unreadable
from milepost.engine.context import Context
from milepost.engine.intake import check_open
from milepost.ports.foreign_rows import Adopted, Outside, QuarantineEntry, Stray
from milepost.ports.ledger import Refused

BATCH = 100
SHOWN = 100
ALL = 10_000
"""So much of what is set aside is gone through, at most."""
NOBODY_ELSE = "nobody else can write to this ledger, so nothing is ever left to be taken in"

Progress = Callable[[int, int | None], None]
"""Called with how many rows have been looked at, and about how many there are, if that is known."""
Pause = Callable[[int], None]
"""Called with how many have just been done: keeps the pace."""


class AdoptReport(Struct):
    """What adopting came to. With `dry_run`, what it would come to."""

    route: str
    dry_run: bool = False
    rows: int = 0
    """How many were gone through."""
    adopted: int = 0
    stages: dict[str, int] = field(default_factory=dict)
    """How many were taken in at each stage."""
    refused: list[tuple[str, str]] = field(default_factory=list)
    """The first hundred that were not taken in: (key, why)."""
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
    """Take in rows that others put: those with these keys, or all in the route's table (None). Each is taken in where it stands, at
    the stage that it names; one that cannot be is told with the reason. What is taken in already is left alone, so that the same
    call again goes on where another was cut off."""
    plan, outside = ctx.plan(route), outside_of(ctx)
    check_open(plan)
    report = AdoptReport(route, dry_run)
    act = None
    if not dry_run:
        signed(by, reason)
        act = enter(ctx, "adopt", route, by, reason, {"keys": "all" if keys is None else len(keys)})
        report.id = act.id
    for rows, strays in _strays(ctx, outside, route, keys, report):
        report.rows += rows
        good = [stray.key for stray in strays if stray.wrong is None]
        for stray in strays:
            if stray.wrong is not None:
                report.take(Adopted(stray.key, False, stray.stage, stray.wrong))
            elif dry_run:
                report.take(Adopted(stray.key, True, stray.stage))
        for start in range(0, 0 if dry_run else len(good), BATCH):
            batch = good[start : start + BATCH]
            for answer in outside.adopt(plan, batch, ctx.clock.now(), by=by, why=reason):
                report.take(answer)
            if pause is not None:
                pause(len(batch))
        if on_progress is not None:
            on_progress(report.rows, None if keys is None else len(keys))
    if act is not None:
        finish(ctx, act, report.adopted)
    return report


def _strays(
    ctx: Context, outside: Outside, route: str, keys: Sequence[str] | None, report: AdoptReport
) -> Iterator[tuple[int, list[Stray]]]:
    plan = ctx.plan(route)
    if keys is None:
        after = None
        while True:
            part = outside.strays(plan, after)
            yield part.rows, part.found
            if part.next is None:
                return
            after = part.next
    for start in range(0, len(keys), BATCH):
        batch = list(dict.fromkeys(keys[start : start + BATCH]))
        found = outside.stray(plan, batch)
        for key, stray in zip(batch, found, strict=True):
            if stray is None:
                there = ctx.ledger.get([(route, key)])[0]
                if there is None:
                    why = "there is no row with this key"
                elif isinstance(there, Refused):
                    why = unreadable(there).text
                else:
                    why = f"it is taken in already ({there.row.status} at {there.stage!r})"
                report.take(Adopted(key, False, why=why))
        yield len(batch), [stray for stray in found if stray is not None]


def quarantined(ctx: Context, most: int) -> tuple[list[QuarantineEntry], bool]:
    """What is set aside, oldest first, and whether there is more."""
    return ctx.ledger.quarantine.set_aside(most)


class AsideView(Struct, frozen=True):
    """Something that was set aside: what it is (`row`, `record` or `message`), why, when, and all of it."""

    id: str
    kind: str
    reason: str
    at: str | None
    content: Any


class Quarantine(Struct, frozen=True):
    """What is set aside, the oldest first; `more`: there is more than that."""

    set_aside: list[AsideView]
    more: bool


def quarantine_view(ctx: Context, most: int) -> Quarantine:
    """What is set aside, for people and programs."""
    found, more = quarantined(ctx, most)
    return Quarantine([aside_view(aside) for aside in found], more)


def aside_view(aside: QuarantineEntry) -> AsideView:
    return AsideView(aside.id, aside.kind, aside.reason, iso(aside.at), aside.content)


def all_ids(ctx: Context) -> list[str]:
    """Of everything that is set aside, as far as it is gone through at once."""
    return [aside.id for aside in quarantined(ctx, ALL)[0]]


def replay(ctx: Context, ids: Sequence[str], *, by: str, reason: str) -> list[Adopted]:
    """See to what was set aside once more; it is on record who did so and why."""
    signed(by, reason)
    answers = ctx.ledger.quarantine.replay(ctx.plans, ids, ctx.clock.now(), by=by, why=reason)
    record(ctx, "replay", "", by, reason, {"ids": list(ids)[:SHOWN]}, sum(answer.done for answer in answers))
    return answers


def drop(ctx: Context, ids: Sequence[str], *, by: str, reason: str) -> list[str]:
    """Throw away what was set aside; it is on record who did so and why. Those that there were."""
    signed(by, reason)
    dropped = ctx.ledger.quarantine.drop(ids)
    record(ctx, "drop", "", by, reason, {"ids": dropped[:SHOWN]}, len(dropped))
    return dropped


def outside_of(ctx: Context) -> Outside:
    if ctx.ledger.outside is None:
        raise UsageError(NOBODY_ELSE)
    return ctx.ledger.outside
