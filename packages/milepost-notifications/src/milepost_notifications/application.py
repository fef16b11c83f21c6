"""Notifications as an application: its settings and state, its route, POST /message, and the parts
with which it is operated."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from shlex import quote
from typing import Any
from urllib.parse import quote as url_quote
from urllib.parse import urlencode

import milepost as mp
import milepost.application as mpa
from milepost_notifications.accept import ANSWERS, accept, answer_of_problem, largest_request
from milepost_notifications.deliver import Deliverer
from milepost_notifications.destinations import PAUSED_BY, Destinations, resume_command
from milepost_notifications.operate.collector import (
    FIGURES,
    PAGE,
    PAGES,
    FigureCollector,
    figures_of,
)
from milepost_notifications.operate.figures import SENDER_COUNTS
from milepost_notifications.operate.registry import (
    REFRESH,
    before_resume,
    destination_views,
    keep_fresh,
    refresh,
    resume_returned,
)
from milepost_notifications.operate.senders import ATTRIBUTE, SenderLimits
from milepost_notifications.route import notifications_route
from milepost_notifications.settings import App, NotificationsSettings

COLLECT = "2s"
"""How often the feed is counted."""
RETURNED = "10s"
"""How soon the messages of a destination that works again are sent."""
COUNT_S = 30.0
"""How long one call goes on counting."""
LATE_S = 300
"""A destination whose oldest message has been due for longer is a finding."""

FAULT_CURE = "set it, and they are sent by themselves; 'milepost doctor' in another shell sees the environment of that shell alone"

Samples = dict[tuple[str, ...], float | mpa.Histogram]


class NotificationsState:
    """Made once from the settings. `destinations` may be changed at run time; `route` is made of
    the same objects."""

    def __init__(self, settings: NotificationsSettings) -> None:
        mpa.hide_fields(settings.secret_headers)
        self.destinations = Destinations(settings)
        self.deliverer = Deliverer(settings, self.destinations)
        self.route = notifications_route(settings, self.destinations, self.deliverer)
        self.collector = FigureCollector()
        self.sender_limits = SenderLimits(settings)
        self.health_look: asyncio.Future[list[tuple[str, str]]] | None = None
        """The look at the service's health that is under way."""


application = mpa.Application(
    "notifications",
    NotificationsSettings,
    summary="Messages to partners' HTTP APIs.",
    state=NotificationsState,
    bound_by=ATTRIBUTE,
    templates=Path(__file__).parent / "templates",
    commands="milepost_notifications.commands",
)


@application.routes
def routes(settings: NotificationsSettings, state: NotificationsState) -> list[mp.Route]:
    return [state.route]


@application.opened
def opened(app: App) -> None:
    app.state.deliverer.open(app)


@application.moved
def moved(name: str, value: Any, place: Callable[[int], int]) -> Any:
    """After a move to another ledger, the figures count on from the same history line."""
    return (
        {**value, "seq": place(value["seq"]), "holder": "", "held_until": 0}
        if name == FIGURES
        else value
    )


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


application.resuming(before_resume)
application.service("destinations", every=REFRESH, per_process=True)(refresh)
application.service("backlogs", every=RETURNED)(resume_returned)


@application.service("figures", every=COLLECT)
def collect(app: App) -> None:
    """Count what is new in the feed: all of it, since on AWS the next call is a minute away."""
    keep_fresh(app)
    until = time.monotonic() + COUNT_S
    while app.state.collector.turn(app) >= PAGE * PAGES and time.monotonic() < until:
        pass


@application.check("destinations")
def check_destinations(app: App) -> Iterator[mpa.Finding]:
    """Are the secrets of all destinations there, and does no backlog grow old?"""
    views = destination_views(app)
    troubled = False
    for one in views:
        for finding in _findings(one["name"], one, app.now()):
            troubled = True
            yield finding
    if not troubled:
        known = sum(one["registered"] is not None for one in views)
        yield mpa.Finding(
            "ok",
            "notifications",
            f"{known} {'destination is' if known == 1 else 'destinations are'} configured",
        )


