"""Pages of notifications."""

from __future__ import annotations

import milepost as mp
from milepost.applications.notifications.settings import NotificationsSettings


def add_pages(application: mp.Application[NotificationsSettings]) -> None:
    """Declare the pages."""
