"""`milepost signing-key`: create a key pair for signing evidence and daily heads."""

from __future__ import annotations

from pathlib import Path

import click

from milepost.cli.options import json_option
from milepost.cli.out import print_json


@click.command("signing-key")
@click.argument("file", type=click.Path(dir_okay=False))
@json_option
def signing_key(file: str, as_json: bool) -> None:
    """Create a key pair for signing evidence.

    Writes the private key to FILE, readable by you alone; keep a safe copy. Prints the public key: give it to those who verify what you
    sign. Needs 'pip install milepost[evidence]'.
    """
    from milepost.evidence.signing import fingerprint, make_key, public_text

    signer = make_key(Path(file))
    if as_json:
        print_json({"file": file, "public_key": public_text(signer.public), "fingerprint": fingerprint(signer.public)})
        return
    click.echo(f"private key  {file}")
    click.echo(f"public key   {public_text(signer.public)}")
    click.echo(f"fingerprint  {fingerprint(signer.public)}")
