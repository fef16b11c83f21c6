"""Inbox under an S3 prefix: objects that others put, which appear as a whole."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, closing
from typing import Any, BinaryIO, cast

from milepost.blobs.inbox import InboxFile, parts_of
from milepost.blobs.s3 import LIMITS, as_os_errors, s3_client

_REPLACED = frozenset({"PreconditionFailed", "412", "NoSuchKey", "404"})
"""Error codes of S3 that mean: the object is not the one that was listed."""


class S3Inbox:
    """Objects under a prefix of a bucket. It needs s3:ListBucket, and s3:GetObject, s3:PutObject and s3:DeleteObject under the prefix."""

    def __init__(self, bucket: str, prefix: str = "", client: Any = None) -> None:
        self.bucket = bucket
        self.prefix = f"{prefix.strip('/')}/" if prefix.strip("/") else ""
        self._client = client or s3_client(None, None, LIMITS[0])

    def files(self, skip: Iterable[str] = ()) -> list[InboxFile]:
        skipped = set(skip)
        return [
            file
            for file in self._listed()
            if skipped.isdisjoint(parts_of(file.name)) and not any(part.startswith(".") for part in file.name.split("/"))
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
        return closing(cast(BinaryIO, io.BufferedReader(_ObjectStream(answer["Body"], subject), 1 << 18)))

    def move(self, file: InboxFile, to: str) -> bool:
        source = self._place(file.name)
        try:
            with as_os_errors(self._subject(file.name), "moved", gone=_REPLACED):
                if self._is_there(to):
                    raise FileExistsError(f"there is an object {self._subject(to)}")
                self._client.copy_object(**self._place(to), CopySource=source, CopySourceIfMatch=file.version)
                self._client.delete_object(**source, IfMatch=file.version)
        except FileNotFoundError:
            return False
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
