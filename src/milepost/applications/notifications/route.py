"""Route of notifications: one stage that delivers each message to its destination, with a lane for each destination."""

from __future__ import annotations

from typing import Any

import milepost as mp
from milepost.applications.notifications.deliver import Deliverer
from milepost.applications.notifications.destinations import Destinations, LaneLimits
from milepost.applications.notifications.settings import NotificationsSettings
from milepost.client import KEY

STAGE = "deliver"
COLUMNS = (
    *KEY, "method", "attempts", "nextRetryAt", "retryHistory", "maxRetriesExceeded", "maxRetriesExceededAt",
)  # fmt: skip
"""Attributes of the seed's table that each row has on AWS."""


def notifications_route(settings: NotificationsSettings, destinations: Destinations, deliverer: Deliverer) -> mp.Route:
    """The route of all messages."""
    route = mp.Route(settings.route, key=KEY, keep=settings.retention, remember=settings.remember, columns=COLUMNS)

    def lane(content: Any) -> str:
        return destinations.lane_of(content["targetUrl"])

    usual = destinations.unregistered
    route.stage(
        STAGE,
        retry=usual.retry,
        breaker=usual.breaker,
        concurrency=settings.concurrency,
        lane=lane,
        lanes=LaneLimits(destinations),
    )(deliverer)
    return route
