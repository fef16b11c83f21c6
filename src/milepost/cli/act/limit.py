"""`milepost limit`: change the rate or the concurrency of a stage or a lane while it runs."""

from __future__ import annotations

import click

from milepost.cli.act.scope import on_scope, stage_of
from milepost.cli.config import CliSettings
from milepost.cli.options import check_signed
from milepost.cli.out import print_json


@click.command()
@click.option("--rate", metavar="RATE", help="Handler calls in all processes together, such as 50/s or 10/m.")
@click.option("--concurrency", type=click.IntRange(1), help="Concurrent handler calls in each process.")
@click.option("--clear", is_flag=True, help="Remove these limits; those of the route file apply again.")
@on_scope
def limit(
    given: CliSettings,
    route: str,
    stage_word: str | None,
    stage: str | None,
    lane: str | None,
    by: str | None,
    reason: str | None,
    as_json: bool,
    rate: str | None,
    concurrency: int | None,
    clear: bool,
) -> None:
    """Set the rate or concurrency limit of a stage or lane."""
    from milepost.core.admission.controls import scope
    from milepost.engine.acts.bulk import limit as set_limit

    chosen = stage_of(stage, stage_word)
    if chosen is None:
        raise click.UsageError("name the stage: a limit applies to a stage or one of its lanes")
    name, why = check_signed(by, reason)
    with given.context(act=True) as ctx:
        now = set_limit(ctx, route, chosen, lane, rate=rate, concurrency=concurrency, clear=clear, by=name, reason=why)
    place = scope(route, chosen, lane)
    if as_json:
        print_json({"scope": place, "rate": None if now is None else now.rate, "concurrency": None if now is None else now.concurrency})
    elif now is None:
        click.echo(f"{place}: the limits of the route file apply again.")
    else:
        parts = [f"rate {now.rate}"] * (now.rate is not None) + [f"concurrency {now.concurrency}"] * (now.concurrency is not None)
        click.echo(f"{place}: {', '.join(parts)}.")
