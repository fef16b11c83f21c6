"""`milepost adopt`: adopt rows that other programs wrote to the table."""

from __future__ import annotations

import time
from collections.abc import Callable

import click

from milepost.cli.config import CliSettings
from milepost.cli.options import act_options, check_signed
from milepost.cli.output import console, print_json, print_refused, progress, safe


@click.command()
@click.argument("route")
@click.argument("keys", nargs=-1, metavar="[KEY]...")
@click.option(
    "--all", "whole", is_flag=True, help="All rows of the table that are not adopted yet."
)
@click.option(
    "--pace",
    type=click.IntRange(1),
    default=50,
    show_default=True,
    help="Rows per second, at most.",
)
@act_options
def adopt(
    given: CliSettings,
    route: str,
    keys: tuple[str, ...],
    whole: bool,
    pace: int,
    by: str | None,
    reason: str | None,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Adopt rows that other programs wrote to the table.

    Each row enters at the stage that its 'queue' attribute names and keeps its confirmations. Rows
    at a stage that the route does not have are reported and not changed.
    """
    from milepost.engine.acts.foreign_rows import adopt as take_in
    from milepost.engine.views.items import counted

    if whole == bool(keys):
        raise click.UsageError("give either keys, or --all for the whole table")
    who, why = check_signed(by, reason, dry_run=dry_run)
    with (
        given.context(act=True, dry_run=dry_run) as ctx,
        progress("rows read", quiet=as_json or dry_run) as on_progress,
    ):
        report = take_in(
            ctx,
            route,
            None if whole else keys,
            by=who,
            reason=why,
            dry_run=dry_run,
            on_progress=lambda done, all_of: on_progress(done, done, all_of),
            pause=_paced(pace),
        )
    if as_json:
        print_json(report)
        return 1 if report.refused_count else 0
    to = console()
    verb = "would be adopted" if dry_run else "adopted"
    gone = f"{counted(report.rows, 'row')} read: " if whole else ""
    to.print(
        f"{gone}{counted(report.adopted, 'item')} {verb}"
        + ("; nothing was changed." if dry_run else f" (act {report.id}).")
    )
    for stage, n in report.stages.items():
        to.print(f"  {n:,} at {safe(stage)}")
    print_refused("not adopted", report.refused, report.refused_count)
    return 1 if report.refused_count else 0


def _paced(pace: int) -> Callable[[int], None]:
    """Callback that waits after each batch, to keep to so many rows per second."""
    began, done = time.monotonic(), 0

    def pause(n: int) -> None:
        nonlocal done
        done += n
        time.sleep(max(0.0, began + done / pace - time.monotonic()))

    return pause
