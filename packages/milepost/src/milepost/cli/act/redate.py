"""Command `redate`: date items that are dated in the future as of now."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from milepost.cli.config import CliSettings
from milepost.cli.options import act_options, check_signed, confirm_cost, yes_option
from milepost.cli.output import console, print_json, print_refused, safe

if TYPE_CHECKING:
    from milepost.engine.act_log import ActReport


@click.command()
@click.argument("route")
@click.option(
    "--act", "act_id", metavar="ID", help="Continue an interrupted act (see 'milepost acts')."
)
@yes_option
@act_options
def redate(
    given: CliSettings,
    route: str,
    act_id: str | None,
    yes: bool,
    by: str | None,
    reason: str | None,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Date items that are dated in the future as of now.

    A clock was ahead when they were written ('milepost doctor' counts them), and bulk acts leave
    them out. Their history keeps the times that they had. An item that was submitted for a later
    date keeps that date.
    """
    from milepost.core.values.durations import iso
    from milepost.engine.acts.redate import redate_rows, rows_of_future

    who, why = check_signed(by, reason, dry_run=dry_run)
    with given.context(act=True, dry_run=dry_run) as ctx:
        began = ctx.clock.now()
        confirm_cost(ctx, rows_of_future(ctx.plan(route).name, began), yes, quiet=as_json)
        report = redate_rows(ctx, route, by=who, reason=why, dry_run=dry_run, act_id=act_id)
    if as_json:
        print_json(report)
    else:
        if report.finished_at is not None and report.finished_at < (iso(began) or ""):
            console().print(
                f"Act {safe(report.id)} finished at {report.finished_at}; nothing was changed now. Its result:",
                soft_wrap=True,
            )
        _print_report(report)
    return 1 if report.refused_count else 0


def _print_report(report: ActReport) -> None:
    from milepost.engine.views.items import counted

    if not report.matched:
        click.echo(f"No item of {report.route} is dated in the future; nothing was changed.")
        return
    done = f"{report.done:,} of {counted(report.matched, 'item')}"
    if report.dry_run:
        console().print(f"Dry run: redate would apply to {done}. Nothing was changed.")
    else:
        console().print(f"redate: {done} (act {safe(report.id)})")
    if report.skipped:
        console().print(f"{report.skipped:,} already handled by this act in an earlier run.")
    print_refused("refused", report.refused, report.refused_count)
