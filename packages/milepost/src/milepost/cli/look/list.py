"""`milepost list`: items of a route, selected by filters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from milepost.cli.config import CliSettings
from milepost.cli.options import confirm_cost, filters, shared_options, yes_option
from milepost.cli.output import (
    ago,
    console,
    cut,
    print_json,
    print_next_page,
    safe,
    show_table,
    styled,
    table,
)
from milepost.core.status import Status

if TYPE_CHECKING:
    from milepost.core.item import Row
    from milepost.engine.left_items import LeftItems
    from milepost.engine.views.blocks import BlockedLanes, Blocks
    from milepost.engine.views.item_filter import ItemFilter
    from milepost.engine.views.late_items import LateItem
    from milepost.engine.views.page_tokens import FoundPage


@click.command("list")
@click.argument("route")
@filters
@click.option(
    "--overdue",
    "late",
    is_flag=True,
    help="Only overdue items, with the reason; the most overdue first.",
)
@click.option(
    "--next",
    "coming",
    is_flag=True,
    help="Only items that will complete the route next, the nearest first.",
)
@click.option(
    "--oldest-first",
    is_flag=True,
    help="The item that was accepted first comes first [the last one].",
)
@click.option(
    "--limit", type=click.IntRange(1), default=50, show_default=True, help="At most this many."
)
@click.option(
    "--after", metavar="TOKEN", help="The next page, by the token that the page before has printed."
)
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
    item_filter: ItemFilter,
) -> None:
    """List items by status, stage, error and more, newest first."""
    from milepost.engine.left_items import LeftItems, failed_and_left
    from milepost.engine.views.blocks import BlockedLanes
    from milepost.engine.views.item_filter import query_of
    from milepost.engine.views.late_items import nearest, overdue
    from milepost.engine.views.page_tokens import find_page

    if late and coming:
        raise click.UsageError("give either --overdue or --next")
    if (late or coming) and (oldest_first or after):
        raise click.UsageError(
            "--overdue and --next have an order of their own, and one page: give --limit"
        )
    with given.context() as ctx:
        now = ctx.clock.now()
        query = query_of(ctx, route, item_filter)
        confirm_cost(ctx, query, yes, quiet=as_json)
        if not (late or coming):
            lanes = BlockedLanes(ctx, route)
            search = (route, _search_of(item_filter))
            page = find_page(
                ctx, query, search, oldest_first=oldest_first, after=after, limit=limit
            )
            left = LeftItems() if page.next is not None else failed_and_left(ctx, query, limit)
        else:
            found, more = (overdue if late else nearest)(ctx, query, limit)
    if late or coming:
        _print_late_or_next(found, more, late, now, as_json)
    else:
        _print_page(page, left, route, lanes, now, as_json)


def _search_of(item_filter: ItemFilter) -> dict[str, Any]:
    """The conditions to which the tokens of pages are bound: those that have an option."""
    from msgspec.structs import asdict

    conditions = asdict(item_filter)
    del conditions["prefix"]
    return conditions


def _print_page(
    found: FoundPage, left: LeftItems, route: str, lanes: BlockedLanes, now: int, as_json: bool
) -> None:
    from milepost.engine.left_items import left_view
    from milepost.engine.views.items import row_view

    if as_json:
        items = [row_view(item, lanes.of(item.row)) for item in found.items]
        # Failed items whose rows have left stand apart: only their seals are known.
        gone = {
            "left": [left_view(route, seal) for seal in left.seals],
            "more_left": left.more,
            "all_left_known": left.complete,
        }
        page = {
            "items": items,
            "more": found.next is not None,
            "next": found.next,
            "ordered": found.ordered,
        }
        print_json(page | gone if left.seals or not left.complete else page)
        return
    if found.items:
        _print_rows(found, route, lanes, now)
    elif not left.seals:
        click.echo("No item matches.")
    _print_left(left, route, now)


def _print_left(left: LeftItems, route: str, now: int) -> None:
    """Print the failed items whose rows have left, which only their seals still know."""
    if not left.complete:
        click.echo(
            "Failed items that left earlier may be missing here: the ledger's old seals are still being read."
        )
    if not left.seals:
        return
    click.echo("Failed, and their rows have left the ledger; only their seals are left:")
    shown = table("key", "stage", "status", "ended")
    for seal in left.seals:
        shown.add_row(
            safe(seal.key),
            safe(seal.stage),
            styled(seal.status),
            "-" if seal.ended_at is None else f"{ago(seal.ended_at, now)} ago",
        )
    show_table(shown)
    if left.more:
        console().print(f"… and more: these are the first {len(left.seals)}; give --limit.")
    click.echo(f"'milepost retry {route} KEY' says how each is started again.")


def _print_rows(found: FoundPage, route: str, lanes: BlockedLanes, now: int) -> None:
    shown = table("key", "stage", "status", "tries", "here for", "due, or error", right=["tries"])
    reasons: dict[str, None] = {}
    for row in (item.row for item in found.items):
        blocks = lanes.of(row)
        reasons |= dict.fromkeys(blocks.reasons)
        note = safe(cut(_due_or_error(row, blocks, now), 120))
        shown.add_row(
            safe(row.key),
            safe(row.stage),
            styled(row.status),
            str(row.attempts),
            ago(row.entered_at, now),
            note,
        )
    show_table(shown)
    for reason in reasons:
        console().print(safe(reason), soft_wrap=True)
    print_next_page(found.next, found.ordered, f"'milepost export {route}' has them all")


def _due_or_error(row: Row, blocks: Blocks, now: int) -> str:
    """What a row of the table says last. A blocked item is not due, unless a worker has claimed it
    already."""
    from milepost.engine.views.items import when

    note = "" if row.look_at is None else when(row.look_at, now)
    if row.error is not None:
        note = f"{row.error.category}: {row.error.message}"
    elif blocks.word and row.status is not Status.PROCESSING:
        note = ""
    return "; ".join(filter(None, (blocks.word, note)))


def _print_late_or_next(
    found: list[LateItem], more: bool, late: bool, now: int, as_json: bool
) -> None:
    """Print the overdue items, or those that will complete next."""
    from milepost.engine.views.items import when
    from milepost.engine.views.late_items import late_item_view

    if as_json:
        print_json({"items": [late_item_view(one, now) for one in found], "more": more})
        return
    if not found:
        click.echo("No item is overdue." if late else "No item is in progress.")
        return
    shown = table("key", "stage", "status", "here for", "overdue by" if late else "due", "why")
    for one in found:
        row = one.item.row
        then = (
            ago(one.late_since, now)
            if late
            else "-"
            if row.look_at is None
            else when(row.look_at, now)
        )
        shown.add_row(
            safe(row.key),
            safe(row.stage),
            styled(row.status),
            ago(row.entered_at, now),
            then,
            safe(cut(one.why, 120)),
        )
    show_table(shown)
    if more:
        console().print(f"… and more: these are the first {len(found)}; give --limit.")
