"""Command `redate`: date items that are dated in the future as of now."""

from __future__ import annotations

import click

from milepost.cli.config import CliSettings
from milepost.cli.options import act_options, check_signed
from milepost.cli.output import console, print_json, print_refused


@click.command()
@click.argument("route")
@act_options
def redate(given: CliSettings, route: str, by: str | None, reason: str | None, dry_run: bool, as_json: bool) -> int:
    """Date items that are dated in the future as of now.

    A clock was ahead when they were written ('milepost doctor' counts them), and bulk acts leave them out. Their history keeps the
    times that they had. An item that was submitted for a later date keeps that date.
    """
    from milepost.engine.acts.redate import redate_rows
    from milepost.engine.views.items import counted

    who, why = check_signed(by, reason, dry_run=dry_run)
    with given.context(act=True, dry_run=dry_run) as ctx:
        report = redate_rows(ctx, route, by=who, reason=why, dry_run=dry_run)
    if as_json:
        print_json(report)
    elif not report.matched:
        click.echo(f"No item of {route} is dated in the future; nothing was changed.")
    else:
        done = f"{report.done:,} of {counted(report.matched, 'item')}"
        console().print(f"Dry run: redate would apply to {done}. Nothing was changed." if dry_run else f"redate: {done} (act {report.id})")
        print_refused("refused", report.refused, report.refused_count)
    return 1 if report.refused_count else 0
