"""`milepost submit`: take in one item or a list of items."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from milepost.cli.config import CliSettings
from milepost.cli.options import at_option, check_signed, dry_run_option, shared_options
from milepost.cli.output import console, print_json, progress, safe, show_table, table

if TYPE_CHECKING:
    from rich.console import Console

    from milepost.engine.lists.reconcile import ChangedLine, ListReport

SHOWN = 20


@click.command()
@click.argument("route")
@click.argument("file", required=False)
@click.option("--item", metavar="JSON", help="One item instead of a file.")
@click.option("--name", metavar="NAME", help="Name of the list [default: the file's name].")
@click.option(
    "--format",
    type=click.Choice(["txt", "csv", "jsonl"]),
    help="Format of the file [default: by its name].",
)
@click.option(
    "--no-header", is_flag=True, help="The CSV has no header line; its first columns are the key."
)
@click.option(
    "--full",
    is_flag=True,
    help="This is the complete list: report keys that the previous full list had and this one has not.",
)
@click.option(
    "--by",
    envvar="MILEPOST_BY",
    metavar="NAME",
    help="Your name; recorded with the list [MILEPOST_BY].",
)
@click.option("--correlation-id", metavar="ID", help="With --item: the correlation id for tracing.")
@click.option(
    "--at",
    metavar="TIME",
    help="Earliest start of new items: 2027-01-31T08:00, or a span from now such as 2h.",
)
@click.option(
    "--replace-changed",
    is_flag=True,
    help="Replace the content of known items that differ from the list. See first with --dry-run.",
)
@click.option(
    "--rerun",
    is_flag=True,
    help="With --replace-changed: also replace COMPLETED items, which then run again.",
)
@click.option(
    "--failed-again",
    is_flag=True,
    help="Accept failed or cancelled keys again whose rows were pruned.",
)
@click.option(
    "--reason",
    metavar="TEXT",
    help="With --replace-changed or --failed-again: why; recorded in the history.",
)
@dry_run_option
@shared_options
def submit(
    given: CliSettings,
    route: str,
    file: str | None,
    item: str | None,
    by: str | None,
    correlation_id: str | None,
    at: str | None,
    failed_again: bool,
    reason: str | None,
    dry_run: bool,
    as_json: bool,
    **of_list: Any,
) -> int:
    """Submit items: a list, or one.

    A list is a file (txt, csv or jsonl), or - for standard input. Each key is accepted once. The
    report counts new, in progress, finished, failed, changed, repeated and malformed lines, with
    line numbers. An interrupted list can be submitted again. Exit code 1 if a line is malformed.
    """
    if (file is None) == (item is None):
        raise click.UsageError("give either a file (or - for standard input) or --item JSON")
    if item is not None:
        if any(of_list[name] for name in ("full", "name", "format", "no_header")):
            raise click.UsageError(
                "--full, --name, --format and --no-header are for lists and cannot be used with --item"
            )
        if of_list["replace_changed"] or of_list["rerun"] or (reason and not failed_again):
            raise click.UsageError(
                "--replace-changed is for lists; to replace one item's content use 'milepost replace'"
            )
        again = check_signed(by, reason, dry_run=dry_run)[1] if failed_again else None
        return _one(given, route, item, correlation_id, by, at, again, dry_run, as_json)
    if correlation_id is not None:
        raise click.UsageError("--correlation-id needs --item")
    if of_list["rerun"] and not of_list["replace_changed"]:
        raise click.UsageError("--rerun needs --replace-changed")
    if of_list["replace_changed"] or failed_again:
        check_signed(by, reason, dry_run=dry_run)
    elif reason:
        raise click.UsageError("--reason needs --replace-changed or --failed-again")
    import msgspec

    from milepost.core.values.durations import iso
    from milepost.engine.lists.reconcile import submit_list
    from milepost.runners.process import tune_garbage_collection

    assert file is not None
    tune_garbage_collection()
    start = None if at is None else at_option(at)
    act: dict[str, Any] = {
        "failed_again": failed_again,
        "reason": reason or "",
        "by": by or "",
        "dry_run": dry_run,
    }
    try:
        with (
            given.context(act=True, create=True, dry_run=dry_run) as ctx,
            progress("submitting", quiet=as_json) as on_progress,
        ):
            report = submit_list(
                ctx, route, file, not_before=start, on_progress=on_progress, **act, **of_list
            )
    except KeyboardInterrupt:
        if not dry_run:
            click.echo(
                "milepost: interrupted: the list is taken in up to here; submit it again, and the other lines follow",
                err=True,
            )
        raise
    if as_json:
        print_json({**msgspec.to_builtins(report), "at": iso(report.at)})
    else:
        _print_report(report)
    return 1 if report.counts.get("malformed") else 0


def _one(
    given: CliSettings,
    route: str,
    item: str,
    correlation_id: str | None,
    by: str | None,
    at: str | None,
    again: str | None,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Submit one item and print the result; exit code 1 if it is malformed or known with different
    content."""
    import msgspec

    from milepost.core.values.durations import iso
    from milepost.core.values.json import name_given_twice
    from milepost.engine.intake import start_ms, take_in

    try:
        content = msgspec.json.decode(item)
    except msgspec.DecodeError as error:
        raise click.UsageError(f"--item is not JSON: {error}") from None
    twice = name_given_twice(item)
    if twice is not None:
        raise click.UsageError(f"--item gives {twice!r} twice; give each name once")
    with given.context(act=True, create=True, dry_run=dry_run) as ctx:
        start = start_ms(ctx, None if at is None else at_option(at))
        signed: dict[str, Any] = {"by": by, "failed_again": again}
        [receipt] = take_in(
            ctx, ctx.plan(route), [content], correlation_id=correlation_id, dry_run=dry_run, not_before=start, **signed
        )  # fmt: skip
    refused = receipt.answer in ("changed", "malformed")
    if as_json:
        print_json(receipt)
    elif receipt.answer == "malformed":
        click.echo(f"milepost: item refused: {receipt.error}", err=True)
    elif receipt.answer == "changed":
        click.echo(f"milepost: {receipt.key} refused: {receipt.error}", err=True)
    elif receipt.answer == "new":
        later = "" if start is None else f"; starts not before {iso(start)}"
        click.echo(
            f"{receipt.key}: {'would be accepted' if dry_run else 'accepted'} at {receipt.stage}{later}"
        )
    else:
        click.echo(
            f"{receipt.key}: already known, {receipt.status} at {receipt.stage}; nothing was changed"
        )
    return 1 if refused else 0


