"""Blob stores: large values that are kept beside the ledger."""

from __future__ import annotations

from milepost.blobs.places import open_blobs

__all__ = ["open_blobs"]
