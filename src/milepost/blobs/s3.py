"""Blobs as objects in an S3 bucket. A blob appears whole, and is kept when `write` returns."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from typing import Any

from milepost.blobs.folder import CHUNK, check_name
from milepost.core.errors import UsageError

PART = 8 << 20
"""A blob up to this size is one request; a larger one goes in parts of it (S3 takes 10,000 of them: 78 GB)."""

Limits = tuple[int, float, float]
"""How often a request is tried, and the seconds after which it gives up connecting, and waiting for an answer."""
LIMITS: tuple[Limits, ...] = ((5, 3, 20), (2, 3, 20), (1, 3, 20), (1, 1, 5), (1, 0.5, 1.5))
"""The usual ones first; the others are for requests that are made shortly before the end of a function call."""
PAUSES_S = 20.0
"""As long as botocore waits between five tries, at most."""

_GONE = frozenset({"NoSuchKey", "404"})


class S3Blobs:
    """One object a blob, under `prefix` in `bucket`. What AWS refuses is told as an OSError, as a folder's troubles are.

    Whoever reads needs s3:ListBucket too: without it S3 says "access denied" where it means "there is none". Parts of an
    upload whose process died are seen by nobody, but paid for: give the bucket a rule that ends unfinished uploads.
    """

    def __init__(
        self,
        bucket: str,
        prefix: str = "",
        client: Any = None,
        *,
        region: str | None = None,
        endpoint: str | None = None,
        left: Callable[[], float] = lambda: math.inf,
    ) -> None:
        """`left`: how many seconds there are until the end of the work at hand; no request lasts longer."""
        self.bucket = bucket
        self.prefix = prefix.strip("/")
        self._given, self._region, self._endpoint, self._left = client, region, endpoint, left
        self._clients: dict[Limits, Any] = {}
        self._making = threading.Lock()
        if client is None:
            self._client_of(LIMITS[0])

    @property
    def _client(self) -> Any:
        """A client whose requests end in time. Raises OSError where there is no time for one."""
        if self._given is not None:
            return self._given
        left = self._left()
        for limits in LIMITS:
            if _longest_s(limits) <= left:
                return self._client_of(limits)
        raise OSError(f"the bucket {self.bucket} is not asked any more, since the function's time is nearly over")

    def _client_of(self, limits: Limits) -> Any:
        with self._making:
            if limits not in self._clients:
                self._clients[limits] = _client(self._region, self._endpoint, limits)
            return self._clients[limits]

    def write(self, name: str, chunks: Iterable[bytes]) -> None:
        """Whole or not at all. S3 compares a SHA-256 of what it received with that of what was sent."""
        place = self._place(name)
        parts = _parts_of(chunks)
        first, second = next(parts, b""), next(parts, None)
        if second is None:
            with self._trouble(name, "written"):
                self._client.put_object(**place, Body=first, ChecksumAlgorithm="SHA256")
        else:
            self._write_parts(name, place, _all(first, second, parts))

    def read(self, name: str) -> Iterator[bytes]:
        """The blob in chunks; FileNotFoundError, at once, if there is none."""
        place = self._place(name)
        with self._trouble(name, "read"):
            answer = self._client.get_object(**place, ChecksumMode="ENABLED")
        return self._chunks(name, answer["Body"])

    def remove(self, name: str) -> None:
        """The blob is gone; it does not matter whether it was there."""
        place = self._place(name)
        with self._trouble(name, "removed"):
            self._client.delete_object(**place)

    def _write_parts(self, name: str, place: dict[str, str], parts: Iterable[bytes]) -> None:
        with self._trouble(name, "written"):
            upload = {**place, "UploadId": self._client.create_multipart_upload(**place, ChecksumAlgorithm="SHA256")["UploadId"]}
        try:
            sent = []
            for number, part in enumerate(parts, start=1):
                with self._trouble(name, "written"):
                    answer = self._client.upload_part(**upload, PartNumber=number, Body=part, ChecksumAlgorithm="SHA256")
                sent.append({"PartNumber": number, "ETag": answer["ETag"], "ChecksumSHA256": answer["ChecksumSHA256"]})
            with self._trouble(name, "written"):
                self._client.complete_multipart_upload(**upload, MultipartUpload={"Parts": sent})
        except BaseException:
            # The trouble is what counts here. An upload that cannot be ended now is ended by the bucket's rule.
            with suppress(Exception):
                self._client.abort_multipart_upload(**upload)
            raise

    def _chunks(self, name: str, body: Any) -> Iterator[bytes]:
        with closing(body), self._trouble(name, "read"):
            yield from body.iter_chunks(CHUNK)

    def _place(self, name: str) -> dict[str, str]:
        check_name(name)
        return {"Bucket": self.bucket, "Key": f"{self.prefix}/{name}" if self.prefix else name}

    @contextmanager
    def _trouble(self, name: str, act: str) -> Iterator[None]:
        """What botocore raises, as an OSError that says which blob could not be read, written or removed."""
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            yield
        except ClientError as error:
            if error.response.get("Error", {}).get("Code") in _GONE:
                raise FileNotFoundError(f"there is no blob {name!r} in the bucket {self.bucket}") from None
            raise OSError(f"the blob {name!r} in the bucket {self.bucket} cannot be {act}: {error}") from error
        except BotoCoreError as error:
            raise OSError(f"the blob {name!r} in the bucket {self.bucket} cannot be {act}: {error}") from error


def _parts_of(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The same bytes, cut anew: every part but the last is PART long, and none is empty."""
    held = bytearray()
    for chunk in chunks:
        held += chunk
        while len(held) >= PART:
            yield bytes(held[:PART])
            del held[:PART]
    if held:
        yield bytes(held)


def _all(first: bytes, second: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    yield first
    yield second
    yield from rest


def _longest_s(limits: Limits) -> float:
    """How long one request may take with these limits, all tries and the pauses between them included."""
    tries, connect_s, read_s = limits
    return tries * (connect_s + read_s) + PAUSES_S * (tries - 1) / 4


def _client(region: str | None, endpoint: str | None, limits: Limits) -> Any:
    try:
        import boto3
        from botocore.config import Config
    except ImportError:
        raise UsageError("blobs in S3 need boto3, which is not installed: pip install 'milepost[aws]'") from None
    tries, connect_s, read_s = limits
    # Every request here may be repeated without harm, and nobody above tries again: botocore does.
    config = Config(retries={"mode": "standard", "total_max_attempts": tries}, connect_timeout=connect_s, read_timeout=read_s)
    return boto3.client("s3", region_name=region, endpoint_url=endpoint, config=config)
