"""The commands of applications: `milepost APPLICATION COMMAND`."""

from __future__ import annotations

import functools
import os
import signal
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

import click

from milepost.application.declaration import CommandPart, ConfiguredApplication
from milepost.cli.config import CliSettings
from milepost.cli.options import settings

if TYPE_CHECKING:
    from milepost.engine.context import Context


def group_of(name: str) -> click.Group | None:
    """The commands of the application of this name; None if no such application is named."""
    for one in CliSettings().applications():
        if one.name == name:
            if one.application.command_module is not None:
                import_module(one.application.command_module)
            commands = [_command(one.application.name, part) for part in one.application.commands]
            summary = one.application.summary or f"The commands of {name}."
            return click.Group(name, commands, help=summary, context_settings={"help_option_names": ["-h", "--help"]})
    return None


def _command(name: str, part: CommandPart) -> click.Command:
    run: Callable[..., Any] = _without_ledger(name, part) if part.ledger == "none" else _with_ledger(name, part)
    # Its own list: making a command of a function changes the list of its options.
    vars(run)["__click_params__"] = list(getattr(part.function, "__click_params__", ()))
    return click.command(part.name)(run if part.ledger == "none" else settings(run))


def _with_ledger(name: str, part: CommandPart) -> Callable[..., Any]:
    writes = part.ledger == "write"

    @functools.wraps(part.function)
    def run(given: CliSettings, **options: Any) -> Any:
        with given.context(act=writes, create=writes) as ctx:
            work = functools.partial(_work, given, ctx) if writes else None
            return part.function(_named(given, name).on(ctx, work=work), **options)

    return run


def _work(given: CliSettings, ctx: Context, until_idle: float) -> None:
    """Run workers, resender and subscribers in the foreground until idle, for a command that works by itself and reports on it. A signal ends
    the command, after the running work."""
    from milepost.cli.work.foreground import run
    from milepost.runners.logs import logs

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        with logs(os.environ.get("MILEPOST_LOG", "text")):
            ended_by = run(ctx, {"worker", "resender", "relay"}, given.subscribers(), until_idle, None, given.signer(), given.grace_ms())
    finally:
        # Outside of work a signal ends the command at once.
        for number, handler in before.items():
            signal.signal(number, handler)
    if ended_by is not None:
        raise SystemExit(128 + ended_by)


def _without_ledger(name: str, part: CommandPart) -> Callable[..., Any]:
    @functools.wraps(part.function)
    def run(**options: Any) -> Any:
        return part.function(_named(CliSettings(), name).on(None), **options)

    return run


def _named(given: CliSettings, name: str) -> ConfiguredApplication[Any]:
    return next(one for one in given.applications() if one.name == name)
