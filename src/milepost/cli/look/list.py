"""`milepost list`: items of a route, by filter."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from milepost.cli.config import CliSettings
from milepost.cli.filters import afford, choice_of, filters, yes_option
from milepost.cli.options import json_option, settings
from milepost.cli.out import console, print_json, safe, show_table, styled, table

if TYPE_CHECKING:
    from rich.table import Table

    from milepost.engine.views.late_items import LateItem


@click.command("list")
@click.argument("route")
@filters
@click.option("--overdue", "late", is_flag=True, help="Those that have passed their stage's overdue mark, and why; the latest first.")
@click.option("--next", "coming", is_flag=True, help="Those that would be through the route next, the nearest first.")
@click.option("--limit", type=click.IntRange(1), default=50, show_default=True, help="At most this many.")
@yes_option
@json_option
@settings
def list_items(given: CliSettings, route: str, late: bool, coming: bool, limit: int, yes: bool, as_json: bool, **chosen: Any) -> None:
    """Items of a route, by status, stage, lane, error, age or list."""
    from milepost.engine.views.items import each, row_view

    if late and coming:
        raise click.UsageError("--overdue and --next are two questions: ask one")
    if late or coming:
        _answer(given, route, late, limit, yes, as_json, chosen)
        return
    with given.context() as ctx:
        now = ctx.clock.now()
        query = choice_of(ctx, route, **chosen)
        afford(ctx, query, yes, quiet=as_json)
        items = list(each(ctx, query, limit + 1))
    more, items = len(items) > limit, items[:limit]
    if as_json:
        print_json({"items": [row_view(item) for item in items], "more": more})
        return
    if not items:
        click.echo("No item matches.")
        return
    from milepost.cli.out import ago
    from milepost.engine.views.items import when

    shown = table("key", "stage", "status", "tries", "here for", "due, or error", right=["tries"])
    for item in items:
        row = item.row
        note = f"{row.error.category}: {row.error.message}" if row.error else "" if row.look_at is None else when(row.look_at, now)
        note = note if len(note) <= 120 else f"{note[:119]}…"
        here = ago(row.entered_at, now)
        shown.add_row(safe(row.key), safe(row.stage), styled(row.status), str(row.attempts), here, safe(note))
    to = console()
    show_table(shown)
    if more:
        to.print(f"… and more: this is the first {limit}; give --limit, or 'milepost export {safe(route)}'.")


def _answer(given: CliSettings, route: str, late: bool, limit: int, yes: bool, as_json: bool, chosen: dict[str, Any]) -> None:
    """Which are late, or which would be through next."""
    from milepost.engine.views.late_items import asked_view, nearest, overdue

    with given.context() as ctx:
        now = ctx.clock.now()
        query = choice_of(ctx, route, **chosen)
        afford(ctx, query, yes, quiet=as_json)
        found, more = (overdue if late else nearest)(ctx, query, limit)
    if as_json:
        print_json({"items": [asked_view(asked, now) for asked in found], "more": more})
    elif not found:
        click.echo("No item is overdue." if late else "No item is on its way.")
    else:
        show_table(_asked_table(found, late, now))
        if more:
            console().print(f"… and more: these are the first {limit}; give --limit.")


def _asked_table(found: list[LateItem], late: bool, now: int) -> Table:
    from milepost.cli.out import ago
    from milepost.engine.views.items import when

    shown = table("key", "stage", "status", "here for", "late by" if late else "next look", "why")
    for asked in found:
        row = asked.item.row
        then = ago(asked.late_since, now) if late else "-" if row.look_at is None else when(row.look_at, now)
        why = asked.why if len(asked.why) <= 120 else f"{asked.why[:119]}…"
        shown.add_row(safe(row.key), safe(row.stage), styled(row.status), ago(row.entered_at, now), then, safe(why))
    return shown
