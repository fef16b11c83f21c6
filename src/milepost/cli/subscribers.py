"""`milepost subscribers`: who is told, how far, and what they refused."""

from __future__ import annotations

import click

from milepost.cli.config import Settings
from milepost.cli.options import check_signed, json_option, settings, signed
from milepost.cli.out import console, print_json, safe, show_table, table
from milepost.core.errors import MilepostError


@click.group(invoke_without_command=True)
@json_option
@settings
def subscribers(given: Settings, as_json: bool) -> None:
    """Who is told, how far, and what is parked for them."""
    from msgspec import to_builtins

    from milepost.core.durations import iso
    from milepost.engine.cursors import silent
    from milepost.engine.observe import when
    from milepost.ports.documents import CURSOR, PARKED, Cursor, Parked, read_as

    context = click.get_current_context()
    context.obj = given
    if context.invoked_subcommand is not None:
        return
    with given.context() as ctx:
        now, newest = ctx.clock.now(), ctx.ledger.last_seq()
        cursors = {name: read_as(Cursor, document.value) for name, document in sorted(ctx.ledger.read(CURSOR).items())}
        parked = [read_as(Parked, document.value) for document in ctx.ledger.read(PARKED).values()]
        quiet = set(silent(ctx))
    cursors = {name: cursor for name, cursor in cursors.items() if not cursor.removed}
    if as_json:
        print_json(
            {
                "subscribers": [
                    {
                        "name": name,
                        "told_at": iso(cursor.told_at or None),
                        "behind": newest - cursor.seq,
                        "parked": [
                            {**to_builtins(entry), "since": iso(entry.since), "retry_at": iso(entry.retry_at or None)}
                            for entry in parked
                            if entry.subscriber == name
                        ],
                        "failures": cursor.failures,
                        "error": cursor.error or None,
                        "silent": name in quiet,
                    }
                    for name, cursor in cursors.items()
                ]
            }
        )
        return
    if not cursors:
        click.echo("Nobody is told. Name subscribers in milepost.toml, as in")
        click.echo('  subscribers = ["log"]')
        click.echo("and run 'milepost up'.")
        return
    shown = table("name", "last told", "lines behind", "parked", "trouble", right=["lines behind", "parked"])
    for name, cursor in cursors.items():
        told = when(cursor.told_at, now) if cursor.told_at else "never"
        held = sum(entry.subscriber == name for entry in parked)
        shown.add_row(safe(name), told, f"{newest - cursor.seq:,}", f"{held:,}", safe(cursor.error or ("silent" if name in quiet else "")))
    to = console()
    show_table(shown)
    for entry in parked[:20]:
        to.print(f"parked for {safe(entry.subscriber)}: {safe(entry.route)}/{safe(entry.key)}: {safe(entry.error)}", soft_wrap=True)


@subscribers.command()
@click.argument("name")
@click.argument("route", required=False)
@click.argument("key", required=False)
@signed
@settings
def release(given: Settings, name: str, route: str | None, key: str | None, by: str | None, reason: str | None) -> None:
    """Try parked items again now: all, a route's, or one."""
    from milepost.engine.observe import counted
    from milepost.engine.parking import release as let_go

    who, why = check_signed(by, reason)
    with given.context() as ctx:
        n = let_go(ctx, name, route, key, by=who, reason=why)
    click.echo(f"{counted(n, 'parked item')} {'is' if n == 1 else 'are'} tried again for {name}.")


@subscribers.command()
@click.argument("name")
@signed
@settings
def forget(given: Settings, name: str, by: str | None, reason: str | None) -> None:
    """Tell a subscriber no more; nothing is kept for it."""
    from milepost.engine.cursors import forget_subscriber

    who, why = check_signed(by, reason)
    with given.context() as ctx:
        known = forget_subscriber(ctx, name, by=who, reason=why)
    if not known:
        raise MilepostError(f"there is no subscriber {name!r}; 'milepost subscribers' names them")
    click.echo(f"{name} is told no more. If it is started again, it goes on from here.")
