"""Commands for manual deposits: `milepost deposits worklist`, `claim` and `release`."""

from __future__ import annotations

import sys

import click
import msgspec

import milepost as mp
from milepost.applications.deposits.acts import DepositsApp
from milepost.applications.deposits.application import application
from milepost.applications.deposits.people.claims import claim, release
from milepost.applications.deposits.people.worklist import worklist, worklist_csv


@application.command("worklist")
@click.option("--prefix", default="", help="Only DOIs that begin with this.")
@click.option("--csv", "as_csv", is_flag=True, help="As a table for spreadsheet programs.")
@mp.json_option
def worklist_command(app: DepositsApp, prefix: str, as_csv: bool, as_json: bool) -> None:
    """List the DOIs that need a manual deposit, with the last error and advice."""
    found, _ = worklist(app, prefix=prefix.lower())
    if as_csv:
        sys.stdout.buffer.write(worklist_csv(found))
        sys.stdout.buffer.flush()
    elif as_json:
        click.echo(msgspec.json.encode(found))
    else:
        for one in found:
            click.echo(f"{one.doi}{f'  {one.title}' if one.title else ''}")
            click.echo(f"  at {one.stage}: {one.error}\n  {one.advice}")
            if one.claim is not None:
                click.echo(f"  claimed by {one.claim.name} since {one.claim.at}")


@application.command("claim", ledger="write")
@click.argument("doi")
@click.option("--by", "name", required=True, metavar="NAME", help="The person who makes the deposit.")
def claim_command(app: DepositsApp, doi: str, name: str) -> None:
    """Claim a manual deposit: "I do this one"."""
    held = claim(app, doi, name=name)
    click.echo(f"{held.doi} is claimed by {held.name}")


@application.command("release", ledger="write")
@click.argument("doi")
def release_command(app: DepositsApp, doi: str) -> int:
    """End the claim on a manual deposit."""
    released = release(app, doi)
    click.echo(f"{doi} is released" if released else f"{doi} is not claimed", err=not released)
    return 0 if released else 1
