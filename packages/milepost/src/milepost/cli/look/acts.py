"""`milepost acts`: the log of what operators did."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from milepost.cli.config import CliSettings
from milepost.cli.options import limit_option, print_rest, shared_options
from milepost.cli.output import console, page, print_json, printed, safe

if TYPE_CHECKING:
    from milepost.ports.documents import Act


@click.command()
@click.argument("route", required=False)
@click.option("--id", "act_id", metavar="ID", help="Only this act, with what became of its items.")
@click.option("--after", metavar="ID", help="Only acts before this one: the next page.")
@click.option(
    "--all",
    "whole",
    is_flag=True,
    help="With --id: count all its items, however many history lines must be read.",
)
@limit_option
@shared_options
def acts(
    given: CliSettings,
    route: str | None,
    act_id: str | None,
    after: str | None,
    whole: bool,
    limit: int,
    as_json: bool,
) -> None:
    """The log of acts: who did what, why, and the result.

    Latest first: acts on items, pauses, limits, route changes, pruning, subscribers. An interrupted
    act shows the command that continues it. With --id: how many of its items have completed since,
    failed again, or are in progress; of an act on many thousands, those whose history lines come
    first, or --all.
    """
    if act_id is not None:
        _show_one(given, act_id, whole, as_json)
        return
    if whole:
        raise click.UsageError("--all counts the items of one act: give its --id")
    from datetime import datetime

    from milepost.engine.act_log import act_view, acts_after, all_acts, control_in_words
    from milepost.engine.views.items import check_route, clock_time

    with given.context() as ctx:
        check_route(ctx, route)
        found = acts_after(all_acts(ctx, route), after)
        now = ctx.clock.now()
    value = {"acts": [act_view(act) for act in found[:limit]], "more": len(found) > limit}
    if printed(found, value, "No acts yet.", as_json=as_json):
        return

    def local(at: str) -> str:
        return clock_time(round(datetime.fromisoformat(at).timestamp() * 1000), now)

    with page() as to:
        for act in found[:limit]:
            view = act_view(act)
            # The scope, subscriber or route that the act was about.
            scoped = control_in_words(view["about"], local) if act.filter.get("scope") else ""
            subject = scoped or str(act.filter.get("subscriber") or act.route)
            if "key" in act.filter and "subscriber" not in act.filter:
                subject += f" {act.filter['key']}"
            to.print(
                f"[bold]{clock_time(act.started_at, now)}  {safe(act.verb)} {safe(subject)}[/]  by {safe(act.by)}: {safe(act.reason)}"
            )
            to.print(f"  act {safe(act.id)}: {_result(act)}")
            if view["go_on"]:
                to.print(f"  to continue: {safe(view['go_on'])}", soft_wrap=True)
    print_rest(len(found) - limit)


def _show_one(given: CliSettings, act_id: str, whole: bool, as_json: bool) -> None:
    """Print one act, with what became of its items."""
    from msgspec import to_builtins

    from milepost.engine.act_log import act_view, recorded
    from milepost.engine.acts.outcome import deed_words, outcome_of, whole_outcome_of

    with given.context() as ctx:
        act = recorded(ctx, act_id)
        outcome = whole_outcome_of(ctx, act) if whole else outcome_of(ctx, act)
    if as_json:
        print_json({**act_view(act), "outcome": None if outcome is None else to_builtins(outcome)})
        return
    to = console()
    to.print(
        f"[bold]{safe(act.verb)} {safe(act.route)}[/]  by {safe(act.by)}: {safe(act.reason)}",
        soft_wrap=True,
    )
    to.print(f"  act {safe(act.id)}: {_result(act)}")
    if outcome is not None:
        to.print(f"{deed_words(act.verb, act.done)}: {outcome.words(act.verb)}.", soft_wrap=True)
        if outcome.next is not None:
            to.print(
                f"To count all of them: milepost acts --id {safe(act.id)} --all", soft_wrap=True
            )


def _result(act: Act) -> str:
    from milepost.core.operators import VERBS
    from milepost.engine.acts.outcome import deed_words
    from milepost.engine.views.items import counted

    if "scope" in act.filter or act.verb == "forget":
        return "done"
    if act.verb == "replay" and "subscriber" in act.filter:
        return f"{counted(act.done, 'line')} to be sent again"
    what = (
        deed_words(act.verb, act.done)
        if act.verb in VERBS
        else counted(act.done, "row" if act.verb == "prune" else "item")
    )
    refused = f", {act.refused:,} refused" if act.refused else ""
    return f"{what}{refused}" + ("" if act.finished_at is not None else "; not finished")
