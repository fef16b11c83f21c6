"""S3 objects read in parts, so that no connection has to stay open while a part is processed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from milepost.core.errors import LedgerError, LedgerMissing, MilepostError
from milepost.ledgers.aws.requests.client import AwsRefused, Requests

PART = 4 << 20


class ObjectGone(MilepostError):
    """The object was removed or replaced."""


def read_json(requests: Requests, bucket: str, key: str) -> dict[str, Any] | None:
    try:
        answer = requests.call("s3", "get_object", Bucket=bucket, Key=key)
    except (LedgerMissing, AwsRefused) as error:
        if isinstance(error, AwsRefused) and error.code not in ("NoSuchKey", "404"):
            raise
        return None
    found: dict[str, Any] = msgspec.json.decode(answer["Body"].read())
    return found


def write_json(requests: Requests, bucket: str, key: str, value: Mapping[str, Any]) -> None:
    body = msgspec.json.format(msgspec.json.encode(value), indent=2)
    requests.call("s3", "put_object", Bucket=bucket, Key=key, Body=body, ContentType="application/json")


class Object:
    """One object while it is read, from its beginning: the same version to its end, even if it is replaced in the meantime. ObjectGone if
    there is none."""

    def __init__(self, requests: Requests, bucket: str, key: str) -> None:
        self._requests, self._place = requests, {"Bucket": bucket, "Key": key}
        self.name = f"s3://{bucket}/{key}"
        self._etag: str | None = None
        self._held = b""
        self._next = 0
        self.size = 0
        self._fetch()

    def read(self, size: int, /) -> bytes:
        if not self._held and self._next < self.size:
            self._fetch()
        chunk, self._held = self._held[:size], self._held[size:]
        return chunk

    def _fetch(self) -> None:
        from botocore.exceptions import BotoCoreError

        same = {} if self._etag is None else {"IfMatch": self._etag}
        wanted = f"bytes={self._next}-{self._next + PART - 1}"
        try:
            answer = self._requests.call("s3", "get_object", **self._place, Range=wanted, **same)
            self._held = answer["Body"].read()
        except AwsRefused as error:
            if error.code == "InvalidRange" and self._next == 0:
                return  # empty object
            if error.code in ("NoSuchKey", "404", "PreconditionFailed", "412"):
                raise ObjectGone(f"{self.name} was removed or replaced before it was taken in") from error
            raise OSError(f"{self.name} cannot be read: {error}") from error
        except LedgerMissing as error:
            raise ObjectGone(f"{self.name} was removed before it was taken in") from error
        except (LedgerError, BotoCoreError) as error:
            raise OSError(f"{self.name} cannot be read: {error}") from error
        self._etag = answer["ETag"]
        self._next += len(self._held)
        self.size = int(answer["ContentRange"].rpartition("/")[2]) if "ContentRange" in answer else len(self._held)
