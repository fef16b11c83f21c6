"""Commands of deposits: `milepost deposits run`, `worklist`, `requeue` and others; the command line
alone imports them."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import msgspec

import milepost.application as mpa
from milepost_deposits.acts import abandon, handle_of, keys_of, mark_deposited, requeue
from milepost_deposits.application import application
from milepost_deposits.digest.collect import send_again_command, unmailed
from milepost_deposits.dss.results import ResultListener, drop_set_aside, set_aside
from milepost_deposits.imports import ImportReport, import_dois
from milepost_deposits.intake import IntakeReport, TakenList
from milepost_deposits.people.worklist import (
    PAGE,
    WorklistPage,
    claim,
    release,
    whole_worklist,
    worklist_csv,
    worklist_page,
)
from milepost_deposits.rounds import STORE_CURE, RoundReport, run_round
from milepost_deposits.runs import interruption_text, runs
from milepost_deposits.settings import DepositsApp, check_settings
from milepost_deposits.status_names import FAILED, SUCCESS, word_counts
from milepost_deposits.stuck import find_late_deposits, stuck_deposits

SHOWN = 20
"""Most lines of one kind that a command prints."""

as_json_option = click.option("--json", "as_json", is_flag=True, help="The report as JSON.")


@application.command(ledger="write")
@as_json_option
def run(app: DepositsApp, as_json: bool) -> int:
    """One round, for cron.

    Takes in the lists of the inbox and tries each unfinished DOI at most once per stage. A failure
    waits for the next round, until the threshold of its stage is reached. The exit code is 1 if
    something needs people: a manual deposit, a file in the inbox that is no list, a malformed line,
    a digest that could not be mailed, a login that DSpace refuses, or a queue or file store that
    Milepost cannot use. A partner that asks to slow down is named, and its DOIs wait for the next
    round; the exit code stays 0.
    """
    check_settings(app.settings, os.environ)
    report = run_round(app, app.work)
    if as_json:
        click.echo(msgspec.json.encode(report))
    else:
        said = [] if report.cause is None else [report.cause.text]
        for line in [
            *said,
            *map(interruption_text, report.interrupted),
            *intake_lines(report.intake),
            *round_lines(app, report),
        ]:
            click.echo(line)
    return int(report.needs_people)


@application.command()
@as_json_option
def status(app: DepositsApp, as_json: bool) -> None:
    """How many DOIs are in each status."""
    counts = word_counts(app)
    if as_json:
        click.echo(msgspec.json.encode(counts))
    else:
        for line in _count_lines(counts):
            click.echo(line)


@application.command("runs")
@mpa.json_option
def runs_command(app: DepositsApp, as_json: bool) -> None:
    """List the latest runs: running, finished, failed or interrupted, and what each did."""
    found = runs(app)
    if as_json:
        click.echo(msgspec.json.encode(found))
        return
    for one in found:
        where = (
            f"  process {one.process.pid} on {one.process.host}"
            if one.process is not None and one.state != "finished"
            else ""
        )
        done = f"  {one.new:,} new, {one.tried_again:,} tried again, {one.changes.get(SUCCESS, 0):,} deposited, {len(one.digests)} {'digest' if len(one.digests) == 1 else 'digests'}"
        click.echo(
            f"{one.at}  {one.state:<11}{done}{where}{f'  {one.step}' if one.state in ('running', 'interrupted') else ''}"
        )
        if one.error:
            click.echo(f"  {one.error}")
        for name, why in one.refused:
            click.echo(f"  {name} was not taken in: {why}")


def intake_lines(report: IntakeReport) -> Iterator[str]:
    """The lists of the inbox, for people."""
    for taken in report.taken:
        yield from _list_lines(taken)
    for refused in report.refused:
        yield f"{refused.name}: not taken in, and moved to {refused.quarantined or 'nowhere'}: {refused.reason}"
    for unread in report.unread:
        yield f"{unread.name}: not taken in; the next round tries again: {unread.reason}"
    for name in report.growing:
        yield f"{name}: still being written; the next round takes it in"
    if report.ignored:
        yield f"ignored, since they are neither .csv nor .txt nor .xlsx: {', '.join(report.ignored[:SHOWN])}"


def _list_lines(taken: TakenList) -> Iterator[str]:
    found = taken.report
    counted = ", ".join(
        f"{count:,} {name.replace('_', ' ')}" for name, count in found.counts.items() if count
    )
    yield f"{taken.name}: {found.lines:,} {'line' if found.lines == 1 else 'lines'}: {counted or 'nothing in it'}"
    for bad in found.malformed[:SHOWN]:
        yield f"  line {bad.line}: {bad.reason}"
    if len(found.malformed) > SHOWN:
        yield f"  and more: see {taken.archived}.report.json in the inbox"


def round_lines(app: DepositsApp, report: RoundReport) -> Iterator[str]:
    """The result of the round, and the DOIs that need a manual deposit with the last error of
    each."""
    if report.tried_again:
        yield f"tried again: {report.tried_again:,}"
    yield from _count_lines(report.counts)
    yield from (wait.text for wait in report.waits)
    if report.store_fault:
        yield f"{report.store_fault}. Its DOIs wait, and no try is counted; {STORE_CURE}"
    failed = app.items(app.settings.route, statuses=["failed"], limit=SHOWN)
    if failed:
        yield "need a manual deposit:"
    for row in failed:
        yield f"  {row['key']}: at {row['stage']}: {(row['error'] or {}).get('message', 'no error is recorded')}"
    if report.counts[FAILED] > SHOWN:
        yield f"  and {report.counts[FAILED] - SHOWN:,} more"
    for doi, items in report.twins.items():
        yield f"two items in DSpace: {doi}: {', '.join(items)}"
    if failed or report.twins:
        yield "'milepost deposits worklist' says what to do about each"
    if report.digests or report.unmailed or report.mailed_late:
        yield from _mail_lines(app, report)


def _mail_lines(app: DepositsApp, report: RoundReport) -> Iterator[str]:
    """Mails of the round, and those that could not be sent."""
    left = unmailed(app)
    if left.wait:
        yield f"digests not mailed yet: {left.wait}; they are kept, and the next run tries again: {left.wait_error}"
    if left.refused:
        yield f"digests refused: {left.refused}; they are kept, and no run tries again by itself: {left.refused_error}"
        yield f"correct [deposits.mail], then '{send_again_command(app.settings)}'; the next run sends them"
    for reason in report.recipients_refused:
        yield f"a digest was refused for {reason}; correct [deposits.mail]"
    if not report.unmailed:
        mailed = [f"{report.digests}"] if report.digests else []
        mailed += [f"{report.mailed_late} of earlier runs"] if report.mailed_late else []
        yield f"digests mailed: {', and '.join(mailed)}"


def _count_lines(counts: dict[str, int]) -> Iterator[str]:
    width = max(map(len, counts))
    for word, count in counts.items():
        yield f"{word:<{width}}  {count:>9,}"


@application.command("worklist")
@click.option(
    "--search",
    default="",
    metavar="TEXT",
    help="Only DOIs that hold this: a DOI, or a part of one.",
)
@click.option(
    "--limit",
    default=PAGE,
    type=click.IntRange(1, 100_000),
    show_default=True,
    help="Most DOIs on a page.",
)
@click.option(
    "--after",
    default="",
    metavar="PLACE",
    help="The page after this place; each page names the place of the next one.",
)
@click.option(
    "--csv", "as_csv", is_flag=True, help="All of them, as a table for spreadsheet programs."
)
@mpa.json_option
def worklist_command(
    app: DepositsApp, search: str, limit: int, after: str, as_csv: bool, as_json: bool
) -> None:
    """List the DOIs that need a manual deposit, the latest failure first, with the last error and
    advice."""
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
        click.echo(f"  {f'at {one.stage}: ' if one.stage else ''}{one.error}\n  {one.advice}")
        if one.claim is not None:
            click.echo(f"  claimed by {one.claim.name} since {one.claim.at}")
    found = f", {page.found:,} with {search!r}" if search else ""
    shown = (
        f"; {page.first:,} to {page.first + len(page.deposits) - 1:,} are shown"
        if page.deposits and page.found > len(page.deposits)
        else ""
    )
    click.echo(
        f"{page.waiting:,} {'DOI needs' if page.waiting == 1 else 'DOIs need'} a manual deposit{found}{shown}",
        err=True,
    )
    if page.deposits:
        click.echo(
            "deposited by hand: milepost deposits deposited DOI --handle HANDLE --by YOU --reason '…'",
            err=True,
        )
        click.echo(
            "try it again:      milepost deposits requeue DOI --by YOU --reason '…'", err=True
        )
    if page.after is not None:
        again = ["--search", search] if search else []
        again += ["--limit", f"{limit}"] if limit != PAGE else []
        click.echo(
            f"next: milepost deposits worklist {shlex.join([*again, '--after', page.after])}",
            err=True,
        )


@application.command("claim", ledger="write")
@click.argument("doi")
@click.option(
    "--by", "name", required=True, metavar="NAME", help="The person who makes the deposit."
)
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
    click.echo(
        f"{key} is not claimed"
        if held is None
        else f"{key} is released; it was claimed by {held.name}",
        err=held is None,
    )
    return 1 if held is None else 0


def report(verb: str, dois: tuple[str, ...], refused: dict[str, str]) -> int:
    """Say what was done and what was refused; the exit code."""
    click.echo(f"{verb}: {len(dois) - len(refused)} of {len(dois)}")
    for doi, why in refused.items():
        click.echo(f"  {doi}: {why}", err=True)
    return 1 if refused else 0


@application.command("requeue", ledger="write")
@click.argument("dois", nargs=-1, required=True, metavar="DOI...")
@click.option(
    "--send-again",
    is_flag=True,
    help="The submission service will not read the last message: send another. DSpace is searched first.",
)
@mpa.signed
def requeue_command(
    app: DepositsApp, dois: tuple[str, ...], send_again: bool, by: str | None, reason: str | None
) -> int:
    """Try DOIs again that have failed or were abandoned."""
    by, reason = mpa.check_signed(by, reason)
    return report("requeued", dois, requeue(app, dois, by=by, reason=reason, send_again=send_again))


@application.command("abandon", ledger="write")
@click.argument("dois", nargs=-1, required=True, metavar="DOI...")
@mpa.signed
def abandon_command(
    app: DepositsApp, dois: tuple[str, ...], by: str | None, reason: str | None
) -> int:
    """Take DOIs off the list: they are not deposited."""
    by, reason = mpa.check_signed(by, reason)
    return report("abandoned", dois, abandon(app, dois, by=by, reason=reason))


@application.command("deposited", ledger="write")
@click.argument("doi")
@click.option(
    "--handle", required=True, help="The handle of the item in DSpace, such as 1721.1/400778."
)
@mpa.signed
def deposited_command(
    app: DepositsApp, doi: str, handle: str, by: str | None, reason: str | None
) -> None:
    """Mark a DOI as deposited by hand."""
    by, reason = mpa.check_signed(by, reason)
    mark_deposited(app, doi, handle, by=by, reason=reason)
    click.echo(f"{keys_of([doi])[0]} is deposited as {handle_of(handle)}")


@application.command("import", ledger="write")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--dry-run", is_flag=True, help="Change nothing; say what would be done.")
@mpa.signed
@mpa.json_option
def import_command(
    app: DepositsApp, file: Path, dry_run: bool, by: str | None, reason: str | None, as_json: bool
) -> int:
    """Take in DOIs that another system has finished, from a CSV or .xlsx with the columns doi,
    status, handle and attempts.

    SUCCESS becomes Success, FAILED goes to the worklist, and nothing is fetched. Unfinished DOIs
    are left out: deliver them as a list.
    """
    by, reason = mpa.check_signed(by, reason)
    with file.open("rb") as stream:
        found = import_dois(app, stream, file.name, by=by, reason=reason, dry_run=dry_run)
    if as_json:
        click.echo(msgspec.json.encode(found))
    else:
        for line in import_lines(found):
            click.echo(line)
    return int(bool(found.malformed or found.refused))


def import_lines(found: ImportReport) -> Iterator[str]:
    """The result of an import, for people."""
    counts = {
        "deposited": found.deposited,
        "failed": found.failed,
        "finished here already": found.known,
    }
    counts |= {
        "unfinished, and left out": found.unfinished,
        "malformed": len(found.malformed),
        "refused": len(found.refused),
    }
    counted = ", ".join(f"{count:,} {name}" for name, count in counts.items() if count)
    yield f"{found.name}: {found.lines:,} {'line' if found.lines == 1 else 'lines'}: {counted or 'nothing in it'}"
    for bad in found.malformed[:SHOWN]:
        yield f"  line {bad.line}: {bad.reason}"
    for doi, why in list(found.refused.items())[:SHOWN]:
        yield f"  {doi}: {why}"


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
@click.option(
    "--search",
    is_flag=True,
    help="Search DSpace for DOIs that have failed, and complete those that it has.",
)
def stuck_command(app: DepositsApp, search: bool) -> None:
    """List DOIs whose submission has had no result for too long."""
    for one in stuck_deposits(app):
        click.echo(f"{one['key']}  {one['status']}  since {one['entered_at']}")
    for doi in find_late_deposits(app) if search else ():
        click.echo(f"{doi}  found in DSpace, completed")


@application.command("set-aside")
@click.option("--drop", metavar="MESSAGE", help="Remove the message with this id.")
def set_aside_command(app: DepositsApp, drop: str | None) -> int:
    """List messages of the results queue that could not be used, as JSON lines."""
    if drop is not None:
        dropped = drop_set_aside(app, drop)
        click.echo(
            f"{drop} is removed" if dropped else f"no message {drop} is set aside", err=not dropped
        )
        return 0 if dropped else 1
    for message, content in set_aside(app).items():
        click.echo(json.dumps({"message": message, **content}))
    return 0
