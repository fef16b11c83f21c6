"""Holding back: pause, resume and limit a route, a stage or a lane. Every process obeys within five seconds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from milepost.cli.config import CliSettings
from milepost.cli.options import check_signed, json_option, settings, signed
from milepost.cli.out import WIDE, console, print_json, safe

F = TypeVar("F", bound=Callable[..., Any])


def _on_scope(command: F) -> F:
    """What these verbs are about: a route, a stage of it (given either way), a lane of that."""
    for option in (
        click.argument("route"),
        click.argument("stage_word", metavar="[STAGE]", required=False),
        click.option("--stage", metavar="STAGE", help="One stage of the route."),
        click.option("--lane", metavar="LANE", help="One lane of the stage."),
        signed,
        json_option,
        settings,
    )[::-1]:
        command = option(command)
    return command


def _stage(stage: str | None, stage_word: str | None) -> str | None:
    if stage is not None and stage_word is not None and stage != stage_word:
        raise click.UsageError(f"is it the stage {stage_word!r} or {stage!r}? Give one")
    return stage or stage_word


@click.command()
@_on_scope
def pause(
    given: CliSettings,
    route: str,
    stage_word: str | None,
    stage: str | None,
    lane: str | None,
    by: str | None,
    reason: str | None,
    as_json: bool,
) -> None:
    """Hold a route, a stage or a lane.

    What is in work is finished; nothing else is begun until it is resumed. Held items use no attempts. At an external stage nothing
    is sent again; what comes to it is still offered once (hold the stage before it to stop that), and confirmations count.
    """
    from milepost.core.values.durations import iso
    from milepost.engine.acts.bulk import pause as hold
    from milepost.ports.documents import scope

    name, why = check_signed(by, reason)
    with given.context(act=True) as ctx:
        place = scope(route, _stage(stage, stage_word), lane)
        held = hold(ctx, route, _stage(stage, stage_word), lane, by=name, reason=why)
    if as_json:
        print_json({"scope": place, "paused": True, "at": iso(held.at), "by": held.by, "reason": held.reason})
    else:
        console(width=WIDE).print(safe(f"{place} is paused since {iso(held.at)} by {held.by}: {held.reason}"))


@click.command()
@_on_scope
def resume(
    given: CliSettings,
    route: str,
    stage_word: str | None,
    stage: str | None,
    lane: str | None,
    by: str | None,
    reason: str | None,
    as_json: bool,
) -> int:
    """Let a paused route, stage or lane go on."""
    from milepost.engine.acts.bulk import resume as let_go
    from milepost.ports.documents import HOLD, scope

    name, why = check_signed(by, reason)
    with given.context(act=True) as ctx:
        place = scope(route, _stage(stage, stage_word), lane)
        done = let_go(ctx, route, _stage(stage, stage_word), lane, by=name, reason=why)
        others = sorted(other for other in ctx.ledger.read(HOLD) if other == route or other.startswith(f"{route}/"))
    if as_json:
        print_json({"scope": place, "resumed": done, "still_paused": others})
    elif done:
        click.echo(f"{place} goes on.")
    else:
        click.echo(f"milepost: {place} was not paused", err=True)
    if others and not as_json:
        click.echo(f"Still paused: {', '.join(others)}")
    return 0 if done else 1


@click.command()
@click.option("--rate", metavar="RATE", help="Handler calls for the whole ledger, such as 50/s or 10/m.")
@click.option("--concurrency", type=click.IntRange(1), help="Handler calls at a time, in each process.")
@click.option("--clear", is_flag=True, help="Take the limits off: the route file's hold again.")
@_on_scope
def limit(
    given: CliSettings,
    route: str,
    stage_word: str | None,
    stage: str | None,
    lane: str | None,
    by: str | None,
    reason: str | None,
    as_json: bool,
    rate: str | None,
    concurrency: int | None,
    clear: bool,
) -> None:
    """Change what a stage or lane may use, while it runs."""
    from milepost.engine.acts.bulk import limit as set_limit
    from milepost.ports.documents import scope

    chosen = _stage(stage, stage_word)
    if chosen is None:
        raise click.UsageError("name the stage: limits are for a stage, or a lane of it")
    name, why = check_signed(by, reason)
    with given.context(act=True) as ctx:
        now = set_limit(ctx, route, chosen, lane, rate=rate, concurrency=concurrency, clear=clear, by=name, reason=why)
    place = scope(route, chosen, lane)
    if as_json:
        print_json({"scope": place, "rate": None if now is None else now.rate, "concurrency": None if now is None else now.concurrency})
    elif now is None:
        click.echo(f"{place}: the limits of the route file hold again.")
    else:
        parts = [f"rate {now.rate}"] * (now.rate is not None) + [f"concurrency {now.concurrency}"] * (now.concurrency is not None)
        click.echo(f"{place}: {', '.join(parts)}.")
