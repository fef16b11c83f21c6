"""Assets after their ingest: on disk in the repository, then on tape, and everyone concerned is told.

from milepost.applications.postingest import postingest

assets = postingest("queues.json")
"""

from __future__ import annotations

from milepost.applications.postingest.route import postingest

__all__ = ["postingest"]
