"""Blobs in S3: whole or not at all, in one request or in parts."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from botocore.exceptions import ClientError, ReadTimeoutError

from milepost_aws.s3 import PART, S3Blobs

LARGE = [b"%07d," % n * 40_000 for n in range(64)]
"""20 MB in pieces, no two of the same content."""


@pytest.fixture
def s3(client: Callable[[str], Any]) -> Any:
    return client("s3")


@pytest.fixture
def bucket(s3: Any, prefix: str) -> str:
    """Buckets of all accounts share one space of names."""
    name = f"{prefix}-blobs"
    s3.create_bucket(
        Bucket=name, CreateBucketConfiguration={"LocationConstraint": s3.meta.region_name}
    )
    return name


@pytest.fixture
def blobs(s3: Any, bucket: str) -> S3Blobs:
    return S3Blobs(bucket, "milepost", s3)


def unfinished(s3: Any, bucket: str) -> list[str]:
    return [upload["Key"] for upload in s3.list_multipart_uploads(Bucket=bucket).get("Uploads", [])]


def whole(blobs: S3Blobs, name: str) -> bytes:
    return b"".join(blobs.read(name))


def test_what_was_written_is_read(blobs: S3Blobs, s3: Any) -> None:
    blobs.write("lists/one", iter([b"a", b"", b"b" * 1_000_000]))
    assert whole(blobs, "lists/one") == b"a" + b"b" * 1_000_000
    found = s3.head_object(Bucket=blobs.bucket, Key="milepost/lists/one", ChecksumMode="ENABLED")
    assert found["ContentLength"] == 1_000_001
    assert "ChecksumSHA256" in found
    S3Blobs(blobs.bucket, client=s3).write("bare", [])
    assert s3.head_object(Bucket=blobs.bucket, Key="bare")["ContentLength"] == 0


@pytest.mark.parametrize(
    ("size", "parts"), [(PART - 1, 0), (PART, 0), (PART + 1, 2), (2 * PART, 2)]
)
def test_what_is_over_one_part_goes_in_parts(
    blobs: S3Blobs, s3: Any, size: int, parts: int
) -> None:
    sent: list[int] = []
    s3.meta.events.register(
        "before-parameter-build.s3.UploadPart",
        lambda params, **_: sent.append(params["PartNumber"]),
    )
    blobs.write("x", [b"x" * size])
    assert sent == list(range(1, parts + 1))
    assert whole(blobs, "x") == b"x" * size


def test_twenty_megabytes_in_pieces(blobs: S3Blobs, s3: Any) -> None:
    blobs.write("large", iter(LARGE))
    read = list(blobs.read("large"))
    assert max(map(len, read)) < 1_000_000, "it comes in chunks"
    assert b"".join(read) == b"".join(LARGE)
    found = s3.head_object(Bucket=blobs.bucket, Key="milepost/large", ChecksumMode="ENABLED")
    assert found["ChecksumSHA256"].endswith("-3"), "a checksum over those of its three parts"
    assert unfinished(s3, blobs.bucket) == []


def test_writing_again_replaces_the_whole(blobs: S3Blobs) -> None:
    for content in (b"long content", b"y" * (PART + 5), b"short"):
        blobs.write("x", [content])
        assert whole(blobs, "x") == content


def test_there_is_none(blobs: S3Blobs) -> None:
    with pytest.raises(FileNotFoundError, match=r"there is no blob 'x' in the bucket .*-blobs"):
        blobs.read("x")


def test_removing_is_repeatable(blobs: S3Blobs) -> None:
    blobs.write("x", [b"1"])
    blobs.remove("x")
    blobs.remove("x")
    with pytest.raises(FileNotFoundError):
        blobs.read("x")


@pytest.mark.parametrize("size", [1_000, 20_000_000], ids=["one request", "in parts"])
def test_a_source_that_fails_leaves_what_was_there(blobs: S3Blobs, s3: Any, size: int) -> None:
    def failing() -> Iterator[bytes]:
        yield from itertools.repeat(b"x" * 1_000, size // 1_000)
        raise ValueError("the source is gone")

    blobs.write("x", [b"whole"])
    for name in ("x", "y"):
        with pytest.raises(ValueError, match="the source is gone"):
            blobs.write(name, failing())
    assert whole(blobs, "x") == b"whole"
    with pytest.raises(FileNotFoundError):
        blobs.read("y")
    assert unfinished(s3, blobs.bucket) == []


@pytest.mark.parametrize(
    ("operation", "number"), [("UploadPart", 2), ("CompleteMultipartUpload", 1)]
)
def test_an_upload_that_fails_in_the_middle_leaves_what_was_there(
    blobs: S3Blobs, s3: Any, operation: str, number: int
) -> None:
    calls = itertools.count(1)

    def fail(**_: Any) -> None:
        if next(calls) == number:
            assert unfinished(s3, blobs.bucket) == ["milepost/x"]
            raise ReadTimeoutError(endpoint_url="s3")

    blobs.write("x", [b"whole"])
    s3.meta.events.register(f"before-call.s3.{operation}", fail)
    with pytest.raises(
        OSError, match=r"the blob 'x' in the bucket .*-blobs cannot be written: Read timeout"
    ):
        blobs.write("x", iter(LARGE))
    assert next(calls) == number + 1, "nothing is sent after it"
    assert whole(blobs, "x") == b"whole"
    assert unfinished(s3, blobs.bucket) == []


def test_an_upload_that_cannot_be_ended_says_what_the_trouble_was(blobs: S3Blobs, s3: Any) -> None:
    def fail(**_: Any) -> None:
        raise ReadTimeoutError(endpoint_url="s3")

    s3.meta.events.register("before-call.s3.AbortMultipartUpload", fail)
    with pytest.raises(ZeroDivisionError):
        blobs.write("x", (b"x" * PART if n < 3 else b"%d" % (1 // 0) for n in range(4)))
    assert unfinished(s3, blobs.bucket) == ["milepost/x"]
    with pytest.raises(FileNotFoundError):
        blobs.read("x")


def test_other_troubles_are_told_as_those_of_a_folder(s3: Any) -> None:
    elsewhere = S3Blobs("no-such-bucket", client=s3)
    for act in (
        lambda: elsewhere.write("x", [b"1"]),
        lambda: elsewhere.read("x"),
        lambda: elsewhere.remove("x"),
    ):
        with pytest.raises(
            OSError,
            match=r"the blob 'x' in the bucket no-such-bucket cannot be \w+: .*NoSuchBucket",
        ) as caught:
            act()
        assert not isinstance(caught.value, FileNotFoundError)


def test_a_read_that_breaks_off_is_told(blobs: S3Blobs, s3: Any) -> None:
    class BreaksOff:
        closed = False

        def iter_chunks(self, size: int) -> Iterator[bytes]:
            yield b"x"
            raise ReadTimeoutError(endpoint_url="s3")

        def close(self) -> None:
            self.closed = True

    body = BreaksOff()
    blobs.write("x", [b"xyz"])
    s3.meta.events.register("after-call.s3.GetObject", lambda parsed, **_: parsed.update(Body=body))
    chunks = blobs.read("x")
    assert next(chunks) == b"x"
    with pytest.raises(
        OSError, match=r"the blob 'x' in the bucket .*-blobs cannot be read: Read timeout"
    ):
        next(chunks)
    assert body.closed


@pytest.mark.parametrize("name", ["", "..", "../x", "/etc/passwd", "a//b", "a b", "x" * 201])
def test_a_name_cannot_leave_the_prefix(blobs: S3Blobs, name: str) -> None:
    for act in (
        lambda: blobs.write(name, [b""]),
        lambda: blobs.read(name),
        lambda: blobs.remove(name),
    ):
        with pytest.raises(ValueError, match="not a valid blob name"):
            act()


def test_a_client_of_its_own(s3: Any, bucket: str, endpoint: str) -> None:
    own = S3Blobs(bucket, "/a/b/", endpoint=endpoint)
    own.write("x", [b"1"])
    assert s3.get_object(Bucket=bucket, Key="a/b/x")["Body"].read() == b"1"
    own._client.close()


def test_no_request_lasts_longer_than_the_function_that_makes_it(
    endpoint: str, s3: Any, bucket: str
) -> None:
    left = [900.0]
    blobs = S3Blobs(bucket, endpoint=endpoint, region=s3.meta.region_name, left=lambda: left[0])
    for seconds in (900.0, 100.0, 30.0, 10.0, 3.0):
        left[0] = seconds
        config = blobs._client.meta.config
        assert (
            config.retries["total_max_attempts"] * (config.connect_timeout + config.read_timeout)
            <= seconds
        )
        blobs.write("a", [b"x" * 10])
        assert whole(blobs, "a") == b"x" * 10
    left[0] = 1.0
    for act in (
        lambda: blobs.write("b", [b"y"]),
        lambda: blobs.read("a"),
        lambda: blobs.remove("a"),
    ):
        with pytest.raises(OSError, match="the function call is about to time out"):
            act()
    left[0] = 900.0
    assert whole(blobs, "a") == b"x" * 10
    with pytest.raises(FileNotFoundError):
        blobs.read("b")


def test_a_missing_permission_is_told_apart_from_other_problems(blobs: S3Blobs, s3: Any) -> None:
    def deny(**_: Any) -> Any:
        raise ClientError(
            {"Error": {"Code": "AccessDenied", "Message": "Access Denied"}}, "GetObject"
        )

    blobs.write("x", [b"x"])
    s3.meta.events.register("before-send.s3.GetObject", deny)
    with pytest.raises(
        PermissionError, match=r"the blob 'x' in the bucket .*-blobs cannot be read: .*AccessDenied"
    ):
        blobs.read("x")
