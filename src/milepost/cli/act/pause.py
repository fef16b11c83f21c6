"""`milepost pause`: start no more work in a route, stage or lane. Every process obeys within five seconds."""

from __future__ import annotations

import click

from milepost.cli.act.scope import on_scope, stage_of
from milepost.cli.config import CliSettings
from milepost.cli.options import at_option, check_signed
from milepost.cli.out import WIDE, console, print_json, safe


@click.command()
@click.option("--until", metavar="TIME", help="When the pause ends by itself: a time, or a span from now such as 2h [when it is resumed].")
@click.option("--drain", metavar="RATE", help="Rate for the items that have waited, such as 10/s [as fast as usual].")
@on_scope
def pause(
    given: CliSettings,
    route: str,
    stage_word: str | None,
    stage: str | None,
    lane: str | None,
    by: str | None,
    reason: str | None,
    until: str | None,
    drain: str | None,
    as_json: bool,
) -> None:
    """Pause a route, a stage or a lane.

    Running handlers finish; no other work starts until 'milepost resume'. A pause uses no attempts. A paused external stage sends
    nothing again, but new items are still offered to it once (pause the stage before it to prevent that), and confirmations count.
    """
    from milepost.core.admission.controls import scope
    from milepost.core.values.durations import iso
    from milepost.engine.acts.bulk import pause as hold

    name, why = check_signed(by, reason)
    ends_at = None if until is None else at_option(until, "--until")
    with given.context(act=True) as ctx:
        place = scope(route, stage_of(stage, stage_word), lane)
        held = hold(ctx, route, stage_of(stage, stage_word), lane, by=name, reason=why, until=ends_at, drain=drain)
    if as_json:
        times = {"at": iso(held.at), "until": iso(held.until), "drain": held.drain}
        print_json({"scope": place, "paused": True, "by": held.by, "reason": held.reason, **times})
    else:
        until_when = "" if held.until is None else f" until {iso(held.until)}"
        console(width=WIDE).print(safe(f"{place} paused since {iso(held.at)}{until_when} by {held.by}: {held.reason}"))
