"""`milepost limit`: change the rate or the concurrency of a stage or a lane while it runs."""

from __future__ import annotations

import click

from milepost.cli.act.targets import ControlScope, on_scope
from milepost.cli.config import CliSettings
from milepost.cli.out import print_json


@click.command()
@click.option("--rate", metavar="RATE", help="Handler calls in all processes together, such as 50/s or 10/m.")
@click.option("--concurrency", type=click.IntRange(1), help="Concurrent handler calls in each process.")
@click.option("--clear", is_flag=True, help="Remove these limits; those of the route file apply again.")
@on_scope
def limit(given: CliSettings, at: ControlScope, as_json: bool, rate: str | None, concurrency: int | None, clear: bool) -> None:
    """Set the rate or concurrency limit of a stage or lane."""
    from milepost.engine.acts.controls import limit as set_limit
    from milepost.engine.acts.controls import limited_view

    route, stage, lane = at.place
    if stage is None:
        raise click.UsageError("name the stage: a limit applies to a stage or one of its lanes")
    with given.context(act=True) as ctx:
        now = set_limit(ctx, route, stage, lane, rate=rate, concurrency=concurrency, clear=clear, **at.signed)
    if as_json:
        print_json(limited_view(at.name, now))
    elif now is None:
        click.echo(f"{at.name}: the limits of the route file apply again.")
    else:
        parts = [f"rate {now.rate}"] * (now.rate is not None) + [f"concurrency {now.concurrency}"] * (now.concurrency is not None)
        click.echo(f"{at.name}: {', '.join(parts)}.")
