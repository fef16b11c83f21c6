"""`milepost routes`: the routes and their versions, and how a changed one is put in force."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from milepost.cli.config import Settings
from milepost.cli.options import check_signed, dry_run_option, json_option, settings, signed
from milepost.cli.out import console, print_json, progress, safe, show_table, table
from milepost.core.errors import UsageError

if TYPE_CHECKING:
    from milepost.engine.context import Context
    from milepost.engine.routes import Applied


@click.group(invoke_without_command=True)
@json_option
@settings
def routes(given: Settings, as_json: bool) -> None:
    """The routes, their stages and versions.

    Also says how a route file differs from what the ledger holds; 'milepost routes apply' puts a changed route in force.
    """
    context = click.get_current_context()
    context.obj = given
    if context.invoked_subcommand is not None:
        return
    from milepost.core.durations import short_span

    with given.context() as ctx:
        found = [_view(ctx, name) for name in _names(ctx)]
    if as_json:
        print_json({"routes": found})
        return
    to = console()
    if not found:
        to.print("No route is known; give --routes file.py, or name it in milepost.toml.")
        return
    shown = table("route", "version", "stages (external in brackets)", "the route file", right=["version"])
    for view in found:
        stages = " → ".join(f"[{name}]" if kind == "external" else name for name, kind in view["stages"])
        version = str(view["version"]) if view["version"] else "new"
        shown.add_row(safe(view["route"]), version, safe(stages), safe(view["difference"]))
    show_table(shown)
    for view in found:
        if view["remembers_s"] is not None:
            to.print(f"{safe(view['route'])} remembers a finished key for {short_span(view['remembers_s'] * 1000)}, not for good.")
        if view["version"] and view["differs"]:
            to.print(f"To put it in force (look first with --dry-run):\n  {safe(view['cure'])}", soft_wrap=True)


def _names(ctx: Context) -> list[str]:
    from milepost.engine.observe import route_names

    return route_names(ctx)


def _view(ctx: Context, name: str) -> dict[str, Any]:
    from milepost.core.durations import iso
    from milepost.engine.routes import compare
    from milepost.ports.documents import ROUTE, RouteVersion, read_as

    document = ctx.ledger.read(ROUTE).get(name)
    held = None if document is None else read_as(RouteVersion, document.value)
    plan = ctx.plans.get(name)
    difference = None if plan is None else compare(ctx.ledger, plan)
    if difference is None:
        told = "not given"
    elif held is None:
        told = "not in the ledger yet"
    else:
        told = "the same" if difference.same else str(difference)
    return {
        "route": name,
        "version": None if held is None else held.version,
        "digest": None if held is None else held.digest,
        "at": None if held is None else iso(held.at),
        "by": None if held is None else held.by,
        "stages": [list(pair) for pair in (held.shape if held is not None else plan.shape if plan is not None else [])],
        "remembers_s": None if plan is None or plan.route.remember_ms is None else plan.route.remember_ms / 1000,
        "differs": bool(difference is not None and held is not None and not difference.same),
        "difference": told,
        "cure": None if difference is None or held is None or difference.same else difference.cure,
    }


@routes.command()
@click.argument("route", required=False)
@click.option("--map", "maps", multiple=True, metavar="OLD=NEW", help="Where items of a removed stage go; 'OLD=' cancels them.")
@click.option("--back-fill", metavar="STAGE", help="Send finished items on to this added stage.")
@signed
@dry_run_option
@json_option
@settings
def apply(
    given: Settings,
    route: str | None,
    maps: tuple[str, ...],
    back_fill: str | None,
    by: str | None,
    reason: str | None,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Put a changed route in force.

    Processes that still have the old stages then stand by until they are started again. Look first with --dry-run.
    """
    from milepost.engine.closing import refuse_moved
    from milepost.engine.routes import apply_route

    name, why = check_signed(by, reason, dry_run=dry_run)
    mapping = _mapping(maps)
    with given.context() as ctx, progress("moving items", quiet=as_json) as told:
        plan = ctx.plan(route or _only(ctx))
        refuse_moved(ctx.ledger, [plan])
        done = apply_route(ctx, plan, mapping=mapping, by=name, reason=why, dry_run=dry_run, back_fill=back_fill, on_progress=told)
    if as_json:
        print_json(done)
    else:
        _tell(plan.name, done, dry_run)
    return 1 if done.left and not dry_run else 0


def _only(ctx: Context) -> str:
    """The one route that was given; of several, which one must be said."""
    if len(ctx.plans) == 1:
        return next(iter(ctx.plans))
    known = ", ".join(ctx.plans) or "none; give --routes file.py"
    raise UsageError(f"say which route is to be put in force; given are: {known}")


def _mapping(maps: tuple[str, ...]) -> dict[str, str | None]:
    mapping: dict[str, str | None] = {}
    for text in maps:
        old, sign, new = text.partition("=")
        if not sign or not old.strip():
            raise click.UsageError(f"--map {text!r} is not OLD=NEW (or OLD= to cancel the items at OLD)")
        mapping[old.strip()] = new.strip() or None
    return mapping


def _tell(route: str, done: Applied, dry_run: bool) -> None:
    from milepost.engine.observe import counted

    to = console()
    would = "would be" if dry_run else "is"
    to.print(f"[bold]{safe(route)}[/] {would} at version {done.version}: {safe(done.difference)}.")
    for stage, n in done.renamed.items():
        come = "would come" if dry_run else "comes" if n == 1 else "come"
        to.print(f"{counted(n, 'item')} {come} along from {safe(stage)} to {safe((done.moves[stage] or '').removeprefix('='))}.")
    if done.moved:
        to.print(f"{counted(done.moved, 'item')} moved.")
    if done.back_filled:
        to.print(f"{counted(done.back_filled, 'finished item')} sent on.")
    for stage, n in done.left.items():
        if dry_run and stage in done.renamed:
            continue
        are = "is" if n == 1 else "are"
        verb = f"{are} at a removed stage now" if dry_run else f"{are} still in the hands of workers there; run this again in a moment"
        to.print(f"{counted(n, 'item')} at {safe(stage)} {verb}.")
