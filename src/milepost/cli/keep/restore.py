"""`milepost restore`: replace the ledger by a backup of a SQLite ledger."""

from __future__ import annotations

from pathlib import Path

import click

from milepost.cli.config import CliSettings
from milepost.cli.options import json_option, settings
from milepost.cli.out import megabyte_progress, print_json


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--overwrite", is_flag=True, help="Set aside the ledger that is there, under another name.")
@click.option("--force", is_flag=True, help="Restore although the history of some items is not as it was written.")
@json_option
@settings
def restore(given: CliSettings, file: Path, overwrite: bool, force: bool, as_json: bool) -> None:
    """Put the backup FILE in the place of the ledger.

    Stop every process first: while one has the ledger open, or has left its log (FILE-wal) behind, nothing is restored. The backup is
    checked before and after it is copied. Items that were done since the backup was made will be done again.
    """
    from milepost.engine.views.items import counted
    from milepost.wiring import restore_ledger

    with megabyte_progress("restore, MB", quiet=as_json) as told:
        report = restore_ledger(file, given.ledger, overwrite=overwrite, force=force, on_progress=told)
    if as_json:
        print_json(report)
        return
    if report.set_aside is not None:
        click.echo(f"The ledger that was there is now {report.set_aside}.")
    click.echo(f"{report.ledger} is restored from {file}: {counted(report.items, 'item')}, {counted(report.seals, 'seal')}; checked.")
