"""Messages of a long-running command: text for people, or log lines where the log is JSON."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])

log_option = click.option(
    "--log",
    "log_form",
    type=click.Choice(["text", "json"]),
    default="text",
    envvar="MILEPOST_LOG",
    help="Log format: text, or one JSON object per line, which includes every request [MILEPOST_LOG; default text].",
)


def say(text: str) -> None:
    """Print a message on standard error, or log it if the log is JSON."""
    import logging

    log = logging.getLogger(__name__)
    if log.isEnabledFor(logging.INFO):
        log.info("%s", text)
    else:
        click.echo(text, err=True)
