"""`milepost resume`: end a pause of a route, a stage or a lane."""

from __future__ import annotations

import click

from milepost.cli.act.scope import on_scope, stage_of
from milepost.cli.config import CliSettings
from milepost.cli.options import check_signed
from milepost.cli.out import print_json


@click.command()
@click.option("--drain", metavar="RATE", help="Rate for the items that have waited, such as 10/s [that of the pause].")
@on_scope
def resume(
    given: CliSettings,
    route: str,
    stage_word: str | None,
    stage: str | None,
    lane: str | None,
    by: str | None,
    reason: str | None,
    drain: str | None,
    as_json: bool,
) -> int:
    """Resume a paused route, stage or lane."""
    from milepost.core.admission.controls import scope
    from milepost.engine.acts.bulk import resume as let_go
    from milepost.ports.documents import HOLD

    name, why = check_signed(by, reason)
    with given.context(act=True) as ctx:
        place = scope(route, stage_of(stage, stage_word), lane)
        done = let_go(ctx, route, stage_of(stage, stage_word), lane, by=name, reason=why, drain=drain)
        others = sorted(other for other in ctx.ledger.read(HOLD) if other == route or other.startswith(f"{route}/"))
    if as_json:
        print_json({"scope": place, "resumed": done, "still_paused": others})
    elif done:
        click.echo(f"{place} resumed.")
    else:
        click.echo(f"milepost: {place} was not paused", err=True)
    if others and not as_json:
        click.echo(f"Still paused: {', '.join(others)}")
    return 0 if done else 1
