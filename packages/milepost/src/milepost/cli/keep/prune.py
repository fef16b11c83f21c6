"""`milepost prune`: remove the rows of items that ended long ago."""

from __future__ import annotations

import click

from milepost.cli.config import CliSettings
from milepost.cli.options import act_options, check_signed, confirm_cost, yes_option
from milepost.cli.output import print_json, progress


@click.command()
@click.argument("route")
@click.option(
    "--older-than",
    metavar="SPAN",
    default="30d",
    show_default=True,
    help="Only items that ended longer ago than this.",
)
@click.option(
    "--status",
    "statuses",
    multiple=True,
    metavar="STATUS",
    help="Remove rows with this status, or 'failed'; may be repeated [COMPLETED].",
)
@yes_option
@act_options
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
    """Remove the rows of items that completed long ago.

    Rows of failed and cancelled items stay unless their status is given. A small seal remains of
    each item, so that its key stays known. History lines, and the content of their items, stay
    until every subscriber has received the lines; 'milepost forget' removes the content of one item
    at once.
    """
    from milepost.core.status import TERMINAL
    from milepost.core.values.durations import short_span, span_ms
    from milepost.engine.retention import prune as prune_rows
    from milepost.engine.views.queries import statuses_of
    from milepost.ports.items import Query

    span = span_ms(older_than, "--older-than")
    who, why = check_signed(by, reason, dry_run=dry_run)
    with (
        given.context(act=True, dry_run=dry_run) as ctx,
        progress("pruning", quiet=as_json or dry_run) as on_progress,
    ):
        confirm_cost(ctx, Query(route=route, statuses=TERMINAL), yes, quiet=as_json)
        named = statuses_of(statuses)
        report = prune_rows(
            ctx,
            route,
            span,
            statuses=named,
            by=who,
            reason=why,
            dry_run=dry_run,
            on_progress=on_progress,
        )
    if as_json:
        print_json(report)
        return
    which = f"ended more than {short_span(span)} ago" if span else "all ended items"
    click.echo(f"{route}, {which}: {report}.")
