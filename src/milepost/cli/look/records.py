"""What is on record beside the items: the lists that were handed over, and the acts of people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from milepost.cli.config import CliSettings
from milepost.cli.options import json_option, settings
from milepost.cli.out import page, print_json, safe, show_table, table

if TYPE_CHECKING:
    from milepost.engine.context import Context
    from milepost.ports.documents import Act, ListRecord

limit_option = click.option("--limit", type=click.IntRange(1), default=20, show_default=True, help="At most this many.")


@click.command()
@click.argument("route", required=False)
@click.option("--vanished", "vanished_from", metavar="ID", help="The keys that the full list before had and this one has not, one a line.")
@limit_option
@json_option
@settings
def lists(given: CliSettings, route: str | None, vanished_from: str | None, limit: int, as_json: bool) -> None:
    """The lists that were handed over, and what they held.

    The latest first. Choose items by the list that brought them with --list NAME, or --list ID for exactly one.
    """
    if vanished_from is not None:
        _print_vanished(given, route, vanished_from, as_json)
        return
    from milepost.engine.views.items import list_view
    from milepost.engine.views.items import lists as look

    with given.context() as ctx:
        _check(ctx, route)
        found = look(ctx, route)[::-1]
        now = ctx.clock.now()
    if as_json:
        print_json({"lists": [list_view(record) for record in found[:limit]], "more": len(found) > limit})
        return
    if not found:
        click.echo("No list was handed over yet; 'milepost submit ROUTE FILE' takes one in.")
        return
    shown = table("list", "name", "when", "what it held")
    for record in found[:limit]:
        name = record.name if route else f"{record.route}: {record.name}"
        shown.add_row(record.id, safe(name), _moment(record.at, now), safe(_held(record)))
    show_table(shown)
    _rest(len(found) - limit)


def _print_vanished(given: CliSettings, route: str | None, list_id: str, as_json: bool) -> None:
    """All of them, however many: meant for a file, or for the next command."""
    from milepost.engine.lists.reconcile import vanished_keys

    if route is None:
        raise click.UsageError("say of which route: milepost lists ROUTE --vanished ID")
    with given.context() as ctx:
        _check(ctx, route)
        keys = vanished_keys(ctx, route, list_id)
        if as_json:
            print_json({"vanished": list(keys)})
            return
        for key in keys:
            click.echo(key)


def _held(record: ListRecord) -> str:
    """Its counts, without the zeros; whether it was the whole list, and whether it was read to the end."""
    counts = [f"{n:,} {word.replace('_', ' ')}" for word, n in record.counts.items() if n] or ["nothing"]
    parts = counts if record.keys_blob else ["not finished: submit it again"]
    return ("full: " if record.full else "") + ", ".join(parts)


@click.command()
@click.argument("route", required=False)
@limit_option
@json_option
@settings
def acts(given: CliSettings, route: str | None, limit: int, as_json: bool) -> None:
    """What people did: who, what, why, and how it went.

    The latest first: bulk acts on items, pauses, limits, changed routes, pruning, subscribers. An act on a single item
    stands in that item's history alone ('milepost show'). One that was cut off says how to go on with it.
    """
    from milepost.engine.act_log import act_view, all_acts

    with given.context() as ctx:
        _check(ctx, route)
        found = all_acts(ctx, route)
        now = ctx.clock.now()
    if as_json:
        print_json({"acts": [act_view(act) for act in found[:limit]], "more": len(found) > limit})
        return
    if not found:
        click.echo("No act is on record yet. (For acts on a single item see 'milepost show'.)")
        return
    with page() as to:
        for act in found[:limit]:
            view = act_view(act)
            to.print(
                f"[bold]{_moment(act.started_at, now)}  {safe(act.verb)} {safe(_place(act))}[/]  by {safe(act.by)}: {safe(act.reason)}"
            )
            to.print(f"  act {safe(act.id)}: {_went(act)}")
            if view["go_on"]:
                to.print(f"  to go on: {safe(view['go_on'])}", soft_wrap=True)
    _rest(len(found) - limit)


def _place(act: Act) -> str:
    """What the act was about."""
    about: dict[str, Any] = act.filter
    return str(about.get("scope") or about.get("subscriber") or act.route)


def _went(act: Act) -> str:
    from milepost.engine.views.items import counted

    if "scope" in act.filter or act.verb == "forget":
        return "done"
    if act.verb == "replay" and "subscriber" in act.filter:
        return f"{counted(act.done, 'line')} to be told again"
    what = counted(act.done, "row" if act.verb == "prune" else "item")
    refused = f", {act.refused:,} refused" if act.refused else ""
    return f"done to {what}{refused}" + ("" if act.finished_at is not None else "; not finished")


def _check(ctx: Context, route: str | None) -> None:
    from milepost.engine.views.items import check_route

    if route is not None:
        check_route(ctx, route)


def _moment(ms: int, now: int) -> str:
    from milepost.engine.views.items import clock_time

    return clock_time(ms, now)


def _rest(n: int) -> None:
    if n > 0:
        click.echo(f"… and {n:,} earlier; give --limit.")
