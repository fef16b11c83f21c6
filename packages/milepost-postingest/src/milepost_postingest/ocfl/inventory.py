"""Inventory of an OCFL object: its versions and their files, and the comparison of an older
version's inventory with the newest. Pure functions; nothing here reads a disk."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from itertools import chain, pairwise
from typing import Any

import msgspec
from msgspec import UNSET, Struct, UnsetType

import milepost as mp
from milepost_postingest.ocfl.layouts import stays_below

NAME = "inventory.json"
DIGESTS = {"sha512": hashlib.sha512, "sha256": hashlib.sha256}
"""The algorithms that OCFL allows for content."""
EMPTY = {name: digest().hexdigest() for name, digest in DIGESTS.items()}
"""The digest of no bytes: exactly the empty files have it."""

_VERSION = re.compile(r"v0*[1-9][0-9]*")
_SPECS = {f"https://ocfl.io/{version}/spec/#inventory": version for version in ("1.0", "1.1")}
_HEX = {name: re.compile(f"[0-9a-f]{{{len(empty)}}}") for name, empty in EMPTY.items()}
_CREATED = re.compile(
    r"\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])T([01]\d|2[0-3]):[0-5]\d:([0-5]\d|60)(\.\d+)?(Z|[+-]([01]\d|2[0-3]):[0-5]\d)",
    re.I,
)


class Unsound(mp.MilepostError):
    """The object violates the OCFL specification. `code` is the specification's error code, `where`
    a path below the object's folder."""

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
        return _SPECS[self.type]


_decoder = msgspec.json.Decoder(Inventory)
_side: dict[str, re.Pattern[bytes]] = {
    name: re.compile(rf"([0-9a-fA-F]{{{len(empty)}}})[ \t]+inventory\.json[ \t\r\n]*".encode())
    for name, empty in EMPTY.items()
}


def decode(data: bytes, where: str) -> Inventory:
    """The inventory, with the right structure and nothing else checked."""
    try:
        return _decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise Unsound(_code_of(error), f"the inventory cannot be read ({error})", where) from error


def checked(inventory: Inventory, object_id: str, where: str) -> Inventory:
    """The inventory with all digests in small letters. Raises Unsound unless it is that of this
    object, and each of its fields is right by itself; `contents` checks the paths."""
    if inventory.id != object_id:
        raise Unsound("E037", f"the inventory is that of another object, {inventory.id!r}", where)
    if inventory.type not in _SPECS:
        raise Unsound(
            "E038",
            f"the inventory's type is {inventory.type!r}, which is neither OCFL 1.0 nor 1.1",
            where,
        )
    if inventory.digest_algorithm not in EMPTY:
        raise Unsound(
            "E025",
            f"the inventory's digestAlgorithm is {inventory.digest_algorithm!r}, expected sha512 or sha256",
            where,
        )
    if "/" in inventory.content_directory or inventory.content_directory in ("", ".", ".."):
        raise Unsound(
            "E017",
            f"the inventory's contentDirectory is {inventory.content_directory!r}, which is no folder's name",
            where,
        )
    _check_versions(inventory, where)
    return _with_small_letters(inventory, where)


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
        return {
            "manifest": "E041",
            "versions": "E041",
            "created": "E048",
            "state": "E048",
            "name": "E054",
        }.get(missing[1], "E036")
    places = (
        (".user", "E054"),
        (".message", "E094"),
        (".created", "E049"),
        (".state", "E050"),
        (".manifest", "E092"),
        (".fixity", "E111"),
    )
    return next(
        (code for name, code in places if name in at), "E046" if ".versions" in at else "E033"
    )


def _check_versions(inventory: Inventory, where: str) -> None:
    """Check that versions are numbered from 1 without a gap, in one notation, and that the head is
    the last."""
    versions = inventory.versions
    if not versions:
        raise Unsound("E008", "the inventory has no version", where)
    last = (
        f"v{len(versions)}"
        if versions.keys() == plain_names(len(versions))
        else _last_version(versions, where)
    )
    if inventory.head != last:
        said = f"the inventory's head is {inventory.head!r}, which is not the last of its versions: {', '.join(versions)}"
        raise Unsound("E040", said, where)
    for name, version in versions.items():
        if _CREATED.fullmatch(version.created) is None:
            raise Unsound(
                "E049",
                f"version {name} was created {version.created!r}, which is no date with time and zone",
                where,
            )


