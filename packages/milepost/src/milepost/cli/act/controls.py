"""Commands that control stages and lanes: pause, resume, limit, and closing circuit breakers. Every
process obeys within five seconds."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from milepost.cli.config import CliSettings
from milepost.cli.options import at_option, check_signed, listing_group, shared_options, signed
from milepost.cli.output import WIDE, console, print_json, print_table, printed, safe

if TYPE_CHECKING:
    from milepost.engine.acts.controls import Paused


class ControlScope(NamedTuple):
    """Where a control applies, and who sets it why."""

    name: str
    place: tuple[str, str | None, str | None]
    signed: dict[str, Any]


def on_scope(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the arguments that name the scope (route, stage as argument or option, lane), --by and
    --reason; the command gets them as one ControlScope."""

    @functools.wraps(command)
    def with_scope(
        given: CliSettings,
        route: str,
        stage_word: str | None,
        stage: str | None,
        lane: str | None,
        by: str | None,
        reason: str | None,
        **options: Any,
    ) -> Any:
        if stage is not None and stage_word is not None and stage != stage_word:
            raise click.UsageError(f"two different stages given: {stage_word!r} and {stage!r}")
        from milepost.core.admission.controls import scope

        place = (route, stage or stage_word, lane)
        by, reason = check_signed(by, reason)
        return command(
            given, ControlScope(scope(*place), place, {"by": by, "reason": reason}), **options
        )

    wrapped = signed(shared_options(with_scope))
    for option in (
        click.option("--lane", metavar="LANE", help="One lane of the stage."),
        click.option("--stage", metavar="STAGE", help="One stage of the route."),
        click.argument("stage_word", metavar="[STAGE]", required=False),
        click.argument("route"),
    ):
        wrapped = option(wrapped)
    return wrapped


@click.command()
@click.option(
    "--until",
    metavar="TIME",
    help="When the pause ends by itself: a time, or a span from now such as 2h [when it is resumed].",
)
@click.option(
    "--drain",
    metavar="RATE",
    help="Rate for the items that have waited, such as 10/s [as fast as usual].",
)
@on_scope
def pause(
    given: CliSettings, at: ControlScope, until: str | None, drain: str | None, as_json: bool
) -> None:
    """Pause a route, a stage or a lane.

    Running handlers finish; no other work starts until 'milepost resume'. A pause uses no attempts.
    A paused external stage sends nothing again, but new items are still offered to it once (pause
    the stage before it to prevent that), and confirmations count.
    """
    from milepost.engine.acts.controls import pause as hold
    from milepost.engine.acts.controls import paused_view
    from milepost.engine.views.lanes import count_waiting

    ends_at = None if until is None else at_option(until, "--until")
    with given.context(act=True) as ctx:
        held = hold(ctx, *at.place, until=ends_at, drain=drain, **at.signed)
        paused = paused_view(at.name, held, count_waiting(ctx, *at.place))
    if as_json:
        print_json(paused)
    else:
        until_when = "" if paused.until is None else f" until {paused.until}"
        console(width=WIDE).print(
            safe(f"{at.name} paused since {paused.at}{until_when} by {paused.by}: {paused.reason}")
        )
        if paused.waiting is not None:
            console(width=WIDE).print(safe(_waiting(paused)))


def _waiting(paused: Paused) -> str:
    """How many items wait there, in words."""
    if paused.waiting:
        return f"{paused.waiting:,} {'item waits' if paused.waiting == 1 else 'items wait'} there."
    near = f" Lanes with similar names: {', '.join(paused.near)}." if paused.near else ""
    return f"No item waits there.{near}"


@click.command()
@click.option(
    "--drain",
    metavar="RATE",
    help="Rate for the items that have waited, such as 10/s [that of the pause].",
)
@on_scope
def resume(given: CliSettings, at: ControlScope, drain: str | None, as_json: bool) -> int:
    """Resume a paused route, stage or lane."""
    from milepost.engine.acts.controls import resume as lift
    from milepost.engine.acts.controls import resumed_view

    with given.context(act=True) as ctx:
        done = resumed_view(ctx, at.name, lift(ctx, *at.place, drain=drain, **at.signed))
    if as_json:
        print_json(done)
    elif done.resumed:
        click.echo(f"{at.name} resumed.")
    else:
        click.echo(f"milepost: {at.name} was not paused", err=True)
    if done.still_paused and not as_json:
        click.echo(f"Still paused: {', '.join(done.still_paused)}")
    return 0 if done.resumed else 1


@click.command()
@click.option(
    "--rate", metavar="RATE", help="Handler calls in all processes together, such as 50/s or 10/m."
)
@click.option(
    "--concurrency", type=click.IntRange(1), help="Concurrent handler calls in each process."
)
@click.option(
    "--clear", is_flag=True, help="Remove these limits; those of the route file apply again."
)
@on_scope
def limit(
    given: CliSettings,
    at: ControlScope,
    as_json: bool,
    rate: str | None,
    concurrency: int | None,
    clear: bool,
) -> None:
    """Set the rate or concurrency limit of a stage or lane."""
    from milepost.engine.acts.controls import limit as set_limit
    from milepost.engine.acts.controls import limited_view

    route, stage, lane = at.place
    if stage is None:
        raise click.UsageError("name the stage: a limit applies to a stage or one of its lanes")
    with given.context(act=True) as ctx:
        now = set_limit(
            ctx, route, stage, lane, rate=rate, concurrency=concurrency, clear=clear, **at.signed
        )
    if as_json:
        print_json(limited_view(at.name, now))
    elif now is None:
        click.echo(f"{at.name}: the limits of the route file apply again.")
    else:
        parts = [f"rate {now.rate}"] * (now.rate is not None) + [
            f"concurrency {now.concurrency}"
        ] * (now.concurrency is not None)
        click.echo(f"{at.name}: {', '.join(parts)}.")


@listing_group
def breakers(given: CliSettings, as_json: bool) -> None:
    """Open circuit breakers of lanes.

    A stage's breaker opens when tries in a row fail: the items of that lane wait, and use no
    attempts. After its cooldown it lets a few items through as probes, and closes when they
    succeed.
    """
    from milepost.engine.breakers import breaker_views

    with given.context() as ctx:
        found = breaker_views(ctx)
    if printed(found, {"breakers": found}, "No breaker is open.", as_json=as_json):
        return
    rows = []
    for one in found:
        again = one.retry_at or ("under way" if one.probes else "with the next item")
        opened = "once" if one.trips == 1 else f"{one.trips} times"
        rows.append((one.scope, one.state, one.since or "", again, opened, one.error))
    print_table(("lane", "state", "since", "next try", "opened", "last failure"), rows)


@breakers.command()
@click.argument("route")
@click.argument("stage")
@click.option("--lane", metavar="LANE", help="One lane of the stage [all of them].")
@signed
@shared_options
def close(
    given: CliSettings,
    route: str,
    stage: str,
    lane: str | None,
    by: str | None,
    reason: str | None,
    as_json: bool,
) -> int:
    """Close the open breakers of a stage, or of one lane: the items are worked on again at once."""
    from milepost.engine.acts.controls import close_breakers

    name, why = check_signed(by, reason)
    with given.context(act=True) as ctx:
        closed = close_breakers(ctx, route, stage, lane, by=name, reason=why)
    if as_json:
        print_json({"closed": closed})
    elif closed:
        click.echo(f"Closed: {', '.join(closed)}")
    else:
        click.echo(f"milepost: no breaker of {route}/{stage} is open", err=True)
    return 0 if closed else 1
