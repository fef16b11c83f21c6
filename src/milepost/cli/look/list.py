"""`milepost list`: items of a route, selected by filters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from milepost.cli.config import CliSettings
from milepost.cli.options import confirm_cost, filters, query_of, shared_options, yes_option
from milepost.cli.out import console, print_json, print_next_page, safe, show_table, styled, table

if TYPE_CHECKING:
    from rich.table import Table

    from milepost.engine.views.late_items import LateItem


@click.command("list")
@click.argument("route")
@filters
@click.option("--overdue", "late", is_flag=True, help="Only overdue items, with the reason; the most overdue first.")
@click.option("--next", "coming", is_flag=True, help="Only items that will complete the route next, the nearest first.")
@click.option("--oldest-first", is_flag=True, help="The item that was accepted first comes first [the last one].")
@click.option("--limit", type=click.IntRange(1), default=50, show_default=True, help="At most this many.")
@click.option("--after", metavar="TOKEN", help="The next page, by the token that the page before has printed.")
@yes_option
@shared_options
def list_items(
    given: CliSettings,
    route: str,
    late: bool,
    coming: bool,
    oldest_first: bool,
    limit: int,
    after: str | None,
    yes: bool,
    as_json: bool,
    **chosen: Any,
) -> None:
    """List items by status, stage, error and more, newest first."""
    from milepost.engine.views.items import row_view
    from milepost.engine.views.page_tokens import find_page

    if late and coming:
        raise click.UsageError("give either --overdue or --next")
    if (late or coming) and (oldest_first or after):
        raise click.UsageError("--overdue and --next have an order of their own, and one page: give --limit")
    if late or coming:
        _print_late_or_next(given, route, late, limit, yes, as_json, chosen)
        return
    with given.context() as ctx:
        now = ctx.clock.now()
        query = query_of(ctx, route, **chosen)
        confirm_cost(ctx, query, yes, quiet=as_json)
        found = find_page(ctx, query, (route, chosen), oldest_first=oldest_first, after=after, limit=limit)
    items = found.items
    if as_json:
        shown_items = [row_view(item) for item in items]
        print_json({"items": shown_items, "more": found.next is not None, "next": found.next, "ordered": found.ordered})
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
    show_table(shown)
    print_next_page(found.next, found.ordered, f"'milepost export {route}' has them all")


def _print_late_or_next(given: CliSettings, route: str, late: bool, limit: int, yes: bool, as_json: bool, chosen: dict[str, Any]) -> None:
    """Print the overdue items, or those that will complete next."""
    from milepost.engine.views.late_items import late_item_view, nearest, overdue

    with given.context() as ctx:
        now = ctx.clock.now()
        query = query_of(ctx, route, **chosen)
        confirm_cost(ctx, query, yes, quiet=as_json)
        found, more = (overdue if late else nearest)(ctx, query, limit)
    if as_json:
        print_json({"items": [late_item_view(found_item, now) for found_item in found], "more": more})
    elif not found:
        click.echo("No item is overdue." if late else "No item is in progress.")
    else:
        show_table(_late_table(found, late, now))
        if more:
            console().print(f"… and more: these are the first {limit}; give --limit.")


def _late_table(found: list[LateItem], late: bool, now: int) -> Table:
    from milepost.cli.out import ago
    from milepost.engine.views.items import when

    shown = table("key", "stage", "status", "here for", "overdue by" if late else "due", "why")
    for found_item in found:
        row = found_item.item.row
        then = ago(found_item.late_since, now) if late else "-" if row.look_at is None else when(row.look_at, now)
        why = found_item.why if len(found_item.why) <= 120 else f"{found_item.why[:119]}…"
        shown.add_row(safe(row.key), safe(row.stage), styled(row.status), ago(row.entered_at, now), then, safe(why))
    return shown