@lru_cache(maxsize=256)
def plain_names(count: int) -> frozenset[str]:
    """The names of so many versions in the usual notation, without zeros."""
    return frozenset(f"v{number}" for number in range(1, count + 1))


def _last_version(versions: Mapping[str, Version], where: str) -> str:
    """The name of the last version, in any notation. Raises Unsound if there is a gap, or another
    notation."""
    numbers: dict[int, str] = {}
    for name in versions:
        if _VERSION.fullmatch(name) is None:
            raise Unsound(
                "E046",
                f"the inventory has a version {name!r}; versions are called v1, v2, …",
                where,
            )
        numbers[int(name[1:])] = name
    if sorted(numbers) != list(range(1, len(versions) + 1)):
        raise Unsound(
            "E010",
            f"the inventory's versions are not numbered from 1 without a gap: {', '.join(versions)}",
            where,
        )
    padded = [name for name in versions if name[1] == "0"]
    if padded and (len(padded) < len(versions) or len({len(name) for name in versions}) > 1):
        said = f"the inventory's versions are not all written with the same number of digits: {', '.join(versions)}"
        raise Unsound("E012", said, where)
    return numbers[len(versions)]


def check_sidecar(data: bytes, sidecar: bytes, algorithm: str, where: str = NAME) -> None:
    """Raise Unsound unless the sidecar holds the digest of these bytes."""
    digest = DIGESTS[algorithm](data).hexdigest()
    if sidecar == f"{digest} {NAME}\n".encode():
        return
    found = _side[algorithm].fullmatch(sidecar)
    if found is None:
        raise Unsound(
            "E061",
            f"the inventory's sidecar does not hold a {algorithm} digest",
            f"{where}.{algorithm}",
        )
    if found[1].decode().lower() != digest:
        raise Unsound(
            "E060",
            f"the inventory does not have the {algorithm} digest that its sidecar says",
            where,
        )


def _with_small_letters(inventory: Inventory, where: str) -> Inventory:
    """The inventory with all digests in small letters. Raises Unsound if one is no digest, occurs
    twice, or has no content."""
    shape, manifest = _HEX[inventory.digest_algorithm], inventory.manifest
    if all(map(shape.fullmatch, manifest)) and all(
        version.state.keys() <= manifest.keys() for version in inventory.versions.values()
    ):
        return inventory
    small: dict[str, list[str]] = {}
    for said, paths in manifest.items():
        digest = said.lower()
        if shape.fullmatch(digest) is None:
            raise Unsound(
                "E025",
                f"the inventory's manifest has {said[:20]!r}, which is no {inventory.digest_algorithm} digest",
                where,
            )
        if digest in small:
            raise Unsound(
                "E096",
                "the inventory's manifest has the same digest twice, in small and capital letters",
                where,
            )
        small[digest] = paths
    versions: dict[str, Version] = {}
    for name, version in inventory.versions.items():
        state: dict[str, list[str]] = {}
        for said, names in version.state.items():
            digest = said.lower()
            if said not in manifest or digest in state:
                files = ", ".join(map(repr, names)) or "a file"
                other_letters = (
                    ", but in other letters" if digest in small and said not in manifest else ""
                )
                raise Unsound(
                    "E050",
                    f"the inventory has no content for {files} (digest {said[:16]}…){other_letters}",
                    where,
                )
            state[digest] = names
        versions[name] = msgspec.structs.replace(version, state=state)
    return msgspec.structs.replace(inventory, manifest=small, versions=versions)


