"""The commands of postingest: `milepost postingest confirmer`."""

from __future__ import annotations

import os

import click

import milepost as mp
from milepost.applications.postingest.application import PostingestSettings, application


@application.command(ledger="none")
@click.option("--once", is_flag=True, help="One turn, then end: with 1 if anything failed.")
@click.option("--every", metavar="SPAN", default="60s", show_default=True, help="The pause between two turns, such as 60s or 5m.")
def confirmer(app: mp.AppContext[PostingestSettings], once: bool, every: str) -> int:
    """Confirm assets on the rows of a table, without a ledger.

    Takes messages from a queue, checks, and writes the confirmation on the asset's row. It is set up by its environment alone;
    docs/guides/postingest-on-aws.md has the variables.
    """
    from milepost.applications.postingest.confirmer.service import run_confirmer

    return run_confirmer(os.environ, once, every)
