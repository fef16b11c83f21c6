"""All commands by section. The module of a command is imported when the command is used."""

from __future__ import annotations

from importlib import import_module

import click

from milepost import __version__
from milepost.application import is_name
from milepost.cli.config import CliSettings
from milepost.cli.options import ledger_option, routes_option
from milepost.cli.sections import MODULES, SECTIONS


class Sectioned(click.Group):
    """Command group that shows its commands by section and imports each on first use."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*MODULES, *_applications()]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in MODULES:
            return _application(cmd_name)
        defined = vars(import_module(MODULES[cmd_name])).values()
        return next(value for value in defined if isinstance(value, click.Command) and value.name == cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, members in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name, command.get_short_help_str(62)) for name in members if (command := self.get_command(ctx, name))])
        named = _applications()
        if named:
            with formatter.section("Applications"):
                formatter.write_dl([(name, f"The commands of {name}.") for name in named])


def _applications() -> list[str]:
    """The names of the applications that this folder's milepost.toml or the environment names. None is imported for it, unless only its
    file knows its name."""
    return [spec if is_name(spec) else _name_in(spec) for spec in CliSettings().application_specs]


def _name_in(spec: str) -> str:
    from milepost.route_files import load_application

    return load_application(spec).name


def _application(name: str) -> click.Command | None:
    if not CliSettings().application_specs:
        return None
    from milepost.cli.applications import group_of

    return group_of(name)


@click.group(cls=Sectioned, context_settings={"help_option_names": ["-h", "--help"]})
@ledger_option
@routes_option
@click.version_option(__version__, message="%(prog)s %(version)s")
@click.pass_context
def cli(ctx: click.Context, ledger: str | None, routes: tuple[str, ...]) -> None:
    """Milepost sees every item through.

    Items travel a route of stages; one ledger says where each of them is. Start with 'milepost init' or 'milepost demo'.
    """
    ctx.obj = CliSettings(ledger=ledger, routes=routes)
