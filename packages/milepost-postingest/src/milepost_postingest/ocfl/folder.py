"""An OCFL object's folder on disk: listings, whole files and sizes, in as few system calls as
possible."""

from __future__ import annotations

import errno
import os
from typing import NoReturn

from milepost_postingest.ocfl.inventory import Unsound

FILE, FOLDER, LINK, OTHER = "file", "folder", "link", "other"
"""The kinds of entries in a listing."""
OPEN_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
OPEN_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
PAGE = 1 << 15
"""More than the size of most inventories; a larger buffer costs more to allocate than it saves."""
NOT_SO = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EISDIR, errno.ENAMETOOLONG})
"""Error numbers for a path that does not exist, or is of another kind than expected. Any other
error (input/output error, stale handle, no permission, …) concerns the repository, and then nothing
is known about the object."""


class ObjectFolder:
    """An open object root: `number` is its file descriptor, `path` its path. The descriptor is the
    caller's to close.

    Files are read and measured relative to the descriptor, so that the system need not look up each
    folder above them. Folders are listed by their path: opening a folder first and listing it takes
    twice as many system calls. Every listing is consumed at once, which closes it.
    """

    __slots__ = ("number", "path")

    def __init__(self, number: int, path: str) -> None:
        self.number, self.path = number, path

    def root(self) -> dict[str, str]:
        """The entries of the object root, by name, with their kinds."""
        return _kinds([*os.scandir(self.number)])

    def listing(self, path: str) -> dict[str, str]:
        """The same of a folder below it. Raises Unsound if it is not a folder."""
        try:
            return _kinds([*os.scandir(f"{self.path}/{path}")])
        except OSError as error:
            not_so(error, path, "folder")

    def exists(self, path: str) -> bool:
        try:
            os.stat(path, dir_fd=self.number, follow_symlinks=False)
        except FileNotFoundError:
            return False
        except OSError as error:
            not_so(error, path, "file")
        return True

    def read(self, path: str, kind: str | None, what: str, code: str) -> bytes:
        """The whole file. `kind` is from its folder's listing: opening a pipe would block the
        worker. `code` is for a missing file."""
        if kind != FILE:
            raise Unsound(
                code,
                f"the {what} is missing" if kind is None else f"the {what} is not a file",
                path,
            )
        try:
            file = os.open(path, OPEN_FILE, dir_fd=self.number)
            try:
                data = os.read(file, PAGE)
                # A read returns less than requested only at the end of the file.
                return (
                    data
                    if len(data) < PAGE
                    else data + b"".join(iter(lambda: os.read(file, PAGE), b""))
                )
            finally:
                os.close(file)
        except OSError as error:
            not_so(error, path, what)

    def measure(self, top: str, sizes: dict[str, int], hollow: list[str]) -> None:
        """Add the size of every file below this folder to `sizes`, by path, and every empty folder
        below it to `hollow`. Raises Unsound if there is a link, or another kind of entry."""
        todo = [top]
        for path in todo:
            try:
                entries = [*os.scandir(f"{self.path}/{path}")]
                for entry in entries:
                    inner = f"{path}/{entry.name}"
                    if entry.is_file(follow_symlinks=False):
                        sizes[inner] = os.stat(
                            inner, dir_fd=self.number, follow_symlinks=False
                        ).st_size
                    elif entry.is_dir(follow_symlinks=False):
                        todo.append(inner)
                    else:
                        raise Unsound(
                            "E090", "what should be a file or a folder is something else", inner
                        )
            except OSError as error:
                not_so(error, path, "folder")
            if not entries and path != top:
                hollow.append(path)


def _kinds(entries: list[os.DirEntry[str]]) -> dict[str, str]:
    return {
        entry.name: FILE
        if entry.is_file(follow_symlinks=False)
        else FOLDER
        if entry.is_dir(follow_symlinks=False)
        else LINK
        if entry.is_symlink()
        else OTHER
        for entry in entries
    }


def not_so(error: OSError, path: str, what: str) -> NoReturn:
    """Raise Unsound if the error says that the path is missing or of another kind; else the error
    itself."""
    if error.errno not in NOT_SO:
        raise error
    said = (
        "is missing" if error.errno == errno.ENOENT else f"cannot be read as one ({error.strerror})"
    )
    raise Unsound("E092" if what == "file" else "E046", f"the {what} {said}", path) from error
