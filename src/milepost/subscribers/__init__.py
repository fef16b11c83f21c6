"""Who is told: each subscriber has a name, a cursor of its own, and a `tell` (see `milepost.ports.subscriber`)."""

from __future__ import annotations

from milepost.subscribers.call import CallSubscriber
from milepost.subscribers.log import LogSubscriber
from milepost.subscribers.webhook import WebhookSubscriber

__all__ = ["CallSubscriber", "LogSubscriber", "WebhookSubscriber"]
