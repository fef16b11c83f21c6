"""`milepost demo`: 2,000 parcels through three stages, 400 notifications to ten partners of which
some fail, and an archive with an invented past so that the dashboard has data from the start."""

from __future__ import annotations

import shutil
import sys
import threading
from contextlib import closing
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

import click

from milepost.cli.output import WIDE, console, print_table
from milepost.cli.work.listen import HOST, PORT, Where, opened
from milepost.core.errors import LedgerBusy, MilepostError, UsageError
from milepost.core.status import FAILED

if TYPE_CHECKING:
    from milepost.application.declaration import ConfiguredApplication
    from milepost.demo.archive import Catalogue
    from milepost.engine.context import Context
    from milepost.engine.views.snapshot import Snapshot
    from milepost.station import Station

SETTINGS = """ledger = "sqlite:///milepost.db"
routes = ["milepost.demo.parcels:parcels", "milepost.demo.archive:archive"]
subscribers = ["milepost.demo.archive:catalogue"]
applications = ["notifications"]
"""
MARK = "milepost.demo.parcels"
"""A milepost.toml that names this module was written by a demo; its folder may be replaced."""
NOTIFICATIONS = 400
ASSETS = 3000
IDLE_S = 6.0
"""Idle time that ends the demo. A parcel is retried after at most five seconds, so every retry is
waited for."""
EVERY_S = 0.4
"""Interval at which another parcel arrives after the first ones are completed."""


