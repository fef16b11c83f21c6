"""`milepost backup`: copy a SQLite ledger and its blobs while processes use it."""

from __future__ import annotations

from pathlib import Path

import click

from milepost.cli.config import CliSettings, check_there
from milepost.cli.options import json_option, settings
from milepost.cli.out import MB, megabyte_progress, print_json


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
        with megabyte_progress("backup, MB", quiet=as_json) as told:
            report = ledger.backup(file, overwrite, told)
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
