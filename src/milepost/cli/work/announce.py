"""What a command that runs for long says of itself: to people, or, where its log is JSON, as lines of that log."""

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
    help="Write the log as text, or as a line of JSON for each entry, every call among them [MILEPOST_LOG; default text].",
)


def say(text: str) -> None:
    """A word to whoever started the command, on standard error."""
    import logging

    log = logging.getLogger(__name__)
    if log.isEnabledFor(logging.INFO):
        log.info("%s", text)
    else:
        click.echo(text, err=True)
