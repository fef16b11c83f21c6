"""Route of notifications: one stage that delivers each message to its destination, with a lane for
each destination."""

from __future__ import annotations

from typing import Any

import milepost as mp
from milepost_client import KEY
from milepost_client.message import KEY_FORMS
from milepost_notifications.deliver import Deliverer
from milepost_notifications.destinations import STAGE, Destinations, LaneLimits
from milepost_notifications.operate.figures import parties_of
from milepost_notifications.settings import NotificationsSettings

SHORTEST_S = 60.0
"""Least time limit of a try: a destination that is added at run time may take longer than those of
the settings, but not longer than this."""
COLUMNS = (
    *KEY, "method", "attempts", "nextRetryAt", "retryHistory", "maxRetriesExceeded", "maxRetriesExceededAt",
)  # fmt: skip
"""Attributes with names of their own that each row has on AWS."""


def party(key: str) -> str:
    """Whom a message concerns: its sender and its target URL, as they are in its key."""
    return " ".join(parties_of(key))


def longest_try_s(destinations: Destinations) -> float:
    """Seconds that any try may take. A worker with a time limit of its own (AWS Lambda) starts no
    try that it could not end."""
    return max(
        SHORTEST_S, *(one.try_s for one in (destinations.unregistered, *destinations.all.values()))
    )


def notifications_route(
    settings: NotificationsSettings, destinations: Destinations, deliverer: Deliverer
) -> mp.Route:
    keep = dict.fromkeys(
        ("completed", "failed", "cancelled"), settings.retention
    )  # dead letters leave, too
    route = mp.Route(
        settings.route,
        key=KEY,
        key_forms=KEY_FORMS,
        keep=keep,
        remember=settings.remember,
        columns=COLUMNS,
    )

    def lane(content: Any) -> str:
        """Also a process that runs no services, such as a command, must know the destinations that
        were added to the ledger."""
        deliverer.keep_fresh()
        return destinations.lane_of(content["targetUrl"], content.get("senderId", ""))

    usual = destinations.unregistered
    route.stage(
        STAGE,
        retry=usual.retry,
        breaker=usual.breaker,
        timeout=longest_try_s(destinations),
        concurrency=settings.concurrency,
        lane=lane,
        lanes=LaneLimits(destinations),
        party=party,
        pauses=True,
    )(deliverer)
    return route
