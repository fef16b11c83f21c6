"""`milepost resend`: offer items to their stage again, or run the resender once."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import click

from milepost.cli.act.targets import act_on_items, on_items
from milepost.cli.config import CliSettings
from milepost.cli.out import print_json

if TYPE_CHECKING:
    from milepost.engine.context import Context
    from milepost.engine.resend import ResendSummary


@click.command()
@partial(on_items, need_route=False)
def resend(given: CliSettings, route: str | None, **options: Any) -> int:
    """Offer items to their stage again, or run the resender once.

    With a route and keys or filters: offer an external stage to its partner again, or run a handler again at once instead of at its
    due time. This counts no attempt. Without arguments the resender runs once: it finds the items of all routes whose due
    time has passed, and offers them again.
    """
    if route is not None:
        return act_on_items(given, "resend", route=route, **options)
    with given.context(act=True) as ctx:
        done = _run_resender(ctx)
    if options["as_json"]:
        print_json(done)
    else:
        click.echo(f"Resender run: {done}")
    return 0


def _run_resender(ctx: Context) -> ResendSummary:
    """Run the resender to the end and write its heartbeat, so that `doctor` sees a resender that runs by schedule."""
    import os
    import platform

    from milepost.engine.resend import Resender
    from milepost.ports.documents import PROCESS, Process

    began, host = ctx.clock.now(), platform.node()
    done = Resender(ctx).run_once(pages=1_000_000)
    now = ctx.clock.now()
    ctx.ledger.write(PROCESS, f"{host}-resend", Process(f"{host}-resend", host, os.getpid(), began, now, {"resender": now}))
    return done
