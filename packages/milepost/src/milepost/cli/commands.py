"""All commands by section, and those of applications: `milepost APPLICATION COMMAND`. The module of
a command is imported when it is used."""

from __future__ import annotations

import functools
import os
import signal
from importlib import import_module
from typing import TYPE_CHECKING, Any

import click

from milepost import __version__
from milepost.application import is_name
from milepost.cli.config import CliSettings
from milepost.cli.options import ledger_option, routes_option, settings
from milepost.cli.sections import MODULES, SECTIONS
from milepost.ports.extensions import (
    APPLICATIONS,
    COMMANDS,
    extension,
    extension_points,
    loaded,
    missing_package,
)

if TYPE_CHECKING:
    from milepost.application.declaration import CommandPart, ConfiguredApplication
    from milepost.engine.context import Context


class Sectioned(click.Group):
    """Command group that shows its commands by section and imports each on first use."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*MODULES, *(point.name for point in extension_points(COMMANDS)), *_applications()]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in MODULES:
            return _application_group(cmd_name) or extension(COMMANDS, cmd_name)
        defined = vars(import_module(MODULES[cmd_name])).values()
        return next(
            value
            for value in defined
            if isinstance(value, click.Command) and value.name == cmd_name
        )

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if (
            not name.startswith("-")
            and not ctx.resilient_parsing
            and self.get_command(ctx, name) is None
        ):
            # click looks for similar names only among commands that were imported.
            ctx.fail(f"No such command {name!r}.{_similar(name, self.list_commands(ctx))}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, members in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl(
                    [
                        (name, command.get_short_help_str(62))
                        for name in members
                        if (command := self.get_command(ctx, name))
                    ]
                )
        installed = extension_points(COMMANDS)
        if installed:
            with formatter.section("From installed packages"):
                formatter.write_dl(
                    [(point.name, loaded(point).get_short_help_str(62)) for point in installed]
                )
        specs = CliSettings().application_specs
        if specs:
            with formatter.section("Applications"):
                formatter.write_dl([_name_and_summary(spec) for spec in specs])


def _similar(name: str, names: list[str]) -> str:
    """Commands that a person may have meant by one that does not exist; empty if nothing is
    similar."""
    from difflib import get_close_matches

    if any(point.name == name for point in extension_points(APPLICATIONS)):
        return f' The application {name} is not in use in this folder: name it in milepost.toml, applications = ["{name}"].'
    missing = missing_package(COMMANDS, name) or missing_package(APPLICATIONS, name)
    if missing is not None:
        return f" It is in a package that is not installed; {missing}."
    found = get_close_matches(name, names, 1)
    return f" Did you mean {found[0]!r}?" if found else ""


def _name_and_summary(spec: str) -> tuple[str, str]:
    """An application for the help. An installed one is not imported for it. The help is shown
    although one cannot be loaded."""
    if is_name(spec):
        return spec, _first_sentence(spec) or f"The commands of {spec}."
    from milepost.core.errors import MilepostError
    from milepost.route_files import load_application

    try:
        found = load_application(spec)
    except MilepostError as error:
        return spec, f"It cannot be used: {error}"
    return found.name, found.summary or f"The commands of {found.name}."


def _first_sentence(name: str) -> str:
    """Purpose of an installed application, by the docstring of its package, which is not imported
    for it; empty if there is none."""
    import ast
    from importlib.util import find_spec
    from pathlib import Path

    point = next((point for point in extension_points(APPLICATIONS) if point.name == name), None)
    spec = None if point is None else find_spec(point.module.partition(".")[0])
    if spec is None or spec.origin is None:
        return ""
    text = ast.get_docstring(ast.parse(Path(spec.origin).read_text(encoding="utf-8"))) or ""
    purpose = text.partition(".")[0].removeprefix(f"{name.capitalize()}: ")
    return purpose and f"{purpose[0].upper()}{purpose[1:]}."


def _applications() -> list[str]:
    """The names of the applications that this folder's milepost.toml or the environment names. None
    is imported for it, unless only its file knows its name."""
    return [spec if is_name(spec) else _name_in(spec) for spec in CliSettings().application_specs]


def _name_in(spec: str) -> str:
    from milepost.route_files import load_application

    return load_application(spec).name


@click.group(cls=Sectioned, context_settings={"help_option_names": ["-h", "--help"]})
@ledger_option
@routes_option
@click.version_option(__version__, message="%(prog)s %(version)s")
@click.pass_context
def cli(ctx: click.Context, ledger: str | None, routes: tuple[str, ...]) -> None:
    """Milepost sees every item through.

    Items travel a route of stages; one ledger says where each of them is. Settings are read from
    milepost.toml in the current folder. Start with 'milepost init' or 'milepost demo'.
    """
    ctx.obj = CliSettings(ledger=ledger, routes=routes)


def _application_group(name: str) -> click.Group | None:
    """The commands of the application of this name; None if no such application is named."""
    given = CliSettings()
    for one in given.applications if given.application_specs else ():
        if one.name == name:
            if one.application.command_module is not None:
                import_module(one.application.command_module)
            commands = [_command(one.application.name, part) for part in one.application.commands]
            summary = one.application.summary or f"The commands of {name}."
            return click.Group(
                name,
                commands,
                help=summary,
                context_settings={"help_option_names": ["-h", "--help"]},
            )
    return None


def _command(name: str, part: CommandPart) -> click.Command:
    writes = part.ledger == "write"

    def without_ledger(**options: Any) -> Any:
        return part.function(_named(CliSettings(), name).on(None), **options)

    def with_ledger(given: CliSettings, **options: Any) -> Any:
        with given.context(act=writes, create=writes) as ctx:
            work = functools.partial(_work, given, ctx) if writes else None
            return part.function(_named(given, name).on(ctx, work=work), **options)

    run = functools.wraps(part.function)(without_ledger if part.ledger == "none" else with_ledger)
    # Its own list: making a command of a function changes the list of its options.
    vars(run)["__click_params__"] = list(getattr(part.function, "__click_params__", ()))
    return click.command(part.name)(run if part.ledger == "none" else settings(run))


def _work(given: CliSettings, ctx: Context, until_idle: float) -> None:
    """Run workers, resender and subscribers in the foreground until idle, for a command that works
    by itself and reports on it. A signal ends the command, after the running work."""
    from milepost.cli.work.foreground import run
    from milepost.runners.logs import logs

    before = {
        number: signal.getsignal(number)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    }
    try:
        with logs(os.environ.get("MILEPOST_LOG", "text")):
            ended_by = run(
                ctx,
                {"worker", "resender", "relay"},
                given.subscribers(),
                until_idle,
                None,
                given.signer(),
                given.grace_ms(),
            )
    finally:
        # Outside of work a signal ends the command at once.
        for number, handler in before.items():
            signal.signal(number, handler)
    if ended_by is not None:
        raise SystemExit(128 + ended_by)


def _named(given: CliSettings, name: str) -> ConfiguredApplication[Any]:
    return next(one for one in given.applications if one.name == name)
