"""`milepost verify` and `milepost signing-key`: check evidence offline, without ledger or network;
and create a key pair that signs it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from milepost.cli.options import json_option
from milepost.cli.output import plain, print_json

if TYPE_CHECKING:
    from collections.abc import Callable

    from milepost.evidence.verdict import Verdict, VerifiedRecord

SHOWN = 20
"""Number of records printed without --all."""
EXIT_CODES = {"proved": 0, "contradicted": 1, "unproved": 3}


@click.command()
@click.argument("file", type=click.Path(dir_okay=False))
@click.option(
    "--public-key",
    metavar="KEY",
    help="The signer's public key (ed25519:…), or a file that holds it.",
)
@click.option(
    "--head",
    "heads",
    multiple=True,
    metavar="FILE",
    help="File of daily-head events as subscribers received them; may be repeated.",
)
@click.option(
    "--allow-newer",
    is_flag=True,
    help="Accept records that are newer than the newest head given, although no head covers them yet.",
)
@click.option(
    "--complete",
    is_flag=True,
    help="Require that no line of the route is missing up to the newest head given (a whole route's export).",
)
@click.option("--all", "whole", is_flag=True, help="Print every record, not only the first 20.")
@json_option
def verify(
    file: str,
    public_key: str | None,
    heads: tuple[str, ...],
    allow_newer: bool,
    complete: bool,
    whole: bool,
    as_json: bool,
) -> int:
    """Check evidence offline.

    Checks each record of a file from 'milepost export --evidence': hash chain, values derived from
    it, digests, signatures. Prints what is proved and what is not, the filters of the export, and
    for each record which stages were confirmed when, on which volumes, and under which day's head.

    Exit code 0: nothing differs, and with --head every line given is under the given heads. Whether
    later lines are missing is printed: the heads show it for the export of a whole route, not for a
    selection; with --complete exit code 0 requires it. 1: something differs, or lines are missing.
    3: nothing differs, but a record is not, or not yet, under a given head, or is lost, or the
    heads are not signed although --public-key was given, or --complete is not proved; these are
    named.
    """
    from milepost.evidence.heads import Heads, read_heads
    from milepost.evidence.signing import read_public
    from milepost.evidence.verify import verify as check

    public = None if public_key is None else read_public(public_key)
    published = Heads(read_heads(map(Path, heads)), public) if heads else None
    if as_json:
        return _print_json(
            lambda on_record: check(
                Path(file), public, published, on_record, allow_newer=allow_newer, complete=complete
            )
        )
    first: list[VerifiedRecord] = []

    def on_record(record: VerifiedRecord) -> None:
        if whole:
            _print_record(record)
        elif len(first) < SHOWN:
            first.append(record)

    verdict = check(
        Path(file), public, published, on_record, allow_newer=allow_newer, complete=complete
    )
    _print_verdict(verdict)
    for record in first:
        _print_record(record)
    if not whole and verdict.records > len(first):
        click.echo(f"… and {verdict.records - len(first):,} more; --all prints them")
    return EXIT_CODES[verdict.answer]


def _print_json(check: Callable[[Callable[[VerifiedRecord], None]], Verdict]) -> int:
    """Print one JSON object record by record, so that a file of millions of records needs little
    memory."""
    import msgspec

    before = '{"items": ['

    def on_record(record: VerifiedRecord) -> None:
        nonlocal before
        click.echo(before + msgspec.json.encode(record).decode(), nl=False)
        before = ",\n"

    verdict = check(on_record)
    start = before if before != ",\n" else ""
    rest = msgspec.json.encode(
        {"holds": verdict.holds, "answer": verdict.answer, **msgspec.to_builtins(verdict)}
    ).decode()
    click.echo(f"{start}],\n{rest[1:]}")
    return EXIT_CODES[verdict.answer]


def _print_record(record: VerifiedRecord) -> None:
    """Print one record: its end, and each stage with who confirmed it, when, and where the files
    are."""
    state = f"{record.status or 'unknown'}" + (f" {record.ended_at}" if record.ended_at else "")
    rest = (
        " (only its seal remains)"
        if record.sealed
        else " (content removed)"
        if record.forgotten
        else ""
    )
    click.echo(f"{plain(record.key)}: {state}{rest}" + ("" if record.holds else " DIFFERS"))
    for stage in record.stages:
        by = f" by {plain(stage.by)}" if stage.by else ""
        files = (
            f", {stage.files:,} {'file' if stage.files == 1 else 'files'}" if stage.files else ""
        )
        volumes = f" on {', '.join(map(plain, stage.volumes))}" if stage.volumes else ""
        click.echo(f"  {plain(stage.stage)}: {stage.how} {stage.at}{by}{files}{volumes}")
    if record.head_day is not None:
        given = "the published head" if record.under_head else "a head that was not given here"
        click.echo(f"  under {given} of {record.head_day}")


def _print_verdict(verdict: Verdict) -> None:
    from milepost.engine.views.items import counted

    if verdict.holds:
        points = (
            f", but {counted(verdict.open, 'point')} not proved by what was given"
            if verdict.open
            else ""
        )
        click.echo(f"{verdict.file} holds: {counted(verdict.records, 'record')}{points}.")
        if verdict.chosen is not None:
            click.echo(f"It is {plain(verdict.chosen)}.")
    else:
        click.echo(
            f"{verdict.file} does NOT hold: {counted(verdict.found, 'difference')}. It proves nothing."
        )
    for difference in verdict.differences:
        of = "" if difference.key is None else f", {plain(difference.key)}"
        where = f"line {difference.line}{of}" if difference.line else "the file"
        click.echo(f"  {where}, {plain(difference.field)}: {plain(difference.what)}")
    if verdict.found > len(verdict.differences):
        click.echo(f"  … and {verdict.found - len(verdict.differences):,} more")
    for point in verdict.unproved:
        of = f"  line {point.line}, {plain(point.key)}: " if point.key is not None else "  "
        click.echo(f"{of}{plain(point.what)}")
    if verdict.open > len(verdict.unproved):
        click.echo(f"  … and {verdict.open - len(verdict.unproved):,} more")
    for title, sentences in (("Proved:", verdict.proved), ("Not proved:", verdict.not_proved)):
        if sentences:
            click.echo(title)
        for sentence in sentences:
            click.echo(f"  - {sentence}")


@click.command("signing-key")
@click.argument("file", type=click.Path(dir_okay=False))
@json_option
def signing_key(file: str, as_json: bool) -> None:
    """Create a key pair for signing evidence.

    Writes the private key to FILE, readable by you alone; keep a safe copy. Prints the public key:
    give it to those who verify what you sign. Needs the extra 'evidence'.
    """
    from milepost.evidence.signing import fingerprint, make_key, public_text

    signer = make_key(Path(file))
    if as_json:
        print_json(
            {
                "file": file,
                "public_key": public_text(signer.public),
                "fingerprint": fingerprint(signer.public),
            }
        )
        return
    click.echo(f"private key  {file}")
    click.echo(f"public key   {public_text(signer.public)}")
    click.echo(f"fingerprint  {fingerprint(signer.public)}")
