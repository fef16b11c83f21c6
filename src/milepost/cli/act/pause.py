"""`milepost pause`: start no more work in a route, stage or lane. Every process obeys within five seconds."""

from __future__ import annotations

import click

from milepost.cli.act.targets import ControlScope, on_scope
from milepost.cli.config import CliSettings
from milepost.cli.options import at_option
from milepost.cli.out import WIDE, console, print_json, safe


@click.command()
@click.option("--until", metavar="TIME", help="When the pause ends by itself: a time, or a span from now such as 2h [when it is resumed].")
@click.option("--drain", metavar="RATE", help="Rate for the items that have waited, such as 10/s [as fast as usual].")
@on_scope
def pause(given: CliSettings, at: ControlScope, until: str | None, drain: str | None, as_json: bool) -> None:
    """Pause a route, a stage or a lane.

    Running handlers finish; no other work starts until 'milepost resume'. A pause uses no attempts. A paused external stage sends
    nothing again, but new items are still offered to it once (pause the stage before it to prevent that), and confirmations count.
    """
    from milepost.engine.acts.controls import pause as hold
    from milepost.engine.acts.controls import paused_view

    ends_at = None if until is None else at_option(until, "--until")
    with given.context(act=True) as ctx:
        paused = paused_view(at.name, hold(ctx, *at.place, until=ends_at, drain=drain, **at.signed))
    if as_json:
        print_json(paused)
    else:
        until_when = "" if paused.until is None else f" until {paused.until}"
        console(width=WIDE).print(safe(f"{at.name} paused since {paused.at}{until_when} by {paused.by}: {paused.reason}"))
