"""Blobs as files in a folder. A blob appears complete, and is on disk when `write` returns."""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

from milepost.core.values.file_modes import PRIVATE, READ_AND_WRITE, folder_mode

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
    """One file per blob under `path`; the folder is created with the first blob, with the
    permissions that files of `mode` need. Without a mode, blobs in an existing folder are as
    readable as the folder is, and those in a new one are private."""

    def __init__(self, path: str | os.PathLike[str], mode: int | None = None) -> None:
        self.path = Path(path)
        self._mode = mode

    def write(self, name: str, chunks: Iterable[bytes]) -> None:
        """Atomic, also in a power failure: written to a temporary file, synced, then renamed."""
        target = self._file(name)
        mode = self._file_mode()
        _make_folder(target.parent, folder_mode(mode))
        aside = target.parent / f".unfinished-{secrets.token_hex(8)}"
        try:
            with open(aside, "xb", opener=partial(os.open, mode=PRIVATE)) as file:
                os.fchmod(file.fileno(), mode)
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

    def _file_mode(self) -> int:
        if self._mode is not None:
            return self._mode
        return self.path.stat().st_mode & READ_AND_WRITE if self.path.is_dir() else PRIVATE

    def _file(self, name: str) -> Path:
        check_name(name)
        return self.path / name


def _chunks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            yield chunk


def _make_folder(path: Path, mode: int) -> None:
    """Create the folder and its parents; a new folder's entry in its parent is synced too, or the
    blob could be lost with it."""
    if path.is_dir():
        return
    _make_folder(path.parent, mode)
    with suppress(FileExistsError):
        path.mkdir(folder_mode(PRIVATE))
        path.chmod(mode)
    _sync_folder(path.parent)


def _sync_folder(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
