"""Assets after their ingest: on disk in an OCFL repository, then on tape. docs/guides/postingest.md leads through it."""

from __future__ import annotations

from milepost.applications.postingest import postingest

assets = postingest("queues.json")
