"""`milepost volume`: items with files on a storage volume, such as a tape."""

from __future__ import annotations

import click

from milepost.cli.config import CliSettings
from milepost.cli.filters import afford, yes_option
from milepost.cli.options import json_option, settings
from milepost.cli.out import plain, progress

NAMED = 3


@click.command()
@click.argument("route")
@click.argument("volume")
@yes_option
@json_option
@settings
def volume(given: CliSettings, route: str, volume: str, yes: bool, as_json: bool) -> None:
    """Items with files on a storage volume, such as a tape.

    Reads what the stages reported of every item, also of those whose rows have left and whose evidence was kept. With --json one item
    a line, with all of its files there.
    """
    import msgspec

    from milepost.engine.evidence.volumes import all_items, on_volume
    from milepost.engine.views.items import check_route, counted

    items = files = 0
    with given.context() as ctx:
        check_route(ctx, route)
        afford(ctx, all_items(route), yes, quiet=as_json)
        with progress("reading", quiet=as_json) as told:
            for found in on_volume(ctx, route, volume, told):
                items, files = items + 1, files + len(found.files)
                if as_json:
                    click.echo(msgspec.json.encode(found).decode())
                    continue
                named = ", ".join(map(plain, found.files[:NAMED])) + (", …" if len(found.files) > NAMED else "")
                left = ", row has left" if found.left else ""
                click.echo(f"{plain(found.key)}  {found.status}{left}  {counted(len(found.files), 'file')}: {named}")
    if not as_json:
        click.echo(f"{counted(items, 'item')} of {route} on {volume}, {counted(files, 'file')}.", err=True)
