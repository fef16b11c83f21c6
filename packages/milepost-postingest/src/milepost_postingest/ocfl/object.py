"""One OCFL object on disk: read through its open folder, compared with its inventory, and, if
wanted, with the digests of its files."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from msgspec import Struct

from milepost_postingest.ocfl.folder import FOLDER, LINK, OPEN_FILE, ObjectFolder, not_so
from milepost_postingest.ocfl.inventory import (
    DIGESTS,
    EMPTY,
    NAME,
    Inventory,
    Unsound,
    check_older,
    check_order,
    check_sidecar,
    checked,
    contents,
    decode,
    head_entries,
)
from milepost_postingest.ocfl.layouts import HASHES

MUTABLE_HEAD = "extensions/0005-mutable-head"
_SIDECARS = tuple(f"{NAME}.{algorithm}" for algorithm in DIGESTS)
_LIKE_VERSION = re.compile(r"v[0-9]+")
_OBJECTS = {f"0=ocfl_object_{version}": version for version in ("1.0", "1.1")}


class File(Struct, frozen=True, gc=False):
    logical: str
    """Its name in the object's newest version; empty if only older versions have it."""
    path: str
    """Where it is below the storage root."""
    digest: str
    bytes: int


class ObjectFound(Struct, frozen=True):
    """The object is there, complete and committed; with `fixity`, each file was read and has the
    right digest."""

    version: str
    spec: str
    object_root: str
    algorithm: str
    files: list[File]
    fixity: bool
    older: list[File] = []
    """The content of older versions that is in no file of the newest one."""


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
    """Something is wrong with the object: what, and where below the storage root; `code` is the
    error code of the OCFL specification."""

    object_root: str
    what: str
    where: str
    code: str = ""


Answer = ObjectFound | ObjectMissing | Staged | Empty | Damaged


class VersionFolder(Struct, frozen=True, gc=False):
    """A version's own inventory, with its bytes and those of its sidecar."""

    version: str
    inventory: Inventory
    data: bytes
    sidecar: bytes


def inspect(folder: ObjectFolder, object_id: str, place: str, fixity: bool) -> Answer:
    """Checks one object. `folder` is its open root: even if that is renamed meanwhile, every
    inventory is read from the same one."""
    names = folder.root()
    if "extensions" in names and folder.exists(MUTABLE_HEAD):
        return Staged(place)
    spec, declaration = _declared(folder, names)
    data = folder.read(NAME, names.get(NAME), "inventory", "E063")
    inventory = checked(decode(data, NAME), object_id, NAME)
    sidecar = f"{NAME}.{inventory.digest_algorithm}"
    newest = VersionFolder(
        inventory.head,
        inventory,
        data,
        folder.read(sidecar, names.get(sidecar), "inventory's sidecar", "E058"),
    )
    _check_root(folder, names, inventory, {NAME, sidecar, declaration})
    # Read everything, then compare it: measured, this is faster than to read and compare version by
    # version.
    versions: list[VersionFolder] = []
    sizes: dict[str, int] = {}
    hollow: list[str] = []
    for version in inventory.versions:
        names = folder.listing(version)
        _check_names(version, names, inventory.content_directory)
        if NAME in names:
            versions.append(_read_version(folder, version, names, newest))
        if inventory.content_directory in names:
            folder.measure(f"{version}/{inventory.content_directory}", sizes, hollow)
    check_sidecar(data, newest.sidecar, inventory.digest_algorithm)
    if inventory.spec != spec:
        raise Unsound(
            "E038",
            f"the inventory is of OCFL {inventory.spec}, and the object's declaration says {spec}",
        )
    expected = contents(inventory)
    others = [(own.inventory, _check_version(own, newest)) for own in versions]
    in_order = sorted(versions, key=lambda own: int(own.version[1:]))
    check_order((own.version, own.inventory.spec) for own in in_order)
    _check_content(expected, sizes, inventory.digest_algorithm)
    if hollow:
        raise Unsound("E024", "a folder within the content is empty", min(hollow))
    if fixity:
        check_fixity(folder, wanted_digests(inventory, expected, others), sizes)
    if not inventory.versions[inventory.head].state:
        return Empty(place, inventory.head)
    files = [
        File(logical, f"{place}/{content}", digest, sizes[content])
        for content, logical, digest in head_entries(inventory)
    ]
    newest_paths = (
        {content for content, _, _ in head_entries(inventory)}
        if len(inventory.versions) > 1
        else expected.keys()
    )
    older_paths = sorted(expected.keys() - newest_paths)
    older = [
        File("", f"{place}/{content}", expected[content], sizes[content]) for content in older_paths
    ]
    return ObjectFound(
        inventory.head, spec, place, inventory.digest_algorithm, files, fixity, older
    )


