"""Filter options that select items; all given conditions must hold."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from milepost.core.errors import UsageError

if TYPE_CHECKING:
    from milepost.engine.context import Context
    from milepost.ports.items import Query

F = TypeVar("F", bound=Callable[..., Any])

_OPTIONS = (
    click.option("--status", "statuses", multiple=True, metavar="STATUS", help="A status, 'failed' or 'live'; may be repeated."),
    click.option("--stage", "stages", multiple=True, metavar="STAGE", help="Items at this stage; may be repeated."),
    click.option("--lane", metavar="LANE", help="Items in this lane."),
    click.option("--group", metavar="ID", help="Items with this kind of error (see 'milepost groups')."),
    click.option(
        "--list", "list_", metavar="NAME", help="Items from the lists with this name, or from the list with this id (see 'milepost lists')."
    ),
    click.option(
        "--part",
        "parts",
        multiple=True,
        metavar="FIELD=VALUE",
        help="Items whose composite key has this part, such as batchId=B-7; may be repeated.",
    ),
    click.option("--older-than", metavar="SPAN", help="Items that entered their stage, or ended, longer ago than this, such as 2d."),
)


def filters(command: F) -> F:
    """Add the filter options to a command; they arrive as `statuses, stages, lane, group, list_, parts, older_than`."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


yes_option = click.option("--yes", is_flag=True, help="Do not ask for confirmation, however many rows must be read.")


def confirm_cost(ctx: Context, query: Query, yes: bool, *, quiet: bool = False) -> None:
    """Warn if a query reads many rows, and ask if it reads very many; without a terminal that needs --yes."""
    from milepost.engine.views.queries import CONFIRM_ROWS, WARN_ROWS, cost_text

    cost = ctx.ledger.cost_of(query)
    if cost is None or cost.rows < WARN_ROWS:
        return
    warning = cost_text(query.route, cost)
    if cost.rows <= CONFIRM_ROWS or yes:
        if not quiet:
            click.echo(f"milepost: {warning}", err=True)
    elif sys.stdin.isatty() and sys.stderr.isatty():
        click.confirm(f"{warning}. Continue?", abort=True, err=True)
    else:
        raise UsageError(f"{warning}; to do it all the same, give --yes ('--status failed' is served by an index)")


def query_of(ctx: Context, route: str, **chosen: Any) -> Query:
    """The ledger query for the filter options."""
    from milepost.engine.views.queries import choose

    return choose(ctx, route, **chosen)
