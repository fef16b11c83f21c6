"""Alerts of notifications: dead letters by cause and destination, open breakers, and destinations that answered 410."""

from __future__ import annotations

from shlex import quote
from urllib.parse import quote as url_quote
from urllib.parse import urlencode

import milepost as mp
from milepost.applications.notifications.destinations import PAUSED_BY
from milepost.applications.notifications.settings import NotificationsSettings


def alert_rules(settings: NotificationsSettings) -> list[mp.AlertRule]:
    """The rule for all messages; it is watched if [notifications.alerts] names a receiver."""
    given = settings.alerts
    return [
        mp.AlertRule(
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


def pointer(subject: mp.AlertSubject) -> mp.AlertPointer:
    """The command and the page of notifications that show more of an alert. Pure."""
    if subject.kind == "failures":
        chosen = {name: value for name, value in (("destination", subject.lane), ("cause", subject.group)) if value}
        options = "".join(f" --{name} {quote(value)}" for name, value in chosen.items())
        page = f"/notifications/messages?{urlencode({'status': 'failed', **chosen})}"
        return mp.AlertPointer(f"milepost notifications list --status failed{options}", page)
    if not subject.lane:
        return mp.AlertPointer("milepost notifications destinations", "/notifications")
    return mp.AlertPointer(
        f"milepost notifications destinations {quote(subject.lane)}",
        f"/notifications/destinations/{url_quote(subject.lane, safe='')}",
    )
