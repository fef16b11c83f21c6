"""Notifications: messages of business systems, delivered to partners' HTTP APIs with retries,
signatures and a full history.

In milepost.toml: applications = ["notifications"], with its settings in [notifications]; see
docs/guides/notifications.md.
"""

from __future__ import annotations

import logging

from milepost_notifications import api, pages
from milepost_notifications.application import application

__all__ = ["api", "application", "pages"]

# Whoever sets up the log of `milepost` has that of this package too.
logging.getLogger(__name__).parent = logging.getLogger("milepost")
