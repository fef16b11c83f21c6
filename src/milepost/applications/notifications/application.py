"""Notifications as an application: its settings, its route, POST /message and the health check of its destinations."""

from __future__ import annotations

from collections.abc import Iterator

import milepost as mp
from milepost.applications.notifications.accept import ANSWERS, accept, answer_of_problem, largest_request
from milepost.applications.notifications.settings import NotificationsSettings
from milepost.applications.notifications.state import NotificationsState

application = mp.Application(
    "notifications",
    NotificationsSettings,
    summary="Messages to partners' HTTP APIs.",
    state=NotificationsState,
)


@application.routes
def routes(settings: NotificationsSettings, state: NotificationsState) -> list[mp.Route]:
    return [state.route]


@application.opened
def opened(app: mp.AppContext[NotificationsSettings]) -> None:
    app.state.open(app)


application.endpoint(
    "POST",
    "/message",
    scope="submit",
    summary="Hand over a message to be delivered",
    body=bytes,
    answers=ANSWERS,
    largest=largest_request,
    origins=lambda settings: settings.origins,
    on_problem=answer_of_problem,
)(accept)


@application.check("destinations")
def destinations(app: mp.AppContext[NotificationsSettings]) -> Iterator[mp.Finding]:
    """Are the secrets of all destinations there? Without them their messages wait."""
    faults = 0
    for found in app.state.destinations.all.values():
        fault = app.state.deliverer.fault(found)
        if fault is not None:
            faults += 1
            yield mp.Finding("bad", "notifications", f"messages to {found.name} wait: {fault}", "set it; they are sent by themselves")
    if not faults:
        yield mp.Finding("ok", "notifications", f"{len(app.state.destinations.all)} destinations are configured")
