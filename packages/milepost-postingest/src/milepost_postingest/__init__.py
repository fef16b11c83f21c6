"""Postingest: follows assets after their ingest, onto disk in the repository, then onto tape, and
sends notifications.

In milepost.toml: applications = ["postingest"], with its settings in [postingest]. In a route file
or a program:

    from milepost_postingest import postingest

    assets = postingest("queues.json")
"""

from __future__ import annotations

import logging

from milepost_postingest.application import application
from milepost_postingest.route import postingest

__all__ = ["application", "postingest"]

# Whoever sets up the log of `milepost` has that of this package too.
logging.getLogger(__name__).parent = logging.getLogger("milepost")
