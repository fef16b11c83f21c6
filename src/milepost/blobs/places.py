"""Blob store and inbox from their addresses: s3://BUCKET/PREFIX or a folder."""

from __future__ import annotations

import math
from collections.abc import Callable

from milepost.blobs.folder import FolderBlobs
from milepost.blobs.inbox import FolderInbox, Inbox
from milepost.blobs.nowhere import NoBlobs
from milepost.core.errors import UsageError
from milepost.ports.blobs import Blobs


def open_blobs(
    place: str | None, region: str | None = None, endpoint: str | None = None, left: Callable[[], float] = lambda: math.inf
) -> Blobs:
    """The blob store of a ledger on AWS: s3://BUCKET/PREFIX, or a folder that all its processes share. Without a region or an endpoint
    boto3 uses its own configuration. `left`: seconds until the deadline."""
    if place is None:
        return NoBlobs("set MILEPOST_BLOBS to s3://BUCKET/PREFIX, or to a folder that every process can reach")
    if place.startswith("s3://"):
        from milepost.blobs.s3 import S3Blobs

        bucket, _, prefix = place.removeprefix("s3://").partition("/")
        return S3Blobs(bucket, prefix, region=region, endpoint=endpoint, left=left)
    return FolderBlobs(place)


def open_inbox(place: str) -> Inbox:
    """The inbox at this place: s3://BUCKET/PREFIX or a folder. boto3 uses its own configuration."""
    if not place.startswith("s3://"):
        return FolderInbox(place)
    from milepost.blobs.s3_inbox import S3Inbox

    bucket, _, prefix = place.removeprefix("s3://").partition("/")
    if not bucket:
        raise UsageError(f"{place!r} names no bucket; write s3://BUCKET/PREFIX")
    return S3Inbox(bucket, prefix)
