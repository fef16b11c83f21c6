"""`milepost backup` and `restore`: copy a SQLite ledger and its blobs while processes use them, and
replace a ledger by such a copy."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import click

from milepost.cli.config import CliSettings, check_there
from milepost.cli.options import shared_options
from milepost.cli.output import MB, megabyte_progress, print_json


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--overwrite", is_flag=True, help="Replace an existing backup, once the new one is complete."
)
@shared_options
def backup(given: CliSettings, file: Path, overwrite: bool, as_json: bool) -> int:
    """Copy the ledger and its blobs to FILE, also during work.

    The copy is a consistent snapshot; it is checked and on disk when the command ends. It is itself
    a ledger: open it with --ledger FILE. Exit code 1 if the hash chain of an item is broken; the
    backup is still made. For SQLite ledgers; on AWS use point-in-time recovery of the tables.
    """
    from milepost.composition import open_ledger
    from milepost.engine.views.items import counted

    check_there(given.ledger)
    ledger, _ = open_ledger(given.ledger, make=False, mode=given.mode)
    with closing(ledger), megabyte_progress("backup, MB", quiet=as_json) as on_progress:
        report = ledger.backup(file, overwrite, on_progress)
    if as_json:
        print_json(report)
        return 1 if report.broken else 0
    blobs = (
        f", {counted(report.blobs, 'blob')} ({report.blob_bytes / MB:,.1f} MB) in {file}-blobs"
        if report.blobs
        else ""
    )
    click.echo(
        f"{file}: {counted(report.items, 'item')}, {counted(report.seals, 'seal')} ({report.bytes / MB:,.1f} MB){blobs}; checked."
    )
    if report.broken:
        click.echo(
            f"milepost: the hash chains of {len(report.broken):,} items are broken, among them {report.broken[0]}",
            err=True,
        )
    return 1 if report.broken else 0


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--overwrite", is_flag=True, help="Rename an existing ledger and restore in its place."
)
@click.option("--force", is_flag=True, help="Restore even if hash chains of items are broken.")
@shared_options
def restore(given: CliSettings, file: Path, overwrite: bool, force: bool, as_json: bool) -> None:
    """Replace the ledger by the backup FILE.

    Stop every process first: nothing is restored while a process has the ledger open or has left
    its log (FILE-wal). The backup is checked before and after copying. Work that was done since the
    backup will be done again.
    """
    from milepost.composition import restore_ledger
    from milepost.engine.views.items import counted

    with megabyte_progress("restore, MB", quiet=as_json) as on_progress:
        report = restore_ledger(
            file,
            given.ledger,
            overwrite=overwrite,
            force=force,
            on_progress=on_progress,
            mode=given.mode,
        )
    if as_json:
        print_json(report)
        return
    if report.set_aside is not None:
        click.echo(f"The previous ledger is now {report.set_aside}.")
    click.echo(
        f"Restored {report.ledger} from {file}: {counted(report.items, 'item')}, {counted(report.seals, 'seal')}; checked."
    )
