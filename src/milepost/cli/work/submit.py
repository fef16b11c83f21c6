"""`milepost submit`: one item, or a list of a million."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from milepost.cli.config import CliSettings
from milepost.cli.options import at_option, check_signed, dry_run_option, json_option, settings
from milepost.cli.out import console, print_json, progress, safe, show_table, table

if TYPE_CHECKING:
    from rich.console import Console

    from milepost.engine.lists.changes import ChangedLine
    from milepost.engine.lists.reconcile import ListReport

SHOWN = 20


@click.command()
@click.argument("route")
@click.argument("file", required=False)
@click.option("--item", metavar="JSON", help="One item, instead of a file.")
@click.option("--name", metavar="NAME", help="The list's name; the file's name if not given.")
@click.option("--format", "form", type=click.Choice(["txt", "csv", "jsonl"]), help="If the file's name does not tell.")
@click.option("--no-header", is_flag=True, help="The first line of a CSV is an item: the first columns are the key.")
@click.option("--full", is_flag=True, help="This is the whole master list: say what has vanished from it.")
@click.option("--by", envvar="MILEPOST_BY", metavar="NAME", help="Who hands it over.")
@click.option("--correlation-id", metavar="ID", help="With --item: the id by which it is followed elsewhere.")
@click.option("--at", metavar="TIME", help="What is new does not start before this time: 2027-01-31T08:00, or a span from now such as 2h.")
@click.option(
    "--replace-changed", is_flag=True, help="Give items that are known with other content that of the list. Look first: --dry-run."
)
@click.option("--rerun", is_flag=True, help="With --replace-changed: also COMPLETED items, which then run again.")
@click.option("--failed-again", is_flag=True, help="Take in keys again that have failed or were cancelled, and whose rows were pruned.")
@click.option("--reason", metavar="TEXT", help="With --replace-changed or --failed-again: why; it stays in the history.")
@dry_run_option
@json_option
@settings
def submit(
    given: CliSettings,
    route: str,
    file: str | None,
    item: str | None,
    name: str | None,
    form: str | None,
    no_header: bool,
    full: bool,
    by: str | None,
    correlation_id: str | None,
    at: str | None,
    replace_changed: bool,
    rerun: bool,
    failed_again: bool,
    reason: str | None,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Hand over items: a list of them, or one.

    A list is a file (txt, csv or jsonl), or - for standard input. Every item is taken in once. The answer says which are new, on the way, finished, failed, changed, repeated or
    malformed, with line numbers. An interrupted list can simply be submitted again. Exit code 1 if lines were malformed.
    """
    if (file is None) == (item is None):
        raise click.UsageError("give a file (or - for standard input), or --item JSON for one item")
    if item is not None:
        if full or name or form or no_header:
            raise click.UsageError("--full, --name, --format and --no-header are for lists, not for --item")
        if replace_changed or rerun or (reason and not failed_again):
            raise click.UsageError("--replace-changed is for lists; to give one item other content use 'milepost replace'")
        again = check_signed(by, reason, dry_run=dry_run)[1] if failed_again else None
        return _one(given, route, item, correlation_id, by, at, again, dry_run, as_json)
    if correlation_id is not None:
        raise click.UsageError("--correlation-id is for --item")
    if rerun and not replace_changed:
        raise click.UsageError("--rerun is for --replace-changed")
    if reason and not (replace_changed or failed_again):
        raise click.UsageError("--reason is for --replace-changed and --failed-again")
    if replace_changed or failed_again:
        check_signed(by, reason, dry_run=dry_run)
    import msgspec

    from milepost.core.values.durations import iso
    from milepost.engine.lists.reconcile import submit_list
    from milepost.runners.process import tune_garbage_collection

    assert file is not None
    tune_garbage_collection()
    more: dict[str, Any] = {"no_header": no_header, "replace_changed": replace_changed, "rerun": rerun, "failed_again": failed_again}
    more["reason"] = reason or ""
    more["not_before"] = None if at is None else at_option(at)
    with given.context(act=True, create=True, dry_run=dry_run) as ctx, progress("taking in", quiet=as_json) as told:
        report = submit_list(ctx, route, file, name=name, format=form, full=full, dry_run=dry_run, by=by or "", on_progress=told, **more)
    if as_json:
        print_json({**msgspec.to_builtins(report), "at": iso(report.at)})
    else:
        _tell(report)
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
    """One item. Known with other content is refused, and so is what cannot be taken in."""
    import msgspec

    from milepost.core.values.durations import iso
    from milepost.engine.intake import start_ms, take_in

    try:
        content = msgspec.json.decode(item)
    except msgspec.DecodeError as error:
        raise click.UsageError(f"--item is not JSON: {error}") from None
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
        click.echo(f"milepost: the item was not taken in: {receipt.error}", err=True)
    elif receipt.answer == "changed":
        click.echo(f"milepost: {receipt.key} was not taken in: {receipt.error}", err=True)
    elif receipt.answer == "new":
        later = "" if start is None else f"; it does not start before {iso(start)}"
        click.echo(f"{receipt.key}: {'would be taken in' if dry_run else 'taken in'}, at {receipt.stage}{later}")
    else:
        click.echo(f"{receipt.key}: known, {receipt.status} at {receipt.stage}; nothing was changed")
    return 1 if refused else 0


def _tell(report: ListReport) -> None:
    from milepost.engine.lists.reconcile import MEANING
    from milepost.engine.views.items import counted

    to = console()
    hints = {"failed": f": 'milepost list {safe(report.route)} --status failed'"}
    seen = "Nothing was changed; this is what would happen." if report.dry_run else f"Recorded as list {report.id}."
    to.print(f"[bold]{safe(report.name)}[/] for {safe(report.route)}: {counted(report.lines, 'line')}. {seen}")
    shown = table("", "items", "", right=["items"])
    for word, n in report.counts.items():
        bad = n and word in ("changed", "malformed", "vanished")
        name = f"[yellow]{word.replace('_', ' ')}[/]" if bad else word.replace("_", " ")
        shown.add_row(name, f"{n:,}", MEANING[word] + hints.get(word, ""))
    show_table(shown)
    for note in report.notes:
        to.print(safe(note))
    _some(to, "malformed", [f"line {bad.line}: {bad.reason}" for bad in report.malformed], report.counts["malformed"])
    others = [_changed(one, "replaced" in report.counts, report.dry_run) for one in report.changed]
    _some(to, "known with other content", others, len(others))
    _some(to, "vanished", report.vanished, report.counts.get("vanished", 0))


def _changed(one: ChangedLine, asked: bool, dry_run: bool) -> str:
    """A line that differs from what is known: what became of it, and in what it differs, where that was looked at."""
    became = "would be replaced" if dry_run else "replaced"
    told = f": {f'left as it is: {one.left}' if one.left else became}" if asked else ""
    return f"line {one.line}: {one.key}{told}" + (f" [{'; '.join(map(str, one.difference))}]" if one.difference else "")


def _some(to: Console, what: str, texts: list[str], n: int) -> None:
    """The first of many, and how many more there are."""
    if not texts:
        return
    to.print(f"\n[bold]{what}[/]")
    for text in texts[:SHOWN]:
        to.print(f"  {safe(text)}")
    if n > SHOWN:
        to.print(f"  … and {n - SHOWN:,} more; --json names up to 1,000")