@click.command()
@click.option(
    "--items",
    type=click.IntRange(1, 1_000_000),
    default=2000,
    show_default=True,
    help="Number of parcels.",
)
@click.option(
    "--folder",
    type=click.Path(file_okay=False, path_type=Path),
    default="milepost-demo",
    show_default=True,
)
@click.option("--page/--no-page", default=True, help="Serve the dashboard or not.  [default: page]")
@click.option(
    "--stay/--no-stay",
    default=None,
    help="Keep running when all are completed, or end.  [default: stay at a terminal]",
)
def demo(items: int, folder: Path, page: bool, stay: bool | None) -> int:
    """Watch it work: 2,000 parcels, 400 messages.

    The dashboard is open from the start. The terminal shows a live view (plain lines if piped),
    then a summary and commands to try: about 15 seconds. At a terminal the dashboard then stays
    open, with a few new parcels a second, until Ctrl-C. The ledger stays in FOLDER; the next demo
    replaces it, and refuses a folder with other work.
    """
    from milepost.application.installation import install
    from milepost.composition import open_context
    from milepost.demo.archive import Catalogue, archive
    from milepost.demo.parcels import parcels
    from milepost.demo.partners import partners
    from milepost.ports.items import Query

    with partners() as port:
        url, catalogue = f"sqlite:///{_fresh(folder, port)}", Catalogue(folder / "catalogue.jsonl")
        _past(url, catalogue, min(ASSETS, items + items // 2))
        notifications = _notifications(port)
        ctx = open_context(url, [parcels, archive, *notifications.routes])
        with closing(ctx.ledger):
            install(ctx, [notifications])
            where = Where(HOST, PORT, asked=False) if page else None
            with opened(ctx, where, "demo", "--no-page", applications=[notifications]) as at:
                if at is not None:
                    click.echo(f"Dashboard: {at}\n")
                    _look(at)
                terminal = sys.stdin.isatty() and sys.stdout.isatty()
                staying = stays(stay, page=at is not None, terminal=terminal)
                _run(ctx, catalogue, notifications, items, port, at, stay=staying)
            failed = ctx.ledger.find(Query(route="parcels", statuses=FAILED, limit=1)).items
    _try_next(folder, failed[0].key if failed else "P-0001")
    return 0


def _notifications(port: int) -> ConfiguredApplication[Any]:
    """The notifications application with the partners at this port as its destinations."""
    import tomllib

    from milepost.demo.partners import settings
    from milepost.route_files import load_application

    return load_application("notifications").configured(
        tomllib.loads(settings(port))["notifications"], environment={}
    )


def stays(wished: bool | None, *, page: bool, terminal: bool) -> bool:
    """Does the demo keep running when all parcels are completed? By option; else at a terminal with
    a dashboard."""
    return page and terminal if wished is None else wished


def _look(at: str) -> None:
    """Request the page once, so that the server starts to count completions by minute."""
    from http.client import HTTPConnection

    connection = HTTPConnection(at.removeprefix("http://"), timeout=30)
    connection.request("GET", "/")
    connection.getresponse().read()
    connection.close()


def _fresh(folder: Path, port: int) -> Path:
    """Path of a new ledger, beside a milepost.toml for partners at this port; removes the ledger of
    an earlier demo, and nothing else."""
    from milepost.demo.partners import settings

    path, written = folder / "milepost.db", folder / "milepost.toml"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        earlier = sorted((*folder.glob("milepost.db*"), *folder.glob("catalogue.jsonl")))
        _refuse_work_of_others(folder, [*earlier, *folder.glob("milepost.toml")])
        for old in earlier:
            shutil.rmtree(old) if old.is_dir() else old.unlink()
        written.write_text(SETTINGS + settings(port), encoding="utf-8")
    except OSError as error:
        raise MilepostError(
            f"the demo cannot write to {folder}: {error.strerror}; choose another --folder"
        ) from None
    return path


def _refuse_work_of_others(folder: Path, found: list[Path]) -> None:
    """Refuse to replace files that are not those of an earlier demo, and a ledger that a process
    uses."""
    from milepost.ledgers.sqlite.file.liveness import Liveness

    if not found:
        return
    written = folder / "milepost.toml"
    if not written.is_file() or MARK not in written.read_text(encoding="utf-8", errors="replace"):
        names = ", ".join(path.name for path in found)
        raise UsageError(
            f"{folder.resolve()} holds files that no demo has written ({names}), and they are kept; choose another --folder"
        )
    busy = Liveness(str(folder / "milepost.db")).neighbours()
    if busy:
        raise LedgerBusy(
            f"{busy} process{'es are' if busy > 1 else ' is'} using the earlier demo in {folder.resolve()}; stop that first, or choose another"
            " --folder"
        )


def _past(url: str, catalogue: Catalogue, assets: int) -> None:
    """Create the archive with two days of invented history, through a ledger opened with a clock in
    the past."""
    from milepost.composition import open_context
    from milepost.demo.archive import archive
    from milepost.demo.past import Past, PastChance, PastClock
    from milepost.engine.views.items import counted
    from milepost.runners.clock import SystemClock

    clock = PastClock(SystemClock().now())
    ctx = open_context(url, [archive], clock=clock, chance=PastChance())
    with closing(ctx.ledger):
        Past(ctx, clock, assets, catalogue).make()
    click.echo(
        f"Created an archive of {counted(assets, 'asset')} with two days of invented history."
    )


def _run(
    ctx: Context,
    catalogue: Catalogue,
    notifications: ConfiguredApplication[Any],
    items: int,
    port: int,
    at: str | None,
    *,
    stay: bool,
) -> None:
    """Submit parcels and notifications, run them in the background, show them in the foreground,
    print a summary; then stay until stopped, if asked.

    Ctrl-C stops both; running work is finished.
    """
    import logging

    from milepost.application.installation import services
    from milepost.cli.look.watch import look
    from milepost.cli.work.foreground import stop_on_signal
    from milepost.demo.parcels import parcel
    from milepost.demo.partners import FAILS, HANGS, notification
    from milepost.engine import failed_tries
    from milepost.engine.intake import submit
    from milepost.ledgers.sqlite import admission
    from milepost.station import Station

    # The demo's partners fail on purpose. The live view counts failed tries and the dashboard shows
    # breakers; log lines would break the view.
    for noisy in (failed_tries, admission):
        logging.getLogger(noisy.__name__).setLevel(logging.ERROR)
    began = monotonic()
    submit(ctx, "parcels", map(parcel, range(1, items + 1)))
    click.echo(
        f"Submitted {items:,} parcels in {monotonic() - began:.2f} s, to be weighed, cleared and delivered."
    )
    click.echo(
        "The scale is sometimes busy, customs is slow, and deliveries to the west often fail."
    )
    messages = min(NOTIFICATIONS, items)
    submit(ctx, "notifications", (notification(number, port) for number in range(messages)))
    click.echo(
        f"Submitted {messages:,} notifications to ten partners: {HANGS} hangs and {FAILS} fails for a while.\n"
    )
    station = Station(ctx, subscribers=[catalogue], services=services(ctx, [notifications]))
    more = More(ctx, station, items, messages, port) if stay else None
    completed = threading.Event() if more is None else more.completed
    failed: list[BaseException] = []

    def work() -> None:
        try:
            station.run(until_idle_s=None if stay else IDLE_S, on_tick=more, tick_s=EVERY_S)
        except BaseException as error:
            failed.append(error)
        finally:
            completed.set()

    worker = threading.Thread(target=work, name="demo")
    stop_on_signal(station.stop)
    worker.start()
    live = sys.stdout.isatty()
    try:
        last = look(ctx, "parcels", 0.25 if live else 1.0, completed.is_set, live=live)["parcels"]
        _summary(last, monotonic() - began)
        if more is not None and not failed and not station.stopping.is_set():
            where = "" if at is None else f" See them on the dashboard: {at}"
            click.echo(f"\nA few new parcels arrive every second.{where}\nCtrl-C ends the demo.")
            more.wanted.set()
            _wait_for(worker)
    finally:
        station.stop()
        _wait_for(worker)
    if failed:
        raise failed[0]
    if more is not None and more.came:
        click.echo(f"\n{more.came:,} more parcels arrived since then.")


def _wait_for(worker: threading.Thread) -> None:
    """Wait a moment at a time: a Ctrl-C that came just before a wait without a timeout would be
    lost."""
    while worker.is_alive():
        worker.join(EVERY_S)


class More:
    """Tick callback: sets `completed` when the first items are completed; while `wanted` is set,
    submits a parcel and a few notifications per call."""

    def __init__(self, ctx: Context, station: Station, last: int, messages: int, port: int) -> None:
        self.completed, self.wanted = threading.Event(), threading.Event()
        self.came = 0
        self._ctx, self._station, self._last, self._messages, self._port = (
            ctx,
            station,
            last,
            messages,
            port,
        )

    def __call__(self) -> None:
        from milepost.demo.parcels import parcel
        from milepost.demo.partners import PARTNERS, notification
        from milepost.engine.intake import submit

        if self.wanted.is_set():
            self.came += 1
            submit(self._ctx, "parcels", [parcel(self._last + self.came)])
            first, self._messages = self._messages, self._messages + len(PARTNERS)
            submit(
                self._ctx,
                "notifications",
                [notification(number, self._port) for number in range(first, self._messages)],
            )
        elif not self.completed.is_set() and self._station.idle(round(IDLE_S * 1000)):
            self.completed.set()


def _summary(last: Snapshot, seconds: float) -> None:
    again = sum(kind.total for kind in last.kinds) - last.failed
    to = console()
    to.print(
        f"\n[bold green]{last.done:,} of {last.total:,}[/] parcels delivered in {seconds:.1f} s, {last.done / seconds:,.0f} a second."
    )
    failed = f"[bold red]{last.failed:,}[/] " + ("parcel" if last.failed == 1 else "parcels")
    to.print(
        f"{again:,} attempts failed and were retried. {failed} failed for good and need an operator.\n",
        soft_wrap=True,
    )
    rows = [
        (kind.stage, kind.category, f"{kind.now:,}", f"{kind.total:,}", kind.sample)
        for kind in last.kinds[:5]
    ]
    print_table(
        ("stage", "kind", "failed", "tries", "for example"), rows, right=["failed", "tries"]
    )


def _try_next(folder: Path, key: str) -> None:
    steps = (
        ("number of items by stage and status", "status"),
        ("the story of one item", f"show parcels {key}"),
        ("failures by kind", "groups"),
        ("overdue items of the archive, and why", "list archive --overdue"),
        ("notifications that a partner refused", "notifications dead-letters"),
        ("dry run, then for real:", "retry parcels --status failed --dry-run"),
        ("", "retry parcels --status failed --by you --reason 'west is fixed'"),
        ("run the retried parcels", "work --until-idle"),
        ("health report", "doctor"),
    )
    to = console(width=WIDE)
    to.print("\n[bold]Try next:[/]\n")
    first = [f"cd {folder}"]
    if not shutil.which("milepost"):
        script = Path(sys.executable).parent / "milepost"
        first.insert(
            0,
            f"alias milepost={str(script) if script.exists() else f'{sys.executable} -m milepost'!r}",
        )
    for step in first:
        to.print(f"  {step}", markup=False, soft_wrap=True)
    for what, step in steps:
        command = f"milepost {step}"
        to.print(f"  {command:<48} [dim]# {what}[/]" if what else f"  {command}", soft_wrap=True)
    to.print("\nRun everything with the dashboard: milepost up", soft_wrap=True)
    to.print("Then write a route of your own: milepost init my-route", soft_wrap=True)
