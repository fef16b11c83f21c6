"""`milepost replace`: give an item new content."""

from __future__ import annotations

from typing import Any

import click

from milepost.cli.act.targets import act_on_items, json_value
from milepost.cli.config import CliSettings
from milepost.cli.options import act_options


@click.command()
@click.argument("route")
@click.argument("key")
@click.option("--item", metavar="JSON", help="The complete new content, as for 'milepost submit'.")
@click.option("--file", type=click.File("rb"), metavar="FILE", help="Read the content from a JSON file, or - for standard input.")
@click.option("--here", is_flag=True, help="Start again at the current stage instead of the first.")
@click.option("--rerun", is_flag=True, help="Also replace a COMPLETED item: run it again.")
@act_options
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
    """Replace the content of an item.

    The item starts again with the new content, as new work; an outcome from a worker that still holds it is refused. See the
    difference first with --dry-run. The history keeps the old content. For many items: 'milepost submit … --replace-changed'.
    """
    if (item is None) == (file is None):
        raise click.UsageError("give the new content: --item JSON, or --file FILE")
    text = item if item is not None else file.read().decode(errors="replace")
    content = json_value(text, "--item" if item is not None else file.name)
    options: dict[str, Any] = {"new": {"content": content, "here": here, "rerun": rerun}, "yes": False, "act_id": None}
    return act_on_items(given, "replace", route=route, keys=(key,), by=by, reason=reason, dry_run=dry_run, as_json=as_json, **options)
