"""Alerts of notifications: dead letters by cause and destination, open breakers, and destinations that answered 410."""

from __future__ import annotations

import milepost as mp
from milepost.applications.notifications.settings import NotificationsSettings
from milepost.applications.notifications.state import PAUSED_BY


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
        )
    ]
