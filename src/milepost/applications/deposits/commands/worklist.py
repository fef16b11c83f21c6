"""Commands for manual deposits: `milepost deposits worklist`, `claim` and `release`."""

from __future__ import annotations

import shlex
import sys

import click
import msgspec

import milepost as mp
from milepost.applications.deposits.acts import DepositsApp, keys_of
from milepost.applications.deposits.application import application
from milepost.applications.deposits.people.claims import claim, release
from milepost.applications.deposits.people.worklist import PAGE, WorklistPage, whole_worklist, worklist_csv, worklist_page


@application.command("worklist")
@click.option("--search", default="", metavar="TEXT", help="Only DOIs that hold this: a DOI, or a part of one.")
@click.option("--limit", default=PAGE, type=click.IntRange(1, 100_000), show_default=True, help="Most DOIs on a page.")
@click.option("--after", default="", metavar="PLACE", help="The page after this place; each page names the place of the next one.")
@click.option("--csv", "as_csv", is_flag=True, help="All of them, as a table for spreadsheet programs.")
@mp.json_option
def worklist_command(app: DepositsApp, search: str, limit: int, after: str, as_csv: bool, as_json: bool) -> None:
    """List the DOIs that need a manual deposit, the latest failure first, with the last error and advice."""
    if as_csv:
        sys.stdout.buffer.write(worklist_csv(whole_worklist(app, search)))
        sys.stdout.buffer.flush()
        return
    page = worklist_page(app, search=search, after=after, most=limit)
    if as_json:
        click.echo(msgspec.json.encode(page))
    else:
        _print(page, search, limit)


def _print(page: WorklistPage, search: str, limit: int) -> None:
    for one in page.deposits:
        click.echo(f"{one.doi}{f'  {one.title}' if one.title else ''}")
        click.echo(f"  at {one.stage}: {one.error}\n  {one.advice}")
        if one.claim is not None:
            click.echo(f"  claimed by {one.claim.name} since {one.claim.at}")
    found = f", {page.found:,} with {search!r}" if search else ""
    shown = (
        f"; {page.first:,} to {page.first + len(page.deposits) - 1:,} are shown"
        if page.deposits and page.found > len(page.deposits)
        else ""
    )
    click.echo(f"{page.waiting:,} {'DOI needs' if page.waiting == 1 else 'DOIs need'} a manual deposit{found}{shown}", err=True)
    if page.deposits:
        click.echo("deposited by hand: milepost deposits deposited DOI --handle HANDLE --by YOU --reason '…'", err=True)
        click.echo("try it again:      milepost deposits requeue DOI --by YOU --reason '…'", err=True)
    if page.after is not None:
        again = ["--search", search] if search else []
        again += ["--limit", f"{limit}"] if limit != PAGE else []
        click.echo(f"next: milepost deposits worklist {shlex.join([*again, '--after', page.after])}", err=True)


@application.command("claim", ledger="write")
@click.argument("doi")
@click.option("--by", "name", required=True, metavar="NAME", help="The person who makes the deposit.")
def claim_command(app: DepositsApp, doi: str, name: str) -> None:
    """Claim a manual deposit: "I do this one"."""
    held = claim(app, doi, name=name)
    click.echo(f"{held.doi} is claimed by {held.name}")


@application.command("release", ledger="write")
@click.argument("doi")
@click.option("--by", "name", required=True, metavar="NAME", help="The person who releases it.")
def release_command(app: DepositsApp, doi: str, name: str) -> int:
    """End the claim on a manual deposit."""
    held = release(app, doi, by=name)
    key = keys_of([doi])[0]
    click.echo(f"{key} is not claimed" if held is None else f"{key} is released; it was claimed by {held.name}", err=held is None)
    return 1 if held is None else 0
