"""`milepost demo`: the main job, worth watching. 2,000 parcels, three stages, partners that fail and dawdle."""

from __future__ import annotations

import shutil
import sys
import threading
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

import click

from milepost.cli.out import WIDE, console, safe, show_table, table
from milepost.core.errors import MilepostError
from milepost.core.status import FAILED

if TYPE_CHECKING:
    from milepost.engine.context import Context
    from milepost.engine.snapshot import Snapshot

SETTINGS = """ledger = "sqlite:///milepost.db"
routes = ["milepost.cli.demo_route:parcels"]
"""


@click.command()
@click.option("--items", type=click.IntRange(1, 1_000_000), default=2000, show_default=True, help="How many parcels.")
@click.option("--folder", type=click.Path(file_okay=False, path_type=Path), default="milepost-demo", show_default=True)
def demo(items: int, folder: Path) -> int:
    """See it work: 2,000 parcels, three stages, partners that fail.

    A live view in the terminal (plain lines elsewhere), then a summary and what to try next. Takes about 15 seconds. The
    ledger stays in FOLDER to be looked at; the next demo starts anew.
    """
    from milepost.cli.demo_route import DEPOTS, parcels
    from milepost.engine.intake import submit
    from milepost.ports.ledger import Query
    from milepost.wiring import open_context

    ctx = open_context(f"sqlite:///{_fresh(folder)}", [parcels])
    try:
        began = monotonic()
        submit(ctx, "parcels", ({"id": f"P-{n:04d}", "depot": DEPOTS[n % len(DEPOTS)]} for n in range(1, items + 1)))
        click.echo(f"{items:,} parcels handed over in {monotonic() - began:.2f} s, to be weighed, cleared and delivered.")
        click.echo("The scale is at times busy, customs dawdle, the west has a bad day.\n")
        last = _work(ctx)["parcels"]
        _summary(last, monotonic() - began)
        failed = ctx.ledger.find(Query(route="parcels", statuses=FAILED, limit=1)).items
    finally:
        ctx.ledger.close()
    _try_next(folder, failed[0].key if failed else "P-0001")
    return 0


def _fresh(folder: Path) -> Path:
    """A new ledger; the one that an earlier demo left is removed."""
    path = folder / "milepost.db"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.glob("milepost.db*"):
            shutil.rmtree(old) if old.is_dir() else old.unlink()
        (folder / "milepost.toml").write_text(SETTINGS, encoding="utf-8")
    except OSError as error:
        raise MilepostError(f"the demo cannot write to {folder}: {error.strerror}; give another --folder") from None
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


def _summary(last: Snapshot, seconds: float) -> None:
    again = sum(kind.total for kind in last.kinds) - last.failed
    to = console()
    to.print(f"\n[bold green]{last.done:,} of {last.total:,}[/] parcels delivered in {seconds:.1f} s, {last.done / seconds:,.0f} a second.")
    to.print(f"{again:,} times a try failed and was made again. [bold red]{last.failed:,}[/] parcels have failed and want a person.\n")
    shown = table("stage", "kind", "failed", "tries", "for example", right=["failed", "tries"])
    for kind in last.kinds[:5]:
        shown.add_row(safe(kind.stage), safe(kind.category), f"{kind.now:,}", f"{kind.total:,}", safe(kind.sample))
    show_table(shown)


def _try_next(folder: Path, key: str) -> None:
    steps = (
        ("how many are where", "status"),
        ("the story of one", f"show parcels {key}"),
        ("failures by kind", "groups"),
        ("a preview; then do it:", "retry parcels --status failed --dry-run"),
        ("", "retry parcels --status failed --by you --reason 'all is mended'"),
        ("and see them through", "work --until-idle"),
        ("is everything well?", "doctor"),
    )
    to = console(width=WIDE)
    to.print("\n[bold]Nothing is lost and nothing is forgotten. Try next:[/]\n")
    first = [f"cd {folder}"] if shutil.which("milepost") else [f"alias milepost={_beside_python()!r}", f"cd {folder}"]
    for step in first:
        to.print(f"  {step}", markup=False, soft_wrap=True)
    for what, step in steps:
        command = f"milepost {step}"
        to.print(f"  {command:<48} [dim]# {what}[/]" if what else f"  {command}", soft_wrap=True)
    to.print("\nSee all of it on a page: milepost up", soft_wrap=True)
    to.print("Then write a route of your own: milepost init my-route", soft_wrap=True)


def _beside_python() -> str:
    """How to call milepost where it is not on the PATH."""
    script = Path(sys.executable).parent / "milepost"
    return str(script) if script.exists() else f"{sys.executable} -m milepost"
