"""Subscribers: each has a name, a cursor of its own, and a method `tell` (see
`milepost.ports.subscriber`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from milepost.lazy_names import importer
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
    "subscribers.addresses": ("open_subscriber",),
    "subscribers.email.subscriber": ("EmailSubscriber",),
    "subscribers.webhook": ("WebhookSubscriber",),
}
"""Imported at their first use: a process without a webhook does not load the HTTP client."""


if not TYPE_CHECKING:  # a type checker would accept any name
    __getattr__ = importer(__name__, _HOMES)
