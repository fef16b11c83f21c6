"""`milepost quarantine`: show, replay or drop quarantined rows, changes and messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from milepost.cli.config import CliSettings
from milepost.cli.options import check_signed, shared_options, signed
from milepost.cli.output import console, print_json, print_table, printed, safe
from milepost.core.errors import MilepostError

if TYPE_CHECKING:
    from milepost.engine.acts.foreign_rows import QuarantineEntryView


@click.group()
def quarantine() -> None:
    """Quarantined rows, changes and messages.

    Rows from other programs, changes that could not be decided, messages that cannot be read.
    Process them again with 'replay', or delete them with 'drop'.
    """


@quarantine.command("list")
@click.option(
    "-n",
    "--limit",
    type=click.IntRange(1, 10_000),
    default=20,
    show_default=True,
    help="At most this many.",
)
@shared_options
def list_aside(given: CliSettings, limit: int, as_json: bool) -> None:
    """List what is in quarantine, oldest first."""
    from milepost.engine.acts.foreign_rows import quarantine_view
    from milepost.engine.events.replay import moment_ms
    from milepost.engine.views.items import when

    with given.context() as ctx:
        found = quarantine_view(ctx, limit)
        now = ctx.clock.now()
    if printed(found.set_aside, found, "The quarantine is empty.", as_json=as_json):
        return
    rows = []
    for aside in found.set_aside:
        at = "" if aside.at is None else when(moment_ms(aside.at, now, "when"), now)
        rows.append((aside.id, _what(aside), at, aside.reason))
    print_table(("id", "what", "when", "why"), rows)
    if found.more:
        click.echo(f"… and more: these are the first {len(found.set_aside)}; give -n.")


@quarantine.command()
@click.argument("name", metavar="ID")
@shared_options
def show(given: CliSettings, name: str, as_json: bool) -> None:
    """Show one entry with its content."""
    from milepost.engine.acts.foreign_rows import ALL, quarantine_view

    with given.context() as ctx:
        found = next(
            (aside for aside in quarantine_view(ctx, ALL).set_aside if aside.id == name), None
        )
    if found is None:
        raise MilepostError(f"no quarantine entry {name!r}; see 'milepost quarantine list'")
    if as_json:
        print_json(found)
        return
    to = console()
    to.print(f"[bold]{safe(_what(found))}[/]: {safe(found.reason)}", soft_wrap=True)
    print_json(found.content)


@quarantine.command()
@click.argument("ids", nargs=-1, metavar="[ID]...")
@click.option("--all", "whole", is_flag=True, help="All entries.")
@signed
@shared_options
def replay(
    given: CliSettings,
    ids: tuple[str, ...],
    whole: bool,
    by: str | None,
    reason: str | None,
    as_json: bool,
) -> int:
    """Process entries again.

    A row, or a change of one, is decided again as the row is now; a message goes back to its queue.
    What still fails stays in quarantine, with the reason.
    """
    from milepost.engine.acts.foreign_rows import all_ids
    from milepost.engine.acts.foreign_rows import replay as again

    who, why = _asked(ids, whole, by, reason)
    with given.context(act=True) as ctx:
        answers = again(ctx, all_ids(ctx) if whole else ids, by=who, reason=why)
    if as_json:
        print_json({"replayed": answers})
    else:
        click.echo(
            f"{sum(answer.done for answer in answers):,} of {_entries(len(answers))} processed."
        )
        for answer in answers:
            if not answer.done:
                click.echo(f"milepost: {answer.key}: {answer.why}", err=True)
    return 0 if all(answer.done for answer in answers) else 1


@quarantine.command()
@click.argument("ids", nargs=-1, metavar="[ID]...")
@click.option("--all", "whole", is_flag=True, help="All entries.")
@signed
@shared_options
def drop(
    given: CliSettings,
    ids: tuple[str, ...],
    whole: bool,
    by: str | None,
    reason: str | None,
    as_json: bool,
) -> int:
    """Delete entries."""
    from milepost.engine.acts.foreign_rows import all_ids
    from milepost.engine.acts.foreign_rows import drop as throw

    who, why = _asked(ids, whole, by, reason)
    with given.context() as ctx:
        wanted = all_ids(ctx) if whole else list(ids)
        dropped = throw(ctx, wanted, by=who, reason=why)
    if as_json:
        print_json({"dropped": dropped})
    else:
        click.echo(f"{_entries(len(dropped))} deleted.")
    for name in wanted:
        if name not in dropped:
            click.echo(f"milepost: no quarantine entry {name!r}", err=True)
    return 0 if len(dropped) == len(wanted) else 1


def _asked(
    ids: tuple[str, ...], whole: bool, by: str | None, reason: str | None
) -> tuple[str, str]:
    if whole == bool(ids):
        raise click.UsageError("give either ids (see 'milepost quarantine list') or --all")
    return check_signed(by, reason)


def _entries(n: int) -> str:
    return f"{n:,} {'entry' if n == 1 else 'entries'}"


def _what(aside: QuarantineEntryView) -> str:
    """The route of a row or a change, or the queue of a message."""
    content: Any = aside.content if isinstance(aside.content, dict) else {}
    if aside.kind == "message":
        return f"message in {str(content.get('url', '')).rsplit('/', 1)[-1]}"
    return " ".join(filter(None, (aside.kind, str(content.get("route", "")))))
