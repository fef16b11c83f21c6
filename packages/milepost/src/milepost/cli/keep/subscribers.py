"""`milepost subscribers`: subscribers with their backlog and parked events."""

from __future__ import annotations

import click

from milepost.cli.config import CliSettings
from milepost.cli.options import act_options, check_signed, listing_group, settings, signed
from milepost.cli.output import console, print_json, print_table, printed, safe
from milepost.core.errors import MilepostError

SHOWN = 20
"""Number of parked items listed."""
NO_SUBSCRIBERS = """No subscribers. Name them in milepost.toml, as in
  subscribers = ["log"]
and run 'milepost up'."""


@listing_group
def subscribers(given: CliSettings, as_json: bool) -> None:
    """Subscribers with their backlog and parked events."""
    from milepost.engine.events.cursors import subscribers as all_subscribers
    from milepost.engine.events.replay import moment_ms
    from milepost.engine.views.items import when

    with given.context() as ctx:
        found, now = all_subscribers(ctx), ctx.clock.now()
    if printed(found, {"subscribers": found}, NO_SUBSCRIBERS, as_json=as_json):
        return
    rows = []
    for one in found:
        trouble = one.error or ("silent" if one.silent else "")
        last = (
            "never"
            if one.last_event_at is None
            else when(moment_ms(one.last_event_at, now, "last event"), now)
        )
        rows.append((one.name, last, f"{one.behind:,}", f"{one.parked_count:,}", trouble))
    print_table(
        ("name", "last event", "lines behind", "parked", "problem"),
        rows,
        right=["lines behind", "parked"],
    )
    to = console()
    for parked in [parked for one in found for parked in one.parked][:SHOWN]:
        to.print(
            f"parked for {safe(parked.subscriber)}: {safe(parked.route)}/{safe(parked.key)}: {safe(parked.error)}",
            soft_wrap=True,
        )


@subscribers.command()
@click.argument("name")
@click.argument("route", required=False)
@click.argument("key", required=False)
@signed
@settings
def release(
    given: CliSettings,
    name: str,
    route: str | None,
    key: str | None,
    by: str | None,
    reason: str | None,
) -> None:
    """Retry parked events now: all, of a route, or of one item."""
    from milepost.engine.events.parked_events import release as release_event
    from milepost.engine.views.items import counted

    who, why = check_signed(by, reason)
    with given.context() as ctx:
        n = release_event(ctx, name, route, key, by=who, reason=why)
    click.echo(f"{name}: {counted(n, 'parked item')} will be retried.")


@subscribers.command()
@click.argument("name")
@click.option(
    "--since",
    metavar="SPAN|TIME",
    help="Replay from here: 2d (ago), or a time such as 2026-03-01T12:00Z.",
)
@click.option(
    "--after",
    type=click.IntRange(0),
    metavar="PLACE",
    help="Replay after this position in the feed; 0: everything.",
)
@act_options
def replay(
    given: CliSettings,
    name: str,
    since: str | None,
    after: int | None,
    by: str | None,
    reason: str | None,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Send a subscriber past events again.

    Each event keeps its id, and the events of an item keep their order. New events follow after the
    replay. Pruned events cannot be sent again.
    """
    from milepost.engine.events.replay import moment_ms
    from milepost.engine.events.replay import replay as tell_again
    from milepost.engine.views.items import clock_time, counted

    if (since is None) == (after is None):
        raise click.UsageError("give the start: either --since SPAN|TIME or --after PLACE")
    who, why = check_signed(by, reason, dry_run=dry_run)
    with given.context() as ctx:
        now = ctx.clock.now()
        moment = None if since is None else moment_ms(since, now, "--since")
        report = tell_again(
            ctx, name, since=moment, after=after, by=who, reason=why, dry_run=dry_run
        )
    if as_json:
        print_json(report)
        return
    if report.since is None:
        click.echo(f"{name} has received nothing since then: there is nothing to replay.")
        return
    first = clock_time(moment_ms(report.since, now, "since"), now)
    would = "would be" if dry_run else "is"
    click.echo(
        f"{name} {would} sent the events since {first} again: at most {counted(report.lines, 'line')}."
    )
    if report.pruned:
        click.echo(
            f"{counted(report.pruned, 'line')} before that {'has' if report.pruned == 1 else 'have'} been pruned and cannot be sent again."
        )


@subscribers.command()
@click.argument("name")
@signed
@settings
def forget(given: CliSettings, name: str, by: str | None, reason: str | None) -> None:
    """Remove a subscriber; nothing more is kept for it."""
    from milepost.engine.events.cursors import forget_subscriber

    who, why = check_signed(by, reason)
    with given.context() as ctx:
        known = forget_subscriber(ctx, name, by=who, reason=why)
    if not known:
        raise MilepostError(f"there is no subscriber {name!r}; see 'milepost subscribers'")
    click.echo(f"Removed {name}. If it is configured again, it starts from this point.")
