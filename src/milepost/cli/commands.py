"""All commands, by the file that defines each. A file is imported when its command is used."""

from __future__ import annotations

from importlib import import_module

import click

from milepost import __version__
from milepost.cli.config import CliSettings
from milepost.cli.options import ledger_option, routes_option

SECTIONS: dict[str, dict[str, str]] = {
    "Start": {"init": "start.init", "demo": "start.demo", "completion": "start.completion"},
    "Work": {"up": "work.up", "work": "work.up", "submit": "work.submit"},
    "Look": {
        "status": "look.items",
        "show": "look.items",
        "list": "look.items",
        "groups": "look.items",
        "volume": "look.volume",
        "watch": "look.watch",
        "lists": "look.records",
        "acts": "look.records",
        "export": "look.export",
        "doctor": "keep.upkeep",
    },
    "Prove": {"signing-key": "prove.signing_key", "heads": "prove.heads", "verify": "prove.verify"},
    "Act": {
        "retry": "act.items",
        "skip": "act.items",
        "confirm": "act.items",
        "cancel": "act.items",
        "resend": "act.items",
        "rerun": "act.items",
        "replace": "act.items",
        "reschedule": "act.items",
        "pause": "act.controls",
        "resume": "act.controls",
        "limit": "act.controls",
    },
    "Keep": {
        "routes": "keep.routes",
        "subscribers": "keep.subscribers",
        "keys": "keep.keys",
        "prune": "keep.upkeep",
        "backup": "keep.backup",
        "restore": "keep.backup",
        "adopt": "keep.foreign_rows",
        "quarantine": "keep.foreign_rows",
        "move": "keep.move",
        "cost": "keep.cost",
    },
}
"""The sections of the help, each with its commands and the module of `milepost.cli` that defines each command."""
HOMES = {name: home for members in SECTIONS.values() for name, home in members.items()}


class Sectioned(click.Group):
    """A group whose help shows the commands by what they are for, and which imports a command when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(HOMES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in HOMES:
            return None
        defined = vars(import_module(f"milepost.cli.{HOMES[cmd_name]}")).values()
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
