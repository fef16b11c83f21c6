"""Blobs as files in a folder. A blob appears complete, and is on disk when `write` returns."""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

CHUNK = 1 << 18

# No part may begin with a dot: this excludes '..' and reserves such names for unfinished files.
_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*(/[A-Za-z0-9_-][A-Za-z0-9._-]*)*")


def check_name(name: str) -> None:
    """Check that a blob's name stays inside its folder; ValueError describes valid names."""
    if len(name) > 200 or not _NAME.fullmatch(name):
        raise ValueError(
            f"{name!r} is not a valid blob name; use letters, digits, '-', '_' and '.', in parts joined by '/', none beginning with '.'"
        )


class FolderBlobs:
    """One file per blob under `path`; the folder is created with the first blob."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    def write(self, name: str, chunks: Iterable[bytes]) -> None:
        """Atomic, also in a power failure: written to a temporary file, synced, then renamed."""
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
        """Remove the blob, if it exists."""
        self._file(name).unlink(missing_ok=True)

    def _file(self, name: str) -> Path:
        check_name(name)
        return self.path / name


def _chunks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            yield chunk


def _make_folder(path: Path) -> None:
    """Create the folder and its parents; a new folder's entry in its parent is synced too, or the blob could be lost with it."""
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
