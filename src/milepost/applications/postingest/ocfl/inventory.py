"""Inventory of an OCFL object: its versions and their files. Pure functions; nothing here reads a disk."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import msgspec
from msgspec import UNSET, Struct, UnsetType

import milepost as mp
from milepost.applications.postingest.ocfl.layouts import stays_below

NAME = "inventory.json"
DIGESTS = {"sha512": hashlib.sha512, "sha256": hashlib.sha256}
"""The algorithms that OCFL allows for content."""
EMPTY = {name: digest().hexdigest() for name, digest in DIGESTS.items()}
"""The digest of no bytes: exactly the empty files have it."""
FIXITY: dict[str, Callable[[], Any]] = {
    **DIGESTS,
    "md5": partial(hashlib.md5, usedforsecurity=False),
    "sha1": partial(hashlib.sha1, usedforsecurity=False),
    "blake2b-512": hashlib.blake2b,
    "blake2b-384": partial(hashlib.blake2b, digest_size=48),
    "blake2b-256": partial(hashlib.blake2b, digest_size=32),
    "blake2b-160": partial(hashlib.blake2b, digest_size=20),
}
"""The algorithms of fixity blocks that are computed; others are ignored, as OCFL requires of clients (E028)."""

_VERSION = re.compile(r"v(0*)([1-9][0-9]*)")
_TYPE = re.compile(r"https://ocfl\.io/(1\.[01])/spec/#inventory")
_HEX = {name: re.compile(f"[0-9a-f]{{{len(empty)}}}") for name, empty in EMPTY.items()}
_CREATED = re.compile(
    r"\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])T([01]\d|2[0-3]):[0-5]\d:([0-5]\d|60)(\.\d+)?(Z|[+-]([01]\d|2[0-3]):[0-5]\d)", re.I
)


class Unsound(mp.MilepostError):
    """The object violates the OCFL specification. `code` is the specification's error code, `where` a path below the object's folder."""

    def __init__(self, code: str, what: str, where: str = NAME) -> None:
        super().__init__(printable(what))
        self.code, self.where = code, printable(where)


def printable(text: str) -> str:
    """The text with replacements for bytes that are no text: names on disk may contain them."""
    return text.encode("utf-8", "backslashreplace").decode()


class User(Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    address: str | UnsetType = UNSET


class Version(Struct, frozen=True, forbid_unknown_fields=True):
    created: str
    state: dict[str, list[str]]
    message: str | UnsetType = UNSET
    user: User | UnsetType = UNSET


class Inventory(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    id: str
    type: str
    digest_algorithm: str
    head: str
    manifest: dict[str, list[str]]
    versions: dict[str, Version]
    content_directory: str = "content"
    fixity: dict[str, dict[str, list[str]]] = {}

    @property
    def spec(self) -> str:
        """The version of OCFL that it conforms to."""
        return self.type[len("https://ocfl.io/") : -len("/spec/#inventory")]


class InventoryFile(Struct, frozen=True, gc=False):
    """A file of the newest version: its logical name, its path below the object's folder, and its digest."""

    logical: str
    content: str
    digest: str


_decoder = msgspec.json.Decoder(Inventory)
_side: dict[str, re.Pattern[bytes]] = {
    name: re.compile(rf"([0-9a-fA-F]{{{len(empty)}}})[ \t]+inventory\.json[ \t\r\n]*".encode()) for name, empty in EMPTY.items()
}


def read_inventory(data: bytes, object_id: str, where: str = NAME) -> Inventory:
    """The inventory of this object. Raises Unsound if it belongs to another object, or is not one."""
    try:
        inventory = _decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise Unsound(_code_of(error), f"the inventory cannot be read ({error})", where) from error
    if inventory.id != object_id:
        raise Unsound("E037", f"the inventory is that of another object, {inventory.id!r}", where)
    if _TYPE.fullmatch(inventory.type) is None:
        raise Unsound("E038", f"the inventory's type is {inventory.type!r}, which is neither OCFL 1.0 nor 1.1", where)
    if inventory.digest_algorithm not in EMPTY:
        raise Unsound("E025", f"the inventory's digestAlgorithm is {inventory.digest_algorithm!r}, expected sha512 or sha256", where)
    if "/" in inventory.content_directory or inventory.content_directory in ("", ".", ".."):
        raise Unsound("E017", f"the inventory's contentDirectory is {inventory.content_directory!r}, which is no folder's name", where)
    _check_versions(inventory, where)
    return inventory


def _code_of(error: Exception) -> str:
    """The specification's error code for JSON that does not have the right structure."""
    said = str(error)
    if not isinstance(error, msgspec.ValidationError):
        return "E033"
    if "unknown field" in said:
        return "E102"
    at = said.rpartition("at `$")[2]
    missing = re.search(r"missing required field `(\w+)`", said)
    if missing is not None:
        return {"manifest": "E041", "versions": "E041", "created": "E048", "state": "E048", "name": "E054"}.get(missing[1], "E036")
    places = ((".user", "E054"), (".message", "E094"), (".created", "E049"), (".state", "E050"), (".manifest", "E092"), (".fixity", "E111"))
    return next((code for name, code in places if name in at), "E046" if ".versions" in at else "E033")


