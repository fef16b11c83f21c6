"""Options that many commands share. The general ones are taken before and after the command's name."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from milepost.cli.config import CliSettings

if TYPE_CHECKING:
    from datetime import datetime

F = TypeVar("F", bound=Callable[..., Any])

ledger_option = click.option("--ledger", metavar="URL", help="The ledger [MILEPOST_LEDGER; default sqlite:///milepost.db].")
routes_option = click.option("--routes", multiple=True, metavar="FILE[:NAME]", help="A route file, or module:name; may be repeated.")
json_option = click.option("--json", "as_json", is_flag=True, help="Answer in JSON.")
dry_run_option = click.option("--dry-run", is_flag=True, help="Show what would happen; change nothing.")


def settings(command: F) -> F:
    """Give a command --ledger and --routes, and hand it the settings made of them as its first argument."""

    @functools.wraps(command)
    def with_settings(*args: Any, ledger: str | None, routes: tuple[str, ...], **options: Any) -> Any:
        general = click.get_current_context().find_object(CliSettings) or CliSettings()
        return command(general.overridden(ledger, routes), *args, **options)

    return cast(F, ledger_option(routes_option(with_settings)))


def signed(command: F) -> F:
    """Give a command --by and --reason: every act of a person is recorded with who and why."""
    command = click.option("--reason", metavar="TEXT", help="Why; it stays in the history.")(command)
    return click.option("--by", envvar="MILEPOST_BY", metavar="NAME", help="Who does this [MILEPOST_BY].")(command)


def check_signed(by: str | None, reason: str | None, *, dry_run: bool = False) -> tuple[str, str]:
    """Who and why, or a usage error that asks for them; a preview needs neither."""
    missing = [name for name, value in (("--by NAME", by), ("--reason TEXT", reason)) if not (value or "").strip()]
    if missing and not dry_run:
        raise click.UsageError(f"say who acts and why: {' and '.join(missing)} missing (or look first with --dry-run)")
    return by or "preview", reason or "preview"


def at_option(text: str) -> datetime:
    """The time that --at names. A time without a zone is local time, as in all output of the command line."""
    from datetime import UTC, datetime

    from milepost.core.values.durations import moment_ms

    now = datetime.now(UTC)
    if text.strip().lower() == "now":
        return now
    zone = datetime.now().astimezone().tzinfo
    assert zone is not None, "a local time has a zone"
    return datetime.fromtimestamp(moment_ms(text, round(now.timestamp() * 1000), "--at", zone) / 1000, UTC)
