"""Commands `milepost deposits run`, one round for cron, and `status` and `runs`, which look at it."""

from __future__ import annotations

import os
from collections.abc import Iterator

import click
import msgspec

import milepost as mp
from milepost.applications.deposits.acts import DepositsApp
from milepost.applications.deposits.application import application
from milepost.applications.deposits.digest.collect import undelivered
from milepost.applications.deposits.intake import IntakeReport, TakenList
from milepost.applications.deposits.rounds import STORE_CURE, RoundReport, run_round
from milepost.applications.deposits.runs.journal import runs
from milepost.applications.deposits.runs.record import interruption_text
from milepost.applications.deposits.settings import check_settings
from milepost.applications.deposits.words import FAILED, SUCCESS, word_counts

SHOWN = 20
"""Most lines of one kind that a command prints."""

as_json_option = click.option("--json", "as_json", is_flag=True, help="The report as JSON.")


@application.command(ledger="write")
@as_json_option
def run(app: DepositsApp, as_json: bool) -> int:
    """One round, for cron.

    Takes in the lists of the inbox and tries each unfinished DOI at most once per stage. A failure waits for the next round, until the
    threshold of its stage is reached. The exit code is 1 if something needs people: a manual deposit, a file in the inbox, a digest
    that could not be mailed, a login that DSpace refuses, or a queue or file store that Milepost cannot use. A partner that asks to slow down is named, and its DOIs wait for the next round; the exit code stays 0.
    """
    check_settings(app.settings, os.environ)
    report = run_round(app, app.work)
    if as_json:
        click.echo(msgspec.json.encode(report))
    else:
        for line in [*map(interruption_text, report.interrupted), *intake_lines(report.intake), *round_lines(app, report)]:
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
@mp.json_option
def runs_command(app: DepositsApp, as_json: bool) -> None:
    """List the latest runs: running, finished, failed or interrupted, and what each did."""
    found = runs(app)
    if as_json:
        click.echo(msgspec.json.encode(found))
        return
    for one in found:
        where = f"  process {one.process.pid} on {one.process.host}" if one.process is not None and one.state != "finished" else ""
        done = f"  {one.new:,} new, {one.tried_again:,} tried again, {one.changes.get(SUCCESS, 0):,} deposited, {len(one.digests)} {'digest' if len(one.digests) == 1 else 'digests'}"
        click.echo(f"{one.at}  {one.state:<11}{done}{where}{f'  {one.step}' if one.state in ('running', 'interrupted') else ''}")
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
        yield f"ignored, since they are neither .csv nor .txt: {', '.join(report.ignored[:SHOWN])}"


def _list_lines(taken: TakenList) -> Iterator[str]:
    found = taken.report
    counted = ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in found.counts.items() if count)
    yield f"{taken.name}: {found.lines:,} {'line' if found.lines == 1 else 'lines'}: {counted or 'nothing in it'}"
    for bad in found.malformed[:SHOWN]:
        yield f"  line {bad.line}: {bad.reason}"
    if len(found.malformed) > SHOWN:
        yield f"  and more: see {taken.archived}.report.json in the inbox"


def round_lines(app: DepositsApp, report: RoundReport) -> Iterator[str]:
    """The result of the round, and the DOIs that need a manual deposit with the last error of each."""
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
    if failed:
        yield "'milepost deposits worklist' says what to do about each"
    if report.digests or report.unmailed or report.mailed_late:
        yield from _mail_lines(app, report)


def _mail_lines(app: DepositsApp, report: RoundReport) -> Iterator[str]:
    """Mails of the round, and those that could not be sent."""
    for row in undelivered(app)[:1]:
        error = (row["error"] or {}).get("message", "no error is recorded")
        yield f"digests not mailed yet: {report.unmailed}; they are kept, and the next run tries again: {error}"
    if not report.unmailed:
        mailed = [f"{report.digests}"] if report.digests else []
        mailed += [f"{report.mailed_late} of earlier runs"] if report.mailed_late else []
        yield f"digests mailed: {', and '.join(mailed)}"


def _count_lines(counts: dict[str, int]) -> Iterator[str]:
    width = max(map(len, counts))
    for word, count in counts.items():
        yield f"{word:<{width}}  {count:>9,}"
