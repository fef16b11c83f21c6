"""`milepost prune`: remove the rows of items that ended long ago."""

from __future__ import annotations

import click

from milepost.cli.config import CliSettings
from milepost.cli.filters import afford, yes_option
from milepost.cli.options import check_signed, dry_run_option, json_option, settings, signed
from milepost.cli.out import print_json, progress


@click.command()
@click.argument("route")
@click.option("--older-than", metavar="SPAN", default="30d", show_default=True, help="Ended longer ago than this.")
@click.option(
    "--status",
    "statuses",
    multiple=True,
    metavar="STATUS",
    help="A status whose rows go, or 'failed'; may be repeated. Without it only COMPLETED rows go.",
)
@yes_option
@signed
@dry_run_option
@json_option
@settings
def prune(
    given: CliSettings,
    route: str,
    older_than: str,
    statuses: tuple[str, ...],
    yes: bool,
    by: str | None,
    reason: str | None,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Let go of the rows of items that have completed long ago.

    Rows of failed and cancelled items stay, unless their status is named. A small seal stays of each, so that a key which comes
    again is still known. History lines stay until every subscriber has been told.
    """
    from milepost.core.status import TERMINAL
    from milepost.core.values.durations import short_span, span_ms
    from milepost.engine.retention import prune as let_go
    from milepost.engine.views.queries import statuses_of
    from milepost.ports.ledger import Query

    span = span_ms(older_than, "--older-than")
    who, why = check_signed(by, reason, dry_run=dry_run)
    with given.context(act=True, dry_run=dry_run) as ctx, progress("pruning", quiet=as_json or dry_run) as told:
        afford(ctx, Query(route=route, statuses=TERMINAL), yes, quiet=as_json)
        named = statuses_of(statuses)
        report = let_go(ctx, route, span, statuses=named, by=who, reason=why, dry_run=dry_run, on_progress=told)
    if as_json:
        print_json(report)
        return
    which = f"ended more than {short_span(span)} ago" if span else "all that have ended"
    click.echo(f"{route}, {which}: {report}.")
