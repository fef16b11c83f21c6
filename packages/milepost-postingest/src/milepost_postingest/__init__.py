"""Postingest: follows assets after their ingest, onto disk in the repository, then onto tape, and sends notifications.

In milepost.toml: applications = ["postingest"], with its settings in [postingest]. In a route file or a program:

    from milepost.applications.postingest import postingest

    assets = postingest("queues.json")
"""

from __future__ import annotations

from milepost.applications.postingest.application import application
from milepost.applications.postingest.route import postingest

__all__ = ["application", "postingest"]
