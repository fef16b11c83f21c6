"""`milepost move`: move routes with their items and histories to another ledger."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

import click

from milepost.cli.config import CliSettings, check_there, is_there
from milepost.cli.options import act_options, check_signed
from milepost.cli.output import console, print_json, print_table, progress, safe
from milepost.core.errors import ConfigMistake, UsageError

if TYPE_CHECKING:
    from milepost.engine.context import Context
    from milepost.engine.transfer.copy import MoveReport

SHOWN = 20


@click.command()
@click.option(
    "--to", "to_url", required=True, metavar="URL", help="Target ledger: dynamodb://REGION/PREFIX."
)
@click.option(
    "--route", "only", multiple=True, metavar="ROUTE", help="Only this route; may be repeated."
)
@click.option("--give-up", is_flag=True, help="Abandon an unfinished move: unlock the routes here.")
@act_options
def move(
    given: CliSettings,
    to_url: str,
    only: tuple[str, ...],
    give_up: bool,
    by: str | None,
    reason: str | None,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Move the items to a ledger on AWS.

    Moves rows, contents, histories byte for byte, seals, lists, pauses, limits, acts, subscriber
    cursors, alerts, and the documents of applications whose routes all move, such as destinations
    and figures; names what it leaves. Stop all processes first. The routes are locked in both
    ledgers until everything has been compared; then this ledger points to the new one. If
    interrupted, run the same command again. Exit code 1 if something differs.
    """
    from milepost.engine.transfer.copy import move as carry
    from milepost.engine.transfer.lock import give_up as open_again

    who, why = check_signed(by, reason, dry_run=dry_run)
    with _both(given, to_url, dry_run) as (source, target):
        names = _routes(source, only)
        if give_up:
            opened = [] if dry_run else open_again(source, names, by=who, reason=why)
            if as_json:
                print_json({"opened": opened})
            else:
                click.echo(
                    f"Unlocked here: {', '.join(opened)}."
                    if opened
                    else "No unfinished move; nothing was changed."
                )
            return 0
        with progress("moving", quiet=as_json or dry_run) as on_progress:
            report = carry(
                source,
                target,
                names,
                by=who,
                reason=why,
                dry_run=dry_run,
                applications={
                    one.name: one.application.translate
                    for one in given.applications
                    if one.routes and {route.name for route in one.routes} <= set(names)
                },
                on_progress=lambda what, done, whole: on_progress(done, done, whole),
            )
    report.to = to_url
    if as_json:
        print_json(report)
    else:
        _print_report(report)
    return 0 if report.finished or dry_run else 1


@contextmanager
def _both(given: CliSettings, to_url: str, dry_run: bool) -> Iterator[tuple[Context, Context]]:
    """Open both ledgers with the same routes. Only a missing target ledger is created."""
    from milepost.composition import open_context

    routes, url = given.routes(), given.ledger
    if not routes:
        raise ConfigMistake(
            'no route is configured: give --routes file.py, or set routes = ["file.py"] in milepost.toml'
        )
    if not url.startswith("sqlite:"):
        raise UsageError(
            f"only a SQLite ledger can be moved, not {url}; give it as --ledger sqlite:///FILE"
        )
    if not to_url.startswith("dynamodb:"):
        raise UsageError(
            f"the target must be a ledger on AWS, not {to_url}; give --to dynamodb://REGION/PREFIX"
        )
    check_there(url)
    source = open_context(url, routes, check=False, mode=given.mode)
    with closing(source.ledger):
        there = "memory:" if dry_run and not is_there(to_url) else to_url
        target = open_context(there, routes, check=False, make=not dry_run)
        with closing(target.ledger):
            yield source, target


def _routes(ctx: Context, only: tuple[str, ...]) -> list[str]:
    """The named routes, or all routes of the ledger. Refuses a route without a route file, which
    would be left behind."""
    from milepost.engine.heads.route import ROUTE as HEADS
    from milepost.engine.transfer.lock import marks
    from milepost.ports.documents import ROUTE

    # The daily heads stay here, because they describe this ledger's feed.
    known, moved = sorted(ctx.ledger.read(ROUTE).keys() - {HEADS}), marks(ctx)
    under_way = next((mark.routes for mark in moved.values() if mark.finished_at is None), None)
    names = list(only) or under_way or [name for name in known if name not in moved] or known
    missing = [name for name in names if name not in ctx.plans]
    if missing:
        raise UsageError(
            f"no route file for {', '.join(missing)}; give --routes, or select routes with --route"
        )
    if not names:
        raise UsageError("nothing to move: the ledger has no routes")
    return names


def _print_report(report: MoveReport) -> None:
    from milepost.engine.views.items import counted

    to = console()
    of = f"{', '.join(report.routes)} to {report.to}"
    what = (
        f"{counted(report.items, 'item')} with {counted(report.lines, 'history line')}, {counted(report.seals, 'seal')}"
        f" and {counted(report.documents, 'document')}"
    )
    if report.dry_run:
        to.print(
            f"{safe(of)}: dry run, {what} would be moved. Nothing was changed.", soft_wrap=True
        )
    elif report.before:
        to.print(f"{safe(of)}: already moved; nothing was changed.", soft_wrap=True)
    elif report.finished:
        to.print(f"{safe(of)}: moved and compared {what}.", soft_wrap=True)
    for word, n in report.statuses.items():
        to.print(f"  {n:,} {word}")
    if report.lost:
        to.print(
            f"{counted(report.lost, 'item')} had a lease of a dead worker: counted as losses, and run again there."
        )
    for name, behind in report.subscribers.items():
        rest = (
            f"receives the last {counted(behind, 'line')} from there"
            if behind
            else "has received everything, and receives new events from there"
        )
        to.print(f"{safe(name)} {rest}.")
    if report.left and not report.before:
        names = ", ".join(report.left[:SHOWN]) + (
            f" and {len(report.left) - SHOWN:,} more" if len(report.left) > SHOWN else ""
        )
        to.print(
            f"Not moved: {safe(names)}. Make them again there if they are needed.", soft_wrap=True
        )
    if report.finished:
        to.print(
            f'From now on use the new ledger for these routes: ledger = "{safe(report.to)}"',
            soft_wrap=True,
        )
    if report.differences:
        print_table(
            ("route", "key", "what differs"),
            [(one.route, one.key, one.what) for one in report.differences[:SHOWN]],
        )
        more = len(report.differences) - SHOWN
        to.print(
            (f"… and {more:,} more. " if more > 0 else "")
            + "The move is not finished; correct the differences and run it again."
        )
