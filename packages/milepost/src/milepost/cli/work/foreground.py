"""Run a station in the foreground until a signal arrives or no work is left; for `up`, `work` and
`demo`."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable, Sequence
from time import monotonic
from typing import TYPE_CHECKING, Any

import click

from milepost.cli.options import F

if TYPE_CHECKING:
    from milepost.application.declaration import ConfiguredApplication
    from milepost.engine.context import Context
    from milepost.evidence.signing import Signer
    from milepost.ports.service import Service
    from milepost.ports.subscriber import Subscriber

log_option = click.option(
    "--log",
    "log_form",
    type=click.Choice(["text", "json"]),
    default="text",
    envvar="MILEPOST_LOG",
    help="Log format: text, or one JSON object per line, which includes every request [MILEPOST_LOG; default text].",
)


def say(text: str) -> None:
    """Print a message on standard error, or log it if the log is JSON."""
    import logging

    log = logging.getLogger(__name__)
    if log.isEnabledFor(logging.INFO):
        log.info("%s", text)
    else:
        click.echo(text, err=True)


until_idle_option = click.option(
    "--until-idle",
    is_flag=False,
    flag_value=2.0,
    type=click.FloatRange(0),
    metavar="[SECONDS]",
    help="Stop when no item is in progress and none becomes due within SECONDS [2].",
)

grace_option = click.option(
    "--grace",
    metavar="SPAN",
    help="Time for running handlers to finish after Ctrl-C or SIGTERM, such as 30s or 5m [milepost.toml: grace; default 30s].",
)


def processes_option(*, default: int | None, text: str) -> Callable[[F], F]:
    """Give a command --processes."""
    return click.option(
        "--processes",
        type=click.IntRange(1, 256),
        default=default,
        show_default=default is not None,
        metavar="N",
        help=text,
    )


def pin_option(command: F) -> F:
    """Give a command --pin."""
    text = (
        "Let each worker process use one CPU only, its own (Linux): about 15 % more calls to partners. "
        "Not for handlers that compute on several CPUs or start programs that do."
    )
    return click.option("--pin", is_flag=True, help=text)(command)


def run(
    ctx: Context,
    roles: Iterable[str],
    subscribers: Sequence[Subscriber],
    until_idle: float | None,
    name: str | None,
    signer: Signer | None = None,
    grace_ms: int | None = None,
    applications: Sequence[ConfiguredApplication[Any]] = (),
    watches: Sequence[Service] = (),
) -> int | None:
    """Work until a signal arrives or until idle. The command of this `name` prints what runs, and
    at the end how many items ended; None: the caller has a report of its own. Returns the number of
    the signal that ended it; None: it was idle."""
    from milepost.application.installation import services
    from milepost.core.values.durations import short_span
    from milepost.runners.process import tune_garbage_collection
    from milepost.station import Station

    tune_garbage_collection()
    beside = [*services(ctx, applications), *watches]
    station = Station(
        ctx, subscribers=subscribers, services=beside, roles=roles, signer=signer, grace_ms=grace_ms
    )
    received = stop_on_signal(station.stop)
    receivers = (
        f"; events to {', '.join(subscriber.name for subscriber in subscribers)}"
        if subscribers
        else ""
    )
    until = "until idle" if until_idle is not None else "until Ctrl-C"
    if name is not None:
        say(f"milepost {name}: {', '.join(ctx.plans)} on {ctx.ledger.url}{receivers}; {until}")
    before, began = _ended(ctx), monotonic()
    station.run(until_idle_s=until_idle)
    if name is not None:
        # A count can shrink: an operator may have restarted items that had ended.
        ended = {
            word: n - before.get(word, 0)
            for word, n in _ended(ctx).items()
            if n > before.get(word, 0)
        }
        counted = ", ".join(f"{n:,} {word}" for word, n in ended.items()) or "no item ended"
        say(
            f"milepost {name}: stopped after {short_span((monotonic() - began) * 1000)}: {counted}{_left(ctx)}"
        )
    return received[0] if received else None


def stop_on_signal(stop: Callable[[], None]) -> list[int]:
    """Drain on the first signal; stop at once on the second (nothing is lost: the leases expire).
    The list gets the number of the first."""
    received: list[int] = []

    def first(number: int, _frame: Any) -> None:
        received.append(number)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        stop()
        word = "Ctrl-C" if number == signal.SIGINT else signal.Signals(number).name
        message = f"milepost: {word}: finishing running work (repeat to stop at once)"
        try:
            say(message)
        except RuntimeError:
            # The signal interrupted another write to the same stream, which Python does not allow
            # to be re-entered.
            os.write(2, f"{message}\n".encode())

    signal.signal(signal.SIGINT, first)
    signal.signal(signal.SIGTERM, first)
    # The terminal was closed. An ignored SIGHUP (nohup) stays ignored.
    if signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:
        signal.signal(signal.SIGHUP, first)
    return received


def _left(ctx: Context) -> str:
    """How many items are in progress, and when workers have the next one to do."""
    from milepost.core.status import LIVE
    from milepost.core.values.durations import short_span

    left = sum(
        count.n
        for count in ctx.ledger.counts()
        if count.status in LIVE and count.route in ctx.plans
    )
    due, now = ctx.ledger.next_due(ctx.plans.values()), ctx.clock.now()
    later = (
        f", the next due in {short_span(due - now)}"
        if left and due is not None and due > now
        else ""
    )
    return f"; {left:,} in progress{later}" if left else ""


def _ended(ctx: Context) -> dict[str, int]:
    from milepost.core.status import TERMINAL, Status

    sums = {status.value: 0 for status in Status if status in TERMINAL}
    for count in ctx.ledger.counts():
        if count.status in TERMINAL and count.route in ctx.plans:
            sums[count.status.value] += count.n
    return sums
