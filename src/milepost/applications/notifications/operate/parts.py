"""Parts with which notifications are operated: endpoints, pages, health checks, metrics and services, declared on the application."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import datetime

import milepost as mp
from milepost.applications.notifications.destinations import resume_command
from milepost.applications.notifications.operate.api import add_endpoints
from milepost.applications.notifications.operate.collector import PAGE, PAGES, figures_of
from milepost.applications.notifications.operate.figures import SENDER_COUNTS
from milepost.applications.notifications.operate.pages import add_pages
from milepost.applications.notifications.operate.registry import REFRESH, before_resume, destination_views, keep_fresh, refresh
from milepost.applications.notifications.operate.removal import resume_returned
from milepost.applications.notifications.settings import NotificationsSettings

COLLECT = "2s"
"""How often the feed is counted."""
RETURNED = "10s"
"""How soon the messages of a destination that is there again are sent."""
COUNT_S = 30.0
"""How long one call goes on counting."""
LATE_S = 300
"""A destination whose oldest message has been due for longer is a finding."""

App = mp.AppContext[NotificationsSettings]
Samples = dict[tuple[str, ...], float | mp.Histogram]


def add_parts(application: mp.Application[NotificationsSettings]) -> None:
    """Declare the parts on the application."""
    add_endpoints(application)
    add_pages(application)
    application.check("destinations")(check_destinations)
    application.metrics(metrics)
    application.resuming(before_resume)
    application.service("destinations", every=REFRESH, per_process=True)(refresh)
    application.service("backlogs", every=RETURNED)(resume_returned)
    application.service("figures", every=COLLECT)(collect)


def collect(app: App) -> None:
    """Count what is new in the feed: all of it, since on AWS the next call is a minute away."""
    keep_fresh(app)
    until = time.monotonic() + COUNT_S
    while app.state.collector.turn(app) >= PAGE * PAGES and time.monotonic() < until:
        pass


def check_destinations(app: App) -> Iterator[mp.Finding]:
    """Are the secrets of all destinations there, and does no backlog grow old?"""
    views = destination_views(app)
    troubled = False
    for one in views:
        for finding in _findings(one["name"], one, app.now()):
            troubled = True
            yield finding
    if not troubled:
        known = sum(one["registered"] is not None for one in views)
        yield mp.Finding("ok", "notifications", f"{known} {'destination is' if known == 1 else 'destinations are'} configured")


def _findings(name: str, view: dict[str, object], now: datetime) -> Iterator[mp.Finding]:
    if view["fault"] is not None:
        yield mp.Finding("bad", "notifications", f"messages to {name} wait: {view['fault']}", "set it; they are sent by themselves")
    if view["orphaned"] and view["waiting"]:
        what = f"{view['waiting']:,} messages wait for {name}, which is no destination any more"
        cure = f"put [notifications.destinations.{name}] back, or send them where their URLs belong: {resume_command(name)}"
        yield mp.Finding("warn", "notifications", what, cure)
    due = view["oldest_due_at"]
    # Pauses and open breakers are findings of Milepost's own checks, and explain a backlog.
    if isinstance(due, str) and view["paused"] is None and view["breaker"] is None:
        late_s = (now - datetime.fromisoformat(due)).total_seconds()
        if late_s > LATE_S:
            what = f"the oldest message to {name} has been due for {late_s / 60:.0f} min"
            yield mp.Finding("warn", "notifications", what, "look at its rate, its concurrency and whether workers run")


def metrics(app: App) -> Iterator[mp.Metric]:
    """Figures of senders and destinations. The sets of names are bounded; the rest is counted as one."""
    figures = figures_of(app)
    senders = figures.senders
    messages: Samples = {(name, count): float(getattr(one, count)) for name, one in senders.items() for count in SENDER_COUNTS}
    yield mp.Metric("messages", "Messages by sender and what became of them.", messages, ("sender", "outcome"), "counter")
    starts: Samples = {(name,): one.histogram for name, one in senders.items()}
    yield mp.Metric("first_attempt_seconds", "Time from acceptance to the first try.", starts, ("sender",), "histogram")
    views, now = destination_views(app), app.now()
    tries: Samples = {
        (name, outcome): float(sum(getattr(hour, outcome) for hour in one.hours))
        for name, one in figures.destinations.items()
        for outcome in ("succeeded", "failed")
    }
    yield mp.Metric("tries_last_day", "Tries of the last 24 hours by destination.", tries, ("destination", "outcome"))
    waiting: Samples = {(str(one["name"]),): float(one["waiting"]) for one in views}
    yield mp.Metric("waiting_messages", "Messages that wait, counted up to 1,000.", waiting, ("destination",))
    ages: Samples = {(str(one["name"]),): _age_s(one["oldest_due_at"], now) for one in views}
    yield mp.Metric("oldest_due_seconds", "How long the oldest waiting message has been due.", ages, ("destination",))
    paused: Samples = {(str(one["name"]),): float(one["paused"] is not None) for one in views}
    yield mp.Metric("paused", "1 while the destination is paused or has an outage.", paused, ("destination",))
    breakers: Samples = {(str(one["name"]),): float(one["breaker"] is not None) for one in views}
    yield mp.Metric("breaker_open", "1 while the destination's breaker is open or half-open.", breakers, ("destination",))


def _age_s(due: object, now: datetime) -> float:
    return 0.0 if due is None else max(0.0, (now - datetime.fromisoformat(str(due))).total_seconds())
