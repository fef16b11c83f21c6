"""`milepost lists`: the submitted lists and their counts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from milepost.cli.config import CliSettings
from milepost.cli.options import limit_option, print_rest, shared_options
from milepost.cli.output import print_json, print_table, printed

if TYPE_CHECKING:
    from milepost.ports.documents import ListRecord


@click.command()
@click.argument("route", required=False)
@click.option(
    "--vanished",
    "vanished_from",
    metavar="ID",
    help="Print the keys that the previous full list had and this one has not, one per line.",
)
@limit_option
@shared_options
def lists(
    given: CliSettings, route: str | None, vanished_from: str | None, limit: int, as_json: bool
) -> None:
    """The submitted lists and their counts.

    Latest first. Select the items of a list with --list NAME, or --list ID for exactly one list.
    """
    if vanished_from is not None:
        _print_vanished(given, route, vanished_from, as_json)
        return
    from milepost.engine.views.items import check_route, clock_time, list_view
    from milepost.engine.views.items import lists as look

    with given.context() as ctx:
        check_route(ctx, route)
        found = look(ctx, route)[::-1]
        now = ctx.clock.now()
    value = {"lists": [list_view(record) for record in found[:limit]], "more": len(found) > limit}
    if printed(
        found, value, "No list submitted yet; see 'milepost submit ROUTE FILE'.", as_json=as_json
    ):
        return
    rows = []
    for record in found[:limit]:
        name = record.name if route else f"{record.route}: {record.name}"
        rows.append((record.id, name, clock_time(record.at, now), _counts(record)))
    print_table(("list", "name", "when", "counts"), rows)
    print_rest(len(found) - limit)


def _print_vanished(given: CliSettings, route: str | None, list_id: str, as_json: bool) -> None:
    """Print all vanished keys, for a file or a pipe."""
    from milepost.engine.lists.reconcile import vanished_keys
    from milepost.engine.views.items import check_route

    if route is None:
        raise click.UsageError("name the route: milepost lists ROUTE --vanished ID")
    with given.context() as ctx:
        check_route(ctx, route)
        keys = vanished_keys(ctx, route, list_id)
        if as_json:
            print_json({"vanished": list(keys)})
            return
        for key in keys:
            click.echo(key)


def _counts(record: ListRecord) -> str:
    """Non-zero counts, whether it was a full list, and whether it was read to the end."""
    counts = [f"{n:,} {word.replace('_', ' ')}" for word, n in record.counts.items() if n] or [
        "nothing"
    ]
    parts = counts if record.keys_blob else ["not finished: submit it again"]
    return ("full: " if record.full else "") + ", ".join(parts)