def contents(inventory: Inventory, where: str = NAME) -> dict[str, str]:
    """Every content path with its digest. Raises Unsound if a path leads outside or occurs twice,
    or content is not used."""
    inside = tuple([f"{name}/{inventory.content_directory}/" for name in inventory.versions])
    found: dict[str, str] = {}
    for digest, paths in inventory.manifest.items():
        if not paths:
            raise Unsound(
                "E092",
                f"the inventory's manifest has no content path for the digest {digest[:16]}…",
                where,
            )
        for path in paths:
            if not path.startswith(inside) or not stays_below(path):
                code = (
                    "E042"
                    if stays_below(path)
                    else "E100"
                    if path[:1] == "/" or path[-1:] == "/"
                    else "E099"
                )
                raise Unsound(
                    code,
                    f"the inventory's content path {path!r} is not within the content of one of its versions",
                    where,
                )
            if path in found:
                raise Unsound(
                    "E101",
                    f"the inventory has two digests for the content path {path!r}, or names it twice",
                    where,
                )
            found[path] = digest
    _check_states(inventory, found, where)
    unused = inventory.manifest.keys() - chain.from_iterable(
        [version.state for version in inventory.versions.values()]
    )
    if unused:
        raise Unsound(
            "E107",
            f"no version has the content {min(unused)[:16]}… of the inventory's manifest",
            where,
        )
    if inventory.fixity:
        _check_fixity(inventory.fixity, found, where)
    return found


def _check_states(inventory: Inventory, found: Mapping[str, str], where: str) -> None:
    """Raise Unsound if a logical path leads elsewhere, or two of one version conflict. `found` are
    the content paths, which are sound."""
    before: set[str] = set()
    for version, held in inventory.versions.items():
        if not all(held.state.values()):
            raise Unsound("E050", f"the inventory has a digest without a file in {version}", where)
        listed = [*chain.from_iterable(held.state.values())]
        names = set(listed)
        if len(names) < len(listed):
            twice = Counter(listed).most_common(1)[0][0]
            raise Unsound(
                "E095",
                f"the inventory has two contents for {twice!r} in {version}, or names it twice",
                where,
            )
        # Most versions have the same names as the one before, or all of them as content of their
        # own: then the files on disk, which must all be there, do not conflict either.
        inside = f"{version}/{inventory.content_directory}/"
        if names != before and not found.keys() >= {inside + name for name in names}:
            _check_names(version, names, where)
        before = names


def _check_names(version: str, names: set[str], where: str) -> None:
    for name in names:
        if not stays_below(name):
            code = "E053" if name[:1] == "/" or name[-1:] == "/" else "E052"
            raise Unsound(code, f"the inventory's logical path {name!r} leads elsewhere", where)
    both = _folders(names) & names
    if both:
        raise Unsound(
            "E095",
            f"the inventory has {min(both)!r} in {version} both as a file and as a folder",
            where,
        )


def _folders(names: Iterable[str]) -> set[str]:
    folders: set[str] = set()
    for name in names:
        at = name.rfind("/")
        while at > 0 and (folder := name[:at]) not in folders:
            folders.add(folder)
            at = name.rfind("/", 0, at)
    return folders


def _check_fixity(
    fixity: dict[str, dict[str, list[str]]], known: dict[str, str], where: str
) -> None:
    for algorithm, block in fixity.items():
        if len({digest.lower() for digest in block}) != len(block):
            raise Unsound(
                "E097",
                f"the inventory's fixity block has the same {algorithm} digest twice, in small and capital letters",
                where,
            )
        for path in (path for paths in block.values() for path in paths):
            if path not in known:
                code = (
                    "E093"
                    if stays_below(path)
                    else "E100"
                    if path[:1] == "/" or path[-1:] == "/"
                    else "E099"
                )
                raise Unsound(
                    code,
                    f"the inventory's fixity block has {path!r}, which its manifest does not have",
                    where,
                )


def head_entries(inventory: Inventory) -> list[tuple[str, str, str]]:
    """The files of the newest version in order: content path, logical name, digest. They have every
    path of their content: a missing or wrong one of several copies is damage too."""
    entries: list[tuple[str, str, str]] = []
    for digest, names in inventory.versions[inventory.head].state.items():
        paths = inventory.manifest[digest]
        if len(names) == len(paths) == 1:
            entries.append((paths[0], names[0], digest))
        else:
            entries += [(path, name, digest) for name, path in _pairs(names, paths)]
    entries.sort()
    return entries


def _pairs(names: list[str], paths: list[str]) -> list[tuple[str, str]]:
    """Pairs that contain every name and every path at least once; similar ones are paired."""
    if len(paths) == 1:
        return [(name, paths[0]) for name in names]
    pairs = [
        (next((name for name in names if path.endswith(f"/{name}")), names[0]), path)
        for path in paths
    ]
    placed = {name for name, _ in pairs}
    return pairs + [(name, paths[0]) for name in names if name not in placed]


