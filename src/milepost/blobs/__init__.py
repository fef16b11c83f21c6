"""Places for blobs: larger pieces that are kept beside the ledger."""

from __future__ import annotations

from milepost.blobs.places import open_blobs

__all__ = ["open_blobs"]
