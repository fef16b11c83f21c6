"""One OCFL object on disk: read through its open folder, and compared with its inventory."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Mapping
from operator import attrgetter
from typing import NoReturn

from msgspec import Struct

from milepost.applications.postingest.ocfl.inventory import (
    DIGESTS,
    EMPTY,
    FIXITY,
    NAME,
    Inventory,
    Unsound,
    check_older,
    check_sidecar,
    contents,
    fixity_of,
    head_entries,
    read_inventory,
)

MUTABLE_HEAD = "extensions/0005-mutable-head"
CHUNK = 1 << 20
PAGE = 1 << 15
"""More than the size of most inventories; a larger buffer costs more to allocate than it saves."""
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
NOT_SO = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EISDIR, errno.ENAMETOOLONG})
"""Error numbers for a path that does not exist, or is of another kind than expected. Any other error (input/output error, stale handle, no
permission, …) concerns the repository, and then nothing is known about the object."""

_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
FOLDERS, FILES = "folder", "file"
_SIDECARS = tuple(f"{NAME}.{algorithm}" for algorithm in DIGESTS)
_LIKE_VERSION = re.compile(r"v[0-9]+")
_by_place = attrgetter("content", "logical")
_OBJECTS = {f"0=ocfl_object_{version}": version for version in ("1.0", "1.1")}


class File(Struct, frozen=True, gc=False):
    logical: str
    """Its name in the object's newest version."""
    path: str
    """Where it is below the storage root."""
    digest: str
    bytes: int


class ObjectFound(Struct, frozen=True):
    """The object is there, complete and committed; with `fixity`, each file was read and has the right digest."""

    version: str
    spec: str
    object_root: str
    algorithm: str
    files: list[File]
    fixity: bool


class ObjectMissing(Struct, frozen=True):
    """The repository can be read, and the object is not in it."""

    object_root: str


class Staged(Struct, frozen=True):
    """The object has changes that are not committed yet: its paths will change."""

    object_root: str


class Empty(Struct, frozen=True):
    """The object's newest version has no files."""

    object_root: str
    version: str


class Damaged(Struct, frozen=True):
    """Something is wrong with the object: what, and where below the storage root; `code` is the error code of the OCFL
    specification."""

    object_root: str
    what: str
    where: str
    code: str = ""


Answer = ObjectFound | ObjectMissing | Staged | Empty | Damaged


def inspect(folder: int, where: str, object_id: str, place: str, fixity: bool) -> Answer:
    """Checks one object. `folder` is the open object root: even if it is renamed meanwhile, everything is read from the same one. `where` is
    its path, by which its folders are listed."""
    with os.scandir(where) as found:
        names = {entry.name: entry for entry in found}
    if "extensions" in names and _found(folder, MUTABLE_HEAD) is not None:
        return Staged(place)
    spec = _declared(folder, names)
    data = _read(folder, NAME, "inventory", _is_file(names, NAME), "E063")
    inventory = read_inventory(data, object_id)
    sidecar = f"{NAME}.{inventory.digest_algorithm}"
    signed = _read(folder, sidecar, "inventory's sidecar", _is_file(names, sidecar), "E058")
    check_sidecar(data, signed, inventory.digest_algorithm)
    if inventory.spec != spec:
        raise Unsound("E038", f"the inventory is of OCFL {inventory.spec}, and the object's declaration says {spec}")
    _check_root(where, names, inventory, sidecar)
    expected = contents(inventory)
    sizes: dict[str, int] = {}
    wanted = {path: {inventory.digest_algorithm: digest} for path, digest in expected.items()} if fixity else {}
    if fixity:
        _want(wanted, fixity_of(inventory))
    hollow: list[str] = []
    for version in inventory.versions:
        hollow += _check_version(folder, where, version, inventory, (data, signed), sizes, wanted if fixity else None)
    _check_content(expected, sizes, inventory.digest_algorithm)
    if hollow:
        raise Unsound("E024", "a folder within the content is empty", min(hollow))
    for path, digests in wanted.items():
        _check_digests(folder, path, digests, sizes[path])
    if not inventory.versions[inventory.head].state:
        return Empty(place, inventory.head)
    files = [
        File(entry.logical, f"{place}/{entry.content}", entry.digest, sizes[entry.content])
        for entry in sorted(head_entries(inventory), key=_by_place)
    ]
    return ObjectFound(inventory.head, spec, place, inventory.digest_algorithm, files, fixity)


