"""Subscribers: each has a name, a cursor of its own, and a method `tell` (see
`milepost.ports.subscriber`)."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from milepost.subscribers.in_process import CallSubscriber, LogSubscriber

if TYPE_CHECKING:
    from milepost.subscribers.addresses import open_subscriber
    from milepost.subscribers.email.subscriber import EmailSubscriber
    from milepost.subscribers.webhook import WebhookSubscriber

__all__ = [
    "CallSubscriber",
    "EmailSubscriber",
    "LogSubscriber",
    "WebhookSubscriber",
    "open_subscriber",
]

_HOMES = {
    "EmailSubscriber": "email.subscriber",
    "WebhookSubscriber": "webhook",
    "open_subscriber": "addresses",
}


if not TYPE_CHECKING:  # a type checker would accept any name

    def __getattr__(name: str) -> Any:
        """Import these at their first use: a process without a webhook does not load the HTTP
        client."""
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
