"""`milepost restore`: replace a SQLite ledger by a backup."""

from __future__ import annotations

from pathlib import Path

import click

from milepost.cli.config import CliSettings
from milepost.cli.options import shared_options
from milepost.cli.out import megabyte_progress, print_json


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--overwrite", is_flag=True, help="Rename an existing ledger and restore in its place.")
@click.option("--force", is_flag=True, help="Restore even if hash chains of items are broken.")
@shared_options
def restore(given: CliSettings, file: Path, overwrite: bool, force: bool, as_json: bool) -> None:
    """Replace the ledger by the backup FILE.

    Stop every process first: nothing is restored while a process has the ledger open or has left its log (FILE-wal). The backup is
    checked before and after copying. Work that was done since the backup will be done again.
    """
    from milepost.composition import restore_ledger
    from milepost.engine.views.items import counted

    with megabyte_progress("restore, MB", quiet=as_json) as on_progress:
        report = restore_ledger(file, given.ledger, overwrite=overwrite, force=force, on_progress=on_progress)
    if as_json:
        print_json(report)
        return
    if report.set_aside is not None:
        click.echo(f"The previous ledger is now {report.set_aside}.")
    click.echo(f"Restored {report.ledger} from {file}: {counted(report.items, 'item')}, {counted(report.seals, 'seal')}; checked.")
