"""`milepost retry`: start items again at their stage."""

from __future__ import annotations

from typing import Any

import click

from milepost.cli.act.item_acts import act_on_items, on_items
from milepost.cli.config import CliSettings


@click.command()
@click.option("--to", "to_stage", metavar="STAGE", help="Send the items back to this earlier stage.")
@click.option("--as-new", is_flag=True, help="With a new work_id: the partner is to do it afresh.")
@on_items
def retry(given: CliSettings, **options: Any) -> int:
    """Start items again at their stage.

    Counts return to zero. Name keys, or choose by filter: 'milepost retry parcels --status failed --by ops --reason fixed'.
    """
    return act_on_items(given, "retry", **options)
