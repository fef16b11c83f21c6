"""`milepost breakers`: which circuit breakers are open, and closing them."""

from __future__ import annotations

import click

from milepost.cli.config import CliSettings
from milepost.cli.options import check_signed, listing_group, shared_options, signed
from milepost.cli.out import print_json, print_table, printed


@listing_group
def breakers(given: CliSettings, as_json: bool) -> None:
    """Open circuit breakers of lanes.

    A stage's breaker opens when tries in a row fail: the items of that lane wait, and use no attempts. After its cooldown it lets a few
    items through as probes, and closes when they succeed.
    """
    from milepost.engine.breakers import breaker_views

    with given.context() as ctx:
        found = breaker_views(ctx)
    if printed(found, {"breakers": found}, "No breaker is open.", as_json=as_json):
        return
    rows = []
    for one in found:
        again = one.retry_at or ("under way" if one.probes else "with the next item")
        opened = "once" if one.trips == 1 else f"{one.trips} times"
        rows.append((one.scope, one.state, one.since or "", again, opened, one.error))
    print_table(("lane", "state", "since", "next try", "opened", "last failure"), rows)


@breakers.command()
@click.argument("route")
@click.argument("stage")
@click.option("--lane", metavar="LANE", help="One lane of the stage [all of them].")
@signed
@shared_options
def close(given: CliSettings, route: str, stage: str, lane: str | None, by: str | None, reason: str | None, as_json: bool) -> int:
    """Close the open breakers of a stage, or of one lane: the items are worked on again at once."""
    from milepost.engine.acts.controls import close_breakers

    name, why = check_signed(by, reason)
    with given.context(act=True) as ctx:
        closed = close_breakers(ctx, route, stage, lane, by=name, reason=why)
    if as_json:
        print_json({"closed": closed})
    elif closed:
        click.echo(f"Closed: {', '.join(closed)}")
    else:
        click.echo(f"milepost: no breaker of {route}/{stage} is open", err=True)
    return 0 if closed else 1
