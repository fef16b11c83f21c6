"""`milepost routes`: routes, their versions and differences, and applying a changed route."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from milepost.cli.config import CliSettings
from milepost.cli.options import act_options, check_signed, listing_group, shared_options, signed
from milepost.cli.output import console, print_json, print_table, printed, progress, safe
from milepost.core.errors import UsageError

if TYPE_CHECKING:
    from milepost.engine.routes.backfill import Preview
    from milepost.engine.routes.versions import Applied


@listing_group
def routes(given: CliSettings, as_json: bool) -> None:
    """Routes with their stages and versions.

    Also shows how a route file differs from the ledger; 'milepost routes apply' puts a changed
    route into force.
    """
    from milepost.core.values.durations import short_span
    from milepost.engine.routes.versions import route_view
    from milepost.engine.views.items import route_names

    with given.context() as ctx:
        found = [route_view(ctx, name) for name in route_names(ctx)]
    if printed(
        found,
        {"routes": found},
        "No routes; give --routes file.py, or set routes in milepost.toml.",
        as_json=as_json,
    ):
        return
    to = console()
    rows = []
    for view in found:
        stages = " → ".join(
            f"[{name}]" if kind == "external" else name for name, kind in view["stages"]
        )
        rows.append((view["route"], view["version"] or "new", stages, view["difference"]))
    print_table(
        ("route", "version", "stages (external in brackets)", "route file"), rows, right=["version"]
    )
    for view in found:
        if view["remembers_s"] is not None:
            to.print(
                f"{safe(view['route'])} remembers a finished key for {short_span(view['remembers_s'] * 1000)} only."
            )
        if view["version"] and view["differs"]:
            to.print(
                f"To put it into force (see first with --dry-run):\n  {safe(view['cure'])}",
                soft_wrap=True,
            )
        if view["back_fill"] is not None:
            to.print(safe(f"{view['route']}: {_progress_of(view['back_fill'])}"), soft_wrap=True)


def _progress_of(view: dict[str, Any]) -> str:
    """Progress of a back-fill as a sentence."""
    from milepost.core.values.durations import short_span
    from milepost.engine.views.items import counted

    how_many = f"{counted(view['done'], 'finished item')} {'run again from' if view['verb'] == 'rerun' else 'sent to'} {view['stage']}"
    passed = f", {view['passed_over']:,} passed over" if view["passed_over"] else ""
    if view["state"] == "finished":
        return f"{how_many}{passed}; finished {view['finished_at']}."
    left = f"{how_many}{passed}, {view['left']:,} left"
    if view["state"] == "stopped":
        return f"{left}; stopped by {view['stopped_by']}: {view['stopped_why']} ('milepost routes back-fill {view['route']} --pace …' continues it)"
    if view["waits"]:
        return f"{left}; waiting: {view['waits']}"
    return f"{left}, {_rate(view['pace_per_s'])}, about {short_span(view['left'] / view['pace_per_s'] * 1000)} more"


def _rate(pace: float) -> str:
    """A rate in the largest readable unit, such as 5/m."""
    unit, seconds = next(
        ((unit, n) for unit, n in (("s", 1), ("m", 60)) if pace * n >= 1), ("h", 3600)
    )
    return f"{pace * seconds:,.6g}/{unit}"


@routes.command()
@click.argument("route", required=False)
@click.option(
    "--map",
    "maps",
    multiple=True,
    metavar="OLD=NEW",
    help="Move items of a removed stage to NEW; 'OLD=' cancels them.",
)
@click.option("--back-fill", metavar="STAGE", help="Send finished items to this added stage.")
@click.option("--pace", metavar="RATE", help="With --back-fill: rate, such as 50/s [all at once].")
@act_options
def apply(
    given: CliSettings,
    route: str | None,
    maps: tuple[str, ...],
    back_fill: str | None,
    pace: str | None,
    by: str | None,
    reason: str | None,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Put a changed route into force.

    Processes with the old stages then stand by until they are restarted. See first with --dry-run.
    With --pace the resender ('milepost up') sends the finished items, and this command returns at
    once; 'milepost routes' shows the progress.
    """
    from milepost.core.values.durations import rate_per_second
    from milepost.engine.routes.versions import apply_route
    from milepost.engine.transfer.lock import refuse_moved

    name, why = check_signed(by, reason, dry_run=dry_run)
    mapping = _mapping(maps)
    if pace is not None and back_fill is None:
        raise click.UsageError("--pace needs --back-fill STAGE")
    chosen: dict[str, Any] = {
        "back_fill": back_fill,
        "pace": None if pace is None else rate_per_second(pace, "--pace"),
    }
    with given.context() as ctx, progress("moving items", quiet=as_json) as on_progress:
        if route is None and len(ctx.plans) != 1:
            raise UsageError(
                f"name the route to apply; routes are: {', '.join(ctx.plans) or 'none; give --routes file.py'}"
            )
        plan = ctx.plan(route or next(iter(ctx.plans)))
        refuse_moved(ctx.ledger, [plan])
        done = apply_route(
            ctx,
            plan,
            mapping=mapping,
            by=name,
            reason=why,
            dry_run=dry_run,
            on_progress=on_progress,
            **chosen,
        )
    if as_json:
        print_json(done)
    else:
        _print_report(plan.name, done, dry_run)
    return 1 if done.left and not dry_run else 0


