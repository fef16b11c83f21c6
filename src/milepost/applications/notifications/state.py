"""State that the parts of the notifications application share in one process: destinations, deliverer, and the open ledger."""

from __future__ import annotations

import asyncio
from functools import partial

import milepost as mp
from milepost.applications.notifications.deliver import Deliverer
from milepost.applications.notifications.destinations import PAUSED_BY, Destinations
from milepost.applications.notifications.operate.collector import FigureCollector
from milepost.applications.notifications.operate.registry import keep_fresh
from milepost.applications.notifications.operate.senders import SenderLimits
from milepost.applications.notifications.route import STAGE, notifications_route
from milepost.applications.notifications.settings import NotificationsSettings


class NotificationsState:
    """Made once from the settings. `destinations` may be changed at run time; `route` is made of the same objects."""

    def __init__(self, settings: NotificationsSettings) -> None:
        self.settings = settings
        self.destinations = Destinations(settings)
        self.deliverer = Deliverer(settings, self.destinations)
        self.route = notifications_route(settings, self.destinations, self.deliverer)
        self.collector = FigureCollector()
        self.sender_limits = SenderLimits(settings)
        self.health_look: asyncio.Future[list[tuple[str, str]]] | None = None
        """The look at the service's health that is under way."""

    def open(self, app: mp.AppContext[NotificationsSettings]) -> None:
        """Use this ledger's clock and controls."""
        route = self.settings.route
        self.deliverer.clock = app.time
        self.deliverer.keep_fresh = partial(keep_fresh, app)
        self.deliverer.read_afresh = partial(keep_fresh, app, afresh=True)
        self.deliverer.pause = lambda lane, why: app.pause(route, STAGE, lane, by=PAUSED_BY, reason=why, own=True)