def _declared(folder: int, names: Mapping[str, os.DirEntry[str]]) -> str:
    """The version of OCFL in the object's one declaration. The file contains its own name and a line end."""
    declared = [name for name in names if name.startswith("0=")]
    spec = _OBJECTS.get(declared[0]) if len(declared) == 1 else None
    if spec is None:
        said = f"the object's folder has {', '.join(sorted(declared)) or 'no declaration'}, expected {' or '.join(_OBJECTS)}"
        raise Unsound("E003", said, "")
    if _read(folder, declared[0], "object's declaration", _is_file(names, declared[0]), "E003") != f"ocfl_object_{spec}\n".encode():
        raise Unsound("E007", "the object's declaration does not hold its own name", declared[0])
    return spec


def _check_root(folder: str, names: Mapping[str, os.DirEntry[str]], inventory: Inventory, sidecar: str) -> None:
    """Raise Unsound unless the object's folder has all versions of the inventory, and no unexpected entries."""
    for version in inventory.versions:
        if version not in names:
            raise Unsound("E046", f"the version {version} is missing", version)
    for name, entry in names.items():
        if name in inventory.versions or name in ("extensions", "logs"):
            if not entry.is_dir(follow_symlinks=False):
                raise Unsound("E090" if entry.is_symlink() else "E001", f"{name} should be a folder, and is a link or a file", name)
        elif _LIKE_VERSION.fullmatch(name):
            raise Unsound("E046", f"the object has a version {name} that its inventory does not know", name)
        elif name not in (NAME, sidecar) and not name.startswith("0="):
            raise Unsound("E001", "the object's folder has something that does not belong there", name)
    if "extensions" in names:
        for name, kind in _listed(folder, "extensions").items():
            if kind != FOLDERS:
                raise Unsound("E067", "among the object's extensions is something that is no folder", f"extensions/{name}")


def _check_version(
    folder: int,
    where: str,
    version: str,
    inventory: Inventory,
    newest: tuple[bytes, bytes],
    sizes: dict[str, int],
    wanted: dict[str, dict[str, str]] | None,
) -> list[str]:
    """Check one version's folder: its own inventory and sidecar, if it has them, and the sizes of all content. Returns its empty
    folders. `newest` are the object's inventory and sidecar. Digests of older inventories are added to `wanted`."""
    names = _listed(where, version)
    for name, kind in names.items():
        if kind == FOLDERS:
            continue
        if name == inventory.content_directory:
            raise Unsound("E090", "what should be a folder with content is a link or a file", f"{version}/{name}")
        if name != NAME and name not in _SIDECARS:
            raise Unsound("E015", "the version's folder has something that does not belong there", f"{version}/{name}")
    if NAME in names:
        _check_own_inventory(folder, version, names, inventory, newest, wanted)
    if inventory.content_directory not in names:
        return []
    return _measure(folder, where, f"{version}/{inventory.content_directory}", sizes)


def _check_own_inventory(
    folder: int,
    version: str,
    names: Mapping[str, str],
    inventory: Inventory,
    newest: tuple[bytes, bytes],
    wanted: dict[str, dict[str, str]] | None,
) -> None:
    where = f"{version}/{NAME}"
    data = _read(folder, where, "version's inventory", names[NAME] == FILES, "E033")
    older = inventory
    if version == inventory.head:
        if data != newest[0]:
            raise Unsound("E064", f"the inventory is not the same as that of its newest version, {version}", where)
    else:
        older = read_inventory(data, inventory.id, where)
        if older.head != version:
            raise Unsound("E040", f"the inventory in {version} says that it is that of {older.head}", where)
    sidecar = f"{NAME}.{older.digest_algorithm}"
    is_file = names[sidecar] == FILES if sidecar in names else None
    held = _read(folder, f"{version}/{sidecar}", "sidecar of the version's inventory", is_file, "E058")
    if older is not inventory or held != newest[1]:
        check_sidecar(data, held, older.digest_algorithm, where)
    if older is inventory:
        return
    others = check_older(older, inventory, where)
    if wanted is not None:
        _want(wanted, {path: {older.digest_algorithm: digest} for path, digest in others.items()})
        _want(wanted, fixity_of(older))


def _want(wanted: dict[str, dict[str, str]], more: Mapping[str, Mapping[str, str]]) -> None:
    """Add digests that a file must have, by path and algorithm. Raises Unsound if it would have two of one kind."""
    for path, digests in more.items():
        for algorithm, digest in digests.items():
            if wanted[path].setdefault(algorithm, digest) != digest:
                raise Unsound("E093", f"the object's inventories have two {algorithm} digests for one file", path)


