"""Deposits as an application: its settings, routes, pages, services and health checks."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import milepost as mp
import milepost.application as mpa
from milepost_deposits.controls import LedgerControls, partner_waits
from milepost_deposits.digest.collect import (
    CURSOR,
    collect_when_due,
    digests_route,
    send_again_command,
    unmailed,
)
from milepost_deposits.digest.file_news import note_files
from milepost_deposits.dspace.login import probe_login, resume_command
from milepost_deposits.dss.results import ResultListener, set_aside
from milepost_deposits.intake import take_in_lists
from milepost_deposits.rounds import STORE_CURE, store_fault
from milepost_deposits.route import deposits_route
from milepost_deposits.settings import DepositsApp, DepositsSettings, check_settings
from milepost_deposits.stuck import find_late_deposits, stuck_deposits
from milepost_deposits.twins import CURSOR as TWINS_CURSOR
from milepost_deposits.twins import find_twins, twins

TWINS_SHOWN = 10

log = logging.getLogger(__name__)

application = mpa.Application(
    "deposits",
    DepositsSettings,
    summary="DOIs of a master list, each deposited once.",
    state=LedgerControls,
    templates=Path(__file__).parent / "people" / "templates",
    commands="milepost_deposits.commands",
)


@application.routes
def routes(settings: DepositsSettings, state: LedgerControls) -> list[mp.Route]:
    if settings.mail is None:
        return [deposits_route(settings, controls=state)]
    return [deposits_route(settings, controls=state), digests_route(settings)]


@application.opened
def opened(app: DepositsApp) -> None:
    app.state.open(app)


@application.moved
def moved(name: str, value: Any, place: Callable[[int], int]) -> Any:
    """People are informed, and DSpace is searched again, from the place of the same line there."""
    return {**value, "after": place(value["after"])} if name in (CURSOR, TWINS_CURSOR) else value


@application.service("inbox", every="1m")
def inbox(app: DepositsApp) -> None:
    """Take in lists while `milepost up` runs, in continuous mode; in rounds `milepost deposits run`
    does."""
    if app.settings.mode == "continuous":
        report = take_in_lists(app, app.settings)
        note_files(app, report)
        for one in [*report.refused, *report.unread]:
            log.error("%s was not taken in: %s", one.name, one.reason)


@application.aws
def aws_access(settings: DepositsSettings) -> mpa.AwsAccess:
    """The queues of the submission service or the login of DSpace, the places of lists and files,
    and mail."""
    dss = settings.submit.dss
    return mpa.AwsAccess(
        sends_to=() if dss is None else (dss.queue,),
        receives_from=() if dss is None else (dss.results,),
        objects=(settings.inbox, settings.files),
        sends_mail=settings.mail is not None and settings.mail.ses is not None,
        secrets=(
            *(
                (settings.submit.user_env, settings.submit.password_env)
                if settings.submit.dspace
                else ()
            ),
            *dict.fromkeys(settings.content_headers.values()),
        ),
    )


@application.check("settings")
def settings_check(app: DepositsApp) -> Iterator[mpa.Finding]:
    """Is everything set that workers need?"""
    try:
        check_settings(app.settings, os.environ)
    except mp.ConfigMistake as mistake:
        yield mpa.Finding(
            "bad", "deposits", str(mistake), "set them, and run 'milepost deposits run' again"
        )
    else:
        yield mpa.Finding("ok", "deposits", "settings and secrets are complete")


@application.check("partners")
def partners_check(app: DepositsApp) -> Iterator[mpa.Finding]:
    """Does a partner ask us to slow down, or refuse the login or the queue?"""
    for wait in partner_waits(app):
        if wait.needs_people:
            yield mpa.Finding("bad", "deposits", wait.text, resume_command(app.settings))
            continue
        yield mpa.Finding(
            "warn",
            "deposits",
            wait.text,
            "wait; if it lasts, lower [deposits.rates], or ask the partner for a higher limit",
        )


@application.check("store")
def store_check(app: DepositsApp) -> Iterator[mpa.Finding]:
    """Can the file store be used?"""
    fault = store_fault(app)
    if fault:
        yield mpa.Finding("bad", "deposits", f"{fault}; its DOIs wait", STORE_CURE)


@application.service("results", every="1m")
def results(app: DepositsApp) -> None:
    """Apply the results of the submission service."""
    if app.settings.submit.dss is not None:
        ResultListener(app).turn()


@application.service("digest", every="15m")
def digest(app: DepositsApp) -> None:
    """Collect a digest while `milepost up` runs, in continuous mode; in rounds `milepost deposits
    run` does."""
    if app.settings.mode == "continuous":
        collect_when_due(app)


@application.check("digests")
def digests_check(app: DepositsApp) -> Iterator[mpa.Finding]:
    """Could all digests be mailed?"""
    left = unmailed(app)
    if left.wait:
        said = f"{_digests(left.wait)} not mailed yet, and will be tried again: {left.wait_error}"
        yield mpa.Finding(
            "warn", "deposits", said, "look at the mail server, and at [deposits.mail]"
        )
    if left.refused:
        cure = f"correct [deposits.mail], then '{send_again_command(app.settings)}'"
        yield mpa.Finding(
            "warn",
            "deposits",
            f"{_digests(left.refused)} refused, and not tried again: {left.refused_error}",
            cure,
        )


def _digests(count: int) -> str:
    return "1 digest was" if count == 1 else f"{count:,} digests were"


@application.service("late-deposits", every="15m")
def late_deposits(app: DepositsApp) -> None:
    """Complete DOIs that failed with an unknown result and are in DSpace, and find DOIs that have
    two items there."""
    find_late_deposits(app)
    find_twins(app)


@application.check("twins")
def twins_check(app: DepositsApp) -> Iterator[mpa.Finding]:
    """Has DSpace two items of a DOI?"""
    for doi, recorded in list(twins(app).items())[:TWINS_SHOWN]:
        yield mpa.Finding(
            "warn",
            "deposits",
            f"{doi}: {recorded.text}",
            "'milepost deposits worklist' says what to do",
        )


@application.service("login", every="15m")
def login(app: DepositsApp) -> None:
    """Try a login that DSpace has refused again, once and after a growing delay."""
    probe_login(app)


@application.check("form")
def form_check(app: DepositsApp) -> Iterator[mpa.Finding]:
    """Is the form of the metadata files that of today's submission service because the setting is
    left out? It was the old one once."""
    dss = app.settings.submit.dss
    if dss is not None and dss.metadata is None:
        said = 'the submission service gets metadata in the form dspace8; for a service from before August 2026 set metadata = "old"'
        yield mpa.Finding("ok", "deposits", said)


@application.check("stuck")
def stuck_check(app: DepositsApp) -> Iterator[mpa.Finding]:
    """Has a submission had no result for too long? Are messages of the results queue set aside?"""
    stuck = stuck_deposits(app)
    if stuck:
        cure = "look at the submission service; 'milepost deposits stuck' lists them, and DSpace is searched before any is sent again"
        yield mpa.Finding(
            "warn", "deposits", f"{len(stuck)} submissions have had no result for too long", cure
        )
    aside = set_aside(app)
    if aside:
        cure = "'milepost deposits set-aside' shows them with the reason"
        yield mpa.Finding(
            "warn",
            "deposits",
            f"{len(aside)} messages of the results queue could not be used",
            cure,
        )
