"""Options that many commands share. --ledger and --routes are accepted before and after the command's name."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from milepost.cli.config import CliSettings

if TYPE_CHECKING:
    from datetime import datetime

F = TypeVar("F", bound=Callable[..., Any])

ledger_option = click.option("--ledger", metavar="URL", help="URL of the ledger [MILEPOST_LEDGER; default sqlite:///milepost.db].")
routes_option = click.option("--routes", multiple=True, metavar="FILE[:NAME]", help="A route file, or module:name; may be repeated.")
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
dry_run_option = click.option("--dry-run", is_flag=True, help="Show what would happen, without changing anything.")


def settings(command: F) -> F:
    """Add --ledger and --routes to a command and pass it the resulting settings as first argument."""

    @functools.wraps(command)
    def with_settings(*args: Any, ledger: str | None, routes: tuple[str, ...], **options: Any) -> Any:
        general = click.get_current_context().find_object(CliSettings) or CliSettings()
        return command(general.overridden(ledger, routes), *args, **options)

    return cast(F, ledger_option(routes_option(with_settings)))


def listing_group(command: Callable[..., None]) -> click.Group:
    """A group of commands that prints a list if it is called without any of them. Its own --ledger and --routes are for them too."""

    @functools.wraps(command)
    def listing(given: CliSettings, as_json: bool) -> None:
        context = click.get_current_context()
        context.obj = given
        if context.invoked_subcommand is None:
            command(given, as_json)

    return click.group(invoke_without_command=True)(json_option(settings(listing)))


def signed(command: F) -> F:
    """Add --by and --reason: each operator act is recorded with a name and a reason."""
    command = click.option("--reason", metavar="TEXT", help="Why; recorded in the history.")(command)
    return click.option("--by", envvar="MILEPOST_BY", metavar="NAME", help="Your name; recorded in the history [MILEPOST_BY].")(command)


def check_signed(by: str | None, reason: str | None, *, dry_run: bool = False) -> tuple[str, str]:
    """Name and reason. Raises a usage error if one is missing; a dry run needs neither."""
    missing = [name for name, value in (("--by NAME", by), ("--reason TEXT", reason)) if not (value or "").strip()]
    if missing and not dry_run:
        command = click.get_current_context().command
        preview = " (--dry-run needs neither)" if any(one.name == "dry_run" for one in command.params) else ""
        raise click.UsageError(f"{' and '.join(missing)} missing: every act is recorded with a name and a reason{preview}")
    return by or "preview", reason or "preview"


def at_option(text: str, option: str = "--at") -> datetime:
    """The time that the option names. A time without a zone is local time, as in all output of the command line."""
    from datetime import UTC, datetime

    from milepost.core.values.durations import local_zone, moment_ms

    now = datetime.now(UTC)
    if text.strip().lower() == "now":
        return now
    return datetime.fromtimestamp(moment_ms(text, round(now.timestamp() * 1000), option, local_zone()) / 1000, UTC)


limit_option = click.option("--limit", type=click.IntRange(1), default=20, show_default=True, help="At most this many.")


def print_rest(n: int) -> None:
    if n > 0:
        click.echo(f"… and {n:,} earlier; give --limit.")