def _check_versions(inventory: Inventory, where: str) -> None:
    """Check that versions are numbered from 1 without a gap, in one notation, and that the head is the last."""
    versions = inventory.versions
    if not versions:
        raise Unsound("E008", "the inventory has no version", where)
    if len(versions) > 1 or inventory.head != "v1" or "v1" not in versions:
        numbers: dict[int, str] = {}
        for name in versions:
            found = _VERSION.fullmatch(name)
            if found is None:
                raise Unsound("E046", f"the inventory has a version {name!r}; versions are called v1, v2, …", where)
            numbers[int(found[2])] = name
        if sorted(numbers) != list(range(1, len(versions) + 1)):
            raise Unsound("E010", f"the inventory's versions are not numbered from 1 without a gap: {', '.join(versions)}", where)
        padded = [name for name in versions if name[1] == "0"]
        if padded and (len(padded) < len(versions) or len({len(name) for name in versions}) > 1):
            raise Unsound(
                "E012", f"the inventory's versions are not all written with the same number of digits: {', '.join(versions)}", where
            )
        if inventory.head != numbers[len(versions)]:
            raise Unsound(
                "E040",
                f"the inventory's head is {inventory.head!r}, which is not the last of its versions: {', '.join(versions)}",
                where,
            )
    for name, version in versions.items():
        if _CREATED.fullmatch(version.created) is None:
            raise Unsound("E049", f"version {name} was created {version.created!r}, which is no date with time and zone", where)


def check_sidecar(data: bytes, sidecar: bytes, algorithm: str, where: str = NAME) -> None:
    """Raise Unsound unless the sidecar holds the digest of these bytes."""
    found = _side[algorithm].fullmatch(sidecar)
    if found is None:
        raise Unsound("E061", f"the inventory's sidecar does not hold a {algorithm} digest", f"{where}.{algorithm}")
    if found[1].decode().lower() != DIGESTS[algorithm](data).hexdigest():
        raise Unsound("E060", f"the inventory does not have the {algorithm} digest that its sidecar says", where)


def contents(inventory: Inventory, where: str = NAME) -> dict[str, str]:
    """Every content path with its digest. Raises Unsound if a path leads outside, a digest or a path occurs twice, or a version's state does
    not agree with the manifest."""
    inside, shape, versions = f"{inventory.content_directory}/", _HEX[inventory.digest_algorithm], inventory.versions
    found: dict[str, str] = {}
    digests: set[str] = set()
    for said, paths in inventory.manifest.items():
        digest = said.lower()
        if shape.fullmatch(digest) is None:
            raise Unsound("E025", f"the inventory's manifest has {said[:20]!r}, which is no {inventory.digest_algorithm} digest", where)
        if digest in digests:
            raise Unsound("E096", "the inventory's manifest has the same digest twice, in small and capital letters", where)
        if not paths:
            raise Unsound("E092", f"the inventory's manifest has no content path for the digest {said[:16]}…", where)
        digests.add(digest)
        for path in paths:
            version, _, rest = path.partition("/")
            if version not in versions or not rest.startswith(inside) or not stays_below(path):
                code = "E042" if stays_below(path) else "E100" if path[:1] == "/" or path[-1:] == "/" else "E099"
                raise Unsound(code, f"the inventory's content path {path!r} is not within the content of one of its versions", where)
            if path in found:
                raise Unsound("E101", f"the inventory has two digests for the content path {path!r}, or names it twice", where)
            found[path] = digest
    used: set[str] = set()
    sound: dict[str, list[str]] = {}
    for name, held in versions.items():
        if held.state != sound:
            used |= _check_state(name, held.state, sound, digests, where)
            sound = held.state
    if len(used) != len(digests):
        raise Unsound("E107", f"no version has the content {min(digests - used)[:16]}… of the inventory's manifest", where)
    if inventory.fixity:
        _check_fixity(inventory.fixity, found, where)
    return found


def _check_state(version: str, state: dict[str, list[str]], sound: dict[str, list[str]], digests: set[str], where: str) -> set[str]:
    """The digests that a version uses. Raises Unsound if one has no content, or two of its names conflict. The paths of a
    `sound` state have been checked already."""
    used: set[str] = set()
    names: set[str] = set()
    deep = False
    for said, logical in state.items():
        digest = said.lower()
        if digest not in digests or digest in used or not logical:
            raise Unsound(
                "E050", f"the inventory has no content for {', '.join(map(repr, logical)) or 'a file'} (digest {said[:16]}…)", where
            )
        used.add(digest)
        checked = sound.get(said) == logical
        for name in logical:
            if not checked and not stays_below(name):
                code = "E053" if name[:1] == "/" or name[-1:] == "/" else "E052"
                raise Unsound(code, f"the inventory's logical path {name!r} leads elsewhere", where)
            if name in names:
                raise Unsound("E095", f"the inventory has two contents for {name!r} in {version}, or names it twice", where)
            names.add(name)
            deep = deep or "/" in name
    both = _folders(names) & names if deep else None
    if both:
        raise Unsound("E095", f"the inventory has {min(both)!r} in {version} both as a file and as a folder", where)
    return used


