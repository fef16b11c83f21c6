"""Subscribers: each has a name, a cursor of its own, and a method `tell` (see `milepost.ports.subscriber`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from milepost.subscribers.call import CallSubscriber
from milepost.subscribers.log import LogSubscriber

if TYPE_CHECKING:
    from milepost.subscribers.webhook import WebhookSubscriber

__all__ = ["CallSubscriber", "LogSubscriber", "WebhookSubscriber"]


if not TYPE_CHECKING:  # a type checker would accept any name

    def __getattr__(name: str) -> Any:
        """Import the webhook at its first use: a process without one does not load the HTTP client."""
        if name != "WebhookSubscriber":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from milepost.subscribers.webhook import WebhookSubscriber

        return WebhookSubscriber
