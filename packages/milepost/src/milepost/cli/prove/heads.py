"""`milepost heads`: list the daily heads, or publish one now."""

from __future__ import annotations

import click

from milepost.cli.config import CliSettings
from milepost.cli.options import listing_group, shared_options
from milepost.cli.output import print_json, print_table, printed
from milepost.core.errors import UsageError


@listing_group
def heads(given: CliSettings, as_json: bool) -> None:
    """Daily heads: one digest a day over all history lines.

    'milepost up' publishes a head when a day is over (UTC), if a route keeps evidence, and sends it
    to every subscriber. With these events a subscriber can prove later what the ledger contained
    (see 'milepost verify --head').
    """
    from milepost.engine.heads.daily import all_heads

    with given.context() as ctx:
        found = all_heads(ctx)
    if printed(
        found,
        {"heads": found},
        "No head published yet; 'milepost up' publishes one a day if a route has evidence=True.",
        as_json=as_json,
    ):
        return
    rows = [
        (head["day"], f"{head['count']:,}", head["root"], "yes" if "signature" in head else "no")
        for head in reversed(found)
    ]
    print_table(("day", "lines", "root", "signed"), rows, right=["lines"])


@heads.command("publish")
@shared_options
def publish_now(given: CliSettings, as_json: bool) -> None:
    """Publish a head now.

    Publishes yesterday's head if it is missing, else one of today so far. The next 'milepost up'
    sends it to the subscribers.
    """
    from milepost.engine.heads.daily import DAY_MS, day_of, publish
    from milepost.engine.heads.route import ROUTE
    from milepost.engine.views.items import counted

    signer = given.signer()
    with given.context(act=True) as ctx:
        if ROUTE not in ctx.plans:
            raise UsageError("no route keeps evidence; set evidence=True on a route")
        now = ctx.clock.now()
        midnight = now // DAY_MS * DAY_MS
        head = publish(ctx, signer, day_of(midnight - 1), midnight) or publish(
            ctx, signer, day_of(now), now + 1
        )
    if as_json:
        print_json({"head": head})
    elif head is None:
        click.echo(
            f"The head of {day_of(now)} is already published, or no history line was written; nothing was changed."
        )
    else:
        click.echo(
            f"Published the head of {head['day']}: {counted(head['count'], 'line')}, root {head['root']}."
        )
