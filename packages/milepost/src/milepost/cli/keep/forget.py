"""`milepost forget`: remove the content of an item that has ended."""

from __future__ import annotations

import click

from milepost.cli.config import CliSettings
from milepost.cli.options import act_options, check_signed
from milepost.cli.output import plain, print_json


@click.command()
@click.argument("route")
@click.argument("key")
@act_options
def forget(
    given: CliSettings,
    route: str,
    key: str,
    by: str | None,
    reason: str | None,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Remove the content of an item that has ended.

    Removes input, outputs, error texts, blobs and kept evidence, whatever subscriber has not
    received its events yet. The key stays known by a keyed digest, lines and seal keep their
    digests. Prints what stays elsewhere. The reason is recorded: it should not repeat the content.
    This cannot be undone.
    """
    from milepost.engine.forget import forget as forget_item
    from milepost.engine.views.items import counted

    who, why = check_signed(by, reason, dry_run=dry_run)
    with given.context(act=True, dry_run=dry_run) as ctx:
        report = forget_item(ctx, route, key, by=who, reason=why, dry_run=dry_run)
    if as_json:
        print_json(report)
        return
    verb = "would be removed" if dry_run else "removed"
    if report.before:
        click.echo(
            f"{route}/{key}: its content had been removed before; it is known as {report.name}."
        )
    else:
        records = f", and {counted(report.evidence, 'kept record')}" if report.evidence else ""
        click.echo(
            f"{route}/{key} ({report.status}): content {verb}, with that of {counted(report.lines, 'history line')}{records}."
        )
        if not dry_run:
            click.echo(f"It is known as {report.name}.")
    for name, lines in report.undelivered.items():
        click.echo(f"{plain(name)} has not received {counted(lines, 'line')} of it, and will not.")
    click.echo("What stays:")
    for phrase in report.stays:
        click.echo(f"  - {plain(phrase)}")
