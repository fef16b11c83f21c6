"""`milepost work`: run workers alone."""

from __future__ import annotations

import sys

import click

from milepost.cli.config import CliSettings
from milepost.cli.options import settings
from milepost.cli.work.foreground import grace_option, log_option, pin_option, processes_option, run, until_idle_option


@click.command()
@until_idle_option
@grace_option
@processes_option(default=1, text="Run N worker processes, such as one for each core. One that is killed is replaced.")
@pin_option
@log_option
@settings
def work(given: CliSettings, until_idle: float | None, grace: str | None, processes: int, pin: bool, log_form: str) -> None:
    """Run workers only.

    Start as many of these processes as you like, here with --processes or on other machines; they share the work. Events are delivered to
    subscribers by 'milepost up'.
    """
    from milepost.cli.work.process_group import ProcessGroup, check_shared, command_line, stop_with_parent, worker_commands
    from milepost.runners.logs import logs
    from milepost.runners.process import schedule_as_batch, tune_thread_switching

    if processes > 1 or pin:
        check_shared(given)
        idle = None if until_idle is None else str(until_idle)
        worker = command_line(given, "work", until_idle=idle, grace=grace, log=log_form)
        with logs(log_form):
            sys.exit(ProcessGroup("work", worker_commands(worker, processes, pin=pin)).run())
    schedule_as_batch()
    if stop_with_parent():
        tune_thread_switching()
    with logs(log_form), given.context(act=True, create=True) as ctx:
        run(ctx, {"worker"}, (), until_idle, "work", grace_ms=given.grace_ms(grace))
