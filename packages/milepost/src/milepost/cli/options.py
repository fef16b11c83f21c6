"""Options that many commands share. --ledger and --routes are accepted before and after the
command's name."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from milepost.cli.config import CliSettings
from milepost.core.errors import UsageError

if TYPE_CHECKING:
    from datetime import datetime, timedelta

    from milepost.engine.context import Context
    from milepost.ports.items import Query

F = TypeVar("F", bound=Callable[..., Any])

ledger_option = click.option(
    "--ledger",
    metavar="URL",
    help="URL of the ledger [MILEPOST_LEDGER; default sqlite:///milepost.db].",
)
routes_option = click.option(
    "--routes",
    multiple=True,
    metavar="FILE[:NAME]",
    help="A route file, or module:name; may be repeated.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
dry_run_option = click.option(
    "--dry-run", is_flag=True, help="Show what would happen, without changing anything."
)


def settings(command: F) -> F:
    """Add --ledger and --routes to a command and pass it the resulting settings as first
    argument."""

    @functools.wraps(command)
    def with_settings(
        *args: Any, ledger: str | None, routes: tuple[str, ...], **options: Any
    ) -> Any:
        general = click.get_current_context().find_object(CliSettings) or CliSettings()
        return command(general.overridden(ledger, routes), *args, **options)

    return cast(F, ledger_option(routes_option(with_settings)))


def shared_options(command: F) -> F:
    """Add --json, --ledger and --routes to a command."""
    return json_option(settings(command))


def listing_group(command: Callable[..., None]) -> click.Group:
    """A group of commands that prints a list if it is called without any of them. Its own --ledger
    and --routes are for them too."""

    @functools.wraps(command)
    def listing(given: CliSettings, as_json: bool) -> None:
        context = click.get_current_context()
        context.obj = given
        if context.invoked_subcommand is None:
            command(given, as_json)

    return click.group(invoke_without_command=True)(shared_options(listing))


def signed(command: F) -> F:
    """Add --by and --reason: each operator act is recorded with a name and a reason."""
    command = click.option("--reason", metavar="TEXT", help="Why; recorded in the history.")(
        command
    )
    return click.option(
        "--by",
        envvar="MILEPOST_BY",
        metavar="NAME",
        help="Your name; recorded in the history [MILEPOST_BY].",
    )(command)


def act_options(command: F) -> F:
    """Add the options of an act that can be previewed: --by, --reason, --dry-run, and the shared
    ones."""
    return signed(dry_run_option(shared_options(command)))


def check_signed(by: str | None, reason: str | None, *, dry_run: bool = False) -> tuple[str, str]:
    """Name and reason. Raises a usage error if one is missing; a dry run needs neither."""
    missing = [
        name
        for name, value in (("--by NAME", by), ("--reason TEXT", reason))
        if not (value or "").strip()
    ]
    if missing and not dry_run:
        command = click.get_current_context().command
        preview = (
            " (--dry-run needs neither)"
            if any(one.name == "dry_run" for one in command.params)
            else ""
        )
        raise click.UsageError(
            f"{' and '.join(missing)} missing: every act is recorded with a name and a reason{preview}"
        )
    return by or "preview", reason or "preview"


def at_option(text: str, option: str = "--at") -> datetime | timedelta:
    """The time that the option names; a span counts from the beginning of the act. A time without a
    zone is local time, as in all output of the command line."""
    from datetime import UTC, datetime, timedelta

    from milepost.core.values.durations import is_span, local_zone, moment_ms, span_ms

    if text.strip().lower() == "now":
        return timedelta(0)
    if is_span(text):
        return timedelta(milliseconds=span_ms(text, option))
    now = datetime.now(UTC)
    return datetime.fromtimestamp(
        moment_ms(text, round(now.timestamp() * 1000), option, local_zone()) / 1000, UTC
    )


limit_option = click.option(
    "--limit", type=click.IntRange(1), default=20, show_default=True, help="At most this many."
)


def print_rest(n: int) -> None:
    if n > 0:
        click.echo(f"… and {n:,} earlier; give --limit.")


_OPTIONS = (
    click.option(
        "--status",
        "statuses",
        multiple=True,
        metavar="STATUS",
        help="A status, 'failed' or 'live'; may be repeated.",
    ),
    click.option(
        "--stage",
        "stages",
        multiple=True,
        metavar="STAGE",
        help="Items at this stage; may be repeated.",
    ),
    click.option("--lane", metavar="LANE", help="Items in this lane."),
    click.option(
        "--group", metavar="ID", help="Items with this kind of error (see 'milepost groups')."
    ),
    click.option(
        "--list",
        "list_",
        metavar="NAME",
        help="Items from the lists with this name, or from the list with this id (see 'milepost lists').",
    ),
    click.option(
        "--part",
        "parts",
        multiple=True,
        metavar="FIELD=VALUE",
        help="Items whose composite key has this part, such as batchId=B-7; may be repeated.",
    ),
    click.option(
        "--older-than",
        metavar="SPAN",
        help="Items that entered their stage, or ended, longer ago than this, such as 2d.",
    ),
)


def filters(command: F) -> F:
    """Add the filter options to a command; they arrive as one `item_filter`."""

    @functools.wraps(command)
    def with_filter(
        *args: Any,
        statuses: tuple[str, ...],
        stages: tuple[str, ...],
        lane: str | None,
        group: str | None,
        list_: str | None,
        parts: tuple[str, ...],
        older_than: str | None,
        **options: Any,
    ) -> Any:
        from milepost.engine.views.item_filter import ItemFilter

        item_filter = ItemFilter(
            statuses=statuses,
            stages=stages,
            lane=lane,
            group=group,
            list_=list_,
            parts=parts,
            older_than=older_than,
        )
        return command(*args, item_filter=item_filter, **options)

    with_options: Callable[..., Any] = with_filter
    for option in reversed(_OPTIONS):
        with_options = option(with_options)
    return cast(F, with_options)


yes_option = click.option(
    "--yes", is_flag=True, help="Do not ask for confirmation, however many rows must be read."
)


def confirm_cost(ctx: Context, query: Query, yes: bool, *, quiet: bool = False) -> None:
    """Warn if a query reads many rows, and ask if it reads very many; without a terminal that needs
    --yes."""
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
        raise UsageError(
            f"{warning}; to do it all the same, give --yes ('--status failed' is served by an index)"
        )
