"""`milepost skip`: move items to the next stage without running the current one."""

from __future__ import annotations

from typing import Any

import click

from milepost.cli.act.targets import act_on_items, on_items
from milepost.cli.config import CliSettings


@click.command()
@on_items
def skip(given: CliSettings, **options: Any) -> int:
    """Skip the items' current stage without running it."""
    return act_on_items(given, "skip", **options)