def _findings(name: str, view: dict[str, object], now: datetime) -> Iterator[mpa.Finding]:
    if view["fault"] is not None:
        yield mpa.Finding(
            "bad", "notifications", f"messages to {name} wait: {view['fault']}", FAULT_CURE
        )
    if view["orphaned"] and view["waiting"]:
        what = f"{view['waiting']:,} messages wait for {name}, which is no destination any more"
        cure = f"put [notifications.destinations.{name}] back, or send them where their URLs belong: {resume_command(name)}"
        yield mpa.Finding("warn", "notifications", what, cure)
    late_s = _age_s(view["oldest_due_at"], now)
    # Pauses and open breakers are findings of Milepost's own checks, and explain a backlog.
    if late_s > LATE_S and view["paused"] is None and view["breaker"] is None:
        what = f"the oldest message to {name} has been due for {late_s / 60:.0f} min"
        yield mpa.Finding(
            "warn",
            "notifications",
            what,
            "look at its rate, its concurrency and whether workers run",
        )


@application.metrics
def metrics(app: App) -> Iterator[mpa.Metric]:
    """Figures of senders and destinations. The sets of names are bounded; the rest is counted as
    one."""
    figures = figures_of(app)
    senders = figures.senders
    messages: Samples = {
        (name, count): float(getattr(one, count))
        for name, one in senders.items()
        for count in SENDER_COUNTS
    }
    yield mpa.Metric(
        "messages",
        "Messages by sender and what became of them.",
        messages,
        ("sender", "outcome"),
        "counter",
    )
    starts: Samples = {(name,): one.histogram for name, one in senders.items()}
    yield mpa.Metric(
        "first_attempt_seconds",
        "Time from acceptance to the first try.",
        starts,
        ("sender",),
        "histogram",
    )
    views, now = destination_views(app), app.now()
    tries: Samples = {
        (name, outcome): float(sum(getattr(hour, outcome) for hour in one.hours))
        for name, one in figures.destinations.items()
        for outcome in ("succeeded", "failed")
    }
    yield mpa.Metric(
        "tries_last_day",
        "Tries of the last 24 hours by destination.",
        tries,
        ("destination", "outcome"),
    )
    gauges: list[tuple[str, str, Callable[[dict[str, Any]], float]]] = [
        (
            "waiting_messages",
            "Messages that wait, counted up to 1,000.",
            lambda one: one["waiting"],
        ),
        (
            "oldest_due_seconds",
            "How long the oldest waiting message has been due.",
            lambda one: _age_s(one["oldest_due_at"], now),
        ),
        (
            "paused",
            "1 while the destination is paused or has an outage.",
            lambda one: one["paused"] is not None,
        ),
        (
            "breaker_open",
            "1 while the destination's breaker is open or half-open.",
            lambda one: one["breaker"] is not None,
        ),
    ]
    for name, about, value in gauges:
        yield mpa.Metric(
            name, about, {(one["name"],): float(value(one)) for one in views}, ("destination",)
        )


def _age_s(due: object, now: datetime) -> float:
    return (
        0.0 if due is None else max(0.0, (now - datetime.fromisoformat(str(due))).total_seconds())
    )


@application.alerts
def alert_rules(settings: NotificationsSettings) -> list[mpa.AlertRule]:
    """The rule for all messages; it is watched if [notifications.alerts] names a receiver."""
    given = settings.alerts
    return [
        mpa.AlertRule(
            name="notifications",
            to=given.to,
            route=settings.route,
            pauses_by=(PAUSED_BY,),
            quiet=given.quiet,
            settled=given.settled,
            items="messages",
            lane="destination",
            pointer=pointer,
            dashboard=given.dashboard,
        )
    ]


def pointer(subject: mpa.AlertSubject) -> mpa.AlertPointer:
    """The command and the page of notifications that show more of an alert. Pure."""
    if subject.kind == "failures":
        chosen = {
            name: value
            for name, value in (("destination", subject.lane), ("cause", subject.group))
            if value
        }
        options = "".join(f" --{name} {quote(value)}" for name, value in chosen.items())
        page = f"/notifications/messages?{urlencode({'status': 'failed', **chosen})}"
        return mpa.AlertPointer(f"milepost notifications list --status failed{options}", page)
    if not subject.lane:
        return mpa.AlertPointer("milepost notifications destinations", "/notifications")
    return mpa.AlertPointer(
        f"milepost notifications destinations {quote(subject.lane)}",
        f"/notifications/destinations/{url_quote(subject.lane, safe='')}",
    )
