"""`milepost reschedule`: change the start time of items that have not started yet."""

from __future__ import annotations

from typing import Any

import click

from milepost.cli.act.targets import act_on_items, on_items
from milepost.cli.config import CliSettings
from milepost.cli.options import at_option


@click.command()
@click.option("--at", required=True, metavar="TIME", help="Earliest start: 2027-01-31T08:00, a span from now such as 2h, or 'now'.")
@on_items
def reschedule(given: CliSettings, at: str, **options: Any) -> int:
    """Change the start time of items that have not started yet."""
    return act_on_items(given, "reschedule", not_before=at_option(at), **options)
