"""`milepost alerts`: alerts that are raised now."""

from __future__ import annotations

import click

from milepost.cli.config import CliSettings
from milepost.cli.options import shared_options
from milepost.cli.output import page, printed, safe


@click.command()
@click.argument("route", required=False)
@shared_options
def alerts(given: CliSettings, route: str | None, as_json: bool) -> None:
    """Alerts that are raised now, the oldest first.

    One for each cause and lane that fails items for good, for each open breaker, and for each pause
    that a program made. 'milepost up' raises them where milepost.toml or an application names
    receivers.
    """
    from milepost.engine.alerts.watch import alert_views
    from milepost.engine.views.items import check_route

    with given.context() as ctx:
        check_route(ctx, route)
        found = [one for one in alert_views(ctx) if route in (None, one.route)]
    if printed(found, {"alerts": found}, "No alert is raised.", as_json=as_json):
        return
    with page() as to:
        for one in found:
            failed = f", {one.count:,} failed" if one.count else ""
            to.print(f"[bold]{safe(one.title)}[/]  since {one.since}{failed}", soft_wrap=True)
            if one.text:
                to.print(f"  {safe(one.text)}", soft_wrap=True)
            if one.undelivered:
                to.print(
                    f"  not delivered yet to {safe(', '.join(one.undelivered))}", soft_wrap=True
                )
            to.print(f"  to see more: {safe(one.command)}", soft_wrap=True)
