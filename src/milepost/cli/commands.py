"""All commands, put together."""

from __future__ import annotations

import click

from milepost.cli.act import cancel, confirm, replace, rerun, reschedule, resend, retry, skip
from milepost.cli.backup import backup, restore
from milepost.cli.completion import completion
from milepost.cli.config import Settings
from milepost.cli.cost import cost
from milepost.cli.demo import demo
from milepost.cli.export import export
from milepost.cli.heads import heads
from milepost.cli.hold import limit, pause, resume
from milepost.cli.init import init
from milepost.cli.keep import doctor, prune
from milepost.cli.keys import keys
from milepost.cli.look import groups, list_items, show, status
from milepost.cli.move import move
from milepost.cli.options import ledger_option, routes_option
from milepost.cli.outside import adopt, quarantine
from milepost.cli.record import acts, lists
from milepost.cli.routes import routes
from milepost.cli.run import up, work
from milepost.cli.signing import signing_key
from milepost.cli.submit import submit
from milepost.cli.subscribers import subscribers
from milepost.cli.verify import verify
from milepost.cli.volume import volume
from milepost.cli.watch import watch

SECTIONS: dict[str, tuple[click.Command, ...]] = {
    "Start": (init, demo, completion),
    "Work": (up, work, submit),
    "Look": (status, show, list_items, groups, volume, watch, lists, acts, export, doctor),
    "Prove": (signing_key, heads, verify),
    "Act": (retry, skip, confirm, cancel, resend, rerun, replace, reschedule, pause, resume, limit),
    "Keep": (routes, subscribers, keys, prune, backup, restore, adopt, quarantine, move, cost),
}


class Sectioned(click.Group):
    """A group whose help shows the commands by what they are for."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, members in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(member.name or "", member.get_short_help_str(62)) for member in members])


@click.group(cls=Sectioned, context_settings={"help_option_names": ["-h", "--help"]})
@ledger_option
@routes_option
@click.version_option(package_name="milepost", message="%(prog)s %(version)s")
@click.pass_context
def cli(ctx: click.Context, ledger: str | None, routes: tuple[str, ...]) -> None:
    """Milepost sees every item through.

    Items travel a route of stages; one ledger says where each of them is. Start with 'milepost init' or 'milepost demo'.
    """
    ctx.obj = Settings(ledger=ledger, routes=routes)


for _members in SECTIONS.values():
    for _member in _members:
        cli.add_command(_member)
