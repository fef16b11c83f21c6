"""`milepost acts`: the log of what operators did."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from milepost.cli.config import CliSettings
from milepost.cli.options import limit_option, print_rest, shared_options
from milepost.cli.output import page, printed, safe

if TYPE_CHECKING:
    from milepost.ports.documents import Act


@click.command()
@click.argument("route", required=False)
@limit_option
@shared_options
def acts(given: CliSettings, route: str | None, limit: int, as_json: bool) -> None:
    """The log of acts: who did what, why, and the result.

    Latest first: bulk acts on items, pauses, limits, route changes, pruning, subscribers. An act on a single item is only in that
    item's history ('milepost show'). An interrupted act shows the command that continues it.
    """
    from datetime import datetime

    from milepost.engine.act_log import act_view, all_acts, control_in_words
    from milepost.engine.views.items import check_route, clock_time

    with given.context() as ctx:
        check_route(ctx, route)
        found = all_acts(ctx, route)
        now = ctx.clock.now()
    value = {"acts": [act_view(act) for act in found[:limit]], "more": len(found) > limit}
    if printed(found, value, "No acts yet. (Acts on a single item are in 'milepost show'.)", as_json=as_json):
        return

    def local(at: str) -> str:
        return clock_time(round(datetime.fromisoformat(at).timestamp() * 1000), now)

    with page() as to:
        for act in found[:limit]:
            view = act_view(act)
            # The scope, subscriber or route that the act was about.
            scoped = control_in_words(view["about"], local) if act.filter.get("scope") else ""
            subject = scoped or str(act.filter.get("subscriber") or act.route)
            to.print(f"[bold]{clock_time(act.started_at, now)}  {safe(act.verb)} {safe(subject)}[/]  by {safe(act.by)}: {safe(act.reason)}")
            to.print(f"  act {safe(act.id)}: {_result(act)}")
            if view["go_on"]:
                to.print(f"  to continue: {safe(view['go_on'])}", soft_wrap=True)
    print_rest(len(found) - limit)


def _result(act: Act) -> str:
    from milepost.engine.views.items import counted

    if "scope" in act.filter or act.verb == "forget":
        return "done"
    if act.verb == "replay" and "subscriber" in act.filter:
        return f"{counted(act.done, 'line')} to be sent again"
    what = counted(act.done, "row" if act.verb == "prune" else "item")
    refused = f", {act.refused:,} refused" if act.refused else ""
    return f"{what}{refused}" + ("" if act.finished_at is not None else "; not finished")
