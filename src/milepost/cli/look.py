"""Looking: status, show, list, groups. They need no route file; the ledger knows."""

from __future__ import annotations

from typing import Any

import click

from milepost.cli.config import Settings
from milepost.cli.filters import afford, choice_of, filters, yes_option
from milepost.cli.options import json_option, settings
from milepost.cli.out import console, print_json, safe, show_table, styled, table
from milepost.core.errors import MilepostError


@click.command()
@click.argument("route", required=False)
@json_option
@settings
def status(given: Settings, route: str | None, as_json: bool) -> None:
    """How many items are where.

    For each route: how many items it has, and how many there are at each stage, by status.
    """
    from milepost.engine.observe import counted
    from milepost.engine.observe import status as look

    with given.context() as ctx:
        answer = look(ctx, route)
    if as_json:
        print_json(answer)
        return
    to = console()
    if not answer["routes"]:
        to.print("The ledger holds no routes yet; 'milepost submit' brings the first items.")
    for name, found in answer["routes"].items():
        sums = ", ".join(f"{n:,} {styled(word)}" for word, n in found["statuses"].items()) or "no items yet"
        to.print(f"[bold]{safe(name)}[/]  {counted(found['total'], 'item')}: {sums}", soft_wrap=True)
        shown = table("stage", "status", "items", right=["items"])
        for stage, counts in found["stages"].items():
            for index, (word, n) in enumerate(counts.items()):
                shown.add_row(safe(stage) if index == 0 else "", styled(word), f"{n:,}")
            if not counts:
                shown.add_row(safe(stage), "[dim]-[/]", "[dim]0[/]")
        show_table(shown)


@click.command()
@click.argument("route")
@click.argument("key")
@json_option
@click.option("--all", "whole", is_flag=True, help="The whole history, however long.")
@settings
def show(given: Settings, route: str, key: str, as_json: bool, whole: bool) -> int:
    """The story of one item.

    Where it is, why it waits, what happens next and when, what has happened, and what you can do.
    """
    from milepost.cli.tell import tell
    from milepost.engine.observe import check_route
    from milepost.engine.observe import show as look
    from milepost.engine.story import story

    with given.context() as ctx:
        check_route(ctx, route)
        view = look(ctx, route, key)
        told = None if as_json else story(ctx, route, key)
    if view is None:
        raise MilepostError(f"route {route!r} has never had an item with the key {key!r}; 'milepost list {route}' shows some")
    if told is None:
        print_json(view)
    else:
        tell(told, view, whole)
    return 0


@click.command("list")
@click.argument("route")
@filters
@click.option("--limit", type=click.IntRange(1), default=50, show_default=True, help="At most this many.")
@yes_option
@json_option
@settings
def list_items(given: Settings, route: str, limit: int, yes: bool, as_json: bool, **chosen: Any) -> None:
    """Items of a route, by status, stage, lane, error, age or list."""
    from milepost.engine.observe import each, row_view

    with given.context() as ctx:
        now = ctx.clock.now()
        query, lists = choice_of(ctx, route, **chosen)
        afford(ctx, query, yes, quiet=as_json)
        items = list(each(ctx, query, limit + 1, lists))
    more, items = len(items) > limit, items[:limit]
    if as_json:
        print_json({"items": [row_view(item) for item in items], "more": more})
        return
    if not items:
        click.echo("No item matches.")
        return
    from milepost.cli.out import ago
    from milepost.engine.observe import when

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


@click.command()
@click.argument("route", required=False)
@json_option
@settings
def groups(given: Settings, route: str | None, as_json: bool) -> None:
    """Failures by kind: errors that are alike, counted.

    'now' is how many items have that error at present, 'ever' how often it came up. Act on all of a kind with --group.
    """
    from milepost.engine.observe import groups as look

    with given.context() as ctx:
        found = look(ctx, route)
    if as_json:
        print_json({"groups": found})
        return
    if not found:
        click.echo("No item has failed so far.")
        return
    shown = table("group", "stage", "kind", "now", "ever", "for example", right=["now", "ever"])
    for group in found:
        stage = group["stage"] if route else f"{group['route']}/{group['stage']}"
        sample = group["sample"] if len(group["sample"]) <= 80 else f"{group['sample'][:79]}…"
        shown.add_row(group["group"], safe(stage), safe(group["category"]), f"{group['now']:,}", f"{group['total']:,}", safe(sample))
    show_table(shown)