@routes.command("back-fill")
@click.argument("route")
@click.option(
    "--pace", metavar="RATE", help="Set the rate, such as 50/s; continues a stopped back-fill."
)
@click.option("--stop", "stopping", is_flag=True, help="Stop until --pace is given again.")
@signed
@shared_options
def back_fill(
    given: CliSettings,
    route: str,
    pace: str | None,
    stopping: bool,
    by: str | None,
    reason: str | None,
    as_json: bool,
) -> None:
    """Progress of a back-fill; change its rate, or stop it.

    Items that were already sent continue.
    """
    from milepost.core.values.durations import rate_per_second
    from milepost.engine.routes.backfill import change_pace, stop, view
    from milepost.engine.views.items import check_route

    if stopping and pace is not None:
        raise click.UsageError("give either --stop or --pace")
    signature = check_signed(by, reason, dry_run=not stopping and pace is None)
    with given.context() as ctx:
        check_route(ctx, route)
        if stopping:
            stop(ctx, route, by=signature[0], reason=signature[1])
        elif pace is not None:
            change_pace(
                ctx, route, rate_per_second(pace, "--pace"), by=signature[0], reason=signature[1]
            )
        found = view(ctx, route)
    if as_json:
        print_json({"route": route, "back_fill": found})
    elif found is None:
        click.echo(f"Route {route} never had a paced back-fill.")
    else:
        console().print(safe(f"{route}: {_progress_of(found)}"), soft_wrap=True)


def _mapping(maps: tuple[str, ...]) -> dict[str, str | None]:
    mapping: dict[str, str | None] = {}
    for text in maps:
        old, sign, new = text.partition("=")
        if not sign or not old.strip():
            raise click.UsageError(
                f"--map {text!r} is not OLD=NEW (or OLD= to cancel the items at OLD)"
            )
        mapping[old.strip()] = new.strip() or None
    return mapping


def _print_report(route: str, done: Applied, dry_run: bool) -> None:
    from milepost.engine.views.items import counted

    to = console()
    would = "would be" if dry_run else "is"
    to.print(f"[bold]{safe(route)}[/] {would} at version {done.version}: {safe(done.difference)}.")
    for stage, n in done.renamed.items():
        come = "would move" if dry_run else "moves" if n == 1 else "move"
        to.print(
            f"{counted(n, 'item')} {come} from {safe(stage)} to {safe((done.moves[stage] or '').removeprefix('='))}."
        )
    if done.moved:
        to.print(f"{counted(done.moved, 'item')} moved.")
    if done.back_filled:
        to.print(f"{counted(done.back_filled, 'finished item')} sent to the added stage.")
    if done.back_fill is not None:
        _print_back_fill(done.back_fill, dry_run)
    for stage, n in done.left.items():
        if dry_run and stage in done.renamed:
            continue
        are = "is" if n == 1 else "are"
        verb = (
            f"{are} at a removed stage"
            if dry_run
            else f"{are} still held by workers; run this again in a moment"
        )
        to.print(f"{counted(n, 'item')} at {safe(stage)} {verb}.")


def _print_back_fill(coming: Preview, dry_run: bool) -> None:
    """Print how many finished items a back-fill sends, how long it takes, and what it means for
    them."""
    from milepost.core.values.durations import short_span
    from milepost.engine.views.items import counted

    to = console()
    pace = (
        ", all at once"
        if coming.pace is None
        else f" at {_rate(coming.pace)}, in about {short_span(coming.takes_ms or 0)}"
    )
    would = "would be" if dry_run else "are being" if coming.items != 1 else "is being"
    to.print(
        safe(f"{counted(coming.items, 'finished item')} {would} sent to {coming.stage}{pace}."),
        soft_wrap=True,
    )
    if coming.items and dry_run:
        again = f" and {', '.join(coming.again)} again" if coming.again else ""
        means = f"Each is in progress until it completes {coming.stage}{again}; its event is then 'completed again'."
        to.print(safe(means), soft_wrap=True)
    if coming.sealed:
        many = (
            f"{'more than ' if coming.sealed_more else ''}{counted(coming.sealed, 'finished key')}"
        )
        where = "their rows are restored first, where input and results are still recorded"
        if not coming.brings_back:
            what = "cannot be sent: their rows have been removed, and seal and evidence do not contain their input"
        elif coming.pace is None:
            what = (
                f"cannot be sent at once, because their rows have been removed; with --pace {where}"
            )
        else:
            what = f"whose rows were removed {'would be' if dry_run else 'are'} sent after these: {where}"
        to.print(safe(f"{many} {what}."), soft_wrap=True)
    if not dry_run:
        to.print("The resender ('milepost up') sends them; 'milepost routes' shows the progress.")
