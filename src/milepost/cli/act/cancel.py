"""`milepost cancel`: take items off their route."""

from __future__ import annotations

from typing import Any

import click

from milepost.cli.act.item_acts import act_on_items, on_items
from milepost.cli.config import CliSettings


@click.command()
@on_items
def cancel(given: CliSettings, **options: Any) -> int:
    """Take items off their route."""
    return act_on_items(given, "cancel", **options)
