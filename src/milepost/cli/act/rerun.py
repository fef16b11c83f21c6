"""`milepost rerun`: run completed items again."""

from __future__ import annotations

from typing import Any

import click

from milepost.cli.act.targets import act_on_items, on_items
from milepost.cli.config import CliSettings


@click.command()
@click.option("--from", "to_stage", metavar="STAGE", help="Start at this stage instead of the first.")
@click.option("--as-new", is_flag=True, help="New work_id also at the last stage, so that the partner does the work again.")
@click.option(
    "--pace", metavar="RATE", help="Let the resender start them at this rate, such as 50/s [default: all at once]. Only with filters."
)
@on_items
def rerun(given: CliSettings, pace: str | None, **options: Any) -> int:
    """Run completed items again.

    They start at the first stage, or at --from. Give keys, or select by filter: 'milepost rerun parcels --list march.csv --by ops
    --reason lost'; without --status all matching COMPLETED items are selected. An item whose row has been removed is refused, unless
    the ledger can restore it from its evidence.
    """
    from milepost.core.values.durations import rate_per_second

    return act_on_items(given, "rerun", pace=None if pace is None else rate_per_second(pace, "--pace"), **options)