def _measure(folder: int, where: str, top: str, sizes: dict[str, int]) -> list[str]:
    """Adds the size of every file below this folder, and returns the empty folders below it. Raises Unsound if there is a link, or
    another kind of entry."""
    hollow: list[str] = []
    todo = [top]
    while todo:
        path = todo.pop()
        empty = True
        try:
            # By its path: opening a folder first and listing it takes twice as many system calls. Files are read relative to the open
            # object root, so that the system need not look up each folder above it.
            with os.scandir(f"{where}/{path}") as entries:
                for entry in entries:
                    empty = False
                    if entry.is_file(follow_symlinks=False):
                        name = f"{path}/{entry.name}"
                        sizes[name] = os.stat(name, dir_fd=folder, follow_symlinks=False).st_size
                    elif entry.is_dir(follow_symlinks=False):
                        todo.append(f"{path}/{entry.name}")
                    else:
                        raise Unsound("E090", "what should be a file or a folder is something else", f"{path}/{entry.name}")
        except OSError as error:
            _not_so(error, path, "folder")
        if empty and path != top:
            hollow.append(path)
    return hollow


def _check_content(expected: Mapping[str, str], sizes: Mapping[str, int], algorithm: str) -> None:
    """Raise Unsound unless exactly the expected files are there, and exactly those are empty that should be."""
    if expected.keys() != sizes.keys():
        missing = expected.keys() - sizes.keys()
        if missing:
            raise Unsound("E092", "the file is missing", min(missing))
        raise Unsound("E023", "the file is in no inventory", min(sizes.keys() - expected.keys()))
    nothing = EMPTY[algorithm]
    for path, size in sizes.items():
        if (size == 0) != (expected[path] == nothing):
            said = f"the file has {size} bytes, and the inventory's digest is {'not ' if size == 0 else ''}that of nothing"
            raise Unsound("E092", said, path)


def _check_digests(folder: int, path: str, digests: Mapping[str, str], size: int) -> None:
    """Read the file once. Raises Unsound unless it has all these digests, by algorithm."""
    computed = {algorithm: FIXITY[algorithm]() for algorithm in digests}
    chunk = memoryview(bytearray(min(CHUNK, size + 1)))
    try:
        with open(path, "rb", buffering=0, opener=lambda name, _: os.open(name, _FILE, dir_fd=folder)) as file:
            while n := file.readinto(chunk):
                for digest in computed.values():
                    digest.update(chunk[:n])
    except OSError as error:
        _not_so(error, path, "file")
    for number, (algorithm, expected) in enumerate(digests.items()):
        found = computed[algorithm].hexdigest()
        if found != expected:
            code = "E093" if number else "E092"
            raise Unsound(code, f"the file's {algorithm} digest is {found}, and the inventory says {expected}", path)


def _listed(folder: str, path: str) -> dict[str, str]:
    """The entries of a folder of the object, by name, with their kinds."""
    try:
        with os.scandir(f"{folder}/{path}") as entries:
            return {
                entry.name: FOLDERS if entry.is_dir(follow_symlinks=False) else FILES if entry.is_file(follow_symlinks=False) else "other"
                for entry in entries
            }
    except OSError as error:
        _not_so(error, path, "folder")


def _is_file(names: Mapping[str, os.DirEntry[str]], name: str) -> bool | None:
    """Whether the listing has it as a file, which saves a system call; None if it is not there."""
    return names[name].is_file(follow_symlinks=False) if name in names else None


def _read(folder: int, path: str, what: str, is_file: bool | None, code: str) -> bytes:
    """The whole file. The caller must know that it is a regular file: opening a pipe would block the worker. `code` is for a missing
    file."""
    if not is_file:
        raise Unsound(code, f"the {what} is missing" if is_file is None else f"the {what} is not a file", path)
    try:
        file = os.open(path, _FILE, dir_fd=folder)
        try:
            piece = os.read(file, PAGE)
            pieces = [piece]
            # A read returns less than requested only at the end of the file.
            while len(piece) == PAGE:
                piece = os.read(file, PAGE)
                pieces.append(piece)
            return b"".join(pieces)
        finally:
            os.close(file)
    except OSError as error:
        _not_so(error, path, what)


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
    raise Unsound("E092" if what == "file" else "E046", f"the {what} {said}", path) from error