def _folders(names: Iterable[str]) -> set[str]:
    folders: set[str] = set()
    for name in names:
        at = name.rfind("/")
        while at > 0 and (folder := name[:at]) not in folders:
            folders.add(folder)
            at = name.rfind("/", 0, at)
    return folders


def _check_fixity(fixity: dict[str, dict[str, list[str]]], known: dict[str, str], where: str) -> None:
    for algorithm, block in fixity.items():
        if len({digest.lower() for digest in block}) != len(block):
            raise Unsound(
                "E097", f"the inventory's fixity block has the same {algorithm} digest twice, in small and capital letters", where
            )
        for path in (path for paths in block.values() for path in paths):
            if path not in known:
                code = "E093" if stays_below(path) else "E100" if path[:1] == "/" or path[-1:] == "/" else "E099"
                raise Unsound(code, f"the inventory's fixity block has {path!r}, which its manifest does not have", where)


def fixity_of(inventory: Inventory) -> dict[str, dict[str, str]]:
    """The digests of the fixity block that can be computed here, by content path and algorithm."""
    found: dict[str, dict[str, str]] = {}
    for algorithm, block in inventory.fixity.items():
        if algorithm in FIXITY:
            for digest, paths in block.items():
                for path in paths:
                    found.setdefault(path, {})[algorithm] = digest.lower()
    return found


def check_older(older: Inventory, inventory: Inventory, where: str) -> dict[str, str]:
    """Raise Unsound unless an older version's own inventory agrees with the newest one, which has been checked. Returns its content paths
    with their digests, if they are other digests than the newest one has."""
    if older.content_directory != inventory.content_directory:
        raise Unsound("E020", f"the contentDirectory is {older.content_directory!r}, and later {inventory.content_directory!r}", where)
    if older.spec > inventory.spec:
        raise Unsound("E103", f"the inventory is of OCFL {older.spec}, and a later one of {inventory.spec}", where)
    same = older.digest_algorithm == inventory.digest_algorithm
    if same and _is_part(older, inventory):
        return {}
    known = contents(older, where)
    newer = {path: digest.lower() for digest, paths in inventory.manifest.items() for path in paths}
    for path, digest in known.items():
        if path not in newer:
            raise Unsound("E023", f"the content {path!r} of an older inventory is not in the newest one", where)
        if same and newer[path] != digest:
            raise Unsound("E092", f"the content {path!r} has another digest than in the newest inventory", where)
    for name, version in older.versions.items():
        later = inventory.versions.get(name)
        if later is None or (later.state != version.state and _shape(version, older, same) != _shape(later, inventory, same)):
            raise Unsound("E066", f"version {name} does not hold the same as in the newest inventory", where)
    return {} if same else known


def _is_part(older: Inventory, inventory: Inventory) -> bool:
    """Whether the newest inventory contains all of the older one, word for word. Then nothing need be checked twice."""
    manifest, versions, prefixes = inventory.manifest, inventory.versions, tuple(f"{name}/" for name in older.versions)
    return (
        all(name in versions and versions[name].state == version.state for name, version in older.versions.items())
        and all(manifest.get(digest) == paths and all(map(_starts(prefixes), paths)) for digest, paths in older.manifest.items())
        and older.manifest.keys() == set().union(*(version.state for version in older.versions.values()))
        and not older.fixity
    )


def _starts(prefixes: tuple[str, ...]) -> Callable[[str], bool]:
    return lambda path: path.startswith(prefixes)


def _shape(version: Version, inventory: Inventory, same: bool) -> dict[str, Any]:
    """Content of a version, for comparison: by digest, or, if the algorithms differ, by the first path of each content."""
    if same:
        return {digest.lower(): sorted(names) for digest, names in version.state.items()}
    places = {digest.lower(): min(paths) for digest, paths in inventory.manifest.items()}
    return {places[digest.lower()]: sorted(names) for digest, names in version.state.items()}


def head_entries(inventory: Inventory) -> list[InventoryFile]:
    """The files of the newest version, with every path of their content: a missing or wrong one of several copies is damage
    too."""
    places = {digest.lower(): paths for digest, paths in inventory.manifest.items()}
    entries: list[InventoryFile] = []
    for said, names in inventory.versions[inventory.head].state.items():
        digest = said.lower()
        paths = places[digest]
        if len(names) == len(paths) == 1:
            entries.append(InventoryFile(names[0], paths[0], digest))
        else:
            entries += [InventoryFile(name, path, digest) for name, path in _pairs(names, paths)]
    return entries


def _pairs(names: list[str], paths: list[str]) -> list[tuple[str, str]]:
    """Pairs that contain every name and every path at least once; similar ones are paired."""
    if len(paths) == 1:
        return [(name, paths[0]) for name in names]
    pairs = [(next((name for name in names if path.endswith(f"/{name}")), names[0]), path) for path in paths]
    placed = {name for name, _ in pairs}
    return pairs + [(name, paths[0]) for name in names if name not in placed]
