"""`milepost watch`: live view of a ledger that other processes work on."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import click

from milepost.cli.config import CliSettings
from milepost.cli.options import shared_options
from milepost.cli.output import console, print_json

if TYPE_CHECKING:
    from milepost.engine.context import Context
    from milepost.engine.views.snapshot import Snapshot

WHOLE = 10_000
"""Height of a view that is printed once: unlimited."""


@click.command()
@click.argument("route", required=False)
@click.option(
    "--every", metavar="SPAN", default=None, help="Refresh interval [0.5s on a terminal, else 1s]."
)
@click.option("--for", "during", metavar="SPAN", help="Stop after this time instead of at Ctrl-C.")
@click.option("--once", is_flag=True, help="Print one view and exit.")
@shared_options
def watch(
    given: CliSettings,
    route: str | None,
    every: str | None,
    during: str | None,
    once: bool,
    as_json: bool,
) -> None:
    """Watch items move: counts, rate, oldest item, failures.

    A live view on a terminal; else one plain line per second (with --json: one object per line).
    """
    from milepost.core.values.durations import span_ms
    from milepost.engine.views.items import check_route

    live = sys.stdout.isatty() and not as_json
    every_s = span_ms(every or ("0.5s" if live else "1s"), "--every") / 1000
    if every_s <= 0:
        raise click.UsageError("--every must be longer than 0")
    during_s = None if during is None else span_ms(during, "--for") / 1000
    with given.context() as ctx:
        check_route(ctx, route)
        began = time.monotonic()

        def over() -> bool:
            return once or (during_s is not None and time.monotonic() >= began + during_s)

        try:
            if as_json:
                for seen in _snapshots(ctx, route, every_s, over):
                    print_json(_object(seen), indent=None)
            else:
                look(ctx, route, every_s, over, live=live and not once)
        except KeyboardInterrupt:
            pass


def look(
    ctx: Context, route: str | None, every_s: float, over: Callable[[], bool], *, live: bool
) -> dict[str, Snapshot]:
    """Show the routes until `over()` holds; returns the last snapshots."""
    from rich.live import Live

    from milepost.cli.look.live_view import Trail, line, picture

    trails: dict[str, Trail] = {}
    to, began = console(), ctx.clock.now()
    seen: dict[str, Snapshot] = {}
    with Live(console=to, auto_refresh=False) if live else nullcontext() as screen:
        for seen in _snapshots(ctx, route, every_s, over):
            for name, snapshot in seen.items():
                trails.setdefault(name, Trail()).add(snapshot.rate)
            if not to.is_terminal and screen is None:
                for snapshot in seen.values():
                    click.echo(line(snapshot, snapshot.at - began))
                continue
            height = to.height if live else WHOLE
            drawn = picture(
                [*seen.values()],
                [trails[name] for name in seen],
                to.width - 1,
                height - 1,
                ctx.clock.now() - began,
            )
            if screen is None:
                to.print(drawn)
            else:
                screen.update(drawn, refresh=True)
    return seen


def _snapshots(
    ctx: Context, route: str | None, every_s: float, over: Callable[[], bool]
) -> Iterator[dict[str, Snapshot]]:
    """Snapshots of the routes at this interval, until `over()` holds; one more is always taken
    then."""
    from milepost.engine.views.snapshot import snapshots

    seen: dict[str, Snapshot] = {}
    while True:
        last = over()
        seen = snapshots(ctx, seen, route)
        yield seen
        if last:
            return
        sys.stdout.flush()
        time.sleep(every_s)


def _object(seen: dict[str, Snapshot]) -> dict[str, Any]:
    from msgspec import to_builtins

    from milepost.core.values.durations import iso

    return {
        "routes": {
            name: {**to_builtins(snapshot), "at": iso(snapshot.at)}
            for name, snapshot in seen.items()
        }
    }
