"""`milepost demo`: the main job, worth watching. 2,000 parcels, three stages, partners that fail and dawdle."""

from __future__ import annotations

import shutil
import sys
import threading
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

import click

from milepost.core.errors import MilepostError

if TYPE_CHECKING:
    from milepost.engine.context import Context
    from milepost.engine.snapshot import Snapshot

ROUTE = "milepost.cli.demo_route:parcels"
NAME = "milepost-demo.db"


@click.command()
@click.option("--items", type=click.IntRange(1, 1_000_000), default=2000, show_default=True, help="How many parcels.")
@click.option("--folder", type=click.Path(file_okay=False, path_type=Path), default=".", help="Where the demo's ledger is written [here].")
def demo(items: int, folder: Path) -> int:
    """See it work: 2,000 parcels, three stages, partners that fail.

    A live view in the terminal (plain lines elsewhere), then a summary and what to try next. Takes about 15 seconds and
    writes milepost-demo.db, anew each time.
    """
    from milepost.cli.demo_route import DEPOTS, parcels
    from milepost.engine.intake import submit
    from milepost.wiring import open_context

    path = _fresh(folder)
    ctx = open_context(f"sqlite:///{path}", [parcels])
    try:
        began = monotonic()
        submit(ctx, "parcels", ({"id": f"P-{n:04d}", "depot": DEPOTS[n % len(DEPOTS)]} for n in range(1, items + 1)))
        click.echo(f"{items:,} parcels handed over in {monotonic() - began:.1f} s. Each is weighed, cleared by customs and delivered.")
        click.echo("The scale is sometimes busy, customs dawdle, and the depot in the west has a bad day.\n")
        last = _work(ctx)
        _summary(ctx, last["parcels"], monotonic() - began)
    finally:
        ctx.ledger.close()
    _try_next(path)
    return 0


def _fresh(folder: Path) -> Path:
    """A new ledger file; the one that an earlier demo left is removed."""
    path = folder / NAME
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.glob(f"{NAME}*"):
            shutil.rmtree(old) if old.is_dir() else old.unlink()
    except OSError as error:
        raise MilepostError(f"the demo's ledger {path} cannot be written: {error.strerror}; give another --folder") from None
    return path


def _work(ctx: Context) -> dict[str, Snapshot]:
    """Work in the background, look in the foreground. Ctrl-C ends both; what is in hand is finished."""
    from milepost.cli.watch import look
    from milepost.wiring import Station

    station = Station(ctx, roles={"worker", "resender"})
    failed: list[BaseException] = []

    def work() -> None:
        try:
            station.run(until_idle_s=6)
        except BaseException as error:
            failed.append(error)

    worker = threading.Thread(target=work, name="demo")
    worker.start()
    live = sys.stdout.isatty()
    try:
        last = look(ctx, "parcels", 0.25 if live else 1.0, lambda: not worker.is_alive(), live=live)
    finally:
        station.stop()
        worker.join()
    if failed:
        raise failed[0]
    return last


def _summary(ctx: Context, last: Snapshot, seconds: float) -> None:
    from milepost.cli.out import console, safe, show_table, table

    retried = sum(kind.total for kind in last.kinds)
    to = console()
    to.print(f"\n[bold green]{last.done:,} of {last.total:,}[/] parcels delivered in {seconds:.1f} s, {last.done / seconds:,.0f} a second.")
    to.print(f"{retried:,} tries failed on the way; they were tried again. [red]{last.failed:,}[/] parcels need a person:")
    shown = table("stage", "kind", "parcels", "failed tries", "for example", right=["parcels", "failed tries"])
    for kind in last.kinds:
        shown.add_row(safe(kind.stage), safe(kind.category), f"{kind.now:,}", f"{kind.total:,}", safe(kind.sample))
    show_table(shown)


def _try_next(path: Path) -> None:
    command = "milepost" if shutil.which("milepost") else f"{sys.executable} -m milepost"
    steps = (
        ("how many are where", "status"),
        ("which failed, and why", "list parcels --status failed --limit 5"),
        ("failures by kind", "groups parcels"),
        ("the story of one", "show parcels P-0008"),
        ("what a retry would do", f"retry parcels --status failed --dry-run --routes {ROUTE}"),
        ("do it, signed", f"retry parcels --status failed --by you --reason 'the west is back' --routes {ROUTE}"),
        ("and work it off", f"work --until-idle --routes {ROUTE}"),
        ("is all well?", "doctor"),
    )
    click.echo("\nNothing is lost and nothing is forgotten. Try next:\n")
    click.echo(f"  export MILEPOST_LEDGER=sqlite:///{path}")
    for what, step in steps:
        click.echo(f"  {command} {step}    # {what}")
    click.echo("\nThen write a route of your own:  " + f"{command} init my-route")
