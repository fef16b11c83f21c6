"""`milepost groups`: failures grouped by kind of error."""

from __future__ import annotations

import click

from milepost.cli.config import CliSettings
from milepost.cli.options import shared_options
from milepost.cli.output import cut, plain, print_table, printed


@click.command()
@click.argument("route", required=False)
@shared_options
def groups(given: CliSettings, route: str | None, as_json: bool) -> None:
    """Failures by kind: similar errors, counted.

    'now' is the number of items that have the error now, 'ever' how often it occurred. Act on all
    items of a kind with --group; a kind spans all lanes of its stage, and --lane selects one of
    them.
    """
    from milepost.engine.views.items import groups as look

    with given.context() as ctx:
        found = look(ctx, route)
    if printed(found, {"groups": found}, "No failures so far.", as_json=as_json):
        return
    rows = []
    for group in found:
        stage = group["stage"] if route else f"{group['route']}/{group['stage']}"
        rows.append(
            (
                group["group"],
                stage,
                group["category"],
                f"{group['now']:,}",
                f"{group['total']:,}",
                cut(group["sample"], 80),
            )
        )
    print_table(
        ("group", "stage", "kind", "now", "ever", "for example"), rows, right=["now", "ever"]
    )
    if any(group["now"] for group in found):
        click.echo("\nWhen a cause is mended, retry its failed items (--dry-run only counts them):")
        click.echo(
            f"  milepost retry {plain(route or 'ROUTE')} --group GROUP --by YOU --reason '…'"
        )
