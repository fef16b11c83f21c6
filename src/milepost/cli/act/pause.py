"""`milepost pause`: start no more work in a route, stage or lane. Every process obeys within five seconds."""

from __future__ import annotations

import click

from milepost.cli.act.scope import on_scope, stage_of
from milepost.cli.config import CliSettings
from milepost.cli.options import check_signed
from milepost.cli.out import WIDE, console, print_json, safe


@click.command()
@on_scope
def pause(
    given: CliSettings,
    route: str,
    stage_word: str | None,
    stage: str | None,
    lane: str | None,
    by: str | None,
    reason: str | None,
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
    with given.context(act=True) as ctx:
        place = scope(route, stage_of(stage, stage_word), lane)
        held = hold(ctx, route, stage_of(stage, stage_word), lane, by=name, reason=why)
    if as_json:
        print_json({"scope": place, "paused": True, "at": iso(held.at), "by": held.by, "reason": held.reason})
    else:
        console(width=WIDE).print(safe(f"{place} paused since {iso(held.at)} by {held.by}: {held.reason}"))
