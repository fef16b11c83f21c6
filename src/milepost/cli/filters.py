"""Which items: keys, or conditions that all must hold. Shared by the commands that look and those that act."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from milepost.core.errors import UsageError

if TYPE_CHECKING:
    from milepost.engine.context import Context
    from milepost.ports.ledger import Query

F = TypeVar("F", bound=Callable[..., Any])

_OPTIONS = (
    click.option("--status", "statuses", multiple=True, metavar="STATUS", help="A status, 'failed' or 'live'; may be repeated."),
    click.option("--stage", "stages", multiple=True, metavar="STAGE", help="At this stage; may be repeated."),
    click.option("--lane", metavar="LANE", help="In this lane."),
    click.option("--group", metavar="ID", help="With this kind of error (see 'milepost groups')."),
    click.option(
        "--list", "list_", metavar="NAME", help="Brought by the lists of this name, or the one of this id (see 'milepost lists')."
    ),
    click.option(
        "--part",
        "parts",
        multiple=True,
        metavar="FIELD=VALUE",
        help="With this part of a key of several fields, such as batchId=B-7; may be repeated.",
    ),
    click.option("--older-than", metavar="SPAN", help="At its stage, or ended, for longer than this, such as 2d."),
)


def filters(command: F) -> F:
    """Give a command the options that choose items; they arrive as `statuses, stages, lane, group, list_, parts, older_than`."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


yes_option = click.option("--yes", is_flag=True, help="Do not ask, whatever it costs to look for the items.")


def afford(ctx: Context, query: Query, yes: bool, *, quiet: bool = False) -> None:
    """Say what looking for these costs, where it costs anything; ask if it is much. Without a terminal --yes must have been said."""
    from milepost.engine.views.queries import WORTH_A_WORD, WORTH_ASKING, told_cost

    cost = ctx.ledger.cost_of(query)
    if cost is None or cost.rows < WORTH_A_WORD:
        return
    told = told_cost(query.route, cost)
    if cost.rows <= WORTH_ASKING or yes:
        if not quiet:
            click.echo(f"milepost: {told}", err=True)
    elif sys.stdin.isatty() and sys.stderr.isatty():
        click.confirm(f"{told}. Go on?", abort=True, err=True)
    else:
        raise UsageError(f"{told}; if that is meant, say --yes ('--status failed' is served by an index)")


def any_given(chosen: dict[str, Any]) -> bool:
    return any(chosen.values())


def choice_of(ctx: Context, route: str, **chosen: Any) -> Query:
    """The options as a question to the ledger."""
    from milepost.engine.views.queries import choose

    return choose(ctx, route, **chosen)