# An older version's inventory ---------------------------------------------------------------------
def check_older(older: Inventory, version: str, inventory: Inventory, where: str) -> dict[str, str]:
    """Raise Unsound unless the inventory in an older version's folder is right, and agrees with the
    newest one, which has been checked. Returns its content paths with their digests, if they are
    other digests than the newest one has."""
    if older.head == version and _is_part(older, inventory):
        return {}
    older = checked(older, inventory.id, where)
    if older.head != version:
        raise Unsound(
            "E040", f"the inventory in {version} says that it is that of {older.head}", where
        )
    return _compare(older, inventory, where)


def _is_part(older: Inventory, inventory: Inventory) -> bool:
    """Whether the newest inventory contains all of the older one, word for word, and its versions
    have the usual names. Then nothing need be checked twice."""
    count = len(older.versions)
    return (
        older.head == f"v{count}"
        and older.versions.keys() == plain_names(count)
        and older.versions.items() <= inventory.versions.items()
        and older.manifest.items() <= inventory.manifest.items()
        and older.manifest.keys()
        == set().union(*[version.state for version in older.versions.values()])
        and all(map(_within(count), chain.from_iterable(older.manifest.values())))
        and not any(map(_within(count), _paths_of_others(older, inventory)))
        and older.id == inventory.id
        and older.type == inventory.type
        and older.digest_algorithm == inventory.digest_algorithm
        and older.content_directory == inventory.content_directory
        and not older.fixity
    )


def _paths_of_others(older: Inventory, inventory: Inventory) -> Iterable[str]:
    """The newest inventory's content paths of digests that the older one does not have."""
    return chain.from_iterable(
        paths for digest, paths in inventory.manifest.items() if digest not in older.manifest
    )


@lru_cache(maxsize=256)
def _within(count: int) -> Callable[[str], bool]:
    """Whether a content path is in one of the first versions, so many."""
    prefixes = tuple(f"{name}/" for name in plain_names(count))
    return lambda path: path.startswith(prefixes)


def check_order(specs: Iterable[tuple[str, str]]) -> None:
    """Raise Unsound if the specification of a version is older than that of the version before.
    `specs` are names and specifications, in the order of the versions."""
    for (_, before), (name, spec) in pairwise(specs):
        if before > spec:
            raise Unsound(
                "E103",
                f"the inventory is of OCFL {spec}, and that of an earlier version of {before}",
                f"{name}/{NAME}",
            )


def _compare(older: Inventory, inventory: Inventory, where: str) -> dict[str, str]:
    if older.content_directory != inventory.content_directory:
        raise Unsound(
            "E020",
            f"the contentDirectory is {older.content_directory!r}, and later {inventory.content_directory!r}",
            where,
        )
    if older.spec > inventory.spec:
        raise Unsound(
            "E103",
            f"the inventory is of OCFL {older.spec}, and a later one of {inventory.spec}",
            where,
        )
    same = older.digest_algorithm == inventory.digest_algorithm
    known = contents(older, where)
    newer = {path: digest for digest, paths in inventory.manifest.items() for path in paths}
    for path, digest in known.items():
        if path not in newer:
            raise Unsound(
                "E023",
                f"the content {path!r} of an older inventory is not in the newest one",
                where,
            )
        if same and newer[path] != digest:
            raise Unsound(
                "E092",
                f"the content {path!r} has another digest than in the newest inventory",
                where,
            )
    own = tuple(f"{name}/" for name in older.versions)
    forgotten = [path for path in newer if path not in known and path.startswith(own)]
    if forgotten:
        raise Unsound(
            "E023",
            f"the inventory does not have the content {min(forgotten)!r} of its versions",
            where,
        )
    for name, version in older.versions.items():
        later = inventory.versions.get(name)
        if later is None or (
            later.state != version.state
            and _shape(version, older, same) != _shape(later, inventory, same)
        ):
            raise Unsound(
                "E066", f"version {name} does not hold the same as in the newest inventory", where
            )
    return {} if same else known


def _shape(version: Version, inventory: Inventory, same: bool) -> dict[str, Any]:
    """Content of a version, for comparison: by digest, or, if the algorithms differ, by the first
    path of each content."""
    manifest = inventory.manifest
    return {
        digest if same else min(manifest[digest]): sorted(names)
        for digest, names in version.state.items()
    }
