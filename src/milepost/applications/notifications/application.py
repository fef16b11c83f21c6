"""Notifications as an application: its settings, its route, POST /message, and the parts with which it is operated."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import milepost as mp
from milepost.applications.notifications.accept import ANSWERS, accept, answer_of_problem, largest_request
from milepost.applications.notifications.alerts import alert_rules
from milepost.applications.notifications.operate.collector import FIGURES
from milepost.applications.notifications.operate.parts import add_parts
from milepost.applications.notifications.operate.senders import ATTRIBUTE
from milepost.applications.notifications.settings import NotificationsSettings
from milepost.applications.notifications.state import NotificationsState

application = mp.Application(
    "notifications",
    NotificationsSettings,
    summary="Messages to partners' HTTP APIs.",
    state=NotificationsState,
    bound_by=ATTRIBUTE,
    templates=Path(__file__).parent / "operate" / "templates",
    commands="milepost.applications.notifications.commands",
)


@application.routes
def routes(settings: NotificationsSettings, state: NotificationsState) -> list[mp.Route]:
    return [state.route]


@application.opened
def opened(app: mp.AppContext[NotificationsSettings]) -> None:
    app.state.open(app)


@application.moved
def moved(name: str, value: Any, place: Callable[[int], int]) -> Any:
    """The figures count on from the place of the same line there."""
    return {**value, "seq": place(value["seq"]), "holder": "", "held_until": 0} if name == FIGURES else value


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


application.alerts(alert_rules)
add_parts(application)
