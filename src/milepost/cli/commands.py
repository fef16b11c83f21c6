"""All commands by section. The module of a command is imported when the command is used."""

from __future__ import annotations

from importlib import import_module

import click

from milepost import __version__
from milepost.cli.config import CliSettings
from milepost.cli.options import ledger_option, routes_option

SECTIONS: dict[str, tuple[str, ...]] = {
    "Start": ("init", "demo", "completion"),
    "Work": ("up", "work", "submit"),
    "Look": ("status", "show", "list", "groups", "volume", "watch", "lists", "acts", "export", "doctor"),
    "Prove": ("signing-key", "heads", "verify"),
    "Act": ("retry", "skip", "confirm", "cancel", "resend", "rerun", "replace", "reschedule", "pause", "resume", "limit", "breakers"),
    "Keep": ("routes", "subscribers", "keys", "prune", "backup", "restore", "adopt", "quarantine", "move", "cost"),
}
"""The sections of the help, each with its commands in order. The module of a command is named after both: `act/retry.py`."""
MODULES = {name: f"milepost.cli.{title.lower()}.{name.replace('-', '_')}" for title, names in SECTIONS.items() for name in names}


class Sectioned(click.Group):
    """A group whose help shows the commands by what they are for, and which imports a command when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(MODULES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in MODULES:
            return None
        defined = vars(import_module(MODULES[cmd_name])).values()
        return next(value for value in defined if isinstance(value, click.Command) and value.name == cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, members in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name, command.get_short_help_str(62)) for name in members if (command := self.get_command(ctx, name))])


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
