"""`milepost demo`: the main job, worth watching. 2,000 parcels, three stages, partners that fail and dawdle; and an archive with a
made-up past, so that the page has something to show from the beginning."""

from __future__ import annotations

import shutil
import sys
import threading
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

import click

from milepost.cli.out import WIDE, console, safe, show_table, table
from milepost.cli.work.listen import HOST, PORT, Where, opened
from milepost.core.errors import MilepostError
from milepost.core.status import FAILED

if TYPE_CHECKING:
    from milepost.demo.archive import Catalogue
    from milepost.engine.context import Context
    from milepost.engine.views.snapshot import Snapshot
    from milepost.station import Station

SETTINGS = """ledger = "sqlite:///milepost.db"
routes = ["milepost.demo.parcels:parcels", "milepost.demo.archive:archive"]
subscribers = ["milepost.demo.archive:catalogue"]
"""
ASSETS = 3000
IDLE_S = 6.0
"""A parcel is tried again after five seconds at most; what falls due within these is waited for."""
EVERY_S = 0.4
"""How often another parcel comes, once the first are through."""


@click.command()
@click.option("--items", type=click.IntRange(1, 1_000_000), default=2000, show_default=True, help="How many parcels.")
@click.option("--folder", type=click.Path(file_okay=False, path_type=Path), default="milepost-demo", show_default=True)
@click.option("--page/--no-page", default=True, help="Open the page, or leave it out.  [default: page]")
@click.option("--stay/--no-stay", default=None, help="Stay when all are through, or end.  [default: stay at a terminal]")
def demo(items: int, folder: Path, page: bool, stay: bool | None) -> int:
    """See it work: 2,000 parcels, three stages, partners that fail.

    A page is open from the beginning. A live view in the terminal (plain lines elsewhere), then a summary and what to try next: about
    15 seconds. At a terminal the page then stays open, with a few parcels a second, until Ctrl-C. The ledger stays in FOLDER to be
    looked at; the next demo starts anew.
    """
    from milepost.demo.archive import Catalogue, archive
    from milepost.demo.parcels import parcels
    from milepost.ports.ledger import Query
    from milepost.wiring import open_context

    url, told = f"sqlite:///{_fresh(folder)}", Catalogue(folder / "catalogue.jsonl")
    _past(url, told, min(ASSETS, items + items // 2))
    ctx = open_context(url, [parcels, archive])
    try:
        with opened(ctx, Where(HOST, PORT, asked=False) if page else None, "demo", "--no-page") as at:
            if at is not None:
                click.echo(f"The page is open: {at}\n")
                _look(at)
            terminal = sys.stdin.isatty() and sys.stdout.isatty()
            _run(ctx, told, items, at, stay=stays(stay, page=at is not None, terminal=terminal))
        failed = ctx.ledger.find(Query(route="parcels", statuses=FAILED, limit=1)).items
    finally:
        ctx.ledger.close()
    _try_next(folder, failed[0].key if failed else "P-0001")
    return 0


def stays(wished: bool | None, *, page: bool, terminal: bool) -> bool:
    """Does the demo stay when all are through? As is wished; else where somebody sits, and has a page to look at."""
    return page and terminal if wished is None else wished


def _look(at: str) -> None:
    """From the first look on, the page knows what ends by minute."""
    from http.client import HTTPConnection

    connection = HTTPConnection(at.removeprefix("http://"), timeout=30)
    connection.request("GET", "/")
    connection.getresponse().read()
    connection.close()


def _fresh(folder: Path) -> Path:
    """A new ledger; the one that an earlier demo left is removed."""
    path = folder / "milepost.db"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for old in (*folder.glob("milepost.db*"), *folder.glob("catalogue.jsonl")):
            shutil.rmtree(old) if old.is_dir() else old.unlink()
        (folder / "milepost.toml").write_text(SETTINGS, encoding="utf-8")
    except OSError as error:
        raise MilepostError(f"the demo cannot write to {folder}: {error.strerror}; give another --folder") from None
    return path


def _past(url: str, told: Catalogue, assets: int) -> None:
    """The archive, with two days behind it. The ledger is opened with a clock of its own for that, and closed again."""
    from milepost.demo.archive import archive
    from milepost.demo.past import Past, PastChance, PastClock
    from milepost.engine.views.items import counted
    from milepost.runners.clock import SystemClock
    from milepost.wiring import open_context

    clock = PastClock(SystemClock().now())
    ctx = open_context(url, [archive], clock=clock, chance=PastChance())
    try:
        Past(ctx, clock, assets, told).make()
    finally:
        ctx.ledger.close()
    click.echo(f"An archive of {counted(assets, 'asset')} is there to look at. The two days that it has behind it are made up.")


def _run(ctx: Context, told: Catalogue, items: int, at: str | None, *, stay: bool) -> None:
    """Hand over the parcels, see them through, and say what became of them; then stay, if that is wished, until somebody stops it.

    The work is done in the background, and looked at in the foreground. Ctrl-C ends both; what is in hand is finished.
    """
    import logging

    from milepost.cli.look.watch import look
    from milepost.cli.work.foreground import stop_on_signal
    from milepost.demo.parcels import parcel
    from milepost.engine import failed_tries
    from milepost.engine.intake import submit
    from milepost.station import Station

    # The demo's partners fail on purpose; the picture counts the failed tries, a line for each would tear it apart.
    logging.getLogger(failed_tries.__name__).setLevel(logging.ERROR)
    began = monotonic()
    submit(ctx, "parcels", map(parcel, range(1, items + 1)))
    click.echo(f"{items:,} parcels handed over in {monotonic() - began:.2f} s, to be weighed, cleared and delivered.")
    click.echo("The scale is at times busy, customs dawdle, the west has a bad day.\n")
    station = Station(ctx, subscribers=[told])
    more = More(ctx, station, items) if stay else None
    through = threading.Event() if more is None else more.through
    failed: list[BaseException] = []

    def work() -> None:
        try:
            station.run(until_idle_s=None if stay else IDLE_S, on_tick=more, tick_s=EVERY_S)
        except BaseException as error:
            failed.append(error)
        finally:
            through.set()

    worker = threading.Thread(target=work, name="demo")
    stop_on_signal(station.stop)
    worker.start()
    live = sys.stdout.isatty()
    try:
        last = look(ctx, "parcels", 0.25 if live else 1.0, through.is_set, live=live)["parcels"]
        _summary(last, monotonic() - began)
        if more is not None and not failed and not station.stopping.is_set():
            where = "" if at is None else f" See them on the page: {at}"
            click.echo(f"\nA few parcels a second keep coming.{where}\nCtrl-C ends the demo.")
            more.wanted.set()
            worker.join()
    finally:
        station.stop()
        worker.join()
    if failed:
        raise failed[0]
    if more is not None and more.came:
        click.echo(f"\nSince then {more.came:,} more parcels have come.")


class More:
    """Called again and again: says when all is `through`; from when more are `wanted`, hands over one more parcel each time."""

    def __init__(self, ctx: Context, station: Station, last: int) -> None:
        self.through, self.wanted = threading.Event(), threading.Event()
        self.came = 0
        self._ctx, self._station, self._last = ctx, station, last

    def __call__(self) -> None:
        from milepost.demo.parcels import parcel
        from milepost.engine.intake import submit

        if self.wanted.is_set():
            self.came += 1
            submit(self._ctx, "parcels", [parcel(self._last + self.came)])
        elif not self.through.is_set() and self._station.idle(round(IDLE_S * 1000)):
            self.through.set()


def _summary(last: Snapshot, seconds: float) -> None:
    again = sum(kind.total for kind in last.kinds) - last.failed
    to = console()
    to.print(f"\n[bold green]{last.done:,} of {last.total:,}[/] parcels delivered in {seconds:.1f} s, {last.done / seconds:,.0f} a second.")
    failed = f"[bold red]{last.failed:,}[/] " + ("parcel has failed and wants" if last.failed == 1 else "parcels have failed and want")
    to.print(f"{again:,} times a try failed and was made again. {failed} a person.\n", soft_wrap=True)
    shown = table("stage", "kind", "failed", "tries", "for example", right=["failed", "tries"])
    for kind in last.kinds[:5]:
        shown.add_row(safe(kind.stage), safe(kind.category), f"{kind.now:,}", f"{kind.total:,}", safe(kind.sample))
    show_table(shown)


def _try_next(folder: Path, key: str) -> None:
    steps = (
        ("how many are where", "status"),
        ("the story of one", f"show parcels {key}"),
        ("failures by kind", "groups"),
        ("what is late in the archive, and why", "list archive --overdue"),
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
    to.print("\nGo on with all of it, and see it on the page: milepost up", soft_wrap=True)
    to.print("Then write a route of your own: milepost init my-route", soft_wrap=True)


def _beside_python() -> str:
    """How to call milepost where it is not on the PATH."""
    script = Path(sys.executable).parent / "milepost"
    return str(script) if script.exists() else f"{sys.executable} -m milepost"
