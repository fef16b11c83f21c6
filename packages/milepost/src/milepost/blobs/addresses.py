"""Blob store and inbox from their addresses: a folder, or a scheme that an installed package
adds."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from milepost.blobs.folder import FolderBlobs
from milepost.blobs.inbox import FolderInbox, Inbox
from milepost.core.errors import ConfigMistake, UsageError
from milepost.ports.blobs import Blobs
from milepost.ports.extensions import BLOBS, extension, missing_package


def open_blobs(
    address: str | None,
    region: str | None = None,
    endpoint: str | None = None,
    left: Callable[[], float] = lambda: math.inf,
) -> Blobs:
    """The blob store at this address: a folder that all processes of a ledger share, or what an
    installed package opens, such as s3://BUCKET/PREFIX. Without a region or an endpoint boto3 uses
    its own configuration. `left`: seconds until the deadline."""
    if address is None:
        return NoBlobs(
            "set MILEPOST_BLOBS to s3://BUCKET/PREFIX, or to a folder that every process can reach"
        )
    storage = _storage(address)
    if storage is None:
        return FolderBlobs(address)
    blobs: Blobs = storage.open_blobs(address, region=region, endpoint=endpoint, left=left)
    return blobs


def open_inbox(address: str) -> Inbox:
    """The inbox at this address: a folder, or what an installed package opens, such as
    s3://BUCKET/PREFIX."""
    storage = _storage(address)
    if storage is None:
        return FolderInbox(address)
    inbox: Inbox = storage.open_inbox(address)
    return inbox


def _storage(address: str) -> Any:
    """What opens the blobs and the inboxes of this address; None for a folder."""
    scheme, separator, _ = address.partition("://")
    if not separator:
        return None
    known = extension(BLOBS, scheme)
    if known is None:
        missing = missing_package(BLOBS, scheme)
        raise UsageError(
            f"the address {address!r} has an unknown form; {missing or 'write the path of a folder'}"
        )
    return known


class NoBlobs:
    """Refuses to write a blob; `advice` names the setting to make."""

    def __init__(self, advice: str) -> None:
        self.advice = advice

    def write(self, name: str, chunks: Iterable[bytes]) -> None:
        raise ConfigMistake(
            f"a value is too large for its row, and no blob store is configured: {self.advice}"
        )

    def read(self, name: str) -> Iterator[bytes]:
        raise FileNotFoundError(f"{name}: {self.advice}")

    def remove(self, name: str) -> None:
        """No-op: there are no blobs."""
