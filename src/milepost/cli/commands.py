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

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if not name.startswith("-") and not ctx.resilient_parsing and self.get_command(ctx, name) is None:
            # click looks for similar names only among commands that were imported.
            ctx.fail(f"No such command {name!r}.{_similar(name, self.list_commands(ctx))}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, members in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name, command.get_short_help_str(62)) for name in members if (command := self.get_command(ctx, name))])
        specs = CliSettings().application_specs
        if specs:
            with formatter.section("Applications"):
                formatter.write_dl([_name_and_summary(spec) for spec in specs])


def _similar(name: str, names: list[str]) -> str:
    """Commands that a person may have meant by one that does not exist; empty if nothing is similar."""
    from difflib import get_close_matches

    from milepost.route_files import shipped_applications

    if name in shipped_applications():
        return f' The application {name} is not in use in this folder: name it in milepost.toml, applications = ["{name}"].'
    found = get_close_matches(name, names, 1)
    return f" Did you mean {found[0]!r}?" if found else ""


def _name_and_summary(spec: str) -> tuple[str, str]:
    """An application for the help. One that comes with Milepost is not imported for it. The help is shown although one cannot be loaded."""
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
    """Purpose of an application that comes with Milepost, by the docstring of its package; empty if there is none of this name."""
    import ast
    from pathlib import Path

    place = Path(__file__).parents[1] / "applications" / name.replace("-", "_") / "__init__.py"
    text = ast.get_docstring(ast.parse(place.read_text(encoding="utf-8"))) if place.is_file() else None
    said = "" if text is None else text.partition(".")[0].removeprefix(f"{name.capitalize()}: ")
    return said and f"{said[0].upper()}{said[1:]}."


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

    Items travel a route of stages; one ledger says where each of them is. Settings are read from milepost.toml in the current folder. Start
    with 'milepost init' or 'milepost demo'.
    """
    ctx.obj = CliSettings(ledger=ledger, routes=routes)
