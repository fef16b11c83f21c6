"""Blob store and inbox from their addresses: s3://BUCKET/PREFIX or a folder."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator

from milepost.blobs.folder import FolderBlobs
from milepost.blobs.inbox import FolderInbox, Inbox
from milepost.core.errors import ConfigMistake, UsageError
from milepost.ports.blobs import Blobs


def open_blobs(
    place: str | None, region: str | None = None, endpoint: str | None = None, left: Callable[[], float] = lambda: math.inf
) -> Blobs:
    """The blob store of a ledger on AWS: s3://BUCKET/PREFIX, or a folder that all its processes share. Without a region or an endpoint
    boto3 uses its own configuration. `left`: seconds until the deadline."""
    if place is None:
        return NoBlobs("set MILEPOST_BLOBS to s3://BUCKET/PREFIX, or to a folder that every process can reach")
    if place.startswith("s3://"):
        from milepost_aws.s3 import S3Blobs

        return S3Blobs(*_in_s3(place), region=region, endpoint=endpoint, left=left)
    return FolderBlobs(place)


def open_inbox(place: str) -> Inbox:
    """The inbox at this place: s3://BUCKET/PREFIX or a folder. boto3 uses its own configuration."""
    if not place.startswith("s3://"):
        return FolderInbox(place)
    from milepost_aws.s3 import S3Inbox

    return S3Inbox(*_in_s3(place))


def _in_s3(place: str) -> tuple[str, str]:
    """Bucket and prefix of an address."""
    bucket, _, prefix = place.removeprefix("s3://").partition("/")
    if not bucket:
        raise UsageError(f"{place!r} names no bucket; write s3://BUCKET/PREFIX")
    return bucket, prefix


class NoBlobs:
    """Refuses to write a blob; `advice` names the setting to make."""

    def __init__(self, advice: str) -> None:
        self.advice = advice

    def write(self, name: str, chunks: Iterable[bytes]) -> None:
        raise ConfigMistake(f"a value is too large for its row, and no blob store is configured: {self.advice}")

    def read(self, name: str) -> Iterator[bytes]:
        raise FileNotFoundError(f"{name}: {self.advice}")

    def remove(self, name: str) -> None:
        """No-op: there are no blobs."""
