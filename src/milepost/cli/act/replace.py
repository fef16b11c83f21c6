"""`milepost replace`: give an item new content."""

from __future__ import annotations

from typing import Any

import click

from milepost.cli.act.item_acts import act_on_items, json_value
from milepost.cli.config import CliSettings
from milepost.cli.options import dry_run_option, json_option, settings, signed


@click.command()
@click.argument("route")
@click.argument("key")
@click.option("--item", metavar="JSON", help="The content that the item is to have, whole, as it would be submitted.")
@click.option("--file", type=click.File("rb"), metavar="FILE", help="The same from a file of JSON, or - for standard input.")
@click.option("--here", is_flag=True, help="Start again at the item's own stage; at the first if not given.")
@click.option("--rerun", is_flag=True, help="Also if it is COMPLETED: run it again with the new content.")
@signed
@dry_run_option
@json_option
@settings
def replace(
    given: CliSettings,
    route: str,
    key: str,
    item: str | None,
    file: Any,
    here: bool,
    rerun: bool,
    by: str | None,
    reason: str | None,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Give an item other content.

    It starts again with it, as new work; a worker that holds it finds its outcome refused. Look at the difference first with
    --dry-run. The old content stays in the history. For many items: 'milepost submit … --replace-changed'.
    """
    if (item is None) == (file is None):
        raise click.UsageError("give the new content: --item JSON, or --file FILE")
    text = item if item is not None else file.read().decode(errors="replace")
    content = json_value(text, "--item" if item is not None else file.name)
    options: dict[str, Any] = {"new": {"content": content, "here": here, "rerun": rerun}, "yes": False, "act_id": None}
    return act_on_items(given, "replace", route=route, keys=(key,), by=by, reason=reason, dry_run=dry_run, as_json=as_json, **options)
