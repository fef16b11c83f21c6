"""Option and footer for records that are listed latest first."""

from __future__ import annotations

import click

limit_option = click.option("--limit", type=click.IntRange(1), default=20, show_default=True, help="At most this many.")


def print_rest(n: int) -> None:
    if n > 0:
        click.echo(f"… and {n:,} earlier; give --limit.")
