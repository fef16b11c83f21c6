"""Blobs as files in a folder. A blob appears whole, and is on disk when `write` returns."""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

CHUNK = 1 << 18

# No part may begin with a dot: that keeps out '..', and leaves dotted names to our own unfinished files.
_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*(/[A-Za-z0-9_-][A-Za-z0-9._-]*)*")


def check_name(name: str) -> None:
    """A blob's name stays inside its folder; ValueError says how names are made."""
    if len(name) > 200 or not _NAME.fullmatch(name):
        raise ValueError(
            f"{name!r} is no name for a blob; use letters, digits, '-', '_' and '.', in parts joined by '/', none beginning with '.'"
        )


class FolderBlobs:
    """One file a blob under `path`; the folder is made when the first blob is written."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    def write(self, name: str, chunks: Iterable[bytes]) -> None:
        """Whole or not at all, also through a power cut: written aside, synced, then renamed into place."""
        target = self._file(name)
        _make_folder(target.parent)
        aside = target.parent / f".unfinished-{secrets.token_hex(8)}"
        try:
            with aside.open("xb") as file:
                for chunk in chunks:
                    file.write(chunk)
                file.flush()
                os.fsync(file.fileno())
            os.replace(aside, target)
        except BaseException:
            aside.unlink(missing_ok=True)
            raise
        _sync_folder(target.parent)

    def read(self, name: str) -> Iterator[bytes]:
        """The blob in chunks; FileNotFoundError, at once, if there is none."""
        file = self._file(name)
        file.stat()
        return _chunks(file)

    def remove(self, name: str) -> None:
        """The blob is gone; it does not matter whether it was there."""
        self._file(name).unlink(missing_ok=True)

    def _file(self, name: str) -> Path:
        check_name(name)
        return self.path / name


def _chunks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            yield chunk


def _make_folder(path: Path) -> None:
    """Make the folder and those above it; a new folder's entry in its parent is synced too, or the blob could be lost with it."""
    if path.is_dir():
        return
    _make_folder(path.parent)
    with suppress(FileExistsError):
        path.mkdir()
    _sync_folder(path.parent)


def _sync_folder(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
