"""`milepost reschedule`: change the start time of items that have not started."""

from __future__ import annotations

from typing import Any

import click

from milepost.cli.act.item_acts import act_on_items, on_items
from milepost.cli.config import CliSettings
from milepost.cli.options import at_option


@click.command()
@click.option("--at", required=True, metavar="TIME", help="Not before this time: 2027-01-31T08:00, or a span from now such as 2h; 'now'.")
@on_items
def reschedule(given: CliSettings, at: str, **options: Any) -> int:
    """Set items for another time, until they start."""
    return act_on_items(given, "reschedule", not_before=at_option(at), **options)
