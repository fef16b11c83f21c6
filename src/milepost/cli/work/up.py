"""Running: `up` (everything) and `work` (workers alone), until stopped or until there is nothing to do."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable, Sequence
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar

import click

from milepost.cli.config import CliSettings
from milepost.cli.options import settings
from milepost.cli.work.announce import log_option, say
from milepost.cli.work.listen import listen_options, listening, wanted

if TYPE_CHECKING:
    from milepost.engine.context import Context
    from milepost.evidence.signing import Signer
    from milepost.ports.subscriber import Subscriber

F = TypeVar("F", bound=Callable[..., Any])

until_idle_option = click.option(
    "--until-idle",
    is_flag=False,
    flag_value=2.0,
    type=click.FloatRange(0),
    metavar="[SECONDS]",
    help="Stop when nothing is in hand and nothing falls due within SECONDS [2].",
)

grace_option = click.option(
    "--grace",
    metavar="SPAN",
    help="How long running handlers may go on after Ctrl-C or SIGTERM, such as 30s or 5m [milepost.toml: grace; default 30s].",
)


@click.command()
@until_idle_option
@grace_option
@click.option("--no-work", is_flag=True, help="Leave the work to 'milepost work' in processes of its own.")
@listen_options
@log_option
@settings
def up(
    given: CliSettings,
    until_idle: float | None,
    grace: str | None,
    no_work: bool,
    listen: str | None,
    base_path: str | None,
    no_listen: bool,
    log_form: str,
) -> None:
    """Run everything: workers, resender, subscribers, and the API.

    Runs until Ctrl-C or SIGTERM; then running handlers have --grace to finish and the rest is given back, uncounted. The API is at
    127.0.0.1:8321, or where --listen or milepost.toml (listen = "HOST:PORT") says; with --until-idle only if --listen says so.
    Behind a proxy that gives it a part of its own, --base-path (or base_path) says which.

    While calls hand over items, the worker leaves half of the time to them. Handlers that use much CPU slow the API all the same: then
    run 'milepost up --no-work' and, beside it, 'milepost work'.
    """
    from milepost.runners.logs import logs
    from milepost.runners.process import hand_over_soon

    where = wanted(listen, given.file.get("listen"), no_listen=no_listen or (until_idle is not None and listen is None))
    base = given.file.get("base_path", "") if base_path is None else base_path
    with logs(log_form), given.context(act=True, create=True) as ctx, listening(ctx, where, base):
        if where is not None:
            hand_over_soon()
        roles = {"resender", "relay"} if no_work else {"worker", "resender", "relay"}
        run(ctx, roles, given.subscribers(), until_idle, "up", given.signer(), given.grace_ms(grace))


@click.command()
@until_idle_option
@grace_option
@log_option
@settings
def work(given: CliSettings, until_idle: float | None, grace: str | None, log_form: str) -> None:
    """Run workers alone.

    Start as many such processes as you like; they share the work. Needs an 'up' somewhere if subscribers are to be told.
    """
    from milepost.runners.logs import logs

    with logs(log_form), given.context(act=True, create=True) as ctx:
        run(ctx, {"worker"}, (), until_idle, "work", grace_ms=given.grace_ms(grace))


def run(
    ctx: Context,
    roles: Iterable[str],
    subscribers: Sequence[Subscriber],
    until_idle: float | None,
    name: str,
    signer: Signer | None = None,
    grace_ms: int | None = None,
) -> None:
    """Work until a signal, or until idle; say what is being done, and what was done."""
    from milepost.core.values.durations import short_span
    from milepost.runners.process import settle_in
    from milepost.station import Station

    settle_in()
    station = Station(ctx, subscribers=subscribers, roles=roles, signer=signer, grace_ms=grace_ms)
    stop_on_signal(station.stop)
    told = f"; telling {', '.join(subscriber.name for subscriber in subscribers)}" if subscribers else ""
    until = "until idle" if until_idle is not None else "until Ctrl-C"
    say(f"milepost {name}: {', '.join(ctx.plans)} on {ctx.ledger.url}{told}; {until}")
    before, began = _ended(ctx), monotonic()
    station.run(until_idle_s=until_idle)
    # Fewer than before: some that had ended were started again.
    ended = {word: n - before.get(word, 0) for word, n in _ended(ctx).items() if n > before.get(word, 0)}
    counted = ", ".join(f"{n:,} {word}" for word, n in ended.items()) or "no item ended"
    say(f"milepost {name}: stopped after {short_span((monotonic() - began) * 1000)}: {counted}")


def stop_on_signal(stop: Callable[[], None]) -> None:
    """The first signal drains; a second one stops at once (nothing is lost: leases run out)."""

    def first(number: int, _frame: Any) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        stop()
        word = "Ctrl-C" if number == signal.SIGINT else signal.Signals(number).name
        told = f"milepost: {word}: finishing what is in hand (once more stops at once)"
        try:
            say(told)
        except RuntimeError:
            # The signal came in the midst of another word to the same place, which Python does not let us interrupt.
            os.write(2, f"{told}\n".encode())

    signal.signal(signal.SIGINT, first)
    signal.signal(signal.SIGTERM, first)
    # The terminal was closed; whoever has said that this is to be ignored (nohup) is obeyed.
    if signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:
        signal.signal(signal.SIGHUP, first)


def _ended(ctx: Context) -> dict[str, int]:
    from milepost.core.status import TERMINAL, Status

    sums = {status.value: 0 for status in Status if status in TERMINAL}
    for count in ctx.ledger.counts():
        if count.status in TERMINAL and count.route in ctx.plans:
            sums[count.status.value] += count.n
    return sums
