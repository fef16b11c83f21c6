"""One OCFL object on disk: read through its open folder, and held against what its inventory says."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Mapping
from operator import attrgetter
from typing import NoReturn

from msgspec import Struct

from milepost.routes.postingest.inventory import (
    DIGESTS,
    EMPTY,
    NAME,
    Entry,
    Inventory,
    Unsound,
    check_sidecar,
    head_entries,
    read_inventory,
)

MUTABLE_HEAD = "extensions/0005-mutable-head"
CHUNK = 1 << 20
PAGE = 1 << 15
"""More than most inventories have; more at once costs more to set aside than to read."""
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
NOT_SO = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EISDIR, errno.ENAMETOOLONG})
"""What the system says of a path that leads nowhere, or to something else than was expected there. Anything else that it may
say (input/output error, stale handle, no permission, …) is about the repository, and nothing is known of the object then."""

_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
_by_place = attrgetter("content", "logical")
_OBJECTS = {f"0=ocfl_object_{version}": version for version in ("1.0", "1.1")}


class File(Struct, frozen=True, gc=False):
    logical: str
    """Its name in the object's newest version."""
    path: str
    """Where it is below the storage root."""
    digest: str
    bytes: int


class Found(Struct, frozen=True):
    """The object is there, whole and at rest; `fixity`: and each file was read and has the digest that it should have."""

    version: str
    spec: str
    object_root: str
    algorithm: str
    files: list[File]
    fixity: bool


class Missing(Struct, frozen=True):
    """The repository is there, and the object is not."""

    object_root: str


class Staged(Struct, frozen=True):
    """The object has changes that are not committed yet: its paths are going to change."""

    object_root: str


class Empty(Struct, frozen=True):
    """The object's newest version has no files."""

    object_root: str
    version: str


class Damaged(Struct, frozen=True):
    """Something about the object is not as it should be: what, and where below the storage root."""

    object_root: str
    what: str
    where: str


Answer = Found | Missing | Staged | Empty | Damaged


def inspect(folder: int, object_id: str, place: str, fixity: bool) -> Answer:
    """`folder` is the open object root: whatever is renamed meanwhile, all that is read belongs to the same one."""
    with os.scandir(folder) as found:
        names = {entry.name: entry for entry in found}
    if "extensions" in names and _found(folder, MUTABLE_HEAD) is not None:
        return Staged(place)
    spec = _declared(names)
    data = _read(folder, NAME, "inventory", _is_file(names, NAME))
    inventory = read_inventory(data, object_id)
    sidecar = f"{NAME}.{inventory.digest_algorithm}"
    check_sidecar(data, _read(folder, sidecar, "inventory's sidecar", _is_file(names, sidecar)), inventory.digest_algorithm)
    if inventory.spec != spec:
        raise Unsound(f"the inventory is of OCFL {inventory.spec}, and the object's declaration says {spec}")
    for name in names:
        if name[0] == "v" and name[1:].isdecimal() and name not in inventory.versions:
            raise Unsound(f"the object has a version {name} that its inventory does not know", name)
    own = f"{inventory.head}/{NAME}"
    there = _found(folder, own)
    if there is not None and _read(folder, own, "newest version's inventory", stat.S_ISREG(there.st_mode)) != data:
        raise Unsound(f"the inventory is not the same as that of its newest version, {inventory.head}", own)
    if not inventory.versions[inventory.head].state:
        return Empty(place, inventory.head)
    files = _files(folder, place, inventory, fixity)
    return Found(inventory.head, spec, place, inventory.digest_algorithm, files, fixity)


def _declared(names: Mapping[str, os.DirEntry[str]]) -> str:
    """The version of OCFL that the object's one declaration names. It holds its own name and a line's end: if it has another
    size, it was not written to its end."""
    declared = [name for name in names if name.startswith("0=")]
    spec = _OBJECTS.get(declared[0]) if len(declared) == 1 else None
    if spec is None:
        raise Unsound(f"the object's folder has {', '.join(sorted(declared)) or 'no declaration'}, expected {' or '.join(_OBJECTS)}", "")
    found = names[declared[0]].stat(follow_symlinks=False)
    if not stat.S_ISREG(found.st_mode) or found.st_size != len(f"ocfl_object_{spec}\n"):
        raise Unsound("the object's declaration is not a file of the size that it should have", declared[0])
    return spec


