"""S3: blobs as objects in a bucket, and an inbox under a prefix. A blob appears complete, and is
durable when `write` returns."""

from __future__ import annotations

import io
import math
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from itertools import chain
from typing import Any, BinaryIO, cast

from milepost.blobs.folder import CHUNK, check_name
from milepost.blobs.inbox import InboxFile, parts_of
from milepost.core.errors import UsageError

PART = 8 << 20
"""A blob up to this size is one request; a larger one is uploaded in parts of it (S3 accepts 10,000
of them: 78 GB)."""

Limits = tuple[int, float, float]
"""Tries of a request, and its connect and read timeouts in seconds."""
LIMITS: tuple[Limits, ...] = ((5, 3, 20), (2, 3, 20), (1, 3, 20), (1, 1, 5), (1, 0.5, 1.5))
"""The usual limits first; the others are for requests shortly before the end of a function call."""
PAUSES_S = 20.0
"""Longest total pause of botocore between five tries."""

_DENIED = frozenset({"AccessDenied", "403"})
_GONE = frozenset({"NoSuchKey", "404"})
_REPLACED = frozenset({"PreconditionFailed", "412", "NoSuchKey", "404"})
"""Error codes of S3 that mean: the object is not the one that was listed."""


def open_blobs(
    address: str,
    *,
    region: str | None = None,
    endpoint: str | None = None,
    left: Callable[[], float] = lambda: math.inf,
) -> S3Blobs:
    """The blob store of s3://BUCKET/PREFIX."""
    return S3Blobs(*_in_s3(address), region=region, endpoint=endpoint, left=left)


def open_inbox(address: str) -> S3Inbox:
    """The inbox of s3://BUCKET/PREFIX. boto3 uses its own configuration."""
    return S3Inbox(*_in_s3(address))


def _in_s3(address: str) -> tuple[str, str]:
    """Bucket and prefix of an address."""
    bucket, _, prefix = address.removeprefix("s3://").partition("/")
    if not bucket:
        raise UsageError(f"{address!r} names no bucket; write s3://BUCKET/PREFIX")
    return bucket, prefix


class S3Blobs:
    """One object per blob, under `prefix` in `bucket`. Errors of AWS are raised as OSError, like
    those of a folder.

    Reading needs s3:ListBucket too: without it S3 answers "access denied" for a missing object.
    Parts of an upload whose process died are invisible but charged: give the bucket a lifecycle
    rule that aborts incomplete uploads.
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
        """`left`: seconds until the deadline; no request lasts longer."""
        self.bucket = bucket
        self.prefix = prefix.strip("/")
        self._given, self._region, self._endpoint, self._left = client, region, endpoint, left
        self._clients: dict[Limits, Any] = {}
        self._making = threading.Lock()
        if client is None:
            self._client_of(LIMITS[0])

    @property
    def _client(self) -> Any:
        """A client whose requests end before the deadline. Raises OSError where there is no time
        for one."""
        if self._given is not None:
            return self._given
        left = self._left()
        for limits in LIMITS:
            if _longest_s(limits) <= left:
                return self._client_of(limits)
        raise OSError(f"no request to bucket {self.bucket}: the function call is about to time out")

    def _client_of(self, limits: Limits) -> Any:
        with self._making:
            if limits not in self._clients:
                self._clients[limits] = s3_client(self._region, self._endpoint, limits)
            return self._clients[limits]

    def write(self, name: str, chunks: Iterable[bytes]) -> None:
        """Atomic. S3 compares a SHA-256 of the received content with the one that was sent."""
        place = self._place(name)
        parts = _parts_of(chunks)
        first, second = next(parts, b""), next(parts, None)
        if second is None:
            with self._os_errors(name, "written"):
                self._client.put_object(**place, Body=first, ChecksumAlgorithm="SHA256")
        else:
            self._write_parts(name, place, chain((first, second), parts))

    def read(self, name: str) -> Iterator[bytes]:
        """The blob in chunks; FileNotFoundError, at once, if there is none."""
        place = self._place(name)
        with self._os_errors(name, "read"):
            answer = self._client.get_object(**place, ChecksumMode="ENABLED")
        return self._chunks(name, answer["Body"])

    def remove(self, name: str) -> None:
        """Remove the blob, if it exists."""
        place = self._place(name)
        with self._os_errors(name, "removed"):
            self._client.delete_object(**place)

    def _write_parts(self, name: str, place: dict[str, str], parts: Iterable[bytes]) -> None:
        with self._os_errors(name, "written"):
            upload = {
                **place,
                "UploadId": self._client.create_multipart_upload(
                    **place, ChecksumAlgorithm="SHA256"
                )["UploadId"],
            }
        try:
            sent = []
            for number, part in enumerate(parts, start=1):
                with self._os_errors(name, "written"):
                    answer = self._client.upload_part(
                        **upload, PartNumber=number, Body=part, ChecksumAlgorithm="SHA256"
                    )
                sent.append(
                    {
                        "PartNumber": number,
                        "ETag": answer["ETag"],
                        "ChecksumSHA256": answer["ChecksumSHA256"],
                    }
                )
            with self._os_errors(name, "written"):
                self._client.complete_multipart_upload(**upload, MultipartUpload={"Parts": sent})
        except BaseException:
            # Raise the original error. The bucket's lifecycle rule aborts an upload that cannot be
            # aborted now.
            with suppress(Exception):
                self._client.abort_multipart_upload(**upload)
            raise

    def _chunks(self, name: str, body: Any) -> Iterator[bytes]:
        with closing(body), self._os_errors(name, "read"):
            yield from body.iter_chunks(CHUNK)

    def _place(self, name: str) -> dict[str, str]:
        check_name(name)
        return {"Bucket": self.bucket, "Key": f"{self.prefix}/{name}" if self.prefix else name}

    def _os_errors(self, name: str, act: str) -> AbstractContextManager[None]:
        """Raise botocore's errors as an OSError that names the blob and the operation."""
        return as_os_errors(f"the blob {name!r} in the bucket {self.bucket}", act)


