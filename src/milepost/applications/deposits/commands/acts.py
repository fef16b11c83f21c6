"""Commands by which people act on deposits: requeue, abandon, deposited, and the lists that they act on."""

from __future__ import annotations

import json

import click

import milepost as mp
from milepost.applications.deposits.acts import DepositsApp, abandon, handle_of, keys_of, mark_deposited, requeue
from milepost.applications.deposits.application import application
from milepost.applications.deposits.dss.service import ResultListener, drop_set_aside, set_aside
from milepost.applications.deposits.stuck.late import find_late_deposits
from milepost.applications.deposits.stuck.report import stuck_deposits


def report(verb: str, dois: tuple[str, ...], refused: dict[str, str]) -> int:
    """Say what was done and what was refused; the exit code."""
    click.echo(f"{verb}: {len(dois) - len(refused)} of {len(dois)}")
    for doi, why in refused.items():
        click.echo(f"  {doi}: {why}", err=True)
    return 1 if refused else 0


@application.command("requeue", ledger="write")
@click.argument("dois", nargs=-1, required=True, metavar="DOI...")
@click.option(
    "--send-again", is_flag=True, help="The submission service will not read the last message: send another. DSpace is searched first."
)
@mp.signed
def requeue_command(app: DepositsApp, dois: tuple[str, ...], send_again: bool, by: str | None, reason: str | None) -> int:
    """Try DOIs again that have failed or were abandoned."""
    by, reason = mp.check_signed(by, reason)
    return report("requeued", dois, requeue(app, dois, by=by, reason=reason, send_again=send_again))


@application.command("abandon", ledger="write")
@click.argument("dois", nargs=-1, required=True, metavar="DOI...")
@mp.signed
def abandon_command(app: DepositsApp, dois: tuple[str, ...], by: str | None, reason: str | None) -> int:
    """Take DOIs off the list: they are not deposited."""
    by, reason = mp.check_signed(by, reason)
    return report("abandoned", dois, abandon(app, dois, by=by, reason=reason))


@application.command("deposited", ledger="write")
@click.argument("doi")
@click.option("--handle", required=True, help="The handle of the item in DSpace, such as 1721.1/400778.")
@mp.signed
def deposited_command(app: DepositsApp, doi: str, handle: str, by: str | None, reason: str | None) -> None:
    """Mark a DOI as deposited by hand."""
    by, reason = mp.check_signed(by, reason)
    mark_deposited(app, doi, handle, by=by, reason=reason)
    click.echo(f"{keys_of([doi])[0]} is deposited as {handle_of(handle)}")


@application.command("results", ledger="write")
def results_command(app: DepositsApp) -> int:
    """Apply the results of the submission service that are in its queue."""
    tally = ResultListener(app).turn()
    click.echo(
        f"{tally.received} results: {tally.deposited} deposited, {tally.failed} failed, {tally.noted} late, {tally.set_aside} set aside,"
        f" {tally.left} left in the queue"
    )
    return 1 if tally.left else 0


@application.command("stuck")
@click.option("--search", is_flag=True, help="Search DSpace for DOIs that have failed, and complete those that it has.")
def stuck_command(app: DepositsApp, search: bool) -> None:
    """List DOIs whose submission has had no result for too long."""
    for one in stuck_deposits(app):
        click.echo(f"{one.doi}  {one.status}  since {one.since}")
    for doi in find_late_deposits(app) if search else ():
        click.echo(f"{doi}  found in DSpace, completed")


@application.command("set-aside")
@click.option("--drop", metavar="MESSAGE", help="Remove the message with this id.")
def set_aside_command(app: DepositsApp, drop: str | None) -> int:
    """List messages of the results queue that could not be used, as JSON lines."""
    if drop is not None:
        dropped = drop_set_aside(app, drop)
        click.echo(f"{drop} is removed" if dropped else f"no message {drop} is set aside", err=not dropped)
        return 0 if dropped else 1
    for message, content in set_aside(app).items():
        click.echo(json.dumps({"message": message, **content}))
    return 0
