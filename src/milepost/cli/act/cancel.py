"""`milepost cancel`: end items as CANCELLED."""

from __future__ import annotations

from typing import Any

import click

from milepost.cli.act.targets import act_on_items, on_items
from milepost.cli.config import CliSettings


@click.command()
@on_items
def cancel(given: CliSettings, **options: Any) -> int:
    """Cancel items: no further stage runs."""
    return act_on_items(given, "cancel", **options)
