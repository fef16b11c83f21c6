"""`milepost forecast`: when the items in progress are completed, and which wait for something
else."""

from __future__ import annotations

import click

from milepost.cli.config import CliSettings
from milepost.cli.options import shared_options
from milepost.cli.output import console, print_json, safe


@click.command()
@click.argument("route")
@click.option(
    "--stage", metavar="STAGE", help="Only the items at this stage: when they are through it."
)
@click.option("--lane", metavar="LANE", help="Only those in this lane of the stage.")
@click.option(
    "--list",
    "list_",
    metavar="NAME",
    help="Only the items that this list brought, by its name or id.",
)
@shared_options
def forecast(
    given: CliSettings,
    route: str,
    stage: str | None,
    lane: str | None,
    list_: str | None,
    as_json: bool,
) -> None:
    """When the items in progress are completed.

    Only what moves is forecast, at the pace at which the stages have completed items in the last 15
    minutes; failures are no progress. What waits for a pause, an open breaker, a partner or a date
    is named apart. Where nothing can be foretold, it says why.
    """
    from milepost.engine.views.forecast import (
        forecast_view,
        in_words,
        list_progress,
        route_forecast,
        scope_of,
    )
    from milepost.engine.views.items import clock_time, counted

    with given.context() as ctx:
        scope = scope_of(ctx, route, stage=stage, lane=lane, list_=list_)
        found = route_forecast(ctx, route, scope)
        progress = list_progress(ctx, route, scope.lists) if scope.lists else None
        now = ctx.clock.now()
    if found is None:
        raise click.UsageError(
            "this ledger does not count items by lane or list; leave --lane and --list out"
        )
    if as_json:
        view = forecast_view(route, found, now)
        counts = (
            None
            if progress is None
            else {name: getattr(progress, name) for name in progress.__struct_fields__}
        )
        print_json(view if counts is None else {**view, "list": counts})
        return
    if progress is not None:
        sums = [
            (progress.completed, "completed"),
            (progress.failed, "failed"),
            (progress.cancelled, "cancelled"),
        ]
        ended = ", ".join(f"{n:,} {word}" for n, word in sums if n) or "none ended"
        whole = progress.completed + progress.failed + progress.cancelled + progress.in_progress
        console().print(
            f"{counted(whole, 'item')} with rows: {ended}; {progress.in_progress:,} in progress.",
            soft_wrap=True,
        )
    console().print(safe(in_words(found.sentences, lambda at: clock_time(at, now))), soft_wrap=True)
