"""`milepost up`: run workers, resender, subscribers and the API in one process."""

from __future__ import annotations

import click

from milepost.cli.config import CliSettings
from milepost.cli.options import settings
from milepost.cli.work.announce import log_option
from milepost.cli.work.foreground import grace_option, run, until_idle_option
from milepost.cli.work.listen import listen_options, listening, wanted


@click.command()
@until_idle_option
@grace_option
@click.option("--no-work", is_flag=True, help="Leave the work to 'milepost work' in processes of its own.")
@listen_options
@log_option
@settings
def up(
    given: CliSettings,
    until_idle: float | None,
    grace: str | None,
    no_work: bool,
    listen: str | None,
    base_path: str | None,
    no_listen: bool,
    log_form: str,
) -> None:
    """Run everything: workers, resender, subscribers, and the API.

    Runs until Ctrl-C or SIGTERM; then running handlers have --grace to finish and the rest is given back, uncounted. The API is at
    127.0.0.1:8321, or where --listen or milepost.toml (listen = "HOST:PORT") says; with --until-idle only if --listen says so.
    Behind a proxy that gives it a part of its own, --base-path (or base_path) says which.

    While calls hand over items, the worker leaves half of the time to them. Handlers that use much CPU slow the API all the same: then
    run 'milepost up --no-work' and, beside it, 'milepost work'.
    """
    from milepost.runners.logs import logs
    from milepost.runners.process import tune_thread_switching

    where = wanted(listen, given.file.get("listen"), no_listen=no_listen or (until_idle is not None and listen is None))
    base = given.file.get("base_path", "") if base_path is None else base_path
    with logs(log_form), given.context(act=True, create=True) as ctx, listening(ctx, where, base, given.applications()):
        if where is not None:
            tune_thread_switching()
        roles = {"resender", "relay"} if no_work else {"worker", "resender", "relay"}
        run(ctx, roles, given.subscribers(), until_idle, "up", given.signer(), given.grace_ms(grace), given.applications())