def _declared(folder: ObjectFolder, names: Mapping[str, str]) -> tuple[str, str]:
    """The version of OCFL in the object's one declaration, and the file's name, which it contains
    with a line end."""
    declared = [name for name in names if name.startswith("0=")]
    spec = _OBJECTS.get(declared[0]) if len(declared) == 1 else None
    if spec is None:
        said = f"the object's folder has {', '.join(sorted(declared)) or 'no declaration'}, expected {' or '.join(_OBJECTS)}"
        raise Unsound("E003", said, "")
    name = declared[0]
    if (
        folder.read(name, names[name], "object's declaration", "E003")
        != f"ocfl_object_{spec}\n".encode()
    ):
        raise Unsound("E007", "the object's declaration does not hold its own name", name)
    return spec, name


def _check_root(
    folder: ObjectFolder, names: Mapping[str, str], inventory: Inventory, files: set[str]
) -> None:
    """Raise Unsound unless the object's folder has all versions of the inventory, and nothing
    unexpected beside them and these files."""
    for version in inventory.versions:
        if version not in names:
            raise Unsound("E046", f"the version {version} is missing", version)
        _check_is_folder(version, names[version])
    for name in names.keys() - inventory.versions.keys() - files:
        if _LIKE_VERSION.fullmatch(name):
            raise Unsound(
                "E046", f"the object has a version {name} that its inventory does not know", name
            )
        if name not in ("extensions", "logs"):
            raise Unsound(
                "E001", "the object's folder has something that does not belong there", name
            )
        _check_is_folder(name, names[name])
    if "extensions" in names:
        for name, kind in folder.listing("extensions").items():
            if kind != FOLDER:
                raise Unsound(
                    "E067",
                    "among the object's extensions is something that is no folder",
                    f"extensions/{name}",
                )


def _check_is_folder(name: str, kind: str) -> None:
    if kind != FOLDER:
        raise Unsound(
            "E090" if kind == LINK else "E001",
            f"{name} should be a folder, and is a link or a file",
            name,
        )


def _check_names(version: str, names: Mapping[str, str], content: str) -> None:
    """Raise Unsound if a version's folder has any other file than an inventory and its sidecar, or
    a link. Other folders are allowed."""
    for name, kind in names.items():
        if kind == FOLDER:
            continue
        if name == content:
            raise Unsound(
                "E090",
                "what should be a folder with content is a link or a file",
                f"{version}/{name}",
            )
        if name != NAME and name not in _SIDECARS:
            raise Unsound(
                "E015",
                "the version's folder has something that does not belong there",
                f"{version}/{name}",
            )


def _read_version(
    folder: ObjectFolder, version: str, names: Mapping[str, str], newest: VersionFolder
) -> VersionFolder:
    """The inventory and sidecar in a version's folder, not checked yet."""
    where = f"{version}/{NAME}"
    data = folder.read(where, names[NAME], "version's inventory", "E033")
    inventory = newest.inventory if version == newest.version else decode(data, where)
    sidecar = f"{NAME}.{inventory.digest_algorithm}"
    signed = folder.read(
        f"{version}/{sidecar}", names.get(sidecar), "sidecar of the version's inventory", "E058"
    )
    return VersionFolder(version, inventory, data, signed)