def _print_report(report: ListReport) -> None:
    from milepost.engine.lists.reconcile import MEANING
    from milepost.engine.views.items import counted

    to = console()
    hints = {"failed": f": 'milepost list {safe(report.route)} --status failed'"}
    seen = "Dry run: nothing was changed." if report.dry_run else f"Recorded as list {report.id}."
    to.print(
        f"[bold]{safe(report.name)}[/] for {safe(report.route)}: {counted(report.lines, 'line')}. {seen}"
    )
    shown = table("", "items", "", right=["items"])
    for word, n in report.counts.items():
        bad = n and word in ("changed", "malformed", "vanished")
        name = f"[yellow]{word.replace('_', ' ')}[/]" if bad else word.replace("_", " ")
        shown.add_row(name, f"{n:,}", MEANING[word] + hints.get(word, ""))
    show_table(shown)
    for note in report.notes:
        to.print(safe(note))
    _print_first(
        to,
        "malformed",
        [f"line {bad.line}: {bad.reason}" for bad in report.malformed],
        report.counts["malformed"],
    )
    others = [_changed(one, "replaced" in report.counts, report.dry_run) for one in report.changed]
    _print_first(to, "known with different content", others, len(others))
    _print_first(to, "vanished", report.vanished, report.counts.get("vanished", 0))


def _changed(one: ChangedLine, asked: bool, dry_run: bool) -> str:
    """Describe a line whose content differs from the known item: what happened to it, and the
    difference if it was compared."""
    became = "would be replaced" if dry_run else "replaced"
    on_progress = f": {f'not replaced: {one.left}' if one.left else became}" if asked else ""
    return f"line {one.line}: {one.key}{on_progress}" + (
        f" [{'; '.join(map(str, one.difference))}]" if one.difference else ""
    )


def _print_first(to: Console, what: str, texts: list[str], n: int) -> None:
    """Print the first texts, and how many more there are."""
    if not texts:
        return
    to.print(f"\n[bold]{what}[/]")
    for text in texts[:SHOWN]:
        to.print(f"  {safe(text)}")
    if n > SHOWN:
        to.print(f"  … and {n - SHOWN:,} more; --json lists up to 1,000")
