"""Command `upgrade`: raise the format of the ledger's tables."""

from __future__ import annotations

import click

from milepost.cli.config import CliSettings
from milepost.cli.options import act_options, check_signed
from milepost.cli.output import console, print_json, safe


@click.command()
@click.option(
    "--force",
    is_flag=True,
    help="Also while processes of an earlier version run: they see no new pause from then on.",
)
@act_options
def upgrade(
    given: CliSettings,
    force: bool,
    by: str | None,
    reason: str | None,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Raise the format of the ledger's tables on AWS.

    Do it when the stack and every process have this version of Milepost ('milepost doctor' names
    the others); an earlier version does not see what a later format has. Processes may be at work.
    A SQLite file is brought up to date when it is opened.
    """
    from milepost.engine.upgrade import upgrade as raise_format
    from milepost.engine.views.items import counted

    who, why = check_signed(by, reason, dry_run=dry_run)
    with given.context(act=True, dry_run=dry_run) as ctx:
        report = raise_format(ctx, by=who, reason=why, dry_run=dry_run, force=force)
    if as_json:
        print_json(report)
        return 0
    if report.before is None:
        click.echo(
            "This ledger is brought up to date whenever it is opened; there is nothing to do."
        )
        return 0
    raised = (
        f"Format {report.before} → {report.after}"
        if report.before != report.after
        else f"Format {report.after}, as before"
    )
    documents = counted(report.documents, "document")
    to = console()
    to.print(
        f"{raised}; {documents} {'would be ' if dry_run else ''}brought into its form."
        + (" Nothing was changed." if dry_run else "")
    )
    if report.older_processes:
        to.print(
            f"Running processes of an earlier version: {safe(', '.join(report.older_processes))}"
        )
    return 0
