"""`milepost retry`: start items again at their stage."""

from __future__ import annotations

from typing import Any

import click

from milepost.cli.act.targets import act_on_items, on_items
from milepost.cli.config import CliSettings


@click.command()
@click.option("--to", "to_stage", metavar="STAGE", help="Send the items back to this earlier stage.")
@click.option("--as-new", is_flag=True, help="New work_id, so that the partner does the work again.")
@on_items
def retry(given: CliSettings, **options: Any) -> int:
    """Start items again at their stage.

    Attempts start again at zero. Give keys, or select by filter: 'milepost retry parcels --status failed --by ops --reason fixed'.
    """
    return act_on_items(given, "retry", **options)
