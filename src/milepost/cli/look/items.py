"""Looking: status, show, list, groups. They need no route file; the ledger knows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from milepost.cli.config import CliSettings
from milepost.cli.filters import afford, choice_of, filters, yes_option
from milepost.cli.options import json_option, settings
from milepost.cli.out import console, print_json, progress, safe, show_table, styled, table
from milepost.core.errors import MilepostError
from milepost.core.status import LIVE, Status

if TYPE_CHECKING:
    from rich.table import Table

    from milepost.engine.context import Context
    from milepost.engine.views.late_items import LateItem
    from milepost.engine.views.snapshot import StageView


SHOWN = 10
"""So many keys are named where several items share the part that was given."""


@click.command()
@click.argument("route", required=False)
@click.option("--ages", is_flag=True, help="How long the unfinished items have been at each stage.")
@click.option(
    "--part",
    "parts",
    multiple=True,
    metavar="FIELD=VALUE",
    help="Only items with this part of a key of several fields, such as batchId=B-7.",
)
@json_option
@settings
def status(given: CliSettings, route: str | None, ages: bool, parts: tuple[str, ...], as_json: bool) -> None:
    """How many items are where.

    For each route: how many items it has, and how many there are at each stage, by status; or, with --ages, for how long. With --part,
    how far the items that share a part of their key have come, such as a whole batch: completed, in progress, overdue, failed.
    """
    if parts:
        if route is None or ages:
            raise click.UsageError("--part asks about the items of one route: name the route, and leave out --ages")
        _part_status(given, route, parts, as_json)
        return
    from milepost.engine.views.items import counted, own_route
    from milepost.engine.views.items import status as look

    with given.context() as ctx:
        answer = look(ctx, route, afresh=True)
        own = {name for name in answer["routes"] if route is None and own_route(ctx, name)}
        if ages:
            from milepost.engine.views.snapshot import snapshots

            for name, snapshot in snapshots(ctx, route=route).items():
                answer["routes"][name]["ages"] = {stage.name: _ages(stage) for stage in snapshot.stages}
    if as_json:
        print_json(answer)
        return
    to = console()
    if not answer["routes"]:
        to.print("The ledger holds no routes yet; 'milepost submit' brings the first items.")
    for name, found in answer["routes"].items():
        if name in own and set(found["statuses"]) <= {Status.COMPLETED}:
            continue  # while all of it is well it has nothing to say
        sums = ", ".join(f"{n:,} {styled(word)}" for word, n in found["statuses"].items()) or "no items yet"
        to.print(f"[bold]{safe(name)}[/]  {counted(found['total'], 'item')}: {sums}", soft_wrap=True)
        if "at_least" in found:
            to.print(
                f"There are more than {found['at_least']:,}: the counters follow the rows, and have not caught up yet.", soft_wrap=True
            )
        elif found.get("approximate"):
            to.print("Approximate: the counters follow the rows a moment late.", style="dim", soft_wrap=True)
        show_table(_by_age(found["ages"]) if ages else _by_status(found["stages"]))
        for stage in found["unknown_stages"]:
            n = sum(n for word, n in found["stages"][stage].items() if word != "COMPLETED")
            to.print(f"{counted(n, 'item')} at {safe(stage)}, a stage that the route has not got: see 'milepost routes'", soft_wrap=True)


def _part_status(given: CliSettings, route: str, parts: tuple[str, ...], as_json: bool) -> None:
    """How far the items with these key parts have come. They are counted one by one, so that the numbers are exact."""
    import msgspec

    from milepost.engine.views.items import counted
    from milepost.engine.views.key_parts import summary

    with given.context() as ctx, progress("counting", quiet=as_json) as told:
        found = summary(ctx, choice_of(ctx, route, parts=parts), told)
    if as_json:
        print_json({"parts": list(parts), "whole": found.whole, **msgspec.to_builtins(found)})
        return
    to = console()
    if not found.total:
        to.print(f"No item of {safe(route)} has {safe(', '.join(parts))}.")
        return
    words = {"completed": found.completed, "in progress": found.in_progress, "failed": found.failed, "cancelled": found.cancelled}
    sums = ", ".join(f"{n:,} {word}" for word, n in words.items() if n)
    to.print(f"[bold]{safe(route)}[/], {safe(', '.join(parts))}: {counted(found.total, 'item')}: {sums}", soft_wrap=True)
    if found.overdue:
        to.print(f"{counted(found.overdue, 'item')} overdue: 'milepost list {safe(route)} --overdue --part …' shows them", soft_wrap=True)
    if found.left:
        to.print(f"Of {counted(found.left, 'item')} the row has left; the seal is counted here.", soft_wrap=True)
    if found.stages:
        show_table(_by_status(found.stages))


def _by_status(stages: dict[str, dict[str, int]]) -> Table:
    shown = table("stage", "status", "items", right=["items"])
    for stage, counts in stages.items():
        for index, (word, n) in enumerate(counts.items()):
            shown.add_row(safe(stage) if index == 0 else "", styled(word), f"{n:,}")
        if not counts:
            shown.add_row(safe(stage), "[dim]-[/]", "[dim]0[/]")
    return shown


def _by_age(stages: dict[str, dict[str, Any]]) -> Table:
    """For how long the unfinished have been there: half of them, all but one in twenty, and the oldest."""
    from milepost.core.values.durations import short_span

    shown = table("stage", "unfinished", "half within", "95% within", "oldest", right=["unfinished"])
    for stage, ages in stages.items():
        spans = ("-" if ages[name] is None else short_span(ages[name] * 1000) for name in ("p50_s", "p95_s", "oldest_s"))
        shown.add_row(safe(stage), f"{ages['items']:,}", *spans)
    return shown


def _ages(stage: StageView) -> dict[str, Any]:
    spans = {"p50_s": stage.p50_ms, "p95_s": stage.p95_ms, "oldest_s": stage.oldest_ms}
    return {"items": stage.among(*LIVE), **{name: None if ms is None else ms / 1000 for name, ms in spans.items()}}


@click.command()
@click.argument("route")
@click.argument("key")
@json_option
@click.option("--all", "whole", is_flag=True, help="The whole history, however long.")
@settings
def show(given: CliSettings, route: str, key: str, as_json: bool, whole: bool) -> int:
    """The story of one item.

    Where it is, why it waits, what happens next and when, what has happened, and what you can do.
    """
    from milepost.cli.look.story import tell
    from milepost.engine.views.items import check_route
    from milepost.engine.views.items import show as look
    from milepost.engine.views.story import story

    with given.context() as ctx:
        check_route(ctx, route)
        view = look(ctx, route, key)
        if view is None:
            key = _by_first_part(ctx, route, key)
            view = look(ctx, route, key)
        told = None if as_json else story(ctx, route, key)
    if view is None:
        raise MilepostError(f"route {route!r} has never had an item with the key {key!r}; 'milepost list {route}' shows some")
    if told is None:
        print_json(view)
    else:
        tell(told, view, whole)
    return 0


def _by_first_part(ctx: Context, route: str, text: str) -> str:
    """The one key whose first part is this text (an asset's id without its batch); the text itself where there is none."""
    from milepost.engine.views.key_parts import keys_with_first_part

    keys = keys_with_first_part(ctx, route, text, SHOWN + 1)
    if len(keys) > 1:
        named = ", ".join(keys[:SHOWN]) + (", …" if len(keys) > SHOWN else "")
        raise MilepostError(
            f"{len(keys) if len(keys) <= SHOWN else f'over {SHOWN}'} items of {route!r} begin with {text!r}; show one of them: {named}"
        )
    return keys[0] if keys else text


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


@click.command()
@click.argument("route", required=False)
@json_option
@settings
def groups(given: CliSettings, route: str | None, as_json: bool) -> None:
    """Failures by kind: errors that are alike, counted.

    'now' is how many items have that error at present, 'ever' how often it came up. Act on all of a kind with --group.
    """
    from milepost.engine.views.items import groups as look

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