def _check_version(own: VersionFolder, newest: VersionFolder) -> dict[str, str]:
    """Raise Unsound unless a version's own inventory is right. Returns its content paths with their
    digests, if they are other digests than the newest one has."""
    where = f"{own.version}/{NAME}"
    if own.version == newest.version:
        if own.data != newest.data:
            raise Unsound(
                "E064",
                f"the inventory is not the same as that of its newest version, {own.version}",
                where,
            )
        if own.sidecar != newest.sidecar:
            check_sidecar(own.data, own.sidecar, own.inventory.digest_algorithm, where)
        return {}
    others = check_older(own.inventory, own.version, newest.inventory, where)
    check_sidecar(own.data, own.sidecar, own.inventory.digest_algorithm, where)
    return others


def _check_content(expected: Mapping[str, str], sizes: Mapping[str, int], algorithm: str) -> None:
    """Raise Unsound unless exactly the expected files are there, and exactly those are empty that
    should be."""
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


# Fixity -------------------------------------------------------------------------------------------
CHUNK = 1 << 20
FIXITY: dict[str, Callable[..., Any]] = {
    **HASHES,
    "blake2b-384": partial(hashlib.blake2b, digest_size=48),
    "blake2b-256": partial(hashlib.blake2b, digest_size=32),
    "blake2b-160": partial(hashlib.blake2b, digest_size=20),
}
"""The algorithms of fixity blocks that are computed; others are ignored, as OCFL requires of
clients (E028)."""
Wanted = dict[str, dict[str, str]]
"""The digests that files must have, by path and algorithm; the first is that of the object's
inventory."""


def wanted_digests(
    inventory: Inventory,
    contents: Mapping[str, str],
    older: Iterable[tuple[Inventory, Mapping[str, str]]],
) -> Wanted:
    """All digests of an object: those of its inventory, with its content paths, and of older
    inventories, with other digests for them. Raises Unsound if a file has two of one algorithm."""
    wanted = {path: {inventory.digest_algorithm: digest} for path, digest in contents.items()}
    _add_block(wanted, inventory)
    for own, others in older:
        for path, digest in others.items():
            _add(wanted, path, own.digest_algorithm, digest)
        _add_block(wanted, own)
    return wanted


def _add_block(wanted: Wanted, inventory: Inventory) -> None:
    """Add the digests of the fixity block that can be computed here."""
    for algorithm, block in inventory.fixity.items():
        if algorithm in FIXITY:
            for digest, paths in block.items():
                for path in paths:
                    _add(wanted, path, algorithm, digest.lower())


def _add(wanted: Wanted, path: str, algorithm: str, digest: str) -> None:
    if wanted[path].setdefault(algorithm, digest) != digest:
        raise Unsound(
            "E093", f"the object's inventories have two {algorithm} digests for one file", path
        )


def check_fixity(folder: ObjectFolder, wanted: Wanted, sizes: Mapping[str, int]) -> None:
    """Read every file once. Raises Unsound unless it has all its digests."""
    for path, digests in wanted.items():
        _check_digests(folder, path, digests, sizes[path])


def _check_digests(folder: ObjectFolder, path: str, digests: Mapping[str, str], size: int) -> None:
    computed = {algorithm: FIXITY[algorithm]() for algorithm in digests}
    chunk = memoryview(bytearray(min(CHUNK, size + 1)))
    try:
        with open(
            path,
            "rb",
            buffering=0,
            opener=lambda name, _: os.open(name, OPEN_FILE, dir_fd=folder.number),
        ) as file:
            while n := file.readinto(chunk):
                for digest in computed.values():
                    digest.update(chunk[:n])
    except OSError as error:
        not_so(error, path, "file")
    for number, (algorithm, expected) in enumerate(digests.items()):
        found = computed[algorithm].hexdigest()
        if found != expected:
            code = "E093" if number else "E092"
            raise Unsound(
                code,
                f"the file's {algorithm} digest is {found}, and the inventory says {expected}",
                path,
            )
