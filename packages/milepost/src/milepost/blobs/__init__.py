"""Blob stores: large values that are kept beside the ledger; and inboxes, into which others deliver
files."""

from __future__ import annotations

from milepost.blobs.addresses import open_blobs, open_inbox
from milepost.blobs.inbox import Inbox, InboxFile
from milepost.ports.blobs import Blobs

__all__ = ["Blobs", "Inbox", "InboxFile", "open_blobs", "open_inbox"]
