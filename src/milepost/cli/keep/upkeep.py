"""Keeping: prune and doctor."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from milepost.cli.config import CliSettings
from milepost.cli.filters import afford, yes_option
from milepost.cli.options import check_signed, dry_run_option, json_option, settings, signed
from milepost.cli.out import console, page, print_json, progress, safe, show_table, styled, table

if TYPE_CHECKING:
    from milepost.engine.health.doctor import Finding


@click.command()
@click.argument("route")
@click.option("--older-than", metavar="SPAN", default="30d", show_default=True, help="Ended longer ago than this.")
@click.option(
    "--status",
    "statuses",
    multiple=True,
    metavar="STATUS",
    help="A status whose rows go, or 'failed'; may be repeated. Without it only COMPLETED rows go.",
)
@yes_option
@signed
@dry_run_option
@json_option
@settings
def prune(
    given: CliSettings,
    route: str,
    older_than: str,
    statuses: tuple[str, ...],
    yes: bool,
    by: str | None,
    reason: str | None,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Let go of the rows of items that have completed long ago.

    Rows of failed and cancelled items stay, unless their status is named. A small seal stays of each, so that a key which comes
    again is still known. History lines stay until every subscriber has been told.
    """
    from milepost.core.status import TERMINAL
    from milepost.core.values.durations import short_span, span_ms
    from milepost.engine.retention import prune as let_go
    from milepost.engine.views.queries import statuses_of
    from milepost.ports.ledger import Query

    span = span_ms(older_than, "--older-than")
    who, why = check_signed(by, reason, dry_run=dry_run)
    with given.context(act=True, dry_run=dry_run) as ctx, progress("pruning", quiet=as_json or dry_run) as told:
        afford(ctx, Query(route=route, statuses=TERMINAL), yes, quiet=as_json)
        named = statuses_of(statuses)
        report = let_go(ctx, route, span, statuses=named, by=who, reason=why, dry_run=dry_run, on_progress=told)
    if as_json:
        print_json(report)
        return
    which = f"ended more than {short_span(span)} ago" if span else "all that have ended"
    click.echo(f"{route}, {which}: {report}.")


@click.command()
@json_option
@settings
def doctor(given: CliSettings, as_json: bool) -> int:
    """Is everything well? What is not, and what to do about it.

    Looks at the ledger, the processes and when each role last had a good run, pauses, leases, late work, subscribers
    and the chains of the items written last. Exit code 1 if something is bad.
    """
    from milepost.engine.health.doctor import BAD, health_view
    from milepost.engine.health.doctor import doctor as look

    with given.context() as ctx:
        report = look(ctx)
    code = 1 if report.level == BAD else 0
    if as_json:
        print_json(health_view(report))
        return code
    facts = table("the ledger", "")
    for name, value in report.facts.items():
        if name == "problems":
            continue  # told below, with what to do about them
        shown_value = f"{value / 1_000_000:,.1f} MB" if name.endswith("bytes") else ", ".join(value) if isinstance(value, list) else value
        facts.add_row(safe(name.replace("log_bytes", "log").replace("bytes", "size")), safe(shown_value))
    show_table(facts)
    click.echo()
    _findings(report.findings)
    closing = {"ok": "All is well.", "warn": "It works; something wants a look.", "bad": "Something is wrong."}
    console().print(closing[report.level], style="bold")
    return code


def _findings(findings: list[Finding]) -> None:
    """A line or more for each. Commands are never folded, so that they can be copied whole."""
    from rich.table import Table

    wide = max((len(finding.about) for finding in findings), default=0)
    with page() as to:
        for finding in findings:
            row = Table.grid(padding=(0, 2))
            row.add_column(width=4)
            row.add_column(width=wide)
            row.add_column(overflow="fold")
            row.add_row(styled(finding.level), finding.about, safe(finding.what))
            hint, command = f"[bold]→[/] {safe(finding.next)}", ": milepost " in f": {finding.next}"
            if finding.next and not command:
                row.add_row("", "", hint)
            to.print(row)
            if command:
                to.print(f"{' ' * (wide + 8)}{hint}", soft_wrap=True)
