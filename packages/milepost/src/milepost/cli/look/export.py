"""`milepost export`: write items as they are now, or the evidence of their history."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click

from milepost.cli.config import CliSettings
from milepost.cli.options import confirm_cost, filters, shared_options, yes_option
from milepost.cli.output import ProgressFigures, plain, print_json, progress
from milepost.core.errors import MilepostError

if TYPE_CHECKING:
    from milepost.core.item import Item
    from milepost.engine.context import Context
    from milepost.engine.evidence import FoundRecord
    from milepost.engine.views.item_filter import ItemFilter
    from milepost.evidence.signing import Signer
    from milepost.ports.items import Query

CSV_FIELDS = (
    "route", "key", "stage", "status", "attempts", "lane", "due_at", "error_category", "error_message",
    "correlation_id", "list", "created_at", "entered_at", "updated_at", "input", "results", "blocked_because",
)  # fmt: skip
SHOWN = 20


@click.command()
@click.argument("route")
@click.argument("keys", nargs=-1, metavar="[KEY]...")
@filters
@click.option(
    "--evidence",
    is_flag=True,
    help="Export each item's history in a form that can be verified offline (see 'milepost verify').",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["jsonl", "csv", "premis"]),
    default="jsonl",
    show_default=True,
)
@click.option(
    "-o", "--output", "--out", metavar="FILE", help="Write to this file instead of standard output."
)
@click.option(
    "--history", is_flag=True, help="Include each item's history (jsonl without --evidence)."
)
@click.option(
    "--secrets",
    is_flag=True,
    help="Write values that look like secrets in clear (without --evidence).",
)
@click.option(
    "--sign",
    metavar="KEYFILE",
    help="Sign the evidence with this key [signing_key in milepost.toml].",
)
@yes_option
@shared_options
def export(
    given: CliSettings,
    route: str,
    keys: tuple[str, ...],
    evidence: bool,
    form: str,
    output: str | None,
    history: bool,
    secrets: bool,
    sign: str | None,
    yes: bool,
    as_json: bool,
    item_filter: ItemFilter,
) -> int:
    """Export items, or the evidence of their history.

    One item per line, with input and results; "…" replaces values that look like secrets. With
    --evidence (implied by --sign and --format premis) one record for each item that the ledger ever
    had, also where the row has been removed; csv and premis then also write the records to
    FILE.evidence.jsonl.
    """
    evidence = evidence or sign is not None or form == "premis"
    if history and (evidence or form == "csv"):
        raise click.UsageError(
            "--history needs plain jsonl: csv has no place for it, and evidence includes it"
        )
    if secrets and evidence:
        raise click.UsageError(
            "--secrets is not for evidence: a record has the digest of an output that holds a secret, never the output"
        )
    if keys and item_filter.conditions():
        raise click.UsageError("give either keys or filters")
    if evidence and form != "jsonl" and output is None:
        raise click.UsageError(
            f"{form} needs --out FILE: the evidence is written to a second file next to it"
        )
    if as_json and not (evidence and output):
        raise click.UsageError(
            "--json prints a summary of the evidence file: give --evidence and --out FILE"
        )
    signer = given.signer(sign) if evidence else None
    from msgspec.structs import replace

    from milepost.engine.known_keys import known_keys
    from milepost.engine.views.item_filter import query_of

    with given.context() as ctx:
        keys = tuple(known_keys(ctx, route, keys))
        query = replace(query_of(ctx, route, item_filter), with_content=True)
        if not keys:
            confirm_cost(ctx, query, yes, quiet=as_json)
        if evidence:
            return _export_evidence(ctx, query, keys, form, output, signer, as_json, item_filter)
        with _opened(output) as out:
            for text in _plain_items(ctx, query, keys, form, history, secrets):
                out.write(text.encode())
    return 0


# Items as they are now ----------------------------------------------------------------------------
def _plain_items(
    ctx: Context, query: Query, keys: tuple[str, ...], form: str, history: bool, secrets: bool
) -> Iterator[str]:
    import csv
    import io

    import msgspec

    from milepost.core.history import line_to_public
    from milepost.engine.views.blocks import BlockedLanes
    from milepost.engine.views.items import each, row_view, without_secrets

    def row(values: Any) -> str:
        out = io.StringIO()
        csv.writer(out, lineterminator="\n").writerow(values)
        return out.getvalue()

    if form == "csv":
        yield row(CSV_FIELDS)
    lanes = BlockedLanes(ctx, query.route)
    plan = ctx.plans.get(query.route)
    for item in _named(ctx, query.route, keys) if keys else each(ctx, query):
        view = {**row_view(item, lanes.of(item.row)), "input": item.input, "results": item.results}
        if history:
            lines = ctx.ledger.history(query.route, item.key)
            view["history"] = [
                line_to_public(written.line, item.correlation_id) for written in lines
            ]
        if not secrets:
            view = without_secrets(view)
            view["input"] = view["input"] if plan is None else plan.route.with_forms(view["input"])
        if form == "csv":
            yield row([_cell(view, field) for field in CSV_FIELDS])
            continue
        yield msgspec.json.encode(view).decode() + "\n"


def _named(ctx: Context, route: str, keys: Sequence[str]) -> Iterator[Item]:
    from milepost.ports.items import Refused

    for key, item in zip(keys, ctx.ledger.get([(route, key) for key in keys]), strict=True):
        if item is None:
            raise MilepostError(
                f"route {route!r} has no row with the key {key!r}; if the row was removed, use --evidence"
            )
        if isinstance(item, Refused):
            raise MilepostError(
                f"the row of {key!r} in route {route!r} cannot be read: {item.reason}"
            )
        yield item


def _cell(view: dict[str, Any], field: str) -> Any:
    """One field of an item for csv; objects and lists are written as JSON."""
    import msgspec

    if field.startswith("error_"):
        return (view["error"] or {}).get(field.removeprefix("error_"), "")
    value = view[field]
    return (
        ""
        if value is None
        else msgspec.json.encode(value).decode()
        if isinstance(value, (dict, list))
        else value
    )


@contextmanager
def _opened(output: str | None) -> Iterator[IO[bytes]]:
    """Standard output, or a file that appears under its name only when it is complete."""
    if output is None or output == "-":
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    path = Path(output)
    aside = path.with_name(f".{path.name}.unfinished")
    try:
        with aside.open("wb") as out:
            yield out
        aside.replace(path)
    except OSError as error:
        raise MilepostError(f"{path} cannot be written: {error.strerror}") from None
    finally:
        aside.unlink(missing_ok=True)


# Evidence -----------------------------------------------------------------------------------------
def _export_evidence(
    ctx: Context,
    query: Query,
    keys: tuple[str, ...],
    form: str,
    output: str | None,
    signer: Signer | None,
    as_json: bool,
    item_filter: ItemFilter,
) -> int:
    from milepost import __version__
    from milepost.engine.heads.evidence_lines import first_line
    from milepost.engine.views.items import counted
    from milepost.evidence.files import BESIDE, records_in, write_file
    from milepost.evidence.files import chosen as told_choice
    from milepost.evidence.signing import fingerprint
    from milepost.evidence.views import VIEWS

    view = None if form == "jsonl" else form
    target = output if view is None else f"{output}{BESIDE}"
    doubts: list[tuple[str, str]] = []
    with progress("exporting", quiet=as_json) as on_progress:
        choice = {"keys": list(keys)} if keys else _choice(ctx, query.route, item_filter)
        first = first_line(ctx, query.route, __version__, choice, view, signer)
        entries = _entries(ctx, _chosen(ctx, query, keys), signer, on_progress, doubts)
        with _opened(target) as out:
            total = write_file(out, first, entries, signer)
            if view == "premis" and not total.count:
                raise MilepostError(
                    "no item matches, and PREMIS cannot be empty: nothing was written"
                )
        if view is not None and output is not None and target is not None:
            beside = Path(target)
            with _opened(output) as out:
                for piece in VIEWS[view](lambda: records_in(beside), first):
                    out.write(piece.encode())
    by = None if signer is None else fingerprint(signer.public)
    if as_json:
        print_json(
            {
                "file": output,
                "evidence": target,
                "records": total.count,
                "choice": choice,
                "whole": not choice,
                "digest": total.digest,
                "signed_by": by,
                "doubts": doubts,
            }
        )
    else:
        for key, what in doubts[:SHOWN]:
            click.echo(f"milepost: {plain(key)}: {what}", err=True)
        signed = "not signed" if by is None else f"signed with {by}"
        where = "" if output is None else f" in {output}"
        click.echo(
            f"milepost: {counted(total.count, 'record')}{where}, {signed}; check with 'milepost verify'",
            err=True,
        )
        click.echo(
            f"milepost: this is {told_choice(query.route, choice, first['made_at'])}", err=True
        )
        if doubts:
            click.echo(
                f"milepost: {counted(len(doubts), 'record')} not fully supported by the ledger",
                err=True,
            )
    return 1 if doubts else 0


def _choice(ctx: Context, route: str, item_filter: ItemFilter) -> dict[str, Any]:
    """The conditions of the export by the names of their options, as the evidence has them. Parts
    of keys are as in keys: the text of a field may be a secret."""
    from milepost.engine.views.item_filter import ItemFilter, filter_as_given

    conditions = item_filter.conditions()
    conditions |= filter_as_given(ctx, route, ItemFilter(parts=item_filter.parts))
    return {name.rstrip("_"): value for name, value in conditions.items()}


def _chosen(ctx: Context, query: Query, keys: tuple[str, ...]) -> Iterator[FoundRecord]:
    from milepost.engine.evidence import all_evidence, records_of

    if not keys:
        yield from all_evidence(ctx, query)
    for key in keys:
        records = records_of(ctx, query.route, key)
        if not records:
            raise MilepostError(
                f"route {query.route!r} has never had an item with the key {key!r}; nothing was written"
            )
        yield from records


def _entries(
    ctx: Context,
    evidence: Iterator[FoundRecord],
    signer: Signer | None,
    on_progress: ProgressFigures,
    doubts: list[tuple[str, str]],
) -> Iterator[dict[str, Any]]:
    from milepost.engine.heads.evidence_lines import entries

    for number, entry in enumerate(entries(ctx, evidence, signer, doubts), 1):
        yield entry
        on_progress(number)