@contextmanager
def as_os_errors(subject: str, act: str, gone: frozenset[str] = _GONE) -> Iterator[None]:
    """Raise botocore's errors as an OSError that names the object and the operation;
    FileNotFoundError for the codes in `gone`, PermissionError for a denied request."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    except ClientError as error:
        code = error.response.get("Error", {}).get("Code")
        if code in gone:
            raise FileNotFoundError(f"there is no {subject.removeprefix('the ')}") from None
        raise (PermissionError if code in _DENIED else OSError)(
            f"{subject} cannot be {act}: {error}"
        ) from error
    except BotoCoreError as error:
        raise OSError(f"{subject} cannot be {act}: {error}") from error


def _parts_of(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The same bytes in new chunks: every part except the last has the length PART, and none is
    empty."""
    held = bytearray()
    for chunk in chunks:
        held += chunk
        while len(held) >= PART:
            yield bytes(held[:PART])
            del held[:PART]
    if held:
        yield bytes(held)


def _longest_s(limits: Limits) -> float:
    """Maximum duration of one request with these limits, with all tries and pauses."""
    tries, connect_s, read_s = limits
    return tries * (connect_s + read_s) + PAUSES_S * (tries - 1) / 4


def s3_client(region: str | None, endpoint: str | None, limits: Limits) -> Any:
    """A boto3 client of S3 with these limits; it repeats a request that may succeed later."""
    import boto3
    from botocore.config import Config

    tries, connect_s, read_s = limits
    # Every request here is idempotent, and no caller retries: botocore does.
    config = Config(
        retries={"mode": "standard", "total_max_attempts": tries},
        connect_timeout=connect_s,
        read_timeout=read_s,
    )
    return boto3.client("s3", region_name=region, endpoint_url=endpoint, config=config)


# Inbox --------------------------------------------------------------------------------------------
class S3Inbox:
    """Objects under a prefix of a bucket. It needs s3:ListBucket, and s3:GetObject, s3:PutObject
    and s3:DeleteObject under the prefix."""

    def __init__(self, bucket: str, prefix: str = "", client: Any = None) -> None:
        self.bucket = bucket
        self.prefix = f"{prefix.strip('/')}/" if prefix.strip("/") else ""
        self._client = client or s3_client(None, None, LIMITS[0])

    def files(self, skip: Iterable[str] = ()) -> list[InboxFile]:
        skipped = set(skip)
        return [
            file
            for file in self._listed()
            if skipped.isdisjoint(parts_of(file.name))
            and not any(part.startswith(".") for part in file.name.split("/"))
        ]

    def _listed(self) -> Iterator[InboxFile]:
        more: dict[str, str] = {}
        while True:
            with as_os_errors(f"the bucket {self.bucket}", "listed"):
                page = self._client.list_objects_v2(Bucket=self.bucket, Prefix=self.prefix, **more)
            for entry in page.get("Contents", ()):
                name = entry["Key"].removeprefix(self.prefix)
                if name and not name.endswith("/"):
                    yield InboxFile(name, entry["Size"], entry["ETag"])
            if not page.get("IsTruncated"):
                return
            more = {"ContinuationToken": page["NextContinuationToken"]}

    def open(self, file: InboxFile) -> AbstractContextManager[BinaryIO]:
        subject = self._subject(file.name)
        with as_os_errors(subject, "read", gone=_REPLACED):
            answer = self._client.get_object(**self._place(file.name), IfMatch=file.version)
        return closing(
            cast(BinaryIO, io.BufferedReader(_ObjectStream(answer["Body"], subject), 1 << 18))
        )

    def move(self, file: InboxFile, to: str) -> bool:
        source = self._place(file.name)
        try:
            with as_os_errors(self._subject(file.name), "moved", gone=_REPLACED):
                if self._is_there(to):
                    raise FileExistsError(f"there is an object {self._subject(to)}")
                self._client.copy_object(
                    **self._place(to), CopySource=source, CopySourceIfMatch=file.version
                )
        except FileNotFoundError:
            return False
        # An object that was put under that name since the copy stays.
        with (
            suppress(FileNotFoundError),
            as_os_errors(self._subject(file.name), "moved", gone=_REPLACED),
        ):
            self._client.delete_object(**source, IfMatch=file.version)
        return True

    def write(self, name: str, content: bytes) -> None:
        with as_os_errors(self._subject(name), "written"):
            self._client.put_object(**self._place(name), Body=content, ChecksumAlgorithm="SHA256")

    def _is_there(self, name: str) -> bool:
        try:
            with as_os_errors(self._subject(name), "looked at", gone=_REPLACED):
                self._client.head_object(**self._place(name))
        except FileNotFoundError:
            return False
        return True

    def _place(self, name: str) -> dict[str, str]:
        return {"Bucket": self.bucket, "Key": f"{self.prefix}{name}"}

    def _subject(self, name: str) -> str:
        return f"s3://{self.bucket}/{self.prefix}{name}"


class _ObjectStream(io.RawIOBase):
    """The body of an object as a file; botocore's errors are OSErrors."""

    def __init__(self, body: Any, subject: str) -> None:
        self._body, self._subject = body, subject

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        with as_os_errors(self._subject, "read"):
            chunk: bytes = self._body.read(len(buffer))
        buffer[: len(chunk)] = chunk
        return len(chunk)

    def close(self) -> None:
        self._body.close()
        super().close()
