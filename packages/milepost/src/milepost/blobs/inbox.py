"""Inbox: files that others deliver into a folder or an S3 prefix, to be listed, read, and moved
without overwriting another."""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import BinaryIO, Protocol

from msgspec import Struct


class InboxFile(Struct, frozen=True):
    """A delivered file. `name` is its path within the inbox. `version` changes whenever its content
    may have changed. `modified_at`, in seconds since 1970, is when a part of it was written last;
    None where a file appears as a whole (S3)."""

    name: str
    size: int
    version: str
    modified_at: float | None = None


class Inbox(Protocol):
    """A folder or an S3 prefix into which others deliver files. Errors are OSErrors."""

    def files(self, skip: Iterable[str] = ()) -> list[InboxFile]:
        """All files, in the order of their names, except hidden ones and those in the folders of
        `skip`. FileNotFoundError: there is no such folder or bucket."""

    def open(self, file: InboxFile) -> AbstractContextManager[BinaryIO]:
        """The file's bytes. FileNotFoundError: it was removed or replaced."""

    def move(self, file: InboxFile, to: str) -> bool:
        """Give the file another name within the inbox. FileExistsError: there is one of that name.
        False: it was removed or replaced since it was listed, and is left alone."""

    def write(self, name: str, content: bytes) -> None:
        """Write a file of our own, such as a report."""


class FolderInbox:
    """Files in a folder and its sub-folders."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    def files(self, skip: Iterable[str] = ()) -> list[InboxFile]:
        if not self.path.is_dir():
            raise FileNotFoundError(f"there is no folder {str(self.path)!r}")
        skipped = {self.path / name for name in skip}
        found: list[InboxFile] = []
        for folder, folders, names in os.walk(self.path):
            folders[:] = [
                name
                for name in folders
                if not name.startswith(".") and Path(folder, name) not in skipped
            ]
            for name in names:
                if not name.startswith("."):
                    with suppress(FileNotFoundError):
                        found.append(
                            self._look((Path(folder, name)).relative_to(self.path).as_posix())
                        )
        return sorted(found, key=lambda file: file.name)

    def open(self, file: InboxFile) -> AbstractContextManager[BinaryIO]:
        return (self.path / file.name).open("rb")

    def move(self, file: InboxFile, to: str) -> bool:
        source, target = self.path / file.name, self.path / to
        try:
            if self._look(file.name).version != file.version:
                return False
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                # A link fails where the name is taken; a rename would replace what is there.
                os.link(source, target)
            except (FileExistsError, FileNotFoundError):
                raise
            except OSError:
                # Some file systems have no links.
                if target.exists():
                    raise FileExistsError(f"there is a file {str(target)!r}") from None
                source.rename(target)
                return True
            if self._look(to).version != file.version:
                # Replaced in this moment: the link is to the new file, which has not been read.
                target.unlink()
                return False
            self._remove(file)
        except FileNotFoundError:
            return False
        return True

    def _remove(self, file: InboxFile) -> None:
        """Remove the old name of a moved file. A file that was delivered under that name meanwhile
        stays."""
        source = self.path / file.name
        aside = source.with_name(f".{secrets.token_hex(8)}")
        source.rename(aside)
        if self._look(aside.relative_to(self.path).as_posix()).version != file.version:
            try:
                os.link(aside, source)
            except FileExistsError:
                os.link(aside, source.with_name(f"{secrets.token_hex(4)}-{source.name[-200:]}"))
        aside.unlink()

    def write(self, name: str, content: bytes) -> None:
        target = self.path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)

    def _look(self, name: str) -> InboxFile:
        facts = (self.path / name).stat()
        if not stat.S_ISREG(facts.st_mode):
            raise FileNotFoundError(f"{name!r} is no file: a pipe, for example, may never end")
        return InboxFile(
            name,
            facts.st_size,
            f"{facts.st_ino}-{facts.st_size}-{facts.st_mtime_ns}",
            facts.st_mtime,
        )


def parts_of(name: str) -> Iterator[str]:
    """The folders that a name within an inbox is in, and the name itself: "a", "a/b",
    "a/b/c.csv"."""
    parts = name.split("/")
    return ("/".join(parts[:count]) for count in range(1, len(parts) + 1))
