"""`milepost move`: the ledger's items, their histories and everything around them go to another ledger."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from milepost.cli.config import CliSettings, check_there, is_there
from milepost.cli.options import check_signed, dry_run_option, json_option, settings, signed
from milepost.cli.out import console, print_json, progress, safe, show_table, table
from milepost.core.errors import ConfigMistake, UsageError

if TYPE_CHECKING:
    from milepost.engine.context import Context
    from milepost.engine.transfer.copy import MoveReport

SHOWN = 20


@click.command()
@click.option("--to", "to_url", required=True, metavar="URL", help="Where to: dynamodb://REGION/PREFIX.")
@click.option("--route", "only", multiple=True, metavar="ROUTE", help="Only this route; may be repeated.")
@click.option("--give-up", is_flag=True, help="Open the routes here again, if a move was begun and not finished.")
@signed
@dry_run_option
@json_option
@settings
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

    Rows, contents, histories to the byte, seals, lists, pauses, limits, acts, and how far each subscriber has been told. All processes must have been stopped. Until everything has been
    compared, nobody works on the routes, here or there; then this ledger says where they have gone. Cut off, the same command goes on. Exit code 1 if something differs.
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
                click.echo(f"Open here again: {', '.join(opened)}." if opened else "No move is under way; nothing was changed.")
            return 0
        with progress("moving", quiet=as_json or dry_run) as told:
            report = carry(
                source, target, names, by=who, reason=why, dry_run=dry_run, on_progress=lambda what, done, whole: told(done, done, whole)
            )
    report.to = to_url
    if as_json:
        print_json(report)
    else:
        _tell(report)
    return 0 if report.finished or dry_run else 1


@contextmanager
def _both(given: CliSettings, to_url: str, dry_run: bool) -> Iterator[tuple[Context, Context]]:
    """Both ledgers, with the same routes; neither is changed by opening it, but that one which is not there is made."""
    from milepost.wiring import open_context

    routes, url = given.routes(), given.ledger
    if not routes:
        raise ConfigMistake('no route is known: give --routes file.py, or name it in milepost.toml (routes = ["file.py"])')
    if not url.startswith("sqlite:"):
        raise UsageError(f"only a SQLite ledger can be moved, not {url}; name it with --ledger sqlite:///FILE")
    if not to_url.startswith("dynamodb:"):
        raise UsageError(f"items can be moved to a ledger on AWS, not to {to_url}; write --to dynamodb://REGION/PREFIX")
    check_there(url)
    source = open_context(url, routes, check=False)
    try:
        there = "memory:" if dry_run and not is_there(to_url) else to_url
        target = open_context(there, routes, check=False, make=not dry_run)
        try:
            yield source, target
        finally:
            target.ledger.close()
    finally:
        source.ledger.close()


def _routes(ctx: Context, only: tuple[str, ...]) -> list[str]:
    """The routes that were named, or all that the ledger has. One whose file is not given would be left behind unseen."""
    from milepost.engine.heads.route import ROUTE as HEADS
    from milepost.engine.transfer.lock import marks
    from milepost.ports.documents import ROUTE

    # The daily heads stay: they speak of this ledger's feed.
    known, moved = sorted(ctx.ledger.read(ROUTE).keys() - {HEADS}), marks(ctx)
    under_way = next((mark.routes for mark in moved.values() if mark.finished_at is None), None)
    names = list(only) or under_way or [name for name in known if name not in moved] or known
    missing = [name for name in names if name not in ctx.plans]
    if missing:
        raise UsageError(
            f"the ledger has items of {', '.join(missing)}, of which no route file is given; give --routes, or choose by --route"
        )
    if not names:
        raise UsageError("there is nothing to move: the ledger has no route")
    return names


def _tell(report: MoveReport) -> None:
    from milepost.engine.views.items import counted

    to = console()
    of = f"{', '.join(report.routes)} to {report.to}"
    what = (
        f"{counted(report.items, 'item')} with {counted(report.lines, 'history line')}, {counted(report.seals, 'seal')}"
        f" and {counted(report.documents, 'document')}"
    )
    if report.dry_run:
        to.print(f"{safe(of)}: {what} would be moved. Nothing was changed.", soft_wrap=True)
    elif report.before:
        to.print(f"{safe(of)}: moved before; nothing was changed.", soft_wrap=True)
    elif report.finished:
        to.print(f"{safe(of)}: {what} were moved, and found there just as they are here.", soft_wrap=True)
    for word, n in report.statuses.items():
        to.print(f"  {n:,} {word}")
    if report.lost:
        to.print(f"{counted(report.lost, 'item')} had been held by workers that are gone: losses, tried again there.")
    for name, behind in report.subscribers.items():
        rest = f"is told the last {counted(behind, 'line')} there" if behind else "has been told everything, and is told what is new"
        to.print(f"{safe(name)} {rest}.")
    if report.finished:
        to.print(f'Whoever works on these routes does so there from now on: ledger = "{safe(report.to)}"', soft_wrap=True)
    if report.differences:
        shown = table("route", "key", "what differs")
        for difference in report.differences[:SHOWN]:
            shown.add_row(safe(difference.route), safe(difference.key), safe(difference.what))
        show_table(shown)
        more = len(report.differences) - SHOWN
        to.print((f"… and {more:,} more. " if more > 0 else "") + "The move is not finished; put this right, and run it again.")
