"""Commands of postingest: `milepost postingest confirmer`."""

from __future__ import annotations

import os

import click

import milepost.application as mpa
from milepost_postingest.application import PostingestSettings, application


@application.command(ledger="none")
@click.option("--once", is_flag=True, help="Run one turn, then exit: with 1 if anything failed.")
@click.option(
    "--every",
    metavar="SPAN",
    default="60s",
    show_default=True,
    help="Pause between two turns, such as 60s or 5m.",
)
def confirmer(app: mpa.AppContext[PostingestSettings], once: bool, every: str) -> int:
    """Confirm assets on the rows of a table, without a ledger.

    Receives messages from a queue, runs the check, and writes the confirmation on the asset's row.
    All settings are environment variables; docs/guides/postingest-on-aws.md lists them.
    """
    from milepost_postingest.confirmer.service import run_confirmer

    return run_confirmer(os.environ, once, every)
