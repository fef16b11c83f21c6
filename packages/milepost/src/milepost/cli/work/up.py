"""`milepost up` and `milepost work`: run workers, resender, subscribers and the API, in one process
or with workers in processes beside it; or workers alone."""

from __future__ import annotations

import sys

import click

from milepost.cli.config import CliSettings
from milepost.cli.options import settings
from milepost.cli.work.foreground import (
    grace_option,
    log_option,
    pin_option,
    processes_option,
    run,
    until_idle_option,
)
from milepost.cli.work.listen import listen_options, listening, wanted


@click.command()
@until_idle_option
@grace_option
@click.option(
    "--no-work", is_flag=True, help="Run no workers; 'milepost work' runs them in other processes."
)
@processes_option(
    default=None,
    text="Run the workers in N processes beside the one that serves. One that is killed is replaced.",
)
@pin_option
@listen_options
@log_option
@settings
def up(
    given: CliSettings,
    until_idle: float | None,
    grace: str | None,
    no_work: bool,
    processes: int | None,
    pin: bool,
    listen: str | None,
    base_path: str | None,
    no_listen: bool,
    log_form: str,
) -> None:
    """Run everything: workers, resender, subscribers, HTTP server.

    Runs until Ctrl-C or SIGTERM. Running handlers then have --grace to finish; other claimed items
    are given back and no attempt is counted. The HTTP server listens at 127.0.0.1:8321, or at
    --listen or milepost.toml (listen = "HOST:PORT"); with --until-idle only if --listen is given.
    Behind a proxy that forwards a URL prefix, give it as --base-path (or base_path).

    While requests submit items, the worker uses at most half of the time. Handlers that use much
    CPU still slow the API: then give --processes N, and N worker processes run them, such as one
    for each core. (The same by hand, also on other machines: 'milepost up --no-work', and 'milepost
    work' beside it.)
    """
    from milepost.application.installation import alert_watches
    from milepost.cli.work.process_group import (
        GroupCommand,
        ProcessGroup,
        check_shared,
        command_line,
        stop_with_parent,
        worker_commands,
    )
    from milepost.runners.logs import logs
    from milepost.runners.process import tune_thread_switching

    if processes is not None:
        if no_work or until_idle is not None:
            raise click.UsageError(
                f"--processes runs workers until Ctrl-C; leave out {'--no-work' if no_work else '--until-idle'}"
            )
        check_shared(given)
        serving = command_line(
            given,
            "up",
            no_work=True,
            listen=listen,
            base_path=base_path,
            no_listen=no_listen,
            grace=grace,
            log=log_form,
        )
        worker = command_line(given, "work", grace=grace, log=log_form)
        with logs(log_form):
            sys.exit(
                ProcessGroup(
                    "up", [GroupCommand(serving), *worker_commands(worker, processes, pin=pin)]
                ).run()
            )
    if pin:
        raise click.UsageError(
            "--pin needs --processes: it gives each worker process a CPU of its own"
        )
    stop_with_parent()
    where = wanted(
        listen,
        given.file.get("listen"),
        no_listen=no_listen or (until_idle is not None and listen is None),
    )
    base = given.file.get("base_path", "") if base_path is None else base_path
    with (
        logs(log_form),
        given.context(act=True, create=True) as ctx,
        listening(ctx, where, base, given.applications),
    ):
        if where is not None:
            tune_thread_switching()
        roles = {"resender", "relay"} if no_work else {"worker", "resender", "relay"}
        watches = alert_watches(ctx, given.alerts(), given.allow_cidrs)
        run(
            ctx,
            roles,
            given.subscribers(),
            until_idle,
            "up",
            given.signer(),
            given.grace_ms(grace),
            given.applications,
            watches,
        )


@click.command()
@until_idle_option
@grace_option
@processes_option(
    default=1,
    text="Run N worker processes, such as one for each core. One that is killed is replaced.",
)
@pin_option
@log_option
@settings
def work(
    given: CliSettings,
    until_idle: float | None,
    grace: str | None,
    processes: int,
    pin: bool,
    log_form: str,
) -> None:
    """Run workers only.

    Start as many of these processes as you like, here with --processes or on other machines; they
    share the work. Events are delivered to subscribers by 'milepost up'.
    """
    from milepost.cli.work.process_group import (
        ProcessGroup,
        check_shared,
        command_line,
        stop_with_parent,
        worker_commands,
    )
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
