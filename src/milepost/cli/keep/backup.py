"""Backup of a ledger in a SQLite file, and restore."""

from __future__ import annotations

from pathlib import Path

import click

from milepost.cli.config import CliSettings, check_there
from milepost.cli.options import json_option, settings
from milepost.cli.out import ProgressFigures, print_json, progress

MB = 1_000_000
EVERY_S = 2


def _megabytes(told: ProgressFigures, done: int, whole: int) -> None:
    told(done // MB, done, whole)


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--overwrite", is_flag=True, help="Replace a backup of that name, once the new one is whole.")
@json_option
@settings
def backup(given: CliSettings, file: Path, overwrite: bool, as_json: bool) -> int:
    """Copy the ledger and its blobs to FILE, while work goes on.

    The copy holds one moment of the ledger, is checked, and is on disk when the command ends. It is a ledger itself: look into it with
    --ledger FILE. Exit code 1 if the history of some items is not as it was written; the backup is made all the same. For a ledger in a SQLite file; on AWS, use point-in-time recovery of the tables.
    """
    from milepost.engine.views.items import counted
    from milepost.wiring import open_ledger

    check_there(given.ledger)
    ledger, _ = open_ledger(given.ledger, make=False)
    try:
        with progress("backup, MB", quiet=as_json, every_s=EVERY_S) as told:
            report = ledger.backup(file, overwrite, lambda done, whole: _megabytes(told, done, whole))
    finally:
        ledger.close()
    if as_json:
        print_json(report)
        return 1 if report.broken else 0
    blobs = f", {counted(report.blobs, 'blob')} ({report.blob_bytes / MB:,.1f} MB) in {file}-blobs" if report.blobs else ""
    click.echo(f"{file}: {counted(report.items, 'item')}, {counted(report.seals, 'seal')} ({report.bytes / MB:,.1f} MB){blobs}; checked.")
    if report.broken:
        click.echo(
            f"milepost: the history of {len(report.broken):,} items is not as it was written, among them {report.broken[0]}", err=True
        )
    return 1 if report.broken else 0


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

    with progress("restore, MB", quiet=as_json, every_s=EVERY_S) as told:
        report = restore_ledger(
            file, given.ledger, overwrite=overwrite, force=force, on_progress=lambda done, whole: _megabytes(told, done, whole)
        )
    if as_json:
        print_json(report)
        return
    if report.set_aside is not None:
        click.echo(f"The ledger that was there is now {report.set_aside}.")
    click.echo(f"{report.ledger} is restored from {file}: {counted(report.items, 'item')}, {counted(report.seals, 'seal')}; checked.")
