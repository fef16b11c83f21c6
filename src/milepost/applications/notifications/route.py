"""Route of notifications: one stage that delivers each message to its destination, with a lane for each destination."""

from __future__ import annotations

from typing import Any

import milepost as mp
from milepost.applications.notifications.deliver import Deliverer
from milepost.applications.notifications.destinations import Destination, Destinations, LaneLimits
from milepost.applications.notifications.settings import NotificationsSettings, OAuth2Auth
from milepost.client import KEY

STAGE = "deliver"
MARGIN_S, SHORTEST_S = 5.0, 60.0
"""Seconds beside a try's calls, and at least: a destination that is added at run time may take longer than those of the settings, but
not longer than this."""
COLUMNS = (
    *KEY, "method", "attempts", "nextRetryAt", "retryHistory", "maxRetriesExceeded", "maxRetriesExceededAt",
)  # fmt: skip
"""Attributes with names of their own that each row has on AWS."""


def try_s(destination: Destination) -> float:
    """Seconds that a try may take: the call itself; with OAuth 2.0 one for a token before it, and the same again with a fresh token."""
    return destination.timeouts.total * (4 if isinstance(destination.auth, OAuth2Auth) else 1) + MARGIN_S


def longest_try_s(destinations: Destinations) -> float:
    """Seconds that any try may take. A worker with a time limit of its own (AWS Lambda) starts no try that it could not end."""
    return max(SHORTEST_S, *map(try_s, (destinations.unregistered, *destinations.all.values())))


def notifications_route(settings: NotificationsSettings, destinations: Destinations, deliverer: Deliverer) -> mp.Route:
    route = mp.Route(settings.route, key=KEY, keep=settings.retention, remember=settings.remember, columns=COLUMNS)

    def lane(content: Any) -> str:
        """Also a process that runs no services, such as a command, must know the destinations that were added to the ledger."""
        if deliverer.keep_fresh is not None and destinations.stale:
            deliverer.keep_fresh()
        return destinations.lane_of(content["targetUrl"])

    usual = destinations.unregistered
    route.stage(
        STAGE,
        retry=usual.retry,
        breaker=usual.breaker,
        timeout=longest_try_s(destinations),
        concurrency=settings.concurrency,
        lane=lane,
        lanes=LaneLimits(destinations),
        pauses=True,
    )(deliverer)
    return route
