"""`milepost work`: run workers alone."""

from __future__ import annotations

import sys

import click

from milepost.cli.config import CliSettings
from milepost.cli.options import settings
from milepost.cli.work.announce import log_option
from milepost.cli.work.foreground import grace_option, run, until_idle_option
from milepost.core.errors import UsageError


@click.command()
@until_idle_option
@grace_option
@click.option(
    "--processes",
    type=click.IntRange(1, 256),
    default=1,
    show_default=True,
    metavar="N",
    help="Run N worker processes, such as one for each core. One that is killed is replaced.",
)
@log_option
@settings
def work(given: CliSettings, until_idle: float | None, grace: str | None, processes: int, log_form: str) -> None:
    """Run workers only.

    Start as many of these processes as you like, here with --processes or on other machines; they share the work. Events are delivered to
    subscribers by 'milepost up'.
    """
    from milepost.cli.work.worker_processes import WorkerProcesses, stop_with_parent, worker_command
    from milepost.runners.logs import logs

    if processes > 1:
        if given.ledger.startswith("memory:"):
            raise UsageError("a ledger in memory cannot be shared by processes; use --processes 1, or a ledger in a file")
        with logs(log_form):
            sys.exit(WorkerProcesses(worker_command(sys.argv[1:]), processes).run())
    stop_with_parent()
    with logs(log_form), given.context(act=True, create=True) as ctx:
        run(ctx, {"worker"}, (), until_idle, "work", grace_ms=given.grace_ms(grace))
