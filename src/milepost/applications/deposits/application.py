"""Deposits as an application: its settings, its route and its health checks."""

from __future__ import annotations

import os
from collections.abc import Iterator

import milepost as mp
from milepost.applications.deposits.route import deposits_route
from milepost.applications.deposits.settings import DepositsSettings, check_settings

application = mp.Application("deposits", DepositsSettings, summary="DOIs of a master list, each deposited once.")


@application.routes
def routes(settings: DepositsSettings) -> list[mp.Route]:
    return [deposits_route(settings)]


@application.check("settings")
def settings_check(app: mp.AppContext[DepositsSettings]) -> Iterator[mp.Finding]:
    """Is everything set that workers need?"""
    try:
        check_settings(app.settings, os.environ)
    except mp.ConfigMistake as mistake:
        yield mp.Finding("bad", "deposits", str(mistake), "set them, and run 'milepost deposits run' again")
    else:
        yield mp.Finding("ok", "deposits", "settings and secrets are complete")
