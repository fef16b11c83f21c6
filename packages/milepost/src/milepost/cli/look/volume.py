"""`milepost volume`: items with files on a storage volume, such as a tape."""

from __future__ import annotations

import click

from milepost.cli.config import CliSettings
from milepost.cli.options import confirm_cost, shared_options, yes_option
from milepost.cli.output import plain, print_json, progress

NAMED = 3
SHOWN = 20
"""Kept records that cannot be used that are named."""


@click.command()
@click.argument("route")
@click.argument("volume")
@yes_option
@shared_options
def volume(given: CliSettings, route: str, volume: str, yes: bool, as_json: bool) -> int:
    """Items with files on a storage volume, such as a tape.

    Reads the results that stages reported for every item, also for items whose rows were removed
    and whose evidence was kept. With --json one item per line, with all its files on the volume. A
    kept record that is lost, or does not match its seal, is named and not used; then the exit code
    is 1.
    """
    from milepost.engine.evidence import on_volume
    from milepost.engine.views.items import check_route, counted
    from milepost.ports.items import Query

    items = files = 0
    faults: list[tuple[str, str]] = []
    with given.context() as ctx:
        check_route(ctx, route)
        confirm_cost(ctx, Query(route=route, with_content=True), yes, quiet=as_json)
        with progress("reading", quiet=as_json) as on_progress:
            for found in on_volume(
                ctx, route, volume, on_progress, lambda key, why: faults.append((key, why))
            ):
                items, files = items + 1, files + len(found.files)
                if as_json:
                    print_json(found, indent=None)
                    continue
                named = ", ".join(map(plain, found.files[:NAMED])) + (
                    ", …" if len(found.files) > NAMED else ""
                )
                left = ", row removed" if found.left else ""
                click.echo(
                    f"{plain(found.key)}  {found.status}{left}  {counted(len(found.files), 'file')}: {named}"
                )
    if not as_json:
        click.echo(
            f"{counted(items, 'item')} of {route} on {volume}, {counted(files, 'file')}.", err=True
        )
    for key, why in faults[:SHOWN]:
        click.echo(f"milepost: {plain(key)} is left out: {why}", err=True)
    if faults:
        click.echo(
            f"milepost: {counted(len(faults), 'kept record')} could not be used: their files may be on {volume} too",
            err=True,
        )
    return 1 if faults else 0
