"""`milepost verify`: is this evidence true to what was written? Needs neither ledger nor network."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from milepost.cli.options import json_option
from milepost.cli.out import plain, print_json

if TYPE_CHECKING:
    from milepost.evidence.verify import Verdict


@click.command()
@click.argument("file", type=click.Path(dir_okay=False))
@click.option("--public-key", metavar="KEY", help="The signer's public key (ed25519:…), or a file that holds it.")
@click.option("--head", "heads", multiple=True, metavar="FILE", help="Events of daily heads as they were told; may be repeated.")
@json_option
def verify(file: str, public_key: str | None, heads: tuple[str, ...], as_json: bool) -> int:
    """Check evidence offline.

    Goes through a file that 'milepost export --evidence' wrote, record by record: chains, what follows from them, digests,
    signatures. Says what is proved and what is not. Exit code 1 if anything differs.
    """
    from milepost.evidence.heads import Heads, read_heads
    from milepost.evidence.signing import read_public
    from milepost.evidence.verify import verify as check

    public = None if public_key is None else read_public(public_key)
    verdict = check(Path(file), public, Heads(read_heads(map(Path, heads)), public) if heads else None)
    if as_json:
        print_json({"holds": verdict.holds, **msgspec.to_builtins(verdict)})
    else:
        _tell(verdict)
    return 0 if verdict.holds else 1


def _tell(verdict: Verdict) -> None:
    from milepost.engine.observe import counted

    if verdict.holds:
        click.echo(f"{verdict.file} holds: {counted(verdict.records, 'record')}.")
    else:
        click.echo(f"{verdict.file} does NOT hold: {counted(verdict.found, 'difference')}. Nothing is proved by it.")
    for difference in verdict.differences:
        of = "" if difference.key is None else f", {plain(difference.key)}"
        click.echo(f"  line {difference.line}{of}, {plain(difference.field)}: {plain(difference.what)}")
    if verdict.found > len(verdict.differences):
        click.echo(f"  … and {verdict.found - len(verdict.differences):,} more")
    for title, sentences in (("Proved:", verdict.proved), ("Not proved:", verdict.not_proved)):
        if sentences:
            click.echo(title)
        for sentence in sentences:
            click.echo(f"  - {sentence}")
