"""`milepost rerun`: run completed items again."""

from __future__ import annotations

from typing import Any

import click

from milepost.cli.act.item_acts import act_on_items, on_items
from milepost.cli.config import CliSettings


@click.command()
@click.option("--from", "to_stage", metavar="STAGE", help="From this stage on; from the first if not given.")
@click.option("--as-new", is_flag=True, help="With a new work_id also at the last stage: the partner is to do it afresh.")
@click.option("--pace", metavar="RATE", help="So many at a time, such as 50/s, by the resender; else all at once. For filters.")
@on_items
def rerun(given: CliSettings, pace: str | None, **options: Any) -> int:
    """Run completed items again.

    From the first stage, or from another. Name keys, or choose by filter: 'milepost rerun parcels --list march.csv --by ops --reason
    lost'; without a status all COMPLETED ones that match are meant. An item whose row has left is refused, unless the ledger can bring
    it back from its evidence.
    """
    from milepost.core.values.durations import rate_per_second

    return act_on_items(given, "rerun", pace=None if pace is None else rate_per_second(pace, "--pace"), **options)
