"""`milepost status`: number of items by route, stage and status."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from milepost.cli.config import CliSettings
from milepost.cli.options import shared_options
from milepost.cli.output import console, print_json, progress, safe, show_table, styled, table
from milepost.core.status import LIVE, Status

if TYPE_CHECKING:
    from rich.table import Table

    from milepost.engine.left_counts import LeftCount
    from milepost.engine.views.snapshot import StageView


@click.command()
@click.argument("route", required=False)
@click.option(
    "--ages", is_flag=True, help="Show how long unfinished items have been at each stage."
)
@click.option(
    "--part",
    "parts",
    multiple=True,
    metavar="FIELD=VALUE",
    help="Only items whose composite key has this part, such as batchId=B-7.",
)
@shared_options
def status(
    given: CliSettings, route: str | None, ages: bool, parts: tuple[str, ...], as_json: bool
) -> None:
    """Number of items by route, stage and status.

    With --ages: how long the items have been at each stage. With --part: the progress of the items
    that share a part of their key, such as a batch: completed, in progress, overdue, failed.
    """
    if parts:
        if route is None or ages:
            raise click.UsageError("--part needs a route and cannot be combined with --ages")
        _part_status(given, route, parts, as_json)
        return
    from milepost.engine.left_counts import LeftCount
    from milepost.engine.views.items import counted, own_route
    from milepost.engine.views.items import status as look
    from milepost.engine.views.overdue_counts import OverdueCount

    with given.context() as ctx:
        answer = look(ctx, route, afresh=True)
        own = {name for name in answer["routes"] if route is None and own_route(ctx, name)}
        if ages:
            from milepost.engine.views.snapshot import snapshots

            for name, snapshot in snapshots(ctx, route=route).items():
                answer["routes"][name]["ages"] = {
                    stage.name: _ages(stage) for stage in snapshot.stages
                }
    if as_json:
        print_json(answer)
        return
    to = console()
    if not answer["routes"]:
        to.print("The ledger has no routes yet; submit items with 'milepost submit'.")
    for name, found in answer["routes"].items():
        if (
            name in own
            and set(found["statuses"]) <= {Status.COMPLETED}
            and "left_failed" not in found
        ):
            continue  # an internal route is shown only if it has a problem
        sums = (
            ", ".join(f"{n:,} {styled(word)}" for word, n in found["statuses"].items())
            or "no items yet"
        )
        to.print(
            f"[bold]{safe(name)}[/]  {counted(found['total'], 'item')}: {sums}", soft_wrap=True
        )
        if "at_least" in found:
            to.print(
                f"There are more than {found['at_least']:,}: the counters are still catching up with the rows.",
                soft_wrap=True,
            )
        elif found.get("approximate"):
            to.print(
                "Approximate: the counters are updated shortly after the rows.",
                style="dim",
                soft_wrap=True,
            )
        show_table(_by_age(found["ages"]) if ages else _by_status(found["stages"]))
        for stage, late in found.get("overdue", {}).items():
            words = OverdueCount(late["least"], late["most"]).words
            to.print(
                f"{words} overdue at {safe(stage)}: milepost list {safe(name)} --overdue",
                soft_wrap=True,
            )
        left = found.get("left_failed")
        if left is not None:
            to.print(_left_words(LeftCount(**left), name), soft_wrap=True)
        for one in found.get("open_breakers", ()):
            until = f" until {one['retry_at']}" if one["retry_at"] else ""
            to.print(
                f"The breaker of {safe(one['scope'])} is {one['state']}{until}: {safe(one['error'])}",
                soft_wrap=True,
            )
        for stage in found["unknown_stages"]:
            n = sum(n for word, n in found["stages"][stage].items() if word != "COMPLETED")
            to.print(
                f"{counted(n, 'item')} at {safe(stage)}, a stage that the route does not have: see 'milepost routes'",
                soft_wrap=True,
            )


def _left_words(left: LeftCount, route: str) -> str:
    sentence = f"{left.text[0].upper()}{left.text[1:]}"
    return (
        f"{sentence}: milepost list {safe(route)} --status failed" if left.count else f"{sentence}."
    )


def _part_status(given: CliSettings, route: str, parts: tuple[str, ...], as_json: bool) -> None:
    """Print the progress of the items with these key parts. Items are counted one by one, so that
    the numbers are exact."""
    import msgspec

    from milepost.engine.views.item_filter import ItemFilter, query_of
    from milepost.engine.views.items import counted
    from milepost.engine.views.queries import summary

    with given.context() as ctx, progress("counting", quiet=as_json) as on_progress:
        query = query_of(ctx, route, ItemFilter(parts=parts))
        found = summary(ctx, query, on_progress)
    if as_json:
        print_json({"parts": list(parts), "whole": found.whole, **msgspec.to_builtins(found)})
        return
    to = console()
    if not found.total:
        to.print(f"No item of {safe(route)} has {safe(', '.join(parts))}.")
        return
    words = {
        "completed": found.completed,
        "in progress": found.in_progress,
        "failed": found.failed,
        "cancelled": found.cancelled,
    }
    sums = ", ".join(f"{n:,} {word}" for word, n in words.items() if n)
    to.print(
        f"[bold]{safe(route)}[/], {safe(', '.join(parts))}: {counted(found.total, 'item')}: {sums}",
        soft_wrap=True,
    )
    if found.overdue:
        to.print(
            f"{counted(found.overdue, 'item')} overdue: 'milepost list {safe(route)} --overdue --part …' shows them",
            soft_wrap=True,
        )
    if found.left:
        to.print(
            f"The rows of {counted(found.left, 'item')} have been removed; their seals are counted.",
            soft_wrap=True,
        )
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
    """Time that unfinished items have been at each stage: p50, p95 and oldest."""
    from milepost.core.values.durations import short_span

    shown = table("stage", "unfinished", "p50", "p95", "oldest", right=["unfinished"])
    for stage, ages in stages.items():
        spans = (
            "-" if ages[name] is None else short_span(ages[name] * 1000)
            for name in ("p50_s", "p95_s", "oldest_s")
        )
        shown.add_row(safe(stage), f"{ages['items']:,}", *spans)
    return shown


def _ages(stage: StageView) -> dict[str, Any]:
    spans = {"p50_s": stage.p50_ms, "p95_s": stage.p95_ms, "oldest_s": stage.oldest_ms}
    return {
        "items": stage.among(*LIVE),
        **{name: None if ms is None else ms / 1000 for name, ms in spans.items()},
    }
