"""`milepost signing-key`: a key to sign evidence and daily heads with."""

from __future__ import annotations

from pathlib import Path

import click

from milepost.cli.options import json_option
from milepost.cli.out import print_json


@click.command("signing-key")
@click.argument("file", type=click.Path(dir_okay=False))
@json_option
def signing_key(file: str, as_json: bool) -> None:
    """Make a key to sign evidence with.

    The private key goes to FILE, which only you can read; keep a copy where nobody else can. The public key is printed: give
    it to whoever is to check what you sign. Needs 'pip install milepost[evidence]'.
    """
    from milepost.evidence.signing import fingerprint, make_key, public_text

    signer = make_key(Path(file))
    if as_json:
        print_json({"file": file, "public_key": public_text(signer.public), "fingerprint": fingerprint(signer.public)})
        return
    click.echo(f"private key  {file}")
    click.echo(f"public key   {public_text(signer.public)}")
    click.echo(f"fingerprint  {fingerprint(signer.public)}")
