"""Blobs: whole or not at all, and never outside their folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from milepost.blobs.folder import FolderBlobs
from milepost.blobs.memory import MemoryBlobs
from milepost.ports.blobs import Blobs


@pytest.fixture(params=["folder", "memory"])
def blobs(request: pytest.FixtureRequest, tmp_path: Path) -> Blobs:
    makers: dict[str, Callable[[], Blobs]] = {
        "folder": lambda: FolderBlobs(tmp_path / "deep" / "blobs"),
        "memory": MemoryBlobs,
    }
    return makers[request.param]()


def test_what_was_written_is_read(blobs: Blobs) -> None:
    blobs.write("lists/one", iter([b"a", b"", b"b" * 1_000_000]))
    assert b"".join(blobs.read("lists/one")) == b"a" + b"b" * 1_000_000


def test_an_empty_blob_is_a_blob(blobs: Blobs) -> None:
    blobs.write("empty", [])
    assert b"".join(blobs.read("empty")) == b""


def test_writing_again_replaces_the_whole(blobs: Blobs) -> None:
    blobs.write("x", [b"long content"])
    blobs.write("x", [b"short"])
    assert b"".join(blobs.read("x")) == b"short"


def test_a_write_that_fails_leaves_what_was_there(blobs: Blobs) -> None:
    def failing() -> Iterator[bytes]:
        yield b"half"
        raise OSError("the network is gone")

    blobs.write("x", [b"whole"])
    for name in ("x", "y"):
        with pytest.raises(OSError, match="the network is gone"):
            blobs.write(name, failing())
    assert b"".join(blobs.read("x")) == b"whole"
    with pytest.raises(FileNotFoundError):
        blobs.read("y")


def test_a_failed_write_leaves_no_litter(tmp_path: Path) -> None:
    blobs = FolderBlobs(tmp_path)
    with pytest.raises(ZeroDivisionError):
        blobs.write("x", (b"%d" % (1 // zero) for zero in [0]))
    assert list(tmp_path.iterdir()) == []


def test_removing_is_repeatable(blobs: Blobs) -> None:
    blobs.write("x", [b"1"])
    blobs.remove("x")
    blobs.remove("x")
    with pytest.raises(FileNotFoundError):
        blobs.read("x")


@pytest.mark.parametrize(
    "name",
    [
        "",
        "..",
        "../x",
        "a/../b",
        "/etc/passwd",
        "a//b",
        "a/",
        ".hidden",
        "a/.b",
        "a\\b",
        "a\0b",
        "a b",
        "ü",
        "x" * 201,
    ],
)
def test_a_name_cannot_leave_the_folder(blobs: Blobs, name: str) -> None:
    for act in (
        lambda: blobs.write(name, [b""]),
        lambda: blobs.read(name),
        lambda: blobs.remove(name),
    ):
        with pytest.raises(ValueError, match="not a valid blob name"):
            act()