def _files(folder: int, place: str, inventory: Inventory, fixity: bool) -> list[File]:
    """The newest version's files, in the order of their paths, each of them seen on disk."""
    sizes: dict[str, int] = {}
    folders: set[str] = set()
    files = []
    for entry in sorted(head_entries(inventory), key=_by_place):
        if entry.content not in sizes:
            parent = entry.content.rpartition("/")[0]
            if parent not in folders:
                _check_folders(folder, parent, folders)
            sizes[entry.content] = _check_file(folder, entry, inventory.digest_algorithm, fixity)
        files.append(File(entry.logical, f"{place}/{entry.content}", entry.digest, sizes[entry.content]))
    return files


def _check_folders(folder: int, path: str, seen: set[str]) -> None:
    """A link on the way to a file would lead out of the object."""
    while path and path not in seen:
        seen.add(path)
        if not stat.S_ISDIR(_stat(folder, path, "folder").st_mode):
            raise Unsound("what should be a folder with content is a link or a file", path)
        path = path.rpartition("/")[0]


def _check_file(folder: int, entry: Entry, algorithm: str, fixity: bool) -> int:
    """The file's size. Without reading it, only this can be wrong: it is gone, no file, or empty where it must not be."""
    found = _stat(folder, entry.content, "file")
    if not stat.S_ISREG(found.st_mode):
        raise Unsound("what should be a file is something else", entry.content)
    if (found.st_size == 0) != (entry.digest == EMPTY[algorithm]):
        raise Unsound(
            f"the file has {found.st_size} bytes, and the inventory's digest is {'not ' if found.st_size == 0 else ''}that of nothing",
            entry.content,
        )
    if fixity and (digest := _digest(folder, entry.content, algorithm, found.st_size)) != entry.digest:
        raise Unsound(f"the file's {algorithm} digest is {digest}, and the inventory says {entry.digest}", entry.content)
    return found.st_size


def _digest(folder: int, path: str, algorithm: str, size: int) -> str:
    digest = DIGESTS[algorithm]()
    chunk = memoryview(bytearray(min(CHUNK, size + 1)))
    try:
        with open(path, "rb", buffering=0, opener=lambda name, _: os.open(name, _FILE, dir_fd=folder)) as file:
            while n := file.readinto(chunk):
                digest.update(chunk[:n])
    except OSError as error:
        _not_so(error, path, "file")
    return digest.hexdigest()


def _is_file(names: Mapping[str, os.DirEntry[str]], name: str) -> bool | None:
    """As the folder's listing has it, which saves asking for each; None if it is not there."""
    return names[name].is_file(follow_symlinks=False) if name in names else None


def _read(folder: int, path: str, what: str, is_file: bool | None) -> bytes:
    """The whole file. That it is one must be known before: to open a pipe in its place would hold a worker up for ever."""
    if not is_file:
        raise Unsound(f"the {what} is missing" if is_file is None else f"the {what} is not a file", path)
    try:
        file = os.open(path, _FILE, dir_fd=folder)
        try:
            pieces = []
            while piece := os.read(file, PAGE):
                pieces.append(piece)
            return b"".join(pieces)
        finally:
            os.close(file)
    except OSError as error:
        _not_so(error, path, what)


def _stat(folder: int, path: str, what: str) -> os.stat_result:
    found = _found(folder, path)
    if found is None:
        raise Unsound(f"the {what} is missing", path)
    return found


def _found(folder: int, path: str) -> os.stat_result | None:
    try:
        return os.stat(path, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None
    except OSError as error:
        _not_so(error, path, "file")


def _not_so(error: OSError, path: str, what: str) -> NoReturn:
    if error.errno not in NOT_SO:
        raise error
    said = "is missing" if error.errno == errno.ENOENT else f"cannot be read as one ({error.strerror})"
    raise Unsound(f"the {what} {said}", path) from error
