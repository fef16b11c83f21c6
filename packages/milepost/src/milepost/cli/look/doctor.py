"""`milepost doctor`: health report, with what to do about each finding."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from milepost.cli.config import CliSettings
from milepost.cli.options import shared_options
from milepost.cli.output import console, page, print_json, safe, show_table, styled, table

if TYPE_CHECKING:
    from milepost.engine.health.findings import Finding


@click.command()
@shared_options
def doctor(given: CliSettings, as_json: bool) -> int:
    """Health report: what is wrong, and what to do about it.

    Checks the ledger, the processes and the last successful run of each role, pauses, leases,
    overdue work, subscribers, and the hash chains of the items written last. Exit code 1 if a
    finding is bad.
    """
    from milepost.engine.health.doctor import doctor as look
    from milepost.engine.health.findings import BAD
    from milepost.ports.ledger import MISSING_CAPABILITIES

    with given.context() as ctx:
        report = look(ctx)
    code = 1 if report.level == BAD else 0
    if as_json:
        print_json(report)
        return code
    facts = table("the ledger", "")
    for name, value in report.ledger.items():
        if name not in ("problems", "lacks", "unwritable"):  # problems are shown below as findings
            facts.add_row(
                safe(name.replace("log_bytes", "log").replace("bytes", "size").replace("_", " ")),
                safe(_shown(name, value)),
            )
    for capability in report.ledger["lacks"]:
        facts.add_row("note", safe(MISSING_CAPABILITIES[capability]))
    show_table(facts)
    click.echo()
    _findings(report.findings)
    closing = {
        "ok": "All checks passed.",
        "warn": "It works, with warnings.",
        "bad": "Something is wrong.",
    }
    console().print(closing[report.level], style="bold")
    return code


def _shown(name: str, value: object) -> object:
    """A fact about the ledger for people."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return (
        f"{value / 1_000_000:,.1f} MB"
        if name.endswith("bytes") and isinstance(value, int)
        else value
    )


def _findings(findings: list[Finding]) -> None:
    """Print the findings. Commands are not wrapped, so that they can be copied."""
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
