"""`milepost work`: run workers alone."""

from __future__ import annotations

import click

from milepost.cli.config import CliSettings
from milepost.cli.options import settings
from milepost.cli.work.announce import log_option
from milepost.cli.work.foreground import grace_option, run, until_idle_option


@click.command()
@until_idle_option
@grace_option
@log_option
@settings
def work(given: CliSettings, until_idle: float | None, grace: str | None, log_form: str) -> None:
    """Run workers only.

    Start as many of these processes as you like; they share the work. Events are delivered to subscribers by 'milepost up'.
    """
    from milepost.runners.logs import logs

    with logs(log_form), given.context(act=True, create=True) as ctx:
        run(ctx, {"worker"}, (), until_idle, "work", grace_ms=given.grace_ms(grace))
