"""`milepost resume`: end a pause of a route, a stage or a lane."""

from __future__ import annotations

import click

from milepost.cli.act.targets import ControlScope, on_scope
from milepost.cli.config import CliSettings
from milepost.cli.out import print_json


@click.command()
@click.option("--drain", metavar="RATE", help="Rate for the items that have waited, such as 10/s [that of the pause].")
@on_scope
def resume(given: CliSettings, at: ControlScope, drain: str | None, as_json: bool) -> int:
    """Resume a paused route, stage or lane."""
    from milepost.engine.acts.controls import resume as lift
    from milepost.engine.acts.controls import resumed_view

    with given.context(act=True) as ctx:
        done = resumed_view(ctx, at.name, lift(ctx, *at.place, drain=drain, **at.signed))
    if as_json:
        print_json(done)
    elif done.resumed:
        click.echo(f"{at.name} resumed.")
    else:
        click.echo(f"milepost: {at.name} was not paused", err=True)
    if done.still_paused and not as_json:
        click.echo(f"Still paused: {', '.join(done.still_paused)}")
    return 0 if done.resumed else 1
